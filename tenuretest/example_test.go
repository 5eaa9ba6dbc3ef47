package tenuretest_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/tenuretest"
)

// errSuperseded is the board's answer to a request from a former owner.
var errSuperseded = errors.New("a later owner has written to the board")

// board is a service outside the store. It shows the number of the last order, which must never go
// back.
type board struct {
	fenced bool
	token  core.Token
	number int
	wrong  error
}

// show is the effect. A board with a fence refuses requests from a former owner.
func (b *board) show(token core.Token, number int) error {
	if b.fenced && token < b.token {
		return errSuperseded
	}
	b.token = max(b.token, token)
	if number < b.number {
		b.wrong = fmt.Errorf("the board goes back from order %d to %d", b.number, number)
	}
	b.number = number
	return nil
}

// serve is the application's handler. It numbers orders under the fence, and shows each number on
// the board.
func serve(ctx context.Context, m *tenuretest.Member, b *board, lease *core.Lease) error {
	last := 0
	item, err := lease.Get(ctx, "last")
	if err != nil {
		return err
	}
	if item != nil {
		if last, err = strconv.Atoi(string(item.Value)); err != nil {
			return err
		}
	}
	for {
		if _, err := lease.Commit(ctx, core.Put("last", []byte(strconv.Itoa(last+1)))); err != nil {
			return err
		}
		last++
		if err := lease.Err(); err != nil { // this check is no fence
			return err
		}
		err := m.Do(ctx, func() error { return b.show(lease.Token(), last) })
		if err != nil && !errors.Is(err, tenuretest.ErrNoReply) {
			return err
		}
		select {
		case <-time.After(30 * time.Millisecond):
		case <-ctx.Done():
			return nil
		}
	}
}

// run is the main function of the application.
func run(ctx context.Context, m *tenuretest.Member, b *board) error {
	e, err := core.NewElector(m.Backend(), m.Options())
	if err != nil {
		return err
	}
	err = e.Contend(func(ctx context.Context, lease *core.Lease) error { return serve(ctx, m, b, lease) }, "orders")
	if err != nil {
		return err
	}
	return e.Run(ctx)
}

// orders is the scenario. In the control, the board has no fence.
func orders(w *tenuretest.World) {
	b := &board{fenced: !w.Control()}
	w.Start(3, func(ctx context.Context, m *tenuretest.Member) error { return run(ctx, m, b) })
	w.Play()
	var before int
	w.Look(func() { before = b.number })
	w.Await("orders after the faults", func() bool { return b.number > before+10 })
	w.Stop()
	if b.wrong != nil {
		w.Errorf("%v", b.wrong)
	}
}

// This example runs an application's handler under faults. The first test passes because the board
// has a fence. The second passes because, without the fence, the orders go wrong.
func Example() {
	testOrders := func(t *testing.T) { tenuretest.Run(t, nil, orders) }
	testOrdersControl := func(t *testing.T) { tenuretest.Control(t, &tenuretest.Options{Seeds: 100}, orders) }
	_, _ = testOrders, testOrdersControl
}
