package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/grants"
	"github.com/tenure-go/tenure/internal/listing"
)

// modelBackend connects a process to a model, through a network with faults.
type modelBackend struct {
	m         *model
	namespace string
	id        string
	ended     chan struct{}

	mu    sync.Mutex // also guards the fields below, taken after model.mu
	ends  bool
	rev   int64 // highest acknowledged
	fault fault
	held  []func()
	all   sync.Mutex   // for the mutant with one for everything
	full  *driver.View // for the mutant that caches
	known map[driver.SessionID]*record

	buffer [][]byte // for the mutant that keeps entries for a reader
}

type fault int

const (
	noFault fault = iota
	dropRequests
	dropReplies
	hold
	duplicate
	cut
)

var (
	_ driver.Backend = (*modelBackend)(nil)
	_ driver.Session = (*modelSession)(nil)
)

func (m *model) open(ctx context.Context, namespace string, create bool) (*modelBackend, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bug&lying != 0 && m.bug&^lying != noProbe {
		return nil, errors.New("tenure: the store ignores the conditions of writes: use another")
	}
	if create {
		m.create()
	}
	if m.store.id == "" {
		return nil, &driver.MissingError{What: "the namespace has no identity", Make: "look where its data went"}
	}
	return &modelBackend{m: m, namespace: namespace, id: m.store.id, ended: make(chan struct{}),
		known: map[driver.SessionID]*record{}}, nil
}

type call int

const (
	read call = iota
	write
)

// send makes one round trip. It runs op under the store's mutex, and returns the answer of op.
func send[R any](ctx context.Context, b *modelBackend, kind call, op func() (R, error)) (R, error) {
	var zero R
	if b.closed() {
		return zero, fmt.Errorf("tenure: the backend is %w", driver.ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return zero, fmt.Errorf("tenure: %w: %w", driver.ErrRetry, err)
	}
	type answer struct {
		r   R
		err error
	}
	visit := func() answer {
		b.m.mu.Lock()
		defer b.m.mu.Unlock()
		if kind == write {
			b.m.calls.Writes++
		} else {
			b.m.calls.Reads++
		}
		if err := b.check(); err != nil {
			return answer{zero, err}
		}
		r, err := op()
		if b.m.replica != nil {
			switch b.m.ahead = b.m.ahead || kind == write; {
			case kind == write && b.m.bug != trustsItself, kind == read && b.m.ahead && b.m.bug != readsEarly:
				return answer{zero, errors.New("tenure: no replica has it")}
			}
		}
		b.acknowledge()
		return answer{r, err}
	}
	answered := make(chan answer, 1)
	b.mu.Lock()
	fault := b.fault
	if fault == hold {
		b.held = append(b.held, func() { answered <- visit() })
	}
	b.mu.Unlock()
	switch fault {
	case noFault:
		answered <- visit()
	case dropReplies:
		a := visit()
		if b.m.bug == retriesWrites {
			visit()
		}
		if b.m.bug == successOnLostReply {
			answered <- a
		}
	case duplicate:
		answered <- visit()
		visit()
	case cut:
		return zero, errors.New("tenure: no connection")
	}
	select {
	case a := <-answered:
		return a.r, a.err
	case <-ctx.Done():
		if b.m.bug == unknownAsNotApplied {
			return zero, fmt.Errorf("tenure: %w: %w", driver.ErrRetry, ctx.Err())
		}
		if b.m.bug == causeIsAnswer {
			return zero, fmt.Errorf("tenure: no answer: %w", context.Cause(ctx))
		}
		return zero, fmt.Errorf("tenure: no answer: %w", ctx.Err())
	case <-b.ended:
		// A write may have reached the store, but a read has certainly changed nothing.
		if kind == read {
			return zero, fmt.Errorf("tenure: the backend is %w", driver.ErrClosed)
		}
		return zero, fmt.Errorf("tenure: the backend was closed while it waited")
	}
}

// check returns an error if the store was replaced or went back.
func (b *modelBackend) check() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.m.lift(b.rev)
	if b.m.bug == noIdentityCheck {
		b.m.create()
		return nil
	}
	if b.m.store.id != b.id || b.m.store.rev < b.rev {
		return fmt.Errorf("tenure: %w", driver.ErrStoreChanged)
	}
	return nil
}

