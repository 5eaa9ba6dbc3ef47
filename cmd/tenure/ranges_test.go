//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/assign"
)

// manage serves the keyspace k of four ranges in this process, until the test ends or stop or crash
// is called.
func (p *place) manage(node string) (stop, crash func()) {
	p.t.Helper()
	a := &app{path: p.path, key: "tenure", timeout: limit}
	b, err := a.open(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	o := a.conf.Options()
	o.Node, o.LockDir = node, "none"
	e, err := core.NewElector(b, o)
	if err != nil {
		p.t.Fatal(err)
	}
	var m *sharding.Manager
	m, err = sharding.NewManager(b, e, func(ctx context.Context, l *core.Lease) error {
		s, err := m.OpenSlice(ctx, l, func(context.Context, string, assign.Range) ([]core.Op, error) { return nil, nil })
		if err != nil {
			return err
		}
		defer s.Close()
		<-ctx.Done()
		return nil
	}, &sharding.Options{Keyspace: sharding.Keyspace{Name: "k", Shards: 4}, Interval: 100 * time.Millisecond,
		Quarantine: sharding.Quarantine{Deaths: 1, For: time.Hour}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		p.t.Fatal(err)
	}
	p.members = append(p.members, e)
	ctx, end := context.WithCancel(context.Background())
	work, leave := context.WithCancel(ctx)
	done, managed := make(chan error, 1), make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	go func() { managed <- m.Run(work) }()
	ended := sync.OnceValue(func() error {
		leave()
		err := <-managed
		end()
		return errors.Join(err, <-done, b.Close())
	})
	stop = func() {
		if err := ended(); err != nil {
			p.t.Error(err)
		}
	}
	crashed := false
	p.t.Cleanup(func() {
		if !crashed {
			stop()
		}
	})
	return stop, func() {
		crashed = true
		_ = b.Close()    // first, so nothing is released
		p.t.Log(ended()) // the store is closed
	}
}

// layout waits until the keyspace has the given ranges and each range has an owner. A range is
// given as a shard and the range's beginning.
func (p *place) layout(want ...string) rangesOut {
	p.t.Helper()
	var out rangesOut
	var errs string
	if !ample.Soon(p.t.Context(), func() bool {
		var code int
		var text string
		code, text, errs = p.exec("ranges", "-o", "json")
		if code == exitOK {
			out = rangesOut{}
			if err := json.Unmarshal([]byte(text), &out); err != nil {
				p.t.Fatal(err)
			}
		}
		var got []string
		for _, r := range out.Ranges {
			if r.Node != "" {
				got = append(got, r.Shard+" "+r.From)
			}
		}
		return slices.Equal(got, want)
	}) {
		p.t.Fatalf("ranges: got %+v, %s, want %q", out, errs, want)
	}
	return out
}

func TestRanges(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: .ci/run runs it")
	}
	dividing(t, sqlitePlace(t))
}

// TestServedRanges runs TestRanges on a store that has a server.
func TestServedRanges(t *testing.T) {
	t.Parallel()
	dividing(t, newPlace(t, fmt.Sprintf("postgres: {dsn: %q, namespace: test}", pool.Get(t, servers.Postgres, nil).Database(t).Reveal())))
}

// dividing splits, merges, quarantines and releases.
func dividing(t *testing.T, p *place) {
	const q1, q2, q3 = "0x4000000000000000", "0x8000000000000000", "0xc000000000000000"
	zero := "0x0000000000000000"
	p.patient()
	p.run(exitOK, "init")
	p.bad(exitNotFound, "no keyspace", "ranges")
	p.manage("a")
	p.manage("b")
	begun := p.layout("k-0000 "+zero, "k-0001 "+q1, "k-0002 "+q2, "k-0003 "+q3)
	if r := begun.Ranges[3]; begun.Keyspace != "k" || begun.Hash != keyspace.HashMixed || r.To != "0x10000000000000000" || r.Share != 25 {
		t.Errorf("ranges: got %+v", begun)
	}
	if out, _ := p.run(exitOK, "ranges"); !strings.Contains(out, "SHARE") || strings.Count(out, " 25% ") != 4 || strings.Count(out, "\n") != 5 {
		t.Errorf("ranges: got %s", out)
	}

	// Impossible requests, with the reason.
	p.bad(exitNotFound, "has no range in keyspace", "split", "other", "-y")
	p.bad(exitNotFound, "has no range in keyspace", "merge", "k-0001", "k-0004", "-y")
	p.bad(exitRefused, "begins at "+q1+" already", "split", "k-0001", "--at", q1, "-y")
	p.bad(exitRefused, "outside the range of shard \"k-0001\": use one above "+q1+" and below "+q2, "split", "k-0001", "--at", q2, "-y")
	p.bad(exitRefused, "outside the range", "split", "k-0003", "--at", "0x0000000000000001", "-y")
	p.bad(exitRefused, "no neighbours", "merge", "k-0000", "k-0002", "-y")
	p.bad(exitRefused, "no neighbours", "merge", "k-0003", "k-0000", "-y") // it is no ring
	if _, errs := p.run(exitRefused, "split", "k-0000"); !strings.Contains(errs, "keeps "+zero+" to 0x2000000000000000, and new shards get 0x2000000000000000 to "+q1) ||
		!strings.Contains(errs, "--yes") {
		t.Errorf("split without --yes: got %q", errs)
	}
	p.run(exitOK, "split", "k-0000", "--dry-run")
	p.layout("k-0000 "+zero, "k-0001 "+q1, "k-0002 "+q2, "k-0003 "+q3)
	var rules []ruleOut
	if p.decode(&rules, "rules"); len(rules) != 0 {
		t.Errorf("rules: got %+v after a dry run", rules)
	}

	// Splits into three parts, and in the middle. Two rules are in one commit.
	p.run(exitOK, "split", "k-0000", "--at", "0x3000000000000000", "--at", "0x1000000000000000", "-y", "--reason", "hot", "--author", "me")
	p.layout("k-0000 "+zero, "k-0004 0x1000000000000000", "k-0005 0x3000000000000000", "k-0001 "+q1, "k-0002 "+q2, "k-0003 "+q3)
	if p.decode(&rules, "rules"); len(rules) != 2 || rules[0].Kind != "split" || rules[0].Hash != "0x1000000000000000" || rules[1].Reason != "hot" ||
		rules[1].Author != "me" || rules[1].Expires.Sub(rules[1].At) != time.Hour || rules[1].At != rules[0].At {
		t.Errorf("rules: got %+v", rules)
	}
	if out, _ := p.run(exitOK, "rules"); !strings.Contains(out, "HASH") || !strings.Contains(out, "0x3000000000000000") {
		t.Errorf("rules: got %s", out)
	}
	log, _ := p.run(exitOK, "log", control.Shard, "-o", "json")
	if n := strings.Count(log, `\"kind\":\"split\"`); n != 2 {
		t.Errorf("log of the rules: got %d splits in %s", n, log)
	}
	p.bad(exitRefused, `a rule "split" at hash 0x1000000000000000 is in force, of me, written by `, "merge", "k-0000", "k-0004", "-y")
	p.bad(exitNotFound, "no such rule", "unsplit", q1, "-y")
	p.run(exitOK, "unsplit", "0x1000000000000000", "--dry-run")
	p.run(exitOK, "unsplit", "0x1000000000000000", "-y")
	// A merge with the shards in any order. The upper shard ends.
	if _, errs := p.run(exitOK, "merge", "k-0004", "k-0000", "-y", "--expires", "0"); !strings.Contains(errs, `shard "k-0000" answers for `+zero+
		" to 0x3000000000000000, and shard \"k-0004\" ends, by a rule without an end") {
		t.Errorf("merge: got %q", errs)
	}
	p.layout("k-0000 "+zero, "k-0005 0x3000000000000000", "k-0001 "+q1, "k-0002 "+q2, "k-0003 "+q3)
	p.bad(exitRefused, `a rule "merge" at hash 0x1000000000000000`, "split", "k-0000", "--at", "0x1000000000000000", "-y")
	p.run(exitOK, "unmerge", "0x1000000000000000", "-y")

	// The shard that has ended does not count as missing.
	var s statusOut
	p.await("the ended shard has no owner", func() bool { p.decode(&s, "status"); return s.Ended == 1 })
	if s.Owned != 5 || s.Unowned != 0 || s.Shards != 5 || len(s.Quarantined) != 0 {
		t.Errorf("status: got %+v", s)
	}
	p.bad(exitRefused, "its range was merged", "release", "k-0004", "-y")
	p.run(exitNotFound, "who", "k-0004")
	p.quarantine()
}

func (p *place) await(what string, is func() bool) {
	p.t.Helper()
	ample.Wait(p.t, "not in time: "+what, is)
}

// quarantine kills a member that owns one shard. Here, one death is enough to set the shard aside.
func (p *place) quarantine() {
	p.t.Helper()
	_, crash := p.manage("c")
	var who shardOut
	p.await("a third member owns a shard, and the others know", func() bool {
		var shards []shardOut
		p.decode(&shards, "shards")
		i := slices.IndexFunc(shards, func(s shardOut) bool { return s.Node == "c" && strings.HasPrefix(string(s.Shard), "k-") })
		if i >= 0 {
			who = shards[i]
		}
		return i >= 0 && !slices.ContainsFunc(p.members, func(e *core.Elector) bool {
			o, _ := e.View().Owner(string(who.Shard))
			return o.Node != "c"
		})
	})
	crash()
	p.await("its session ends", func() bool { // after a heartbeat, unlike in the earlier command
		code, _, errs := p.exec("evict", string(who.Session), "--yes")
		if code != exitOK && (code != exitRefused || !strings.Contains(errs, "is alive, its version is")) {
			p.t.Fatalf("evict: exit code %d: %s", code, errs)
		}
		return code == exitOK
	})
	var o statusOut
	var errs string
	p.await("a shard is in quarantine", func() bool {
		var code int
		o, code, errs = p.status()
		return code == exitSilent && len(o.Quarantined) > 0 && o.Unowned == 0 && len(o.Silent) == 0
	})
	if o.Ended != 1 || o.Owned+len(o.Quarantined) != 5 || !strings.Contains(errs, "in quarantine") || !strings.Contains(errs, "tenure release") ||
		time.Until(o.Quarantined[0].Until).Round(time.Hour) != time.Hour {
		p.t.Errorf("status: got %+v, %s", o, errs)
	}
	if out, _ := p.run(exitSilent, "status"); !strings.Contains(out, "in quarantine until") || !strings.Contains(out, ", 1 ended") {
		p.t.Errorf("status: got %s", out)
	}
	var shards []shardOut
	p.decode(&shards, "shards")
	for _, q := range o.Quarantined {
		if i := slices.IndexFunc(shards, func(s shardOut) bool { return s.Shard == q.Shard }); i < 0 || shards[i].Aside != q.Why || !shards[i].AsideUntil.Equal(q.Until) {
			p.t.Errorf("shards: got %+v, want %+v", shards, q)
		}
	}
	p.run(exitNotFound, "who", string(o.Quarantined[0].Shard))
	if _, errs := p.run(exitOK, "release", string(o.Quarantined[0].Shard), "--dry-run"); !strings.Contains(errs, "which would last until") {
		p.t.Errorf("release --dry-run: got %q", errs)
	}
	for _, q := range o.Quarantined {
		p.run(exitOK, "release", string(q.Shard), "-y")
	}
	p.await("all are owned", func() bool { o, _, _ := p.status(); return o.Owned == 5 && len(o.Quarantined) == 0 })
	if _, errs := p.run(exitOK, "release", "k-0000", "--dry-run"); !strings.Contains(errs, "is not in quarantine, and does not go into it") {
		p.t.Errorf("release --dry-run: got %q", errs)
	}
	p.run(exitOK, "unrelease", string(o.Quarantined[0].Shard), "-y")
	p.bad(exitNotFound, "no such rule", "unrelease", string(o.Quarantined[0].Shard), "-y")
}

// TestHostileRanges uses untrusted names and hashes, and rules and plans that another program
// wrote.
func TestHostileRanges(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	p.run(exitOK, "init")
	many := []string{"split", "k-0000", "-y"}
	for i := range keyspace.MaxCuts + 1 {
		many = append(many, "--at", fmt.Sprintf("0x%016x", i+1))
	}
	const h = "0x8000000000000000"
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{exitUsage, "letters, digits", []string{"split", "a/../b", "-y"}},
		{exitUsage, "letters, digits", []string{"merge", "a", "\x1b[31m", "-y"}},
		{exitUsage, "letters, digits", []string{"merge", hostile, "a", "-y"}},
		{exitUsage, "the limit is 128", []string{"split", strings.Repeat("x", 1<<16), "-y"}},
		{exitUsage, "named twice", []string{"merge", "a", "a", "-y"}},
		{exitUsage, "takes SHARD", []string{"split", "a", "b", "-y"}},
		{exitUsage, "takes SHARD SHARD", []string{"merge", "a", "-y"}},
		{exitUsage, "all 16 digits", []string{"split", "a", "-y", "--at", "0x8"}},
		{exitUsage, "all 16 digits", []string{"split", "a", "-y", "--at", "8000000000000000"}},
		{exitUsage, "all 16 digits", []string{"split", "a", "-y", "--at", "0x10000000000000000"}},
		{exitUsage, "all 16 digits", []string{"split", "a", "-y", "--at", "-1"}},
		{exitUsage, "all 16 digits", []string{"split", "a", "-y", "--at", ""}},
		{exitUsage, "all 16 digits", []string{"split", "a", "-y", "--at", hostile}},
		{exitUsage, "all 16 digits", []string{"split", "a", "-y", "--at", h + "," + h}},
		{exitUsage, "all 16 digits", []string{"unsplit", "0x" + strings.Repeat("8", 1<<16), "-y"}},
		{exitUsage, "all 16 digits", []string{"unsplit", "0x8000_000000000000", "-y"}},
		{exitUsage, "first of all", []string{"unsplit", "0x0000000000000000", "-y"}},
		{exitUsage, "given twice", []string{"split", "a", "-y", "--at", h, "--at", h}},
		{exitUsage, "at most 15", many},
		{exitUsage, "--expires", []string{"split", "a", "-y", "--expires", "-1h"}},
		{exitUsage, "invalid argument", []string{"merge", "a", "b", "-y", "--expires", "x"}},
		{exitUsage, "control and format characters", []string{"split", "a", "-y", "--reason", "a\u202eb"}},
		{exitUsage, "at most 500 bytes", []string{"merge", "a", "b", "-y", "--author", strings.Repeat("x", 501)}},
		{exitNotFound, "no keyspace", []string{"split", "_assigner", "-y"}},
		{exitNotFound, "never owned", []string{"release", "a", "-y"}},
		{exitUsage, "Tenure's own", []string{"release", "_assigner", "-y"}},
		{exitUsage, "name one shard", []string{"release", "a*", "-y"}},
		{exitUsage, "letters, digits", []string{"unrelease", "a b", "-y"}},
		{exitUsage, "takes no argument", []string{"ranges", "a"}},
	} {
		p.bad(c.code, c.want, c.args...)
	}

	// The plans are invalid. Commands that do not need plans continue, and report the damage.
	written := make(chan error, 1)
	stop := p.member("liar", "_assigner", func(ctx context.Context, l *core.Lease) error {
		_, err := l.Append(ctx, []byte(hostile))
		written <- err
		<-ctx.Done()
		return nil
	})
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"ranges"}, {"split", "a", "-y"}, {"merge", "a", "b", "-y"}, {"status"}, {"shards"}} {
		p.bad(exitDamaged, "plans of this namespace", args...)
	}
	p.run(exitOK, "who", "_assigner")
	p.run(exitMayNot, "may-stop", "liar")
	stop()
	// A rule in force that hides text is shown without the hidden text.
	evil, err := json.Marshal(control.Rule{Kind: control.Merge, Hash: h, Author: "me", At: time.Now(), Reason: hostile})
	if err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	stop = p.member("liar", control.Shard, func(ctx context.Context, l *core.Lease) error {
		_, err := l.Commit(ctx, core.Put("rule/range/"+h, evil), core.Put("rule/range/0xFFFFFFFFFFFFFFFF", evil))
		wrote <- err
		<-ctx.Done()
		return nil
	})
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	stop()
	for _, args := range [][]string{{"rules"}, {"unsplit", h, "--dry-run"}, {"unsplit", h, "-y"}} {
		if _, out, errs := p.exec(args...); raw(out)+raw(errs) != "" {
			t.Errorf("%q writes %s", args, raw(out)+raw(errs))
		}
	}
}

