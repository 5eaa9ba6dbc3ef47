package consul

import (
	"context"
	"fmt"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/changelog"
)

// Apply runs a batch. Consul applies a transaction entirely or not at all. If some items are
// refused, Consul lists them all, and Apply sends the remaining items again (rule A6).
func (s *store) Apply(ctx context.Context, b *changelog.Batch) (*changelog.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, notSent(err)
	}
	a := &application{s: s, b: b, out: &changelog.Outcome{Outcome: kv.Outcome{Results: make([]kv.Result, len(b.Txns))}}}
	todo := make([]int, len(b.Txns))
	for i := range todo {
		todo[i] = i
	}
	if b.Piggyback != nil {
		a.together(ctx, todo)
	} else {
		for len(todo) > 0 && !a.over {
			todo = a.send(ctx, todo)
		}
	}
	if a.whole != nil {
		return nil, a.whole
	}
	if a.out.Refused || a.out.PiggybackRefused {
		return a.out, nil
	}
	a.explain(ctx)
	a.out.Rev = s.witness.rev()
	return a.out, nil
}

type application struct {
	s       *store
	b       *changelog.Batch
	out     *changelog.Outcome
	refused []int // transactions whose conditions did not hold
	decided bool  // something was applied, or may have been
	over    bool
	whole   error // error of the whole batch, if no transaction was decided
}

// together sends a batch whose piggybacked transaction must be applied in the same request as the
// items. Items that do not fit into one transaction get ErrRetry.
func (a *application) together(ctx context.Context, todo []int) {
	for len(todo) > 0 && !a.over {
		rest := a.send(ctx, todo)
		if !a.out.Piggyback.OK {
			todo = rest // without the refused items
			continue
		}
		for _, i := range rest {
			a.out.Results[i].Err = fmt.Errorf("tenure: %w: it did not fit into one transaction of consul with "+
				"the others", driver.ErrRetry)
		}
		return
	}
}

// send sends the items that fit into one request, and returns the items that are left.
func (a *application) send(ctx context.Context, todo []int) []int {
	r, n, witness := a.request(todo)
	if n == 0 { // the first item does not fit even alone
		a.out.Results[todo[0]].Err = fmt.Errorf("tenure: %w: its transaction has more operations or bytes than consul "+
			"takes (%d, %d)",
			driver.ErrTooLarge, a.s.ops, a.s.bytes)
		return todo[1:]
	}
	sent, rest := todo[:n], todo[n:]
	before := a.s.known.Load()
	answer, err := a.s.write(ctx, r, a.kind())
	if err != nil {
		a.fail(sent, rest, err)
		return nil
	}
	if len(answer.Errors) == 0 {
		a.decided = true
		if err := a.applied(r, answer, before, witness); err != nil {
			a.fail(sent, rest, fmt.Errorf("tenure: %w", err))
			return nil
		}
		return rest
	}
	refused, err := r.refusals(answer)
	if err != nil {
		a.fail(sent, rest, err)
		return nil
	}
	switch {
	case refused[guardPart]:
		a.guardRefused(ctx, sent, rest)
		return nil
	case refused[piggybackPart]:
		a.out.PiggybackRefused, a.over = true, true
		return nil
	}
	left := make([]int, 0, len(todo))
	for _, i := range sent {
		if refused[i] {
			a.refused = append(a.refused, i)
		} else {
			left = append(left, i)
		}
	}
	return append(left, rest...)
}

// Even the reads that explain a heartbeat's refusal are sent as heartbeats (rule E4).
func (a *application) kind() kind {
	if a.b.Heartbeat {
		return heartbeats
	}
	return requests
}

// request returns a transaction with as many items as fit.
func (a *application) request(todo []int) (r *request, n int, witness kv.Pair) {
	r = &request{ops: make([]operation, 0, a.s.ops)}
	r.guard(a.b.Guard)
	if a.b.Piggyback != nil {
		r.txn(a.b.Piggyback, piggybackPart)
	}
	// The answer to a heartbeat contains the record that the heartbeat replaced.
	if !a.b.Heartbeat {
		if witness = a.s.witness.now(); witness.Rev != 0 {
			r.look(witness.Key)
		}
	}
	for _, i := range todo {
		r.txn(&a.b.Txns[i], i)
		if len(r.ops) > a.s.ops || r.bytes > a.s.bytes {
			r.cut()
			break
		}
		n++
	}
	return r, n, witness
}

