package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
)

// lined is a slog.Handler that keeps the lines of a log.
type lined struct {
	mu    sync.Mutex
	lines []line
}

type line struct {
	at    time.Time
	level slog.Level
	msg   string
	attrs map[string]slog.Value
}

func (l *lined) Enabled(context.Context, slog.Level) bool { return true }
func (l *lined) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lined) WithGroup(string) slog.Handler            { return l }

func (l *lined) Handle(_ context.Context, r slog.Record) error {
	attrs := map[string]slog.Value{}
	r.Attrs(func(a slog.Attr) bool { attrs[a.Key] = a.Value; return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line{r.Time, r.Level, strings.TrimPrefix(r.Message, "tenure: "), attrs})
	return nil
}

// of returns the lines at a level whose messages begin with msg.
func (l *lined) of(level slog.Level, msg string) []line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.lines), func(x line) bool { return x.level != level || !strings.HasPrefix(x.msg, msg) })
}

func counted(lines []line) (n int) {
	for _, l := range lines {
		if count, ok := l.attrs["count"]; ok {
			n += int(count.Int64())
		} else {
			n++
		}
	}
	return n
}

func logged(l *lined) func(*Options) {
	return func(o *Options) { o.Hooks, o.Logger = Hooks{}, slog.New(l) }
}

// If the same event happens to 10,000 leases, the log gets a few lines, plus one line at Debug for
// each lease.
func TestLinesOfManyLeases(t *testing.T) {
	const many = 10_000
	bubble(t, func(w *world) {
		var log lined
		granted, ended := 0, 0
		m := w.member("a", logged(&log), func(o *Options) {
			onEvent(o, func(Event) { granted++ }, LeaseGranted)
			onEvent(o, func(Event) { ended++ }, LeaseEnded)
		})
		names := make([]string, many)
		for i := range names {
			names[i] = fmt.Sprintf("s%05d", i)
		}
		var h leases
		w.must(m.Contend(h.hold, names...))
		h.await(w, many)
		time.Sleep(2 * ttl)
		w.must(m.Withdraw(w.Context(), names...))
		time.Sleep(2 * ttl)
		w.must(m.end())
		if granted != many || ended != many {
			w.Errorf("hooks were called for %d grants and %d ends, want %d of each", granted, ended, many)
		}
		for _, x := range []struct{ one, all, cause string }{
			{"lease granted", "leases granted", ""}, {"lease ended", "leases ended", "asked to stop"},
		} {
			said := slices.Concat(log.of(slog.LevelInfo, x.one), log.of(slog.LevelInfo, x.all))
			if n := counted(said); n != many || len(said) > 4 {
				w.Errorf("%d lines at Info say %q of %d leases, want at most 4 of %d: %v", len(said), x.all, n, many, said)
			}
			several := log.of(slog.LevelInfo, x.all)
			if len(several) == 0 {
				w.Errorf("no line says %q", x.all)
				continue
			}
			most := slices.MaxFunc(several, func(a, b line) int { return cmp.Compare(a.attrs["count"].Int64(), b.attrs["count"].Int64()) })
			shards, _ := most.attrs["shards"].Any().([]string)
			if len(shards) != namedShards || x.cause != "" && most.attrs["cause"].String() != x.cause {
				w.Errorf("%q: shards %v, cause %v", x.all, shards, most.attrs["cause"])
			}
			alone := len(log.of(slog.LevelInfo, x.one))
			if n := len(log.of(slog.LevelDebug, x.one)); n+alone != many {
				w.Errorf("%d lines %q at Debug and %d at Info, want %d in all", n, x.one, alone, many)
			}
		}
		if n := len(log.of(slog.LevelInfo, "")); n > 9 {
			w.Errorf("%d lines at Info, want at most 9", n)
		}
	})
}

// A rolling restart of three members with 64 shards writes a few lines for each step: for each of
// two new owners up to six about grants, up to two about ended leases, and one about the session.
// How many depends on how the hand-over divides into calls.
func TestLinesOfARollingRestart(t *testing.T) {
	bubble(t, func(w *world) {
		var log lined
		names := make([]string, 64)
		for i := range names {
			names[i] = fmt.Sprintf("s%02d", i)
		}
		var h leases
		on := map[string]*member{}
		start := func(node string) {
			on[node] = w.member(node, logged(&log))
			w.must(on[node].Contend(h.hold, names...))
			w.eventually("all are served", func() bool {
				n := 0
				for _, m := range on {
					n += len(m.View().Leases)
				}
				return n == len(names)
			})
			time.Sleep(2 * ttl)
		}
		nodes := []string{"a", "b", "c"}
		for _, node := range nodes {
			start(node)
		}
		before := len(log.of(slog.LevelInfo, ""))
		const most = 2*(1+promptLines+1) + 2 + 1
		for _, node := range nodes {
			w.must(on[node].end())
			start(node)
		}
		if n := len(log.of(slog.LevelInfo, "")) - before; n < 2*len(nodes) || n > most*len(nodes) {
			w.Errorf("%d lines at Info, want at most %d for each restart", n, most)
		}
		for _, m := range on {
			w.must(m.end())
		}
	})
}