// TestRulesContradict: rules that are written while an operator decides are taken into account. A
// command that would write too many rules is refused as a whole.
func TestRulesContradict(t *testing.T) {
	t.Parallel()
	now := time.Now()
	rule := func(kind control.Kind, hash uint64, expires time.Time) control.Rule {
		return control.Rule{Kind: kind, Hash: keyspace.FormatHash(hash), At: now, Expires: expires}
	}
	want := []control.Rule{rule(control.Split, 1, time.Time{}), rule(control.Split, 2, time.Time{})}
	for _, c := range []struct {
		all []control.Rule
		bad bool
	}{
		{nil, false},
		{[]control.Rule{rule(control.Split, 2, time.Time{})}, false},
		{[]control.Rule{rule(control.Merge, 3, time.Time{})}, false},
		{[]control.Rule{rule(control.Merge, 2, now.Add(-time.Second))}, false},
		{[]control.Rule{rule(control.Merge, 2, now.Add(time.Second))}, true},
		{[]control.Rule{rule(control.Merge, 1, time.Time{})}, true},
	} {
		if err := contradicted(want, c.all); (err != nil) != c.bad {
			t.Errorf("%+v: %v", c.all, err)
		}
	}
	var all []control.Rule
	for i := range control.MaxRules - 1 {
		all = append(all, rule(control.Split, uint64(i)+2, time.Time{}))
	}
	if err := room(want, all); err != nil { // one of the two is there
		t.Error(err)
	}
	if err := room(want, all[1:]); err != nil {
		t.Error(err)
	}
	if err := room(append(want, rule(control.Split, 1<<60, time.Time{})), all); err == nil {
		t.Error("one rule more than are obeyed is taken")
	}
}
