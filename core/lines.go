package core

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/mark"
)

// A process may own 100,000 shards. If one event affects many leases, the log gets only one line,
// with the number of leases and the first namedShards shards. At Debug level, each lease gets a
// line. At most one line of each kind is written within linesEvery. Unrequested events first get
// one line per lease, up to singleLines lines in that time. Grants first get one line per step, up
// to promptLines lines after the first, so that the line precedes the handler's own lines.
const (
	linesEvery  = time.Second
	namedShards = 5
	singleLines = 16
	promptLines = 4
)

// A lineKind is the common part of gathered lines.
type lineKind struct {
	level     slog.Level
	one, many string // messages for one lease and for several; if many is empty, one is used for both
	cause     string // empty if the line has no cause
	asked     bool   // requested, so lines are gathered from the first lease on
	prompt    bool   // gathered within one step only, up to promptLines lines after the first in linesEvery
	rule      rule
}

// A rule is the part of a line that describes an operator's rule. Zero values are omitted.
type rule struct{ kind, author, writer, reason string }

// A gathering holds the lines of one kind that are not written yet.
type gathering struct {
	kind   lineKind
	since  time.Time // when linesEvery began, or zero
	single int       // lines about one lease since then
	count  int
	shards []string
	first  []slog.Attr
}

// line writes or gathers a line about a lease. The attributes attrs apply only to this lease.
func (n *notifier) line(kind lineKind, f Fence, attrs ...slog.Attr) {
	if kind.asked && kind.rule == (rule{}) && driver.IsLock(f.Shard) { // a lock is acquired and released for each piece of work
		kind.level = slog.LevelDebug
	}
	g := n.gathering(kind)
	if !g.since.IsZero() && time.Since(g.since) >= linesEvery {
		n.writeGathered(false)
		g = n.gathering(kind)
	}
	attrs = append(append(fenceAttrs(f), kind.attrs()...), attrs...)
	if !kind.asked && g.count == 0 && g.single < singleLines {
		if g.single++; g.since.IsZero() {
			g.since = time.Now()
		}
		n.write(kind.level, kind.one, attrs)
		return
	}
	if g.count++; g.count == 1 {
		g.first = attrs
	} else {
		if g.count == 2 {
			n.emit(slog.LevelDebug, kind.one, g.first)
		}
		n.emit(slog.LevelDebug, kind.one, attrs)
	}
	if len(g.shards) < namedShards && !slices.Contains(g.shards, string(f.Shard)) {
		g.shards = append(g.shards, string(f.Shard))
	}
}

func (n *notifier) gathering(kind lineKind) *gathering {
	for _, g := range n.gathered {
		if g.kind == kind {
			return g
		}
	}
	g := &gathering{kind: kind}
	n.gathered = append(n.gathered, g)
	return g
}

// writeGathered writes the gathered lines that are due or, if everything is set, all of them. The
// result is when to call it again, or zero if no lines are left.
func (n *notifier) writeGathered(everything bool) (again time.Time) {
	now := time.Now()
	kept := n.gathered[:0]
	for _, g := range n.gathered {
		over := g.since.IsZero() || now.Sub(g.since) >= linesEvery
		switch {
		case g.count > 0 && (over || everything || g.kind.prompt && g.single < promptLines):
			due := *g
			*g = gathering{kind: g.kind, since: now} // set before the logger is called, which may end its goroutine
			if !over {
				g.since, g.single = due.since, due.single+1
			}
			n.writeOne(&due)
		case over:
			continue
		}
		kept = append(kept, g)
		if at := g.since.Add(linesEvery); again.IsZero() || at.Before(again) {
			again = at
		}
	}
	clear(n.gathered[len(kept):])
	n.gathered = kept
	return again
}

func (n *notifier) writeOne(g *gathering) {
	if g.count == 1 {
		n.emit(g.kind.level, g.kind.one, g.first)
		return
	}
	n.emit(g.kind.level, cmp.Or(g.kind.many, g.kind.one), append(g.kind.attrs(), slog.Int("count", g.count), slog.Any("shards", g.shards)))
}