func (b *modelBackend) acknowledge() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rev = b.m.store.rev
}

func (b *modelBackend) closed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ends
}

func (b *modelBackend) wire() *conformance.Wire {
	set := func(f fault) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.fault = f
	}
	start := func(f fault) func() func() {
		return func() func() {
			set(f)
			return func() { set(noFault) }
		}
	}
	return &conformance.Wire{
		DropRequests: start(dropRequests),
		DropReplies:  start(dropReplies),
		Duplicate:    start(duplicate),
		Hold: func() func() {
			set(hold)
			return func() {
				b.mu.Lock()
				b.fault = noFault
				held := b.held
				b.held = nil
				b.mu.Unlock()
				for _, deliver := range held {
					deliver()
				}
			}
		},
		Cut: func() func() {
			set(cut)
			return func() {
				set(noFault)
				if b.m.bug == revivedOnReconnect {
					b.m.mu.Lock()
					defer b.m.mu.Unlock()
					for id, r := range b.known {
						b.m.store.members[id] = r
					}
				}
			}
		},
	}
}

func (b *modelBackend) Info() driver.Info {
	return driver.Info{Backend: "model", Namespace: b.namespace, StoreID: b.id, Limits: driver.Limits{
		BatchItems: 64, WriteOps: 32, WriteBytes: 64 << 10, MinTTL: time.Millisecond,
	}}
}

func (b *modelBackend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ends {
		b.ends = true
		close(b.ended)
		if b.m.bug == leaks {
			go func() { <-time.After(time.Minute) }()
		}
	}
	return nil
}

func (b *modelBackend) Join(ctx context.Context, j driver.Member) (driver.Session, error) {
	if err := driver.CheckMember(j, b.Info().Limits); err != nil {
		return nil, err
	}
	b.m.mu.Lock()
	last, removals := b.m.store.labels[j.Node], b.m.store.removals
	b.m.mu.Unlock()
	s, err := send(ctx, b, write, func() (driver.Session, error) {
		if err := b.m.join(j, last, removals); err != nil {
			return nil, err
		}
		b.known[j.Session] = b.m.store.members[j.Session]
		return &modelSession{b: b, id: j.Session, node: j.Node, granted: map[driver.ShardID]driver.Fence{}}, nil
	})
	if errors.Is(err, driver.ErrRetry) && !j.Supersede && ctx.Err() == nil {
		return b.Join(ctx, j)
	}
	return s, err
}

func (b *modelBackend) Labels(ctx context.Context) ([]string, error) {
	return send(ctx, b, read, func() ([]string, error) { return slices.Collect(maps.Keys(b.m.store.labels)), nil })
}

func (b *modelBackend) History(ctx context.Context, id driver.ShardID) ([]driver.Grant, error) {
	return send(ctx, b, read, func() ([]driver.Grant, error) {
		all, why := grants.Parse(b.m.shard(id).past)
		if why == "" || b.m.bug == badHistoryHidden {
			return all, nil
		}
		return all, driver.Damaged(string(id), id, why)
	})
}

