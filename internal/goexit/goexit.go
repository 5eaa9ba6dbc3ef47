// Package goexit calls application functions that may end their goroutine with runtime.Goexit, as
// t.FailNow does. The goroutine of Tenure that makes the call continues.
package goexit

import (
	"context"
	"errors"
	"log/slog"
)

// Err means that a function ended its goroutine with runtime.Goexit.
var Err = errors.New("tenure: the function ended its goroutine by runtime.Goexit, as t.FailNow does: have it return an error")

// Call calls f in another goroutine, and waits for the goroutine to end. Call returns the error of
// f, or Err. A panic in f ends the process.
func Call(f func() error) error {
	done := make(chan error, 1)
	go func() {
		err := Err
		defer func() {
			if p := recover(); p != nil {
				panic(p) // before the caller continues; the trace still has f's frames
			}
			done <- err
		}()
		err = f()
	}()
	return <-done
}

// Told returns a function that calls f through Call. If f is nil, Told returns nil.
func Told[T any](f func(T)) func(T) {
	if f == nil {
		return nil
	}
	return func(x T) { _ = Call(func() error { f(x); return nil }) }
}

// Logger returns a Logger that calls the handler of l through Call.
func Logger(l *slog.Logger) *slog.Logger { return slog.New(handler{l.Handler()}) }

type handler struct{ slog.Handler }

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	return Call(func() error { return h.Handler.Handle(ctx, r) })
}

func (h handler) WithAttrs(a []slog.Attr) slog.Handler { return handler{h.Handler.WithAttrs(a)} }

func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }
