package main

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/harness"
	"github.com/tenure-go/tenure/internal/proof/intercept"
)

// fakeStore answers commits from a script. Its other methods are not called.
type fakeStore struct {
	core.Backend
	answers []driver.CommitResult
	writes  []driver.Write
	ctxErr  []error
}

func (f *fakeStore) Join(context.Context, core.Member) (driver.Session, error) {
	return fakeSession{f: f}, nil
}

type fakeSession struct {
	driver.Session
	f *fakeStore
}

func (s fakeSession) Beat(context.Context) error { return nil }

func (s fakeSession) Commit(ctx context.Context, writes []driver.Write) ([]driver.CommitResult, error) {
	s.f.writes = append(s.f.writes, writes...)
	s.f.ctxErr = append(s.f.ctxErr, ctx.Err())
	out := s.f.answers[:len(writes)]
	s.f.answers = s.f.answers[len(writes):]
	return out, nil
}

func writeOf(airport string, token, count int) driver.Write {
	d := decision{Departure: 100 + count, Count: count, Token: int64(token)}
	return driver.Write{
		Fence:  core.Fence{Shard: core.ShardID(airport), Session: "old", Token: core.Token(token)},
		Number: driver.WriteNo(count), Nonce: 1,
		Ops: []core.Op{core.Append(d.encode())},
	}
}

func next[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(ample.Time):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// TestGate: a held write is sent even if its context has ended.
func TestGate(t *testing.T) {
	t.Parallel()
	refused := &core.FencedError{Fence: core.Fence{Shard: "ATL", Token: 41},
		Current: driver.Owner{Session: "new", Token: 57}}
	f := &fakeStore{answers: []driver.CommitResult{{}, {Err: refused}, {}, {}}}
	events := make(chan event, 10)
	g := newGate(func(e event) { events <- e })
	s, err := intercept.Wrap(f, g.Around).Join(t.Context(), core.Member{})
	if err != nil {
		t.Fatal(err)
	}
	g.Hold("ATL", harness.BeforeSend)
	if _, err := s.Commit(t.Context(), []driver.Write{writeOf("BOS", 3, 1)}); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan []driver.CommitResult, 1)
	go func() {
		res, _ := s.Commit(ctx, []driver.Write{writeOf("ATL", 41, 133)})
		done <- res
	}()
	held := next(t, events)
	if want := []write{{Airport: "ATL", Token: 41, Departure: 233, Count: 133}}; held.Is != isHeld ||
		!reflect.DeepEqual(held.Writes, want) {
		t.Errorf("held %+v, want %+v", held, want)
	}
	behind := make(chan error, 1)
	go func() {
		_, err := s.Commit(ctx, []driver.Write{writeOf("DEN", 5, 9)})
		behind <- err
	}()
	beaten := make(chan error, 1)
	go func() { beaten <- s.Beat(t.Context()) }()
	ample.Wait(t, "the heartbeat and the other write do not wait at the gate", func() bool {
		return waitingAtGate("TestGate.") == 2 || len(beaten)+len(done)+len(behind) > 0
	})
	select {
	case <-beaten:
		t.Error("a heartbeat passed the gate while a write was held")
	case <-done:
		t.Error("the write was not held")
	case <-behind:
		t.Error("another write passed the gate while one was held")
	default:
	}
	cancel()
	g.Send()
	if res := next(t, done); !errors.Is(res[0].Err, core.ErrFenced) {
		t.Errorf("got %v, want the store's answer", res[0].Err)
	}
	if err := next(t, beaten); err != nil {
		t.Error(err)
	}
	if err := next(t, behind); err != nil {
		t.Error(err)
	}
	if f.ctxErr[1] != nil {
		t.Errorf("the write was sent with a context that had ended: %v", f.ctxErr[1])
	}
	answered := next(t, events)
	if w := answered.Writes[0]; answered.Is != isAnswered || w.Outcome != wasRefused || w.Current != 57 {
		t.Errorf("answered %+v", answered)
	}
	if e := next(t, events); e.Is != isAnswered || e.Writes[0].Airport != "DEN" || e.Writes[0].Outcome != wasAccepted ||
		f.ctxErr[2] != nil {
		t.Errorf("the write that waited behind: %+v, sent with %v", e, f.ctxErr[2])
	}
	if _, err := s.Commit(t.Context(), []driver.Write{writeOf("ATL", 41, 134)}); err != nil || len(events) != 0 {
		t.Errorf("a later write: error %v, %d events, want it to pass in silence", err, len(events))
	}
}

