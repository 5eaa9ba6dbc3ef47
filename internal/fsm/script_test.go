package fsm

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tenure-go/tenure/core/driver"
)

// A script plays a few members, m0, m1 and so on, that share the shard "s" on a model store. It
// shows the requests and reports of the members' machines. The TTL is 900 ms and the margin 100 ms,
// so trust lasts 800 ms. Heartbeats are sent every 300 ms. Messages arrive immediately unless a
// link is cut or the message is held. Handlers that are asked to return do so immediately, unless
// they are stuck. Heartbeats, reads and extensions of trust are shown only with "run show".
//
//	cluster members=N [abandon=D]
//	want M... | unwant M [to=M]
//	run D [show]                 lets time pass
//	stop M | resume M | crash M  a process
//	cut M [requests] [replies]   a link; heal M
//	hold M [KIND]                keeps the replies to M, of acquire, of evict or of all; deliver M
//	stick M | return M           its handler does not return; returns
//	fence M | stall M            a commit was refused; the handler makes no progress
//	preempt M                    an operator gives the shard to M
//	wipe M                       the outstanding heartbeat finds another store
//	leave M                      gives up its session for good
//	store                        shows the shard's record and the members
//
// All members want the shard. Their order in C9 is the order of their numbers.
type script struct {
	c        *cosmos
	out      strings.Builder
	show     bool
	requests []bool // cut, by member
	replies  []bool
	holding  []EffectKind // by member: the kind that is held, or all kinds
	kept     []flying
}

const everything EffectKind = 255

func (s *script) log(p *member, text string) {
	routine := strings.HasPrefix(text, "beat ") || strings.HasPrefix(text, "read ") || strings.HasPrefix(text, "extend ") || strings.HasPrefix(text, "resync")
	if routine && !s.show {
		return
	}
	fmt.Fprintf(&s.out, "%6s m%d %s\n", fmt.Sprintf("%d", time.Duration(s.c.now).Milliseconds()), p.idx, text)
}

func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			s := &script{}
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				s.out.Reset()
				s.run(t, d)
				return s.out.String()
			})
		})
	}
}

func (s *script) run(t *testing.T, d *datadriven.TestData) {
	if d.Cmd == "cluster" {
		s.cluster(t, d)
		return
	}
	if d.Cmd == "store" {
		s.store()
		return
	}
	if d.Cmd == "run" {
		s.show = d.HasArg("show")
		length, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.pass(length)
		s.show = false
		return
	}
	for _, arg := range d.CmdArgs {
		i := -1
		if n, _ := fmt.Sscanf(arg.Key, "m%d", &i); n == 1 {
			s.command(t, d, s.c.procs[i])
		}
	}
}

func (s *script) cluster(t *testing.T, d *datadriven.TestData) {
	n := 0
	d.ScanArgs(t, "members", &n)
	*s = script{c: newCosmos(n, "s"), requests: make([]bool, n), replies: make([]bool, n), holding: make([]EffectKind, n)}
	s.c.log = s.log
	if d.HasArg("abandon") {
		var text string
		d.ScanArgs(t, "abandon", &text)
		after, err := time.ParseDuration(text)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		for _, p := range s.c.procs {
			p.cfg.AbandonAfter, p.m.cfg.AbandonAfter = after, after
		}
	}
}

func (s *script) store() {
	fmt.Fprintf(&s.out, "s: %s\n", showOwner(s.c.store.shards[0].owner))
	for i := range s.c.store.members {
		fmt.Fprintf(&s.out, "member %s\n", s.c.store.members[i].Session)
	}
}

func (s *script) command(t *testing.T, d *datadriven.TestData, p *explored) {
	c, r := s.c, &p.runs[0]
	switch d.Cmd {
	case "want":
		p.step(c.now, Input{Kind: InWant, Shard: "s"})
	case "unwant":
		in := Input{Kind: InUnwant, Shard: "s"}
		if d.HasArg("to") {
			var i int
			var text string
			d.ScanArgs(t, "to", &text)
			if _, err := fmt.Sscanf(text, "m%d", &i); err != nil {
				d.Fatalf(t, "%v", err)
			}
			in.To = c.procs[i].m.Session()
		}
		p.told[0] = r.active
		p.step(c.now, in)
	case "stop":
		p.paused = true
	case "resume":
		p.paused = false
	case "crash":
		p.dead = true
	case "cut":
		s.requests[p.idx] = d.HasArg("requests") || !d.HasArg("replies")
		s.replies[p.idx] = d.HasArg("replies") || !d.HasArg("requests")
	case "heal":
		s.requests[p.idx], s.replies[p.idx] = false, false
	case "hold":
		s.holding[p.idx] = everything
		if d.HasArg("acquire") {
			s.holding[p.idx] = EffAcquire
		}
		if d.HasArg("evict") {
			s.holding[p.idx] = EffEvict
		}
	case "deliver":
		s.holding[p.idx] = 0
		c.flight = append(c.flight, s.kept...)
		s.kept = nil
	case "stick":
		p.stuck = true
	case "return":
		p.stuck = false
	case "fence":
		p.step(c.now, Input{Kind: InFenced, Shard: "s", Token: r.fence.Token, Owner: c.store.shards[0].owner})
	case "stall":
		p.step(c.now, Input{Kind: InStalled, Shard: "s", Token: r.fence.Token})
	case "leave":
		p.step(c.now, Input{Kind: InLeave})
	case "preempt":
		claim := driver.Claim{Shard: "s", Seen: c.store.shards[0].owner, Preempt: true}
		if _, err := c.store.acquire(p.m.Session(), []driver.Claim{claim}); err != nil {
			d.Fatalf(t, "%v", err)
		}
	case "wipe":
		for i := range p.calls {
			if p.calls[i].kind == EffBeat {
				p.step(c.now, Input{Kind: InBeaten, Call: p.calls[i].id, Err: driver.ErrStoreChanged})
				return
			}
		}
		d.Fatalf(t, "no heartbeat is outstanding")
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
}

// pass runs everything that is due within d.
func (s *script) pass(d time.Duration) {
	c := s.c
	end := c.now.Add(d)
	for {
		s.network()
		all := c.actions(false)
		if len(all) == 0 || all[0].name == "time" && c.next() > end {
			c.now = end
			return
		}
		c.apply(all[0])
	}
}

// network removes cut and held messages from the wire.
func (s *script) network() {
	c := s.c
	keep := c.flight[:0]
	for _, f := range c.flight {
		i := f.pkt.proc
		switch {
		case f.rep == nil && s.requests[i], f.rep != nil && s.replies[i]:
		case f.rep != nil && (s.holding[i] == everything || s.holding[i] == f.pkt.kind):
			s.kept = append(s.kept, f)
		default:
			keep = append(keep, f)
		}
	}
	c.flight = keep
	for i, p := range c.procs {
		p.deaf = s.requests[i] || s.replies[i]
		if p.deaf {
			p.view = nil
		}
	}
}
