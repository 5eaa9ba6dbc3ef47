package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/follower"
)

type row struct {
	name, title string
	chart       string   // rows with the same name share a chart of their first figure
	figures     []figure // the figures of each measurement
	rounds      int      // the largest number of rounds; 0: any number
	cold        bool     // there is no warm-up round
	together    bool     // all rounds and contenders run concurrently, because the row mostly waits
	counts      bool     // all stores run concurrently, because the row measures no time
	locks       bool     // the row locks names briefly, and has no shards
	limit       time.Duration
	measure     func(ctx context.Context, b *bout) ([]float64, error)
}

type figure struct {
	name  string // empty if the unit is enough
	write func(float64) string
}

// A bout is a single measurement of one contender.
type bout struct {
	store *store
	on    *running
	contender
	quick bool
	fail  func(error)
	serve string // how members reach the server
	name  string // of the namespace, never used before
	nodes atomic.Int64
}

// errNone means that the row does not apply to this contender.
var errNone = errors.New("no such thing")

func millis(v float64) string { return fmt.Sprintf("%s ms", number(v)) }

func rows() []row {
	ms := func(name string) figure { return figure{name, millis} }
	perSecond := figure{"", func(v float64) string { return number(v) + "/s" }}
	appends := []figure{perSecond, ms("p50"), ms("p99")}
	moves := []figure{ms(""), ms("slowest")}
	acquire := func(n int) func(ctx context.Context, b *bout) ([]float64, error) {
		return func(ctx context.Context, b *bout) ([]float64, error) { return acquire(ctx, b, b.size(n)) }
	}
	append_ := func(shards, producers, standbys int, rate float64) func(ctx context.Context, b *bout) ([]float64, error) {
		return func(ctx context.Context, b *bout) ([]float64, error) {
			return appendTo(ctx, b, b.size(shards), b.size(producers), standbys, rate)
		}
	}
	return []row{
		{name: "acquire1000", title: "acquire 1,000 shards", chart: "acquire", figures: []figure{ms("")},
			limit: time.Minute, measure: acquire(1_000)},
		{name: "acquire10000", title: "acquire 10,000 shards", chart: "acquire", figures: []figure{ms("")},
			limit: 2 * time.Minute, measure: acquire(10_000)},
		{name: "takeover", title: "takeover", chart: "takeover", cold: true, together: true,
			figures: []figure{{"", func(v float64) string { return number(v) + " TTL" }}, {"", func(v float64) string {
				return number(v) + " s"
			}}},
			limit: 3 * time.Minute, measure: takeover},
		{name: "release", title: "release", chart: "moves", figures: moves, limit: time.Minute,
			measure: release},
		{name: "handover", title: "hand-over", chart: "moves", figures: moves, limit: time.Minute,
			measure: handOver},
		{name: "append1x64", title: "append: 1 shard, 64 producers", chart: "append", figures: appends,
			limit: time.Minute, measure: append_(1, 64, 0, 0)},
		{name: "append64x64", title: "append: 64 shards, 64 producers", chart: "append", figures: appends,
			limit: time.Minute, measure: append_(64, 64, 0, 0)},
		{name: "append64x64x8", title: "the same, beside 8 standbys", chart: "append", figures: appends,
			limit: time.Minute, measure: append_(64, 64, 8, 0)},
		{name: "append1000x1000", title: "append: 1,000 shards, 10/s each", chart: "append",
			figures: appends, limit: 2 * time.Minute, measure: append_(1000, 1000, 0, 10)},
		{name: "idle", title: "idle", chart: "idle", figures: []figure{perSecond},
			rounds: 1, cold: true, counts: true, limit: 2 * time.Minute, measure: idle},
		{name: "standby", title: "a shard wanted, not owned", chart: "standby", cold: true,
			figures: []figure{{"", func(v float64) string { return number(v) + " B" }},
				{"", func(v float64) string { return number(math.Round(100*v)/100) + " goroutines" }}},
			rounds: 3, limit: 2 * time.Minute, measure: standby},
		{name: "follower", title: "follower lag", chart: "follower",
			figures: []figure{ms("p50"), ms("p99")}, limit: time.Minute, measure: followerLag},
		{name: "lock1", title: "lock and unlock, one after the other", chart: "lock", locks: true,
			figures: []figure{ms("p50"), perSecond}, limit: time.Minute, measure: lockAlone},
		{name: "lock64", title: "lock and unlock, 64 at a time", chart: "locks", locks: true,
			figures: []figure{perSecond, ms("p50"), ms("p99")}, limit: time.Minute, measure: lockMany},
		{name: "lockhandover", title: "a lock's hand-over", chart: "lock", locks: true,
			figures: []figure{ms(""), ms("slowest"), ms("a shard's")}, limit: time.Minute, measure: lockHandOver},
	}
}