// When a lock is acquired and released, each event writes one line at Debug and none at Info.
func TestLinesOfALock(t *testing.T) {
	bubble(t, func(w *world) {
		var log lined
		m := w.member("a", logged(&log))
		var h leases
		w.must(m.Contend(h.hold, driver.LockPrefix+"s"))
		h.await(w, 1)
		time.Sleep(ttl / 2)
		w.must(m.Withdraw(w.Context(), driver.LockPrefix+"s"))
		w.must(m.end())
		for _, what := range []string{"lease granted", "lease ended"} {
			if info, debug := log.of(slog.LevelInfo, what), log.of(slog.LevelDebug, what); len(info) != 0 || len(debug) != 1 {
				w.Errorf("%q: %v at Info, %v at Debug, want one at Debug", what, info, debug)
			}
		}
	})
}

// An event of one lease immediately writes one line at Info, and none at Debug.
func TestLinesOfOneLease(t *testing.T) {
	bubble(t, func(w *world) {
		var log lined
		m := w.member("a", logged(&log))
		var h leases
		w.must(m.Contend(h.hold, "s"))
		h.await(w, 1)
		at := time.Now()
		time.Sleep(ttl / 2)
		w.must(m.Withdraw(w.Context(), "s"))
		w.must(m.end())
		for _, what := range []string{"lease granted", "lease ended"} {
			if said := log.of(slog.LevelInfo, what); len(said) != 1 || said[0].attrs["shard"].String() != "s" {
				w.Errorf("%q: %v", what, said)
			}
		}
		if late := log.of(slog.LevelInfo, "lease granted")[0].at.Sub(at); late > 0 {
			w.Errorf("the line of a grant came %v late", late)
		}
		if n := len(log.of(slog.LevelDebug, "")); n > 0 {
			w.Errorf("%d lines at Debug", n)
		}
	})
}

// Each unrequested loss and each handler's error writes one line, up to a limit. The grant of a
// lease is never logged after its loss.
func TestLinesOfLosses(t *testing.T) {
	const many = 300
	bubble(t, func(w *world) {
		var log lined
		m := w.member("a", logged(&log))
		names := make([]string, many)
		for i := range names {
			names[i] = fmt.Sprintf("s%03d", i)
		}
		var h leases
		boom := func(ctx context.Context, l *Lease) error { h.add(l); <-ctx.Done(); return errors.New("boom") }
		w.must(m.Contend(boom, names...))
		h.await(w, many)
		m.link.Set(kvfault.All, kvfault.DropRequest)
		w.eventually("trust lapses", func() bool { return len(log.of(slog.LevelInfo, "leases ended")) > 0 })
		m.link.Heal()
		w.must(m.end())
		lapsed := log.of(slog.LevelInfo, "lease ended")
		lapsed = slices.DeleteFunc(lapsed, func(l line) bool { return l.attrs["cause"].String() != "trust lapsed" })
		if len(lapsed) != singleLines {
			w.Errorf("%d leases that lapsed are lines of their own, want %d", len(lapsed), singleLines)
		}
		if n := counted(log.of(slog.LevelInfo, "leases ended")); n < many-singleLines {
			w.Errorf("the others are %d, want %d", n, many-singleLines)
		}
		errs := slices.Concat(log.of(slog.LevelWarn, "handler returned an error"), log.of(slog.LevelWarn, "handlers returned errors"))
		if n := counted(errs); n < many || len(errs) > 3*(singleLines+1) {
			w.Errorf("%d lines at Warn say that %d handlers returned an error", len(errs), n)
		}
		seen := regexp.MustCompile(`^leases? granted$`)
		if first := slices.IndexFunc(log.lines, func(l line) bool { return l.level >= slog.LevelInfo && seen.MatchString(l.msg) }); first < 0 || first >
			slices.IndexFunc(log.lines, func(l line) bool { return l.level == slog.LevelWarn && strings.HasPrefix(l.msg, "handler") }) {
			w.Errorf("grants are said after their handlers' errors: %v", log.lines[:min(len(log.lines), 5)])
		}
	})
}

// The line about a grant comes before the first line of its handler, even if one lease immediately
// follows another.
func TestGrantIsLoggedBeforeTheHandler(t *testing.T) {
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) { grantBeforeHandler(t, uint64(i)) })
	}
}

func grantBeforeHandler(t *testing.T, seed uint64) {
	bubble(t, func(w *world) {
		var log lined
		l := slog.New(&log)
		m := w.member("a", logged(&log), func(o *Options) { o.Seed = seed; o.Hooks.OnEvent = func(Event) {} })
		handler := func(ctx context.Context, x *Lease) error {
			l.Info("handler", slog.String("shard", x.Shard()))
			<-ctx.Done()
			return nil
		}
		names := []string{"s", "t", "u", "v"}
		for _, s := range names { // each shard is a separate step, all within a second
			w.must(m.Contend(handler, s))
			w.eventually(s, func() bool { return m.Lease(s) != nil })
		}
		granted := map[string]bool{}
		log.mu.Lock()
		defer log.mu.Unlock()
		for _, x := range log.lines {
			switch shard := x.attrs["shard"].String(); x.msg {
			case "lease granted":
				granted[shard] = true
			case "handler":
				if !granted[shard] {
					w.Errorf("the handler of %s logs before its grant", shard)
				}
			}
		}
		if len(granted) != len(names) {
			w.Errorf("granted: %v", granted)
		}
	})
}
