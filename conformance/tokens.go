package conformance

import (
	"github.com/tenure-go/tenure/core/driver"
)

// tokenCases returns the cases Acquire/TokensIncreaseAcross.... Each case ends a lease or loses
// data, in its own way, between two grants.
func tokenCases() []testCase {
	step := func(name, shows string, again func(f *fixture, h *tokenHolder), needs ...string) testCase {
		return testCase{
			Area: "Acquire", Property: "TokensIncreaseAcross" + name, Rules: []rule{ruleA2}, Needs: needs,
			Shows: "the namespace's tokens increase across " + shows,
			run:   func(f *fixture) { tokensIncrease(f, again) },
		}
	}
	return []testCase{
		step("Release", "a release", func(f *fixture, h *tokenHolder) {
			h.release(h.fence)
			h.granted(h.acquire(h.fence.Shard))
		}),
		step("Evict", "the holder's eviction", func(f *fixture, h *tokenHolder) {
			f.evict(h.member)
			h.member = f.joinOn(h.b, "next")
			h.granted(h.acquire(h.fence.Shard))
		}),
		step("Transfer", "a transfer, to another and to itself", func(f *fixture, h *tokenHolder) {
			next := f.joinOn(f.read(), "next")
			for _, to := range []*member{h.member, next} {
				r := h.transfer(h.fence, to.ID())
				f.setup("transfer", r.Err)
				h.granted(r.Fence)
				h.member = to
			}
		}),
		step("Preempt", "a preemption", func(f *fixture, h *tokenHolder) {
			h.member = f.joinOn(f.read(), "next")
			h.granted(h.preempt(h.fence.Shard))
		}),
		step("Close", "the close of the holder's session", func(f *fixture, h *tokenHolder) {
			f.setup("close", h.Close(f.ctx))
			h.member = f.joinOn(h.b, "next")
			h.granted(h.acquire(h.fence.Shard))
		}),
		step("DeleteData", "the deletion of all of the shard's data", func(f *fixture, h *tokenHolder) {
			head := h.commit(h.fence, put("a", "1"), put("b", "2"), appendOp("x"))
			h.commit(h.fence, del("a"), del("b"), trim(head.Seq))
			h.release(h.fence)
			h.granted(h.acquire(h.fence.Shard))
		}),
		step("Trim", "a trim of the log", func(f *fixture, h *tokenHolder) {
			head := h.commit(h.fence, appendOp("x"), appendOp("y"))
			h.commit(h.fence, trim(head.Seq))
			f.setup("close", h.Close(f.ctx))
			h.member = f.joinOn(h.b, "next")
			h.granted(h.acquire(h.fence.Shard))
		}),
		step("Reopen", "the reopening of every process", func(f *fixture, h *tokenHolder) {
			h.release(h.fence)
			f.setup("close", h.Close(f.ctx))
			f.closeAll()
			h.member = f.join("next")
			h.granted(h.acquire(h.fence.Shard))
		}),
		step("StoreRestart", "a restart of the store", func(f *fixture, h *tokenHolder) {
			h.release(h.fence)
			f.restart()
			f.setup("beat after a restart", f.settle(func() error { return h.Beat(f.ctx) }))
			h.granted(h.acquire(h.fence.Shard))
		}, "Restart"),
		step("Compaction", "a compaction of the store", func(f *fixture, h *tokenHolder) {
			h.release(h.fence)
			f.setup("compact", f.store.Compact(f.ctx))
			h.granted(h.acquire(h.fence.Shard))
		}, "Compact"),
	}
}

// tokenHolder is the current holder of a shard, and all tokens granted so far.
type tokenHolder struct {
	*member
	fence  driver.Fence
	newest driver.Token
}

func (h *tokenHolder) granted(fence driver.Fence) {
	h.f.t.Helper()
	h.f.must(ruleA2, fence.Token > h.newest, "token %d of shard %q was granted after token %d", fence.Token, fence.Shard,
		h.newest)
	h.fence, h.newest = fence, fence.Token
}

func tokensIncrease(f *fixture, again func(*fixture, *tokenHolder)) {
	h := &tokenHolder{member: f.join("first")}
	for _, shard := range []driver.ShardID{"s", "other"} {
		if f.owner(shard).Session != "" {
			h.granted(h.preempt(shard))
		} else {
			h.granted(h.acquire(shard))
		}
		for range 2 {
			again(f, h)
			h.granted(h.acquire(driver.ShardID("new-" + newID())))
			h.member.release(h.fence)
			h.fence = driver.Fence{Shard: shard}
			h.granted(h.preempt(shard))
		}
	}
}

func (f *fixture) closeAll() {
	f.t.Helper()
	f.mu.Lock()
	backends := f.backends
	f.backends = nil
	f.mu.Unlock()
	f.reader, f.observer = nil, nil
	for _, b := range backends {
		f.setup("close a backend", b.Close())
	}
}

// restart restarts the store and waits until it answers again.
func (f *fixture) restart() {
	f.t.Helper()
	b := f.read()
	f.setup("restart", f.store.Restart(f.ctx))
	if !f.eventually(f.patience(), func() bool {
		_, err := b.Observe(f.ctx, driver.ObserveQuery{})
		return err == nil
	}) {
		f.Errorf("%v after a restart the store does not answer a backend that was open before", f.patience())
	}
}
