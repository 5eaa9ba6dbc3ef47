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

// A process may own 100,000 shards. If something happens to many leases together, the log therefore
// gets one line with their count and the first namedShards shards. Each lease gets its own line at
// Debug. A kind of line is written at most once per linesEvery. An event that was not requested
// first gets a line for each lease, up to singleLines per linesEvery.
const (
	linesEvery  = time.Second
	namedShards = 5
	singleLines = 16
)

// A lineKind is the common part of gathered lines.
type lineKind struct {
	level     slog.Level
	one, many string // messages for one lease and for several; if many is empty, one is used
	cause     string // empty if the line has none
	asked     bool   // requested, so gathered from the first lease on
	prompt    bool   // gathered within one step only, up to singleLines in linesEvery
	rule      rule
}

// A rule is the part of a line about an operator's rule; a line omits the zero value.
type rule struct{ kind, author, writer, reason string }

// A gathering holds the unwritten lines of a kind.
type gathering struct {
	kind   lineKind
	since  time.Time // when linesEvery began, or zero
	single int       // lines of one lease since then
	count  int
	shards []string
	first  []slog.Attr
}

// line writes or gathers a line about a lease. attrs are the attributes of this lease only.
func (n *notifier) line(kind lineKind, f Fence, attrs ...slog.Attr) {
	if kind.asked && kind.rule == (rule{}) && driver.IsLock(f.Shard) { // a lock comes and goes with each piece of work
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

// writeGathered writes the lines that are due, or all of them. It returns the time of the next
// call, or the zero time if nothing is left.
func (n *notifier) writeGathered(everything bool) (again time.Time) {
	now := time.Now()
	kept := n.gathered[:0]
	for _, g := range n.gathered {
		over := g.since.IsZero() || now.Sub(g.since) >= linesEvery
		switch {
		case g.count > 0 && (over || everything || g.kind.prompt && g.single < singleLines):
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
		if n.h.OnGrant != nil {
			n.h.OnGrant(LeaseEvent{Fence: f, Former: former})
		}
		n.line(lineKind{level: slog.LevelInfo, one: "tenure: lease granted", many: "tenure: leases granted", asked: true, prompt: true}, f)
	})
}

// newer reports whether a record is a later grant to the process that had the lease with fence f.
func newer(o driver.Owner, f Fence) bool {
	return o.Token > f.Token && o.Session != "" && mark.Process(o.Session) == mark.Process(f.Session)
}

func (n *notifier) revoke(f Fence, c fsm.Cause, current driver.Owner) {
	n.post(func() {
		err := revoked(f, c)
		if n.h.OnRevoke != nil {
			n.h.OnRevoke(err)
		}
		kind := lineKind{level: slog.LevelInfo, one: "tenure: lease ended", many: "tenure: leases ended", cause: c.String(), asked: err.Is(ErrReleased)}
		if newer(current, f) {
			kind.one, kind.many = "tenure: lease ended by a newer grant to this process", "tenure: leases ended by newer grants to this process"
		}
		n.line(kind, f)
	})
}

// handlerReturn reports a handler's result. It logs the error, unless this only reports that the
// handler was asked to stop.
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
