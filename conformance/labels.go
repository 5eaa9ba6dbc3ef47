package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

func labelCases() []testCase {
	const area = "Labels"
	return []testCase{
		{Area: area, Property: "Bounded", Rules: []rule{ruleM3}, run: labelsBounded,
			Shows: "restarts under new labels leave a bounded number of records"},
		{Area: area, Property: "OfTheLivingStay", Rules: []rule{ruleM3}, run: labelsOfTheLivingStay,
			Shows: "a live session's label stays, and its successor supersedes it"},
		{Area: area, Property: "IdNeverRevived", Rules: []rule{ruleM3}, run: removedLabelRevivesNoID,
			Shows: "an id stays used after its label's record was removed"},
		{Area: area, Property: "LateJoinFails", Rules: []rule{ruleM3}, Needs: []string{"Wire.Hold"},
			run:   removedLabelKeepsLateJoinOut,
			Shows: "a join that arrives after its label was removed creates nothing"},
	}
}

// nodeLabels returns the namespace's labels, or skips the case if the backend cannot list them.
func (f *fixture) nodeLabels() []string {
	f.t.Helper()
	l, ok := f.read().(driver.LabelLister)
	if !ok {
		f.skip("the backend does not list its node labels (driver.LabelLister)")
	}
	labels, err := l.Labels(f.ctx)
	f.setup("list the node labels", err)
	return labels
}

// restartAnew joins a process under a new label, and ends the process.
func (f *fixture) restartAnew() driver.Member {
	f.t.Helper()
	f.restarts++
	me := f.newcomer(f.read(), fmt.Sprintf("restart-%d", f.restarts))
	s, err := f.tryJoin(f.read(), me)
	f.setup("join", err)
	if f.restarts%2 == 0 {
		f.setup("close", s.Close(f.ctx))
	} else {
		f.evict(&member{Session: s, f: f, b: f.read(), node: me.Node})
	}
	return me
}

func labelsBounded(f *fixture) {
	f.join("lives")
	restarts, every := 3*driver.MaxIdleLabels, 16
	if f.h.Long {
		restarts, every = 10_000, 500
	}
	for n := range restarts {
		f.restartAnew()
		if (n+1)%every != 0 {
			continue
		}
		// The namespace also has the labels of the member, the observer and the last process.
		labels, most := f.nodeLabels(), driver.MaxIdleLabels+3
		f.must(ruleM3, len(labels) <= most, "after %d restarts under new labels %d have a record; want at most %d", n+1,
			len(labels), most)
	}
	f.t.Logf("%d restarts under new labels leave records of %d", restarts, len(f.nodeLabels()))
}

func labelsOfTheLivingStay(f *fixture) {
	b := f.open()
	living := map[string]driver.SessionID{}
	for i := range 8 { // the store may remove labels at random
		node := fmt.Sprint(i)
		living[node] = f.joinOn(b, node).ID()
	}
	for range 2 * driver.MaxIdleLabels {
		f.restartAnew()
	}
	labels := f.nodeLabels()
	for node, former := range living {
		f.must(ruleM3, slices.Contains(labels, node), "the record of a label under which a session lives was removed")
		next := f.newcomer(b, node)
		next.Supersede = true
		_, err := f.tryJoin(b, next)
		f.must(ruleM3, err == nil, "a superseding join answers %v", err)
		f.must(ruleM3, !f.isMember(former), "a session that joined before labels were removed was not superseded")
	}
}

func removedLabelRevivesNoID(f *fixture) {
	var dead []driver.Member
	removed := 0
	for range 3 * driver.MaxIdleLabels {
		dead = append(dead, f.restartAnew())
		labels := f.nodeLabels()
		for _, me := range slices.Clone(dead) {
			if slices.Contains(labels, me.Node) {
				continue
			}
			removed++
			dead = slices.DeleteFunc(dead, func(m driver.Member) bool { return m.Session == me.Session })
			_, err := f.tryJoin(f.read(), me)
			f.must(ruleM3, errors.Is(err, driver.ErrConflict),
				"joining again under an id whose label was removed answers %v; want ErrConflict", err)
			f.must(ruleM3, !f.isMember(me.Session), "an id whose label was removed is a member again")
		}
	}
	f.must(ruleM3, removed > 0, "after %d restarts under new labels each has a record", len(dead))
}

func removedLabelKeepsLateJoinOut(f *fixture) {
	b, w := f.wire("Hold", func(w *Wire) bool { return w.Hold != nil })
	f.nodeLabels()
	f.restartAnew() // the late join must not be the namespace's first
	me := f.newcomer(b, "0")
	release := w.Hold()
	err := f.held(200*time.Millisecond, func(ctx context.Context) error {
		_, err := b.Join(ctx, me)
		return err
	})
	if !driver.Unknown(err) {
		release()
		f.heldNone("a join", err)
	}
	f.setup("close", f.joinOn(f.read(), "0").Close(f.ctx))
	for n := 0; slices.Contains(f.nodeLabels(), "0"); n++ {
		if n == 1000 {
			release()
			f.skip("the backend keeps the record of this label: it removes others")
		}
		f.restartAnew()
	}
	release()
	f.setup("join behind the late one", f.settle(func() error {
		_, err := b.Join(f.ctx, f.newcomer(b, "after"))
		return err
	}))
	f.never(ruleM3, func() string {
		if f.isMember(me.Session) {
			return "a join that was given up, and arrived after its label was used and removed, created its session"
		}
		return ""
	})
}
