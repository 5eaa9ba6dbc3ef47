//go:build !linux

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/tenure-go/tenure/core"
)

func guard([]string, io.Writer) int { return exitUsage }

// Only Linux can end a process whose parent dies.
func (r *runner) handle(context.Context, *core.Lease) error {
	err := fmt.Errorf("run: %w: it needs Linux", core.ErrUnsupported)
	r.end(err)
	return err
}

func (r *runner) adopt() error { return nil }