// waitingAtGate returns the number of a test's goroutines that wait for the gate's lock.
func waitingAtGate(test string) (n int) {
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 2); err != nil {
		panic(err) // a buffer takes all
	}
	for one := range strings.SplitSeq(all.String(), "\n\n") {
		if strings.Contains(one, "RWMutex).RLock") && strings.Contains(one, test) {
			n++
		}
	}
	return n
}

// TestGateTellsAirportsOnly: the gate does not report refused plans of a zombie assigner, because
// its reports are about departures.
func TestGateTellsAirportsOnly(t *testing.T) {
	t.Parallel()
	f := &fakeStore{answers: []driver.CommitResult{{}, {Err: &core.FencedError{}}, {Err: &core.FencedError{}}}}
	events := make(chan event, 10)
	g := newGate(func(e event) { events <- e })
	s, err := intercept.Wrap(f, g.Around).Join(t.Context(), core.Member{})
	if err != nil {
		t.Fatal(err)
	}
	g.Hold("ATL", harness.BeforeSend)
	done := make(chan error, 1)
	go func() {
		_, err := s.Commit(t.Context(), []driver.Write{writeOf("_assigner", 2, 1), writeOf("ATL", 41, 133)})
		done <- err
	}()
	if e := next(t, events); e.Is != isHeld || len(e.Writes) != 1 || e.Writes[0].Airport != "ATL" {
		t.Errorf("held %+v, want the write of ATL", e)
	}
	g.Send()
	if err := next(t, done); err != nil {
		t.Fatal(err)
	}
	if e := next(t, events); e.Is != isAnswered || len(e.Writes) != 1 || e.Writes[0].Airport != "ATL" ||
		e.Writes[0].Outcome != wasRefused {
		t.Errorf("answered %+v, want the refusal of ATL's write", e)
	}
}

// TestUnfencedLeavesPlans: the control never overrides the fence of a shard that belongs to Tenure.
func TestUnfencedLeavesPlans(t *testing.T) {
	t.Parallel()
	f := &fakeStore{answers: []driver.CommitResult{{Err: &core.FencedError{Current: driver.Owner{Session: "new", Token: 57}}}}}
	s, err := harness.Unfenced(f).Join(t.Context(), core.Member{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Commit(t.Context(), []driver.Write{writeOf("_assigner", 2, 1)})
	if err != nil || !errors.Is(res[0].Err, core.ErrFenced) || len(f.writes) != 1 {
		t.Errorf("got %+v, %v after %d writes, want the refusal of one", res, err, len(f.writes))
	}
}

// TestUnfenced: the control overrides a dead fence and a taken number, and nothing else.
func TestUnfenced(t *testing.T) {
	t.Parallel()
	current := driver.Owner{Session: "new", Token: 57}
	other := &core.ConflictError{Shard: "ATL", Op: 0}
	f := &fakeStore{answers: []driver.CommitResult{
		{Err: &core.FencedError{Current: current}}, {Err: other},
		{Err: &core.ConflictError{Shard: "ATL", Op: driver.NumberConflict, Head: core.Head{Number: 140}}},
		{Head: core.Head{Number: 141}},
	}}
	s, err := harness.Unfenced(f).Join(t.Context(), core.Member{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Commit(t.Context(), []driver.Write{writeOf("ATL", 41, 133), writeOf("BOS", 3, 1)})
	if err != nil {
		t.Fatal(err)
	}
	if res[0].Err != nil || res[0].Head.Number != 141 {
		t.Errorf("the zombie's write: got %+v, want it accepted as number 141", res[0])
	}
	if !errors.Is(res[1].Err, core.ErrConflict) {
		t.Errorf("a failed precondition: got %v, want it to stay", res[1].Err)
	}
	last := f.writes[len(f.writes)-1]
	if want := (core.Fence{Shard: "ATL", Session: "new", Token: 57}); last.Fence != want || last.Number != 141 {
		t.Errorf("sent again as %+v number %d, want %+v number 141", last.Fence, last.Number, want)
	}
	if got := seen([]driver.Write{last})[0]; got.Count != 133 {
		t.Errorf("the decision was changed: %+v", got)
	}
}