// In a quick run, the size is at most 20.
func (b *bout) size(n int) int {
	if b.quick {
		return min(n, 20)
	}
	return n
}

// In a quick run, the duration is at most 300 ms.
func (b *bout) length(d time.Duration) time.Duration {
	if b.quick {
		return min(d, 300*time.Millisecond)
	}
	return d
}

// Rows that kill no process use this TTL.
const usual = 10 * time.Second

func (b *bout) place(ttl time.Duration) place {
	return place{DSN: b.serve, Namespace: b.name, Node: fmt.Sprint("n", b.nodes.Add(1)), TTL: ttl, fail: b.fail}
}

// The new member has a session, because it holds a shard that no other member wants. The returned
// function closes the member, and adds any error to errp.
func (b *bout) join(ctx context.Context, errp *error) (m member, leave func(), err error) {
	return b.joinAt(ctx, b.place(usual), errp)
}

func (b *bout) joinAt(ctx context.Context, at place, errp *error) (m member, leave func(), err error) {
	if m, err = b.contender.join(ctx, at); err != nil {
		return nil, nil, err
	}
	leave = func() { *errp = errors.Join(*errp, m.close()) }
	if _, err := b.hold(ctx, m, at.Node); err != nil {
		leave()
		return nil, nil, err
	}
	return m, leave, nil
}

// The member contends for the shards, and the result is the time until it holds all of them.
func (b *bout) hold(ctx context.Context, m member, shards ...string) (time.Duration, error) {
	if b.most > 0 && len(shards) > b.most {
		return 0, fmt.Errorf("%w: at most %d: %s", errNone, b.most, b.why)
	}
	var left atomic.Int64
	left.Store(int64(len(shards)))
	all := make(chan struct{})
	start := time.Now()
	err := m.want(shards, func(grant) {
		if left.Add(-1) == 0 {
			close(all)
		}
	})
	if err != nil {
		return 0, err
	}
	select {
	case <-all:
		return time.Since(start), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("%d of %d shards are not held: %w", left.Load(), len(shards), context.Cause(ctx))
	}
}

func names(n int) []string {
	s := make([]string, n)
	for i := range s {
		s[i] = fmt.Sprintf("shard-%06d", i)
	}
	return s
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func inMillis(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// acquire measures the time from the call that contends for n free shards until the member owns all
// of them. The shards have never been owned.
func acquire(ctx context.Context, b *bout, n int) (_ []float64, err error) {
	m, leave, err := b.join(ctx, &err)
	if err != nil {
		return nil, err
	}
	defer leave()
	took, err := b.hold(ctx, m, names(n)...)
	return []float64{inMillis(took)}, err
}

// takeover measures the time from killing a shard's owner until the shard is granted in another
// process.
func takeover(ctx context.Context, b *bout) (_ []float64, err error) {
	ttl := b.ttl
	if ttl == 0 {
		ttl = time.Second
	}
	shard := "shard"
	p, err := holder(ctx, orders{Store: b.store.name, Contender: b.contender.name, At: b.place(ttl), Shard: shard})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Kill()) }()
	m, err := b.contender.join(ctx, b.place(ttl))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	won := make(chan time.Time, 1)
	if err := m.want([]string{shard}, func(grant) { won <- time.Now() }); err != nil {
		return nil, err
	}
	// The owner is killed at a random time between two heartbeats.
	if err := pause(ctx, b.length(2*time.Second)+rand.N(min(ttl, 5*time.Second))); err != nil {
		return nil, err
	}
	start := time.Now()
	if err := p.SendKill(); err != nil {
		return nil, err
	}
	select {
	case at := <-won:
		took := at.Sub(start).Seconds()
		return []float64{took / b.ttl.Seconds(), took}, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("nobody took over: %w", context.Cause(ctx))
	}
}

func release(ctx context.Context, b *bout) ([]float64, error) {
	return swaps(ctx, b, func(ctx context.Context, from, _ member, shard string) error {
		return from.release(ctx, shard)
	})
}

// handOver measures hand-overs to a named successor. Contenders other than Tenure cannot name a
// successor, so they release the shard instead.
func handOver(ctx context.Context, b *bout) ([]float64, error) {
	if !b.ours {
		return release(ctx, b)
	}
	return swaps(ctx, b, func(ctx context.Context, from, to member, shard string) error {
		return from.(*tenureMember).handOver(ctx, to.(*tenureMember), shard)
	})
}

const (
	// These constants limit the swaps in one round.
	swapsMost = 20
	swapsTime = 5 * time.Second
	// During the pause before each swap, the former owner becomes the standby. A watch of past
	// revisions in etcd, such as an Election's, starts only every 100 ms.
	settles = 200 * time.Millisecond
)

