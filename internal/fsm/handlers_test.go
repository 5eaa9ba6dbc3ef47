package fsm

import (
	"errors"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// granted starts the handler of a lease. The handler reads the head if necessary, and commits at
// random.
func (w *world) granted(p *member, sh int) {
	q := w.procs[p.idx]
	w.stats.grants++
	r := &q.runs[sh]
	w.tracef("m%d   -> grant %s token %d until %v", p.idx, r.fence.Shard, r.fence.Token, time.Duration(p.until))
	w.planWrite(q, sh)
	if !w.quiet && w.chance(w.plan.onGrant) {
		w.afterGrant(q)
	}
	if !p.want[sh] {
		w.tell(q, sh)
	}
}

func (w *world) yields(p *member, sh int) {
	w.tracef("m%d   -> yield %s", p.idx, showFence(p.runs[sh].fence))
	w.stats.yields++
	w.tell(w.procs[p.idx], sh)
}

// revoked asks the handler to stop. Some handlers ignore this and try one more write, with the
// number that the store expects, so that only the fence can refuse the write.
func (w *world) revoked(p *member, sh int, cause Cause) {
	q := w.procs[p.idx]
	w.tracef("m%d   -> revoke %s token %d: %v", p.idx, q.runs[sh].fence.Shard, q.runs[sh].fence.Token, cause)
	if !w.quiet && w.chance(w.plan.zombie) {
		fence := q.runs[sh].fence
		w.at(w.between(0, 2*q.cfg.Member.TTL), event{kind: evInput, proc: q.idx, inc: q.inc, fn: func() {
			if q.runs[sh].fence == fence {
				w.write(q, sh, fence.Token, true)
			}
		}})
	}
	w.tell(q, sh)
}

// tell asks the handler to stop. Most handlers return soon, some late, and some very late.
func (w *world) tell(q *process, sh int) {
	r := &q.runs[sh]
	if !r.active || r.told {
		return
	}
	r.told = true
	d := w.between(0, 40*time.Millisecond)
	switch x := w.rng.Float64(); {
	case w.quiet:
	case x < w.plan.stuck:
		d = w.between(q.cfg.DrainBudget, 8*q.cfg.DrainBudget)
		w.stats.stuck++
	case x < 3*w.plan.stuck:
		d = w.between(0, 3*q.cfg.DrainBudget/2)
	}
	w.at(d, event{kind: evDrained, proc: q.idx, inc: q.inc, shard: sh, token: r.fence.Token})
}

func (w *world) planWrite(q *process, sh int) {
	w.at(w.between(time.Millisecond, w.plan.writeEvery), event{kind: evWrite, proc: q.idx, inc: q.inc, shard: sh, token: q.runs[sh].fence.Token})
}

// write sends the handler's next write. A blind handler does not check its lease, and uses the
// number that follows the store's head.
func (w *world) write(q *process, sh int, token driver.Token, blind bool) {
	r := &q.runs[sh]
	if r.fence.Token != token || !r.active && !blind {
		return
	}
	if !blind {
		if !q.trusts(sh, q.local(w.now)) {
			return
		}
		if !r.known {
			w.send(q, &packet{proc: q.idx, inc: q.inc, kind: pktHead, shard: sh, token: token})
			w.planWrite(q, sh)
			return
		}
	}
	r.index++
	hw := &handlerWrite{id: writeID{token, r.index}, write: driver.Write{
		Fence: r.fence, Number: r.number + 1, Nonce: driver.Nonce(uint64(token)<<20 | uint64(r.index)),
	}}
	if hw.blind = blind; blind {
		hw.write.Number = w.store.shards[sh].head.Number + 1
	} else {
		r.pending = hw
	}
	w.sendWrite(q, sh, hw)
}

func (w *world) sendWrite(q *process, sh int, hw *handlerWrite) {
	if w.trace != nil {
		w.tracef("m%d commits %s token %d number %d", q.idx, hw.write.Fence.Shard, hw.write.Fence.Token, hw.write.Number)
	}
	w.send(q, &packet{proc: q.idx, inc: q.inc, kind: pktCommit, shard: sh, token: hw.write.Fence.Token, write: hw})
	w.at(q.cfg.Member.TTL/4, event{kind: evWriteTimeout, proc: q.idx, inc: q.inc, shard: sh, token: hw.write.Fence.Token, gen: uint32(hw.id.index)})
}

// writeAgain resends a write with an unknown outcome, under the same number and nonce (S15).
func (w *world) writeAgain(q *process, sh int, token driver.Token, index uint32) {
	r := &q.runs[sh]
	if r.fence.Token == token && r.pending != nil && r.pending.id.index == int(index) && q.trusts(sh, q.local(w.now)) {
		w.sendWrite(q, sh, r.pending)
	}
}

func (w *world) committed(q *process, pkt *packet, res driver.CommitResult) {
	r := &q.runs[pkt.shard]
	if r.fence.Token != pkt.token {
		return
	}
	var conflict *driver.ConflictError
	var fenced *driver.FencedError
	switch {
	case errors.As(res.Err, &fenced):
		in := Input{Kind: InFenced, Shard: r.fence.Shard, Token: r.fence.Token}
		if w.chance(0.5) {
			in.Owner = fenced.Current
		}
		w.step(q, in)
		return
	case r.pending != pkt.write, driver.Unknown(res.Err):
		if hw := pkt.write; hw.blind && !hw.told && res.Err == nil {
			hw.told = true
			w.acked(q, hw, res.Head.Seq)
		}
		return
	case errors.As(res.Err, &conflict):
		// Under a current fence, no other session writes. Either this write or an earlier write of
		// this lease was therefore applied before.
		r.number = conflict.Head.Number
	default:
		r.number = res.Head.Number
		w.acked(q, pkt.write, res.Head.Seq)
	}
	r.pending = nil
	if r.active && !r.told {
		w.planWrite(q, pkt.shard)
	}
}
