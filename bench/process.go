package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"

	"github.com/tenure-go/tenure/internal/proof/harness"
)

// This environment variable makes a process a member.
const memberVariable = "TENURE_BENCH_MEMBER"

// A member process reads its orders from the first line of its input.
type orders struct {
	Store, Contender string
	At               place
	Shard            string
}

type report struct{ Held bool }

// memberProcess owns the shard until its input ends or the process is killed.
func memberProcess(ctx context.Context) (err error) {
	in := harness.NewReader(os.Stdin)
	var o orders
	if err := in.Read(&o); err != nil {
		return err
	}
	c, err := find(o.Store, o.Contender)
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	o.At.fail = fail
	m, err := c.join(ctx, o.At)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	out := harness.NewWriter(os.Stdout)
	if err := m.want([]string{o.Shard}, func(grant) { fail(out.Write(report{Held: true})) }); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- in.Read(new(report)) }()
	if err := <-ended; !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func find(storeName, name string) (contender, error) {
	for _, s := range stores() {
		if i := slices.IndexFunc(s.contenders, func(c contender) bool { return c.name == name }); s.name == storeName && i >= 0 {
			return s.contenders[i], nil
		}
	}
	return contender{}, fmt.Errorf("store %q has no contender %q", storeName, name)
}

// holder starts a member process and returns when it owns the shard.
func holder(ctx context.Context, o orders) (*harness.Process, error) {
	held := make(chan struct{}, 1)
	p, err := harness.Start(o.At.Node, memberVariable, o, (*exec.Cmd).Start, func(r *harness.Reader) {
		for line := range harness.All[report](r) {
			if line.Held {
				held <- struct{}{}
				return
			}
		}
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-held:
		return p, nil
	case <-p.Done():
		return nil, fmt.Errorf("the member process ended: %w", p.Err())
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), p.Kill())
	}
}
