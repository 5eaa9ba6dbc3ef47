//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/internal/operator"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// The test kills the command leastKills times, and killsPerRound more times for each of -rounds.
const leastKills, killsPerRound = 8, 2

// TestKilledTool kills the command with SIGKILL at requests to the store. The last request may or
// may not reach the store. Afterwards, a rule and its log entry either both exist or are both
// missing, and the next command works. With -rounds=300, the test kills the command at each
// request.
func TestKilledTool(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]servers.Kind{
		"postgres": servers.Postgres, "mysql": servers.MariaDB, "etcd": servers.Etcd, "redis": servers.Redis,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &killing{}
			if format, ok := atAddress[kind]; ok {
				k.proxied = newProxied(t, kind, servers.New(t, kind, nil).Addr(), func(addr string) string {
					return fmt.Sprintf(format, addr)
				})
			} else {
				dsn := pool.Get(t, kind, nil).Database(t)
				k.proxied = newProxied(t, kind, dsn.Addr(), inDatabase(name, dsn))
			}
			k.direct.run(exitOK, "init")
			a := &app{path: k.direct.path, key: "tenure", timeout: limit}
			var err error
			if k.b, err = a.open(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer k.b.Close()
			total := k.whole(t)
			step := max(1, total/(leastKills+killsPerRound**rounds))
			kills, written := 0, 0
			kill := func(at int, passes bool) {
				kills++
				if k.at(t, at, passes) {
					written++
				}
			}
			for at := total; at > 0; at -= step {
				kill(at, kills%2 == 0)
			}
			t.Logf("killed at %d of %d requests; the rule was written %d times", kills, total, written)
			if written == 0 || written == kills {
				t.Error("want some kills before the commit, and some after it")
			}
		})
	}
}

// killing contains the tool, over a proxy and directly, and a reader of the tool's writes.
type killing struct {
	*proxied
	b core.Backend
	n int // rules so far
}

// args returns the arguments of a command that writes a different rule each time.
func (k *killing) args() (args []string, reason string) {
	k.n++
	reason = fmt.Sprintf("rule %d", k.n)
	return append([]string{"drain", "node", "--force", "--yes", "--reason", reason}, patient...), reason
}

// whole runs the command to its end, and returns the number of its requests.
func (k *killing) whole(t *testing.T) (requests int) {
	args, reason := k.args()
	requests = k.requests(t, args...)
	if !k.written(t, reason) {
		t.Fatal("the rule was not written")
	}
	return requests
}

// at kills the command at a request, which passes or is lost, and reports whether the command's
// rule was written. The next command must work.
func (k *killing) at(t *testing.T, request int, passes bool) (written bool) {
	args, reason := k.args()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var errs bytes.Buffer
	cmd := k.through.command(ctx, args...)
	cmd.Stderr = &errs
	started := make(chan struct{})
	k.decide(t, func(n int) faultproxy.Verdict {
		<-started
		if n < request {
			return faultproxy.Pass
		}
		_ = cmd.Process.Kill() // it may have ended
		if n == request && passes {
			return faultproxy.Pass
		}
		return faultproxy.Drop
	})
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	close(started)
	err := cmd.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && (!exited || cmd.ProcessState.Exited()) {
		t.Fatalf("request %d: %v: %s", request, err, &errs)
	}
	k.proxy.Reset()
	k.decide(t, nil)
	written = k.written(t, reason)
	args, reason = k.args()
	k.direct.run(exitOK, args...)
	if !k.written(t, reason) {
		t.Errorf("killed at request %d: the rule of the next command is missing", request)
	}
	return written
}

// written reports whether the rule in force has the reason. It fails the test if the rule and the
// last log entry differ, or if a rule is incomplete. The store may still finish a write of the
// killed command, so written looks again before it fails.
func (k *killing) written(t *testing.T, reason string) bool {
	t.Helper()
	for seq := k.head(t); ; {
		rules, err := control.Read(t.Context(), k.b)
		if err != nil || len(rules) > 1 {
			t.Fatalf("got the rules %+v, %v, want one that is whole", rules, err)
		}
		now := k.head(t)
		if now != seq {
			seq = now
			continue
		}
		inForce, inLog := len(rules) == 1 && rules[0].Reason == reason, seq > 0 && k.logged(t, seq) == reason
		if inForce != inLog {
			t.Errorf("%s: in force %v, in the log %v", reason, inForce, inLog)
		}
		return inForce
	}
}

// head returns the number of the last entry in the log of rules.
func (k *killing) head(t *testing.T) core.Seq {
	t.Helper()
	page, err := k.b.ReadLog(t.Context(), control.Shard, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return page.Head.Seq
}

// logged returns the reason in an entry of the log of rules.
func (k *killing) logged(t *testing.T, n core.Seq) string {
	t.Helper()
	page, err := k.b.ReadLog(t.Context(), control.Shard, n-1, 1)
	var c operator.Change
	if err == nil {
		err = json.Unmarshal(page.Entries[0].Payload, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c.Rule.Reason
}

// TestBadRuleStays: a rule that this version cannot decode is shown as damage. A command about
// another rule does not remove it.
func TestBadRuleStays(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	p.run(exitOK, "init")
	wrote := make(chan error, 1)
	stop := p.member("newer", control.Shard, func(ctx context.Context, l *core.Lease) error {
		_, err := l.Commit(ctx, core.Put("rule/later/x", []byte(`{"kind":"later"}`)))
		wrote <- err
		<-ctx.Done()
		return nil
	})
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	stop()
	for range 2 {
		if out, errs := p.run(exitDamaged, "rules"); !strings.Contains(errs, `"rule/later/x"`) {
			t.Errorf("rules: got %s%s", out, errs)
		}
		p.run(exitOK, "freeze", "--yes")
	}
}

// TestMostRules: a new rule is not written if there are so many rules that the leader would not
// obey it. An existing rule can be replaced.
func TestMostRules(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	p.run(exitOK, "init")
	wrote := make(chan error, 1)
	stop := p.member("many", control.Shard, func(ctx context.Context, l *core.Lease) error {
		var ops []core.Op
		for i := range control.MaxRules {
			op, err := control.Put(&control.Rule{Kind: control.Drain, Node: fmt.Sprint("node-", i)})
			if err != nil {
				wrote <- err
				return err
			}
			ops = append(ops, op)
		}
		var err error
		for part := range slices.Chunk(ops, 100) {
			_, one := l.Commit(ctx, part...)
			err = errors.Join(err, one)
		}
		wrote <- err
		<-ctx.Done()
		return nil
	})
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	stop()
	if _, errs := p.run(exitRefused, "freeze", "--yes"); !strings.Contains(errs, "remove some") {
		t.Errorf("one rule more: %s", errs)
	}
	p.run(exitOK, "drain", "node-7", "--reason", "again", "--yes", "--force")
	p.run(exitOK, "undrain", "node-8", "--yes")
	p.run(exitOK, "freeze", "--yes")
}