// block calls try at every change until try returns an answer.
func block[R any](ctx context.Context, b *modelBackend, try func() (R, bool)) (R, error) {
	for first := true; ; first = false {
		var changed chan struct{}
		found := false
		r, err := send(ctx, b, read, func() (R, error) {
			if !first && b.m.bug != readsWhileBlocked {
				b.m.calls.Reads--
			}
			changed = b.m.changed
			r, ok := try()
			found = ok
			return r, nil
		})
		if errors.Is(err, driver.ErrRetry) && !first {
			err = ctx.Err() // the call had begun
		}
		if err != nil || found {
			return r, err
		}
		done := ctx.Done()
		if b.m.bug == ignoresContext {
			done = nil
		}
		var again <-chan time.Time
		if b.m.bug == readsWhileBlocked {
			again = time.After(20 * time.Millisecond)
		}
		select {
		case <-changed:
		case <-again:
		case <-done:
			if b.m.bug == hidesContext {
				return r, errors.New("tenure: time out")
			}
			return r, fmt.Errorf("tenure: nothing changed: %w", ctx.Err())
		case <-b.ended:
			return r, fmt.Errorf("tenure: the backend is %w", driver.ErrClosed)
		}
	}
}

func (b *modelBackend) Observe(ctx context.Context, q driver.ObserveQuery) (*driver.View, error) {
	return block(ctx, b, func() (*driver.View, bool) {
		since, ok := b.m.position("view", q.Since, b.m.store.compacted, b.m.store.rev)
		if !ok {
			v := b.m.view(0, true, q.Beats)
			if b.m.bug == cachesFullState {
				if b.full == nil {
					b.full = v
				}
				v.Shards = b.full.Shards
			}
			return v, true
		}
		v := b.m.view(since, false, q.Beats)
		return v, since < b.m.store.rev || len(v.Beats) > 0 || b.m.bug == beatsWakeAll
	})
}

func (b *modelBackend) TailLog(ctx context.Context, since driver.Cursor, most int) (*driver.TailPage, error) {
	return block(ctx, b, func() (*driver.TailPage, bool) {
		if b.m.bug == buffersForReader && !slices.Contains(b.m.tailers, b) {
			b.m.tailers = append(b.m.tailers, b)
		}
		b.buffer = nil
		p := b.m.page(since, most)
		return p, p != nil
	})
}

func (b *modelBackend) ReadLog(
	ctx context.Context, id driver.ShardID, after driver.Seq, most int,
) (*driver.LogPage, error) {
	if err := driver.CheckShard(id); err != nil {
		return nil, err
	}
	return send(ctx, b, read, func() (*driver.LogPage, error) {
		s := b.m.shard(id)
		page := &driver.LogPage{Head: s.head}
		if s.badHead && b.m.bug != badHeadUsed {
			return nil, b.m.damaged("shard/"+string(id), id)
		}
		if most > 0 && after+1 < s.head.Oldest && b.m.bug != readsPastTrim {
			return nil, &driver.TrimmedError{Shard: id, Oldest: s.head.Oldest}
		}
		for _, e := range s.entries {
			if e.Seq == 1 && s.badLog && after == 0 {
				if b.m.bug == badEntrySkipped {
					continue
				}
				return nil, b.m.damaged("log/"+string(id), id)
			}
			if e.Seq > after && (len(page.Entries) < most || b.m.bug == pageFromEnd) {
				page.Entries = append(page.Entries, e)
			}
		}
		if extra := len(page.Entries) - most; extra > 0 {
			page.Entries = page.Entries[extra:]
		}
		return page, nil
	})
}

func (b *modelBackend) Get(ctx context.Context, id driver.ShardID, key string) (*driver.Item, error) {
	if err := errors.Join(driver.CheckShard(id), driver.CheckKey(key)); err != nil {
		return nil, err
	}
	return send(ctx, b, read, func() (*driver.Item, error) {
		it, there := b.m.shard(id).items[key]
		if !there {
			return nil, nil
		}
		return &it, nil
	})
}

