package intercept

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
)

// TestEveryMethod calls each method of the wrapped interfaces, except those that pass through. A
// method that is not intercepted would panic.
func TestEveryMethod(t *testing.T) {
	t.Parallel()
	lost := errors.New("lost")
	var seen []Op
	around := func(_ context.Context, c *Call, _ func(context.Context) error) error {
		seen = append(seen, c.Op)
		return lost
	}
	through := []string{"Info", "ID"}
	for _, v := range []reflect.Value{
		reflect.ValueOf(&backend{Backend: plainBackend{}, around: around}),
		reflect.ValueOf(&session{Session: plainSession{}, around: around}),
	} {
		kind := reflect.TypeFor[driver.Session]()
		if v.Type() == reflect.TypeFor[*backend]() {
			kind = reflect.TypeFor[driver.Backend]()
		}
		for i := range kind.NumMethod() {
			m := kind.Method(i)
			if slices.Contains(through, m.Name) || m.Name == "Close" && m.Type.NumIn() == 0 {
				continue
			}
			in := []reflect.Value{reflect.ValueOf(t.Context())}
			for arg := 1; arg < m.Type.NumIn(); arg++ {
				in = append(in, reflect.Zero(m.Type.In(arg)))
			}
			out := v.MethodByName(m.Name).Call(in)
			if err, _ := out[len(out)-1].Interface().(error); !errors.Is(err, lost) {
				t.Errorf("%s of %v answers %v, want the error of around", m.Name, v.Type(), err)
			}
		}
	}
	want := []Op{Get, Join, List, Observe, ReadLog, TailLog, Acquire, Beat, Close, Commit, Evict, Release, Transfer, Update}
	if !slices.Equal(seen, want) {
		t.Errorf("intercepted %v, want %v", seen, want)
	}
}

func pass(ctx context.Context, _ *Call, proceed func(context.Context) error) error {
	return proceed(ctx)
}

// plain hides the optional interfaces of the value that it embeds.
type (
	plainBackend struct{ driver.Backend }
	plainSession struct{ driver.Session }
)

func (b plainBackend) Join(ctx context.Context, m driver.Member) (driver.Session, error) {
	s, err := b.Backend.Join(ctx, m)
	return plainSession{s}, err
}

// TestOptional: a wrapper has exactly the optional interfaces of the wrapped value.
func TestOptional(t *testing.T) {
	t.Parallel()
	inner, err := memory.Open(t.Context(), memory.New(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	for name, b := range map[string]driver.Backend{"with": inner, "without": plainBackend{inner}} {
		w := Wrap(Wrap(b, pass), pass)
		s, err := w.Join(t.Context(), driver.Member{Session: driver.SessionID(name), Node: name, TTL: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		_, lists := w.(driver.LabelLister)
		_, explains := s.(driver.Explainer)
		if want := name == "with"; lists != want || explains != want {
			t.Errorf("%s the optional interfaces: LabelLister %v, Explainer %v", name, lists, explains)
		}
	}
}

// TestArgumentsAndResults changes the arguments and the results of a call. It also makes a call
// after the caller has given up and changed the arguments.
func TestArgumentsAndResults(t *testing.T) {
	t.Parallel()
	inner, err := memory.Open(t.Context(), memory.New(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	lost := errors.New("lost")
	late := make(chan func(context.Context) error, 1)
	b := Wrap(inner, func(ctx context.Context, c *Call, proceed func(context.Context) error) error {
		switch c.Op {
		case Join:
			c.Member.Node = "changed"
		case Get:
			c.Item = &driver.Item{Key: c.Key}
			return nil
		case Commit:
			late <- proceed
			return lost
		}
		return proceed(ctx)
	})
	s, err := b.Join(t.Context(), driver.Member{Session: "a", Node: "n", TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	v, err := b.Observe(t.Context(), driver.ObserveQuery{})
	if err != nil || len(v.Members) != 1 || v.Members[0].Node != "changed" {
		t.Errorf("observed %+v, %v", v, err)
	}
	if item, err := b.Get(t.Context(), "s", "k"); err != nil || item.Key != "k" {
		t.Errorf("got %+v, %v", item, err)
	}
	res, err := s.Acquire(t.Context(), []driver.Claim{{Shard: "s"}})
	if err != nil || res[0].Err != nil {
		t.Fatal(err, res)
	}
	w := []driver.Write{{Fence: res[0].Fence, Number: 1, Nonce: 1,
		Ops: []driver.Op{{Kind: driver.OpAppend, Value: []byte("x")}}}}
	if got, err := s.Commit(t.Context(), w); !errors.Is(err, lost) || got != nil {
		t.Errorf("committed %+v, %v", got, err)
	}
	w[0].Number, w[0].Ops[0] = 7, driver.Op{}
	if err := (<-late)(t.Context()); err != nil {
		t.Fatal(err)
	}
	page, err := b.ReadLog(t.Context(), "s", 0, 10)
	if err != nil || len(page.Entries) != 1 || string(page.Entries[0].Payload) != "x" {
		t.Errorf("read %+v, %v", page, err)
	}
}
