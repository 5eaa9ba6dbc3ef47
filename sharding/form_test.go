package sharding

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/loglines"
	"github.com/tenure-go/tenure/sharding/assign"
)

type said struct {
	mu  sync.Mutex
	all []string
}

func (s *said) add(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, err.Error())
}

func (s *said) of(text string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.all {
		if strings.Contains(e, text) {
			n++
		}
	}
	return n
}

// formed returns a member of the keyspace "orders", of this version or the next version.
func formed(w *world, node string, d *divider, s *said, newer bool) *member {
	return formedTaking(w, node, d, s, newer, nil)
}

func formedTaking(w *world, node string, d *divider, s *said, newer bool, take Take) *member {
	return w.member(node, func(m *member, o *Options) {
		o.Shards, o.Keyspace, o.Assigner, o.Logger = nil, Keyspace{Name: "orders", Shards: 2}, d, loglines.Failures("tenure: sharding: trying", s.add)
		o.Loads = func(context.Context) (map[string]float64, error) { return nil, nil }
		m.handler = func(ctx context.Context, lease *core.Lease) error { return open(take)(m, ctx, lease) }
		m.newer = newer
	})
}

// foreign replaces the log of plans under the assigner's lease.
func foreign(w *world, payload []byte, trimAll bool) {
	w.Helper()
	b := w.build("foreign")
	b.ran <- nil
	wrote := make(chan error, 1)
	if err := b.e.Contend(func(ctx context.Context, l *core.Lease) error {
		seq, err := l.Append(ctx, payload)
		if err == nil && !trimAll {
			seq--
		}
		if err == nil {
			_, err = l.Commit(ctx, core.Trim(seq))
		}
		wrote <- err
		<-ctx.Done()
		return nil
	}, assigner); err != nil {
		w.Fatal(err)
	}
	if err := <-wrote; err != nil {
		w.Fatal(err)
	}
	b.crash()
	w.members = w.members[:len(w.members)-1]
}

// split splits orders-0000, and waits until no change is in progress.
func split(w *world, a *member) {
	w.Helper()
	w.await("the split", 20*ttl, func() bool {
		return a.Map().Len() == 3 && a.slice("orders-0002") != nil && len(a.assigned().changes) == 0
	})
}

// TestPlansNotUnderstood: if members cannot understand a keyspace's plans, no member begins the
// keyspace again or trims entries that it cannot read. Each member reports an error every minute
// and does not plan. Members that know the ranges continue to serve them.
func TestPlansNotUnderstood(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		payload []byte
		trimAll bool
	}{
		{"NewerForm", []byte{formVersion + 1, 9, 0, 1, 1, 2, 3}, false},
		{"OlderForm", []byte{formVersion - 1, 9, 0, 1, 1, 2, 3}, false},
		{"Damaged", []byte{formVersion, 9, 0, 1, 0xff}, false},
		{"Empty", nil, false},
		{"NoBase", []byte{formVersion, 9, 1, 2, 1}, false},
		{"Trimmed", []byte("x"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(w *world) {
				var fresh, kept said
				d := &divider{splits: map[string][]uint64{"orders-0000": {1 << 60}}}
				a := formed(w, "a", d, &kept, false)
				split(w, a)
				d.ask(map[string][]uint64{"orders-0001": {1<<63 + 1}}, nil)
				if err := a.e.Withdraw(w.Context(), assigner); err != nil {
					w.Error(err)
				}
				foreign(w, c.payload, c.trimAll)
				before, err := a.b.ReadLog(w.Context(), assigner, 0, 10)
				_ = err // the entry was trimmed

				b := formed(w, "b", d, &fresh, false)
				const minutes = 10
				was, _ := a.e.View().Owner(assigner)
				time.Sleep(minutes * time.Minute)
				for _, s := range []*said{&fresh, &kept} {
					if n := s.of("nothing is planned"); n < minutes-1 || n > minutes+1 {
						t.Errorf("said %d times in %d minutes: %q", n, minutes, s.all)
					}
				}
				if b.Map() != nil || a.Map().Len() != 3 {
					t.Errorf("the ranges: %v, and %v of the member that knows them", b.Map(), a.Map())
				}
				for _, key := range []string{keyIn(a, assign.Range{From: 0, To: 1 << 60}), keyIn(a, assign.Range{From: 1 << 60, To: 1 << 63}), keyIn(a, assign.Range{From: 1 << 63, To: 0})} {
					if s := a.slice(a.Map().Shard(key)); s == nil || s.Check(key) != nil {
						t.Errorf("nobody serves %s", key)
					}
				}
				if o, _ := a.e.View().Owner(assigner); o.Node != "" || o.Token > was.Token+2 {
					t.Errorf("the assigner's shard is %+v, and was %+v: those that do not understand the plans contend for it", o, was)
				}
				after, err := a.b.ReadLog(w.Context(), assigner, 0, 10)
				if fmt.Sprint(before) != fmt.Sprint(after) {
					t.Errorf("the log was %v, and is %v: %v", before, after, err)
				}
			})
		})
	}
}