// One shard moves back and forth between two members. Each move is measured from the call that
// gives the shard away to the end of the new owner's first write.
func swaps(
	ctx context.Context, b *bout, move func(ctx context.Context, from, to member, shard string) error,
) (_ []float64, err error) {
	var members [2]member
	for i := range members {
		m, leave, err := b.join(ctx, &err)
		if err != nil {
			return nil, err
		}
		defer leave()
		members[i] = m
	}
	const shard = "moved"
	won := make(chan grant, 1)
	took, until := []float64{}, time.Now().Add(b.length(swapsTime))
	for i := 0; i < 2 || i <= swapsMost && time.Now().Before(until); i++ {
		to, from := members[i%2], members[1-i%2]
		if err := to.want([]string{shard}, func(g grant) { won <- g }); err != nil {
			return nil, err
		}
		start, moved := time.Now(), make(chan error, 1)
		if i > 0 { // otherwise no member has it
			if err := pause(ctx, settles); err != nil {
				return nil, err
			}
			start = time.Now()
			go func() { moved <- move(ctx, from, to, shard) }()
		} else {
			moved <- nil
		}
		select {
		case g := <-won:
			if err := g.write(ctx); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("swap %d: %w", i, context.Cause(ctx))
		}
		if i > 0 {
			took = append(took, inMillis(time.Since(start)))
		}
		if err := <-moved; err != nil {
			return nil, err
		}
	}
	slices.Sort(took)
	return []float64{took[len(took)/2], took[len(took)-1]}, nil
}

const (
	appendsWarm = time.Second
	appendsFor  = 3 * time.Second
)