func (b *modelBackend) List(ctx context.Context, id driver.ShardID, prefix string, limit, largest int) ([]driver.Item, error) {
	if err := driver.CheckList(id, prefix, limit, largest); err != nil {
		return nil, err
	}
	return send(ctx, b, read, func() ([]driver.Item, error) {
		var items []driver.Item
		if b.m.shard(id).oddItem && b.m.bug == oddItemFails {
			return nil, b.m.damaged("item/"+string(id), id)
		}
		if b.m.shard(id).oddItem && b.m.bug == oddItemListed && strings.HasPrefix("k2#x", prefix) {
			items = append(items, driver.Item{Key: "k2#x", Version: 1})
		}
		for key, it := range b.m.shard(id).items {
			if strings.HasPrefix(key, prefix) {
				items = append(items, it)
			}
		}
		slices.SortFunc(items, func(x, y driver.Item) int { return strings.Compare(x.Key, y.Key) })
		if limit > 0 {
			items = items[:min(limit, len(items))]
		}
		budget := listing.New(limit, largest)
		if b.m.bug == listsAnyNumber {
			budget = listing.New(0, largest)
		}
		for i := range items {
			if b.m.bug != listsAnySize {
				budget.Take(&items[i], len(items[i].Value), id, items[i].Key)
			}
		}
		return items, nil
	})
}

type modelSession struct {
	b    *modelBackend
	id   driver.SessionID
	node string

	granted map[driver.ShardID]driver.Fence // by Acquire; under the model's mutex
	late    *driver.MemberState             // for updateSentLate; under the model's mutex
}

func (s *modelSession) ID() driver.SessionID { return s.id }

// alive returns the session's record.
func (s *modelSession) alive() (*record, error) {
	id := s.id
	if s.b.m.bug == beatByLabel {
		id = s.b.m.store.labels[s.node]
	}
	r := s.b.m.store.members[id]
	if r == nil {
		return nil, fmt.Errorf("tenure: %w", driver.ErrSessionLost)
	}
	return r, nil
}

func (s *modelSession) Beat(ctx context.Context) error {
	if s.b.m.bug == beatsBehindWrites {
		s.b.all.Lock()
		defer s.b.all.Unlock()
	}
	_, err := send(ctx, s.b, write, func() (struct{}, error) {
		r, err := s.alive()
		if err != nil {
			return struct{}{}, err
		}
		if s.b.m.bug != beatKeepsVersion {
			r.version++
			s.b.m.wake()
		}
		for _, sh := range s.b.m.store.shards {
			if sh.owner.Session == s.id && s.b.m.bug == beatPerShard {
				s.b.m.calls.Writes++
			}
		}
		return struct{}{}, nil
	})
	return err
}

// batch sends items in calls of the batch size. The function do decides each item's result. If
// living is set, the session must have a record.
func batch[I, R any](
	ctx context.Context, s *modelSession, items []I, living bool, do func(I) R, failed func(error) R,
) ([]R, error) {
	size := s.b.Info().Limits.BatchItems
	_, transfers := any(items).([]driver.Transfer)
	if s.b.m.bug == oneCallPerItem || s.b.m.bug == oneCallPerTransfer && transfers {
		size = 1
	}
	var results []R
	for part := range slices.Chunk(items, size) {
		res, err := send(ctx, s.b, write, func() ([]R, error) {
			if _, err := s.alive(); err != nil && living {
				return nil, err
			}
			var res []R
			tooMany := s.b.m.takes > 0 && len(part) > s.b.m.takes
			for _, it := range part {
				if !tooMany || s.b.m.bug == refusesWhatItApplied {
					res = append(res, do(it))
				}
			}
			if tooMany {
				return nil, fmt.Errorf("%d items: %w", len(part), driver.ErrTooLarge)
			}
			return res, nil
		})
		if err != nil && len(results) == 0 {
			return nil, err
		}
		for i := range part {
			if err != nil {
				results = append(results, failed(err))
			} else {
				results = append(results, res[i])
			}
		}
	}
	return results, nil
}

func acquireFailed(err error) driver.AcquireResult { return driver.AcquireResult{Err: err} }

