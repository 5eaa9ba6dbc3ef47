// Package loglines lets tests read the failures that Tenure logs.
package loglines

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
)

// Failures returns a Logger that calls f for each line at Warn or above whose message begins with
// prefix. Failures passes the error in the attribute "error" to f. If the attribute is missing, f
// gets an error with the line's message. All other lines go to slog.Default. Several goroutines may
// call f.
func Failures(prefix string, f func(error)) *slog.Logger { return slog.New(handler{prefix, f, nil}) }

type handler struct {
	prefix string
	f      func(error)
	attrs  []slog.Attr
}

func (h handler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn || slog.Default().Enabled(ctx, l)
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn || !strings.HasPrefix(r.Message, h.prefix) {
		line := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
		line.AddAttrs(h.attrs...)
		r.Attrs(func(a slog.Attr) bool { line.AddAttrs(a); return true })
		return slog.Default().Handler().Handle(ctx, line)
	}
	err := errors.New(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		if found, ok := a.Value.Any().(error); ok && a.Key == "error" {
			err = found
		}
		return true
	})
	h.f(err)
	return nil
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.prefix, h.f, slices.Concat(h.attrs, attrs)}
}

// WithGroup ignores the group, and returns h.
func (h handler) WithGroup(string) slog.Handler { return h }