func (k *lineKind) attrs() []slog.Attr {
	var all []slog.Attr
	if k.cause != "" {
		all = append(all, slog.String("cause", k.cause))
	}
	if k.rule != (rule{}) {
		all = append(all, slog.String("rule", k.rule.kind), slog.String("author", k.rule.author),
			slog.String("writer", k.rule.writer), slog.String("reason", k.rule.reason))
	}
	return all
}

func (n *notifier) emit(level slog.Level, msg string, attrs []slog.Attr) {
	log := n.log
	if log == nil {
		log = slog.Default()
	}
	log.LogAttrs(context.Background(), level, msg, append(attrs[:len(attrs):len(attrs)], slog.String("node", n.node))...)
}

func fenceAttrs(f Fence) []slog.Attr {
	return []slog.Attr{slog.String("shard", string(f.Shard)), slog.Int64("token", int64(f.Token)), slog.String("session", string(f.Session))}
}

func (n *notifier) grant(f Fence, former SessionID) {
	n.post(func() {
		n.tell(Event{Kind: LeaseGranted, Fence: f, Session: former})
		n.line(lineKind{level: slog.LevelInfo, one: "tenure: lease granted", many: "tenure: leases granted", asked: true, prompt: true}, f)
	})
}

// newer reports whether a record shows a later grant to the process that held the lease with fence
// f.
func newer(o driver.Owner, f Fence) bool {
	return o.Token > f.Token && o.Session != "" && mark.Process(o.Session) == mark.Process(f.Session)
}

func (n *notifier) revoke(f Fence, c fsm.Cause, current driver.Owner) {
	n.post(func() {
		err := revoked(f, c)
		n.tell(Event{Kind: LeaseEnded, Fence: f, Err: err})
		kind := lineKind{level: slog.LevelInfo, one: "tenure: lease ended", many: "tenure: leases ended", cause: c.String(), asked: err.Is(ErrReleased)}
		if newer(current, f) {
			kind.one, kind.many = "tenure: lease ended by a newer grant to this process", "tenure: leases ended by newer grants to this process"
		}
		n.line(kind, f)
	})
}

// handlerReturn reports a handler's result, and logs an error that does not merely mean that the
// handler was asked to stop.
func (n *notifier) handlerReturn(f Fence, ran time.Duration, err error, asked bool) {
	if n.h.OnEvent == nil && err == nil {
		return
	}
	n.post(func() {
		if asked {
			err = nil
		}
		n.tell(Event{Kind: HandlerReturned, Fence: f, Err: err, Took: ran})
		if err != nil {
			n.line(lineKind{level: slog.LevelWarn, one: "tenure: handler returned an error", many: "tenure: handlers returned errors"}, f,
				slog.Any("error", err))
		}
	})
}

func (n *notifier) stuck(f Fence, c fsm.Cause) {
	n.post(func() {
		n.tell(Event{Kind: HandlerStuck, Fence: f, Err: revoked(f, c)})
		n.line(lineKind{level: slog.LevelWarn, one: "tenure: handler stuck: its shard is not released",
			many: "tenure: handlers stuck: their shards are not released", cause: c.String()}, f)
	})
}

func (n *notifier) refused(f Fence, current driver.Owner) {
	n.post(func() {
		n.tell(Event{Kind: WriteRefused, Fence: f, Err: &FencedError{Fence: f, Current: current}})
		kind := lineKind{level: slog.LevelWarn, one: "tenure: write refused by its fence", many: "tenure: writes refused by their fences"}
		if newer(current, f) {
			kind.one, kind.many = "tenure: write of a former lease refused: this process has a newer one", ""
		}
		n.line(kind, f,
			slog.Int64("current_token", int64(current.Token)), slog.String("current_session", string(current.Session)))
	})
}

func (n *notifier) storeLost(e *LostError) {
	n.post(func() {
		n.tell(Event{Kind: SessionStoreLost, Session: e.Fence.Session, Err: e})
		n.line(lineKind{level: slog.LevelWarn, one: "tenure: store lost writes"}, e.Fence,
			slog.Any("error", e))
	})
}

func (n *notifier) obeyed(f Fence, r control.Rule) {
	n.post(func() {
		n.line(lineKind{level: slog.LevelInfo, one: "tenure: operator's rule obeyed", asked: true,
			rule: rule{string(r.Kind), r.Author, r.Writer, r.Reason}}, f)
	})
}