// applied stores the results of an applied request, which all have the same index. Consul returns
// this index only for records that the request put.
func (a *application) applied(r *request, answer *reply, before uint64, witness kv.Pair) error {
	entries, err := r.match(answer)
	if err != nil {
		return err
	}
	index := uint64(0)
	for i, o := range r.ops {
		if o.KV.Verb == verbSet || o.KV.Verb == verbCAS {
			index = entries[i].ModifyIndex
		}
	}
	// The index of a request that only deletes is unknown, but above every index known when it was
	// sent. Recording this lower bound raises the bound of the next such request (rule I1).
	if index == 0 {
		index = before + 1
	}
	a.s.learn(index)
	for _, p := range r.parts {
		switch p.index {
		case guardPart:
			continue
		case witnessPart:
			a.s.witness.check(witness, entries[p.lo].pair())
			continue
		case piggybackPart:
			a.out.Piggyback = kv.Result{OK: true, Rev: kv.Rev(index)}
			continue
		}
		res := kv.Result{OK: true, Rev: kv.Rev(index), Prev: p.prevIs}
		if p.prev >= 0 {
			res.Prev = kv.Rev(entries[p.prev].ModifyIndex)
		}
		for i := p.lo; i < p.then; i++ {
			if verb := r.ops[i].KV.Verb; verb == verbSet || verb == verbCAS {
				a.s.witness.check(kv.Pair{}, kv.Pair{Key: r.ops[i].KV.Key, Rev: kv.Rev(index)})
			}
		}
		for i := p.then; i < p.hi; i++ {
			res.Reads = append(res.Reads, entries[i].pair())
		}
		a.out.Results[p.index] = res
	}
	return nil
}

// fail ends the batch with the error of the sent items. The remaining items were not sent. If
// Consul refused some items earlier, Apply still reads the reasons.
func (a *application) fail(sent, rest []int, err error) {
	a.over = true
	if !a.decided && len(a.refused) == 0 {
		a.whole = err
		return
	}
	for _, i := range sent {
		a.out.Results[i].Err = err
	}
	for _, i := range rest {
		a.out.Results[i].Err = notSent(err)
	}
}

// guardRefused ends the batch, and refuses it entirely if nothing was applied before.
func (a *application) guardRefused(ctx context.Context, sent, rest []int) {
	a.over = true
	if a.decided {
		err := fmt.Errorf("tenure: %w: the namespace's or the session's record moved meanwhile", driver.ErrRetry)
		for _, i := range append(sent, rest...) {
			a.out.Results[i].Err = err
		}
		return
	}
	keys := make([]string, len(a.b.Guard))
	for i, c := range a.b.Guard {
		keys[i] = c.Key
	}
	page, err := a.s.get(ctx, a.kind(), keys)
	if err != nil {
		a.whole = refusedUnread(err)
		return
	}
	a.out.Refused, a.out.Guard, a.out.Results = true, page.Pairs, nil
}

// explain reads the records listed in the refused transactions' Else, in one call.
func (a *application) explain(ctx context.Context) {
	var keys []string
	for _, i := range a.refused {
		keys = append(keys, a.b.Txns[i].Else...)
	}
	if len(keys) == 0 {
		return
	}
	page, err := a.s.get(ctx, a.kind(), keys)
	pairs := []kv.Pair(nil)
	if err == nil {
		pairs = page.Pairs
	}
	for _, i := range a.refused {
		n := len(a.b.Txns[i].Else)
		if err != nil && n > 0 {
			a.out.Results[i].Err = refusedUnread(err)
			continue
		}
		a.out.Results[i].Reads, pairs = pairs[:n:n], pairs[n:]
	}
}

// refusedUnread returns the error of a transaction that Consul refused for an unknown reason, and
// therefore did not apply.
func refusedUnread(err error) error {
	return fmt.Errorf("tenure: %w: consul refused it, and did not say why: %w", driver.ErrRetry, err)
}
