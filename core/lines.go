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
)

// A process may own 100,000 shards, so what happens to many leases at once is one line of
// the log, with their count and the first namedShards of their shards; then each lease is a
// line at Debug. A kind of line is written once in linesEvery. What nobody asked for is
// first a line for each lease, singleLines of them in linesEvery.
const (
	linesEvery  = time.Second
	namedShards = 5
	singleLines = 16
)

// A lineKind is what lines that are gathered have in common.
type lineKind struct {
	level     slog.Level
	one, many string // messages, of one lease and of several; empty: as of one
	cause     string // empty: the line has none
	asked     bool   // for: gathered from the first lease on
	rule      rule
}

// A rule is what a line says of an operator's rule; the zero value says nothing.
type rule struct{ kind, author, writer, reason string }

// A gathering has what was not yet written of a kind.
type gathering struct {
	kind   lineKind
	since  time.Time // when linesEvery began; zero: it has not
	single int       // lines of one lease since then
	count  int
	shards []string
	first  []slog.Attr
}

// line writes a line about a lease, or gathers it. attrs are the lease's own.
func (n *notifier) line(kind lineKind, f Fence, attrs ...slog.Attr) {
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

// writeGathered writes what is due, or everything, and returns when to look again; zero:
// nothing is left.
func (n *notifier) writeGathered(everything bool) (again time.Time) {
	now := time.Now()
	kept := n.gathered[:0]
	for _, g := range n.gathered {
		over := g.since.IsZero() || now.Sub(g.since) >= linesEvery
		switch {
		case g.count > 0 && (over || everything):
			n.writeOne(g)
			*g = gathering{kind: g.kind, since: now}
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

// emit writes one line.
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
		if n.h.OnGrant != nil {
			n.h.OnGrant(LeaseEvent{Fence: f, Former: former})
		}
		n.line(lineKind{level: slog.LevelInfo, one: "tenure: lease granted", many: "tenure: leases granted", asked: true}, f)
	})
}

func (n *notifier) revoke(f Fence, c fsm.Cause) {
	n.post(func() {
		err := revoked(f, c)
		if n.h.OnRevoke != nil {
			n.h.OnRevoke(err)
		}
		n.line(lineKind{level: slog.LevelInfo, one: "tenure: lease ended", many: "tenure: leases ended", cause: c.String(),
			asked: err.Is(ErrReleased)}, f)
	})
}

// handlerReturn reports what a handler returned. An error is logged, unless it only says
// that the handler was asked to stop.
func (n *notifier) handlerReturn(f Fence, ran time.Duration, err error, asked bool) {
	if n.h.OnHandlerReturn == nil && err == nil {
		return
	}
	n.post(func() {
		if n.h.OnHandlerReturn != nil {
			n.h.OnHandlerReturn(LeaseEvent{Fence: f, Ran: ran, Err: err, Asked: err != nil && asked})
		}
		if err != nil && !asked {
			n.line(lineKind{level: slog.LevelWarn, one: "tenure: handler returned an error", many: "tenure: handlers returned errors"}, f,
				slog.Any("error", err))
		}
	})
}

func (n *notifier) stuck(f Fence, c fsm.Cause) {
	n.post(func() {
		if n.h.OnStuck != nil {
			n.h.OnStuck(revoked(f, c))
		}
		n.line(lineKind{level: slog.LevelWarn, one: "tenure: handler stuck: its shard is not released",
			many: "tenure: handlers stuck: their shards are not released", cause: c.String()}, f)
	})
}

func (n *notifier) refused(f Fence, current driver.Owner) {
	n.post(func() {
		if n.h.OnRefused != nil {
			n.h.OnRefused(&FencedError{Fence: f, Current: current})
		}
		n.line(lineKind{level: slog.LevelWarn, one: "tenure: write refused by its fence", many: "tenure: writes refused by their fences"}, f,
			slog.Int64("current_token", int64(current.Token)), slog.String("current_session", string(current.Session)))
	})
}

func (n *notifier) storeLost(e *LostError) {
	n.post(func() {
		if n.h.OnSession != nil {
			n.h.OnSession(SessionEvent{Kind: SessionStoreLost, Session: e.Fence.Session, Err: e})
		}
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