func (s *modelSession) Acquire(ctx context.Context, claims []driver.Claim) ([]driver.AcquireResult, error) {
	if err := driver.CheckClaims(claims); err != nil {
		return nil, err
	}
	denied := false
	return batch(ctx, s, claims, true, func(c driver.Claim) driver.AcquireResult {
		if denied && s.b.m.bug == batchStopsAtDenied {
			return driver.AcquireResult{Err: &driver.HeldError{Shard: c.Shard}}
		}
		r := s.b.m.claim(s.id, c)
		if r.Err == nil {
			s.granted[c.Shard] = r.Fence
		}
		denied = denied || r.Err != nil
		if r.Err != nil && s.b.m.bug == resendsPerDenied {
			s.b.m.calls.Writes++
		}
		return r
	}, acquireFailed)
}

func (s *modelSession) Transfer(ctx context.Context, to []driver.Transfer) ([]driver.AcquireResult, error) {
	if err := driver.CheckTransfers(to, s.id); err != nil {
		return nil, err
	}
	return batch(ctx, s, to, true, func(h driver.Transfer) driver.AcquireResult {
		if s.b.m.bug == historyReadFirst && s.b.m.shard(h.Fence.Shard).past != "" {
			s.b.m.calls.Reads++
		}
		return s.b.m.transfer(h)
	}, acquireFailed)
}

func (s *modelSession) Release(ctx context.Context, fences []driver.Fence) error {
	if err := driver.CheckFences(fences); err != nil {
		return err
	}
	res, err := batch(ctx, s, fences, false, func(f driver.Fence) error {
		s.b.m.release(f, s.granted[f.Shard] == f)
		return nil
	}, func(err error) error { return err })
	return errors.Join(append(res, err)...)
}

func (s *modelSession) Commit(ctx context.Context, writes []driver.Write) ([]driver.CommitResult, error) {
	if err := driver.CheckWrites(writes, s.b.Info().Limits); err != nil {
		if s.b.m.bug == tooLargeSent && errors.Is(err, driver.ErrTooLarge) {
			_, _ = s.b.ReadLog(ctx, writes[0].Fence.Shard, 0, 0)
		}
		return nil, err
	}
	if s.b.m.bug == beatsBehindWrites {
		s.b.all.Lock()
		defer s.b.all.Unlock()
		<-time.After(20 * time.Millisecond)
	}
	var refused error
	return batch(ctx, s, writes, false, func(w driver.Write) driver.CommitResult {
		if refused != nil && s.b.m.bug == refusalSpreads {
			return driver.CommitResult{Err: refused}
		}
		r := s.b.m.commit(w)
		refused = r.Err
		return r
	},
		func(err error) driver.CommitResult { return driver.CommitResult{Err: err} })
}

func (s *modelSession) Update(ctx context.Context, st driver.MemberState) error {
	if err := driver.CheckUpdate(st); err != nil && s.b.m.bug != uncheckedUpdate {
		return err
	}
	_, err := send(ctx, s.b, write, func() (struct{}, error) { return struct{}{}, s.b.m.update(s.id, st) })
	if s.b.m.bug == updateSentLate {
		s.b.m.mu.Lock()
		defer s.b.m.mu.Unlock()
		late := s.late
		if s.late = nil; driver.Unknown(err) {
			s.late = &st // until the next one was written
		} else if r := s.b.m.store.members[s.id]; r != nil && late != nil {
			r.MemberState = *late
		}
	}
	return err
}

func (s *modelSession) Evict(ctx context.Context, suspects []driver.Suspect) ([]driver.EvictResult, error) {
	if err := driver.CheckSuspects(suspects); err != nil {
		return nil, err
	}
	return batch(ctx, s, suspects, true, s.b.m.evict,
		func(err error) driver.EvictResult { return driver.EvictResult{Err: err} })
}

func (s *modelSession) Close(ctx context.Context) error {
	_, err := send(ctx, s.b, write, func() (struct{}, error) {
		s.b.m.remove(s.id)
		return struct{}{}, nil
	})
	return err
}
