package quorum

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// onePort is etcd's warning that clients' gRPC and HTTP share a port. Members' clients use gRPC only.
const onePort = "Running http and grpc server on single port. This is not recommended for production."

// maxField is the number of bytes of a field that are logged.
const maxField = 500

// sink passes etcd's log to a slog.Logger. It is safe for concurrent use.
type sink struct {
	zapcore.LevelEnabler
	to      *slog.Logger
	closing *atomic.Bool
}

// logger returns etcd's logger, which writes to l only. Once closing is true, etcd's messages about
// its own end have level Debug. If etcd can no longer keep its data, for example on a full disk,
// etcd logs the reason at level Error, and the logger ends the process.
func logger(l *slog.Logger, closing *atomic.Bool) *zap.Logger {
	c := zapcore.NewSamplerWithOptions(&sink{zapcore.WarnLevel, l, closing}, time.Second, 10, 0)
	return zap.New(c, zap.ErrorOutput(zapcore.AddSync(io.Discard)))
}

func (c *sink) With(fields []zapcore.Field) zapcore.Core {
	return &sink{c.LevelEnabler, c.to.With(attributes(fields)...), c.closing}
}

func (c *sink) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) && e.Message != onePort {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c *sink) Write(e zapcore.Entry, fields []zapcore.Field) error {
	level := slog.LevelWarn
	switch {
	case e.Level > zapcore.ErrorLevel:
		level = slog.LevelError
	case c.closing.Load():
		level = slog.LevelDebug
	case e.Level > zapcore.WarnLevel:
		level = slog.LevelError
	}
	c.to.Log(context.Background(), level, "etcd: "+e.Message, attributes(fields)...)
	return nil
}

func (c *sink) Sync() error { return nil }

func attributes(fields []zapcore.Field) (all []any) {
	for _, f := range fields {
		m := zapcore.NewMapObjectEncoder()
		f.AddTo(m)
		for k, v := range m.Fields {
			if s, ok := v.(string); ok && len(s) > maxField { // a request, for example
				v = s[:maxField] + "..."
			}
			all = append(all, slog.Any(k, v))
		}
	}
	return all
}