// Producers append to one member's shards. At rate 0, the producers append as fast as possible. At
// a positive rate, each producer appends rate times a second. A late producer continues immediately
// and does not catch up. Each append is measured from the call to the acknowledgment.
func appendTo(ctx context.Context, b *bout, shards, producers, standbys int, rate float64) (_ []float64, err error) {
	leases, leave, err := b.leases(ctx, b.place(usual), names(shards), &err)
	if err != nil {
		return nil, err
	}
	defer leave()
	dismiss, err := b.standbys(ctx, standbys, names(shards), &err)
	defer dismiss()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	from := began.Add(b.length(appendsWarm))
	to := from.Add(b.length(appendsFor))
	took, errs := make([][]float64, producers), make([]error, producers)
	var all sync.WaitGroup
	for p := range producers {
		all.Go(func() {
			lease, due := leases[p%shards], began
			if rate > 0 { // spread over time
				due = due.Add(time.Duration(float64(p) / float64(producers) / rate * float64(time.Second)))
			}
			for {
				time.Sleep(time.Until(due))
				start := time.Now()
				if start.After(to) {
					return
				}
				if _, errs[p] = lease.Append(ctx, body()); errs[p] != nil {
					return
				}
				if end := time.Now(); start.After(from) && end.Before(to) {
					took[p] = append(took[p], inMillis(end.Sub(start)))
				}
				if rate > 0 {
					every := time.Duration(float64(time.Second) / rate)
					due = due.Add(every * max(1, time.Since(due)/every))
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	total := slices.Concat(took...)
	return append([]float64{float64(len(total)) / to.Sub(from).Seconds()}, quantiles(total)...), nil
}

// Additional members contend for the shards but should not get any.
func (b *bout) standbys(ctx context.Context, n int, shards []string, errp *error) (dismiss func(), err error) {
	var leaves []func()
	dismiss = func() {
		for _, leave := range leaves {
			leave()
		}
	}
	for range n {
		m, leave, err := b.join(ctx, errp)
		if err != nil {
			return dismiss, err
		}
		leaves = append(leaves, leave)
		if err := m.want(shards, func(g grant) { b.fail(fmt.Errorf("a standby won %s", g.shard)) }); err != nil {
			return dismiss, err
		}
	}
	return dismiss, nil
}

// One Tenure member owns all shards and their leases.
func (b *bout) leases(ctx context.Context, at place, shards []string, errp *error) ([]*core.Lease, func(), error) {
	if !b.ours {
		return nil, nil, errNone
	}
	m, leave, err := b.joinAt(ctx, at, errp)
	if err != nil {
		return nil, nil, err
	}
	got := make(chan *core.Lease, len(shards))
	if err := m.(*tenureMember).serve(shards, func(l *core.Lease) { got <- l }); err != nil {
		leave()
		return nil, nil, err
	}
	leases := make([]*core.Lease, len(shards))
	for i := range leases {
		select {
		case leases[i] = <-got:
		case <-ctx.Done():
			leave()
			return nil, nil, context.Cause(ctx)
		}
	}
	return leases, leave, nil
}

// The values are sorted, and the result is the median and the 99th percentile.
func quantiles(v []float64) []float64 {
	if len(v) == 0 {
		return []float64{0, 0}
	}
	slices.Sort(v)
	return []float64{v[len(v)/2], v[len(v)*99/100]}
}

const (
	idleShards = 100
	idleFor    = 30 * time.Second
	// Without this pause, earlier calls would be counted, because an idle PostgreSQL connection
	// reports its counts 10 s later.
	idleAfter = 12 * time.Second
)

// idle counts the calls to the server from two idle members, one of which owns all shards.
func idle(ctx context.Context, b *bout) (_ []float64, err error) {
	if b.on.calls == nil {
		return nil, errNone
	}
	if b.on.counted != "" {
		b.serve = b.on.counted
	}
	owner, leave, err := b.join(ctx, &err)
	if err != nil {
		return nil, err
	}
	defer leave()
	other, leaveOther, err := b.join(ctx, &err)
	if err != nil {
		return nil, err
	}
	defer leaveOther()
	shards := names(b.size(idleShards))
	if _, err := b.hold(ctx, owner, shards...); err != nil {
		return nil, err
	}
	if err := other.want(shards, func(grant) { b.fail(errors.New("an idle shard has moved")) }); err != nil {
		return nil, err
	}
	if err := pause(ctx, b.length(idleAfter)); err != nil {
		return nil, err
	}
	before, err := b.on.calls(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := pause(ctx, b.length(idleFor)); err != nil {
		return nil, err
	}
	after, err := b.on.calls(ctx)
	// The request for the count is one of the counted calls.
	return []float64{float64(max(0, after-before-1)) / time.Since(start).Seconds()}, err
}

// standby measures the heap and stack memory that a member needs for each additional shard that it
// wants and another member owns.
func standby(ctx context.Context, b *bout) (_ []float64, err error) {
	owner, leave, err := b.join(ctx, &err)
	if err != nil {
		return nil, err
	}
	defer leave()
	n := b.waits
	if n == 0 {
		n = 1_000
	}
	shards := names(b.size(n))
	if _, err := b.hold(ctx, owner, shards...); err != nil {
		return nil, err
	}
	other, leaveOther, err := b.join(ctx, &err)
	if err != nil {
		return nil, err
	}
	defer leaveOther()
	memory := func() (float64, float64, error) {
		if err := pause(ctx, b.length(3*time.Second)); err != nil {
			return 0, 0, err
		}
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc + m.StackInuse), float64(runtime.NumGoroutine()), nil
	}
	bytes, goroutines, err := memory()
	if err != nil {
		return nil, err
	}
	if err := other.want(shards, func(grant) { b.fail(errors.New("an idle shard has moved")) }); err != nil {
		return nil, err
	}
	bytesAfter, goroutinesAfter, err := memory()
	return []float64{max(0, bytesAfter-bytes) / float64(len(shards)),
		max(0, goroutinesAfter-goroutines) / float64(len(shards))}, err
}

const (
	followedRate      = 1000 // entries a second
	followedProducers = 8
)

// followerLag measures the time from an entry's acknowledgment until a Tailer with separate
// connections has applied the entry.
func followerLag(ctx context.Context, b *bout) (_ []float64, err error) {
	leases, leave, err := b.leases(ctx, b.place(usual), names(1), &err)
	if err != nil {
		return nil, err
	}
	defer leave()
	reader, err := b.contender.join(ctx, b.place(usual)) // the Tailer uses its backend
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, reader.close()) }()
	n := int(followedRate * b.length(appendsFor).Seconds())
	acked, applied := make([]time.Time, n), make([]time.Time, n)
	t, err := follower.NewTailer(reader.(*tenureMember).b, nil)
	if err != nil {
		return nil, err
	}
	caught := make(chan struct{})
	apply := follower.Memory(func(_ context.Context, batch follower.Batch) error {
		for _, e := range batch.Entries {
			applied[e.Seq-1] = time.Now()
			if int(e.Seq) == n {
				close(caught)
			}
		}
		return nil
	}, nil)
	if err := t.Follow("lag", apply, leases[0].Shard()); err != nil {
		return nil, err
	}
	tailing, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- t.Run(tailing) }()
	defer func() { stop(); err = errors.Join(err, <-ended) }()
	var next atomic.Int64
	errs := make([]error, followedProducers)
	start := time.Now().Add(b.length(appendsWarm))
	var all sync.WaitGroup
	for p := range followedProducers {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / followedRate)))
				seq, err := leases[0].Append(ctx, body())
				if err != nil {
					errs[p] = err
					return
				}
				acked[seq-1] = time.Now()
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	select {
	case <-caught:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	lags := make([]float64, n)
	for i := range lags {
		lags[i] = max(0, inMillis(applied[i].Sub(acked[i])))
	}
	return quantiles(lags), nil
}