// TestRollingForm: while ranges are split, a version with the next form of plans replaces the
// members one by one. The old version then replaces them again. Every member always knows every
// plan. The newer form is written only while all members can read it.
func TestRollingForm(t *testing.T) {
	bubble(t, func(w *world) {
		var s said
		d := &divider{}
		highest := func() (form byte) {
			page, err := w.members[len(w.members)-1].b.ReadLog(w.Context(), assigner, 0, 1000)
			for after := core.Seq(0); err != nil && after < 1000; after++ {
				page, err = w.members[len(w.members)-1].b.ReadLog(w.Context(), assigner, after, 1000)
			}
			if err != nil {
				w.Fatal(err)
			}
			for _, e := range page.Entries {
				form = max(form, e.Payload[0])
			}
			return form
		}
		ranges := 2
		divide := func(live []*member) {
			w.Helper()
			at := uint64(ranges) << 50
			owner := live[0].Map().ShardOf(at)
			d.ask(map[string][]uint64{owner: {at}}, nil)
			ranges++
			w.await("the split on every member", 60*ttl, func() bool {
				for _, m := range live {
					if m.Map().Len() != ranges || len(m.assigned().changes) > 0 {
						return false
					}
				}
				return true
			})
		}
		live := []*member{formed(w, "m0", d, &s, false), formed(w, "m1", d, &s, false), formed(w, "m2", d, &s, false)}
		w.await("the first plan", 20*ttl, func() bool { return live[2].Map() != nil })
		divide(live)
		for n, newer := range []bool{true, true, true, false, false, false} {
			live = append(live[1:], formed(w, fmt.Sprintf("m%d", n+3), d, &s, newer))
			time.Sleep(10 * ttl)
			if err := w.members[n].leaveNow(); err != nil {
				w.Error(err)
			}
			w.await("the map", 20*ttl, func() bool { return live[2].Map() != nil })
			divide(live)
			want := byte(formVersion)
			if n == 2 {
				want++
			}
			if form := highest(); form > want {
				w.Errorf("after %d members were replaced the log has form %d", n+1, form)
			} else if n == 2 && form < want {
				w.Errorf("all members read form %d, and the plans have form %d", want, form)
			}
			if n == 1 { // the next assigner writes both forms
				to := live[2].e.View()
				for _, m := range live[:2] {
					if o, _ := to.Owner(assigner); o.Node == m.e.View().Node {
						if err := m.e.HandOver(w.Context(), to.Session, assigner); err != nil {
							w.Error(err)
						}
					}
				}
			}
		}
		time.Sleep(2 * time.Minute)
		for h := range uint64(64) {
			served := false
			for _, m := range live {
				sl := m.slice(m.Map().ShardOf(h << 58))
				served = served || sl != nil && sl.serving.Load().has.Has(h<<58)
			}
			if !served {
				w.Errorf("nobody serves hash %x", h<<58)
			}
		}
		if n := s.of("planned"); n > 1 { // the first member that reads only the older form, until a base is written
			w.Errorf("said %d times that nothing is planned: %q", n, s.all)
		}
	})
}
