package servers

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

//go:embed flush/flush.c
var flushSource string

// prepareFlush compiles the library that slows down file flushes.
func (l *local) prepareFlush(ctx context.Context) error {
	cc, err := exec.LookPath("cc")
	if err != nil {
		return unavailable(l.kind, "Options.SlowFlush needs a C compiler, cc: install one")
	}
	cmd := exec.CommandContext(ctx, cc, "-shared", "-fPIC", "-O1", "-o", l.path("conf", "flush.so"), "-x", "c", "-")
	cmd.Stdin = strings.NewReader(flushSource)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cc failed: %w: %s", err, tail(out, 2048))
	}
	if err := l.own(l.path("conf", "flush.so")); err != nil {
		return err
	}
	_, err = l.write("flush", string(make([]byte, 8)))
	return err
}

// flushEnvironment returns the environment in which the server's processes load the library.
func (l *local) flushEnvironment() []string {
	if !l.opts.SlowFlush {
		return nil
	}
	return []string{"LD_PRELOAD=" + l.path("conf", "flush.so"), "TENURE_FLUSH=" + l.path("conf", "flush")}
}

func (l *local) slowFlush(d time.Duration) (flushes func() (uint32, error), err error) {
	if !l.opts.SlowFlush {
		return nil, errors.New("it was started without Options.SlowFlush")
	}
	path := l.path("conf", "flush") // it is mapped, and so never replaced
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	_, err = f.WriteAt(binary.NativeEndian.AppendUint32(nil, uint32(d.Microseconds())), 0)
	return func() (uint32, error) {
		b, err := os.ReadFile(path)
		if err == nil && len(b) != 8 {
			err = fmt.Errorf("%d bytes, want 8", len(b))
		}
		if err != nil {
			return 0, fmt.Errorf("tenure: counting flushes: %w", err)
		}
		return binary.NativeEndian.Uint32(b[4:]), nil
	}, errors.Join(err, f.Close())
}
