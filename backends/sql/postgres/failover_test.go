package postgres

import (
	"context"
	stdsql "database/sql"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/share"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

var failoversFlag = flag.Int("failovers", 2, "how often an asynchronous standby is promoted that lacks grants")

// failovers returns the flag's value, or 1 with -short.
func failovers(t *testing.T) int {
	return share.Of(t, "promotions", *failoversFlag, min(1, *failoversFlag))
}

const failoverTTL = 3 * time.Second

// TestAsynchronousPromotion promotes a standby without the last grants and commits. The first calls
// are from processes that know nothing of the lost writes. Later calls are from processes that hold
// lost grants. No token is granted twice (I2), and every member serves or halts.
func TestAsynchronousPromotion(t *testing.T) {
	t.Parallel()
	var sum drillResult
	for i := range failovers(t) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			r := newDrill(t, Options{}).play()
			if r.repeated > 0 || r.silent > 0 || r.reported == 0 {
				t.Errorf("%+v", r)
			}
			sum.add(r)
		})
	}
	t.Logf("promotions: %+v", sum)
}

// TestAsynchronousPromotionUnnoticed is the control. Without an incarnation, a token is granted
// twice.
func TestAsynchronousPromotionUnnoticed(t *testing.T) {
	t.Parallel()
	if r := newDrill(t, Options{NoIncarnation: true}).play(); r.repeated == 0 {
		t.Errorf("no token was granted twice: the drill proves nothing: %+v", r)
	}
}

// TestFencesAfterPromotion promotes a standby that lacks a grant, so the standby's records name the
// former holder as the current one. From the first call on, neither the former holder's fences nor
// the fences of the lost grant are accepted (F1, I2).
func TestFencesAfterPromotion(t *testing.T) {
	t.Parallel()
	for i := range failovers(t) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			d := newDrill(t, Options{})
			holder, taker := d.open(true, d.toPrimary.Addr(), d.toStandby.Addr()), d.open(false, d.toPrimary.Addr(), d.toStandby.Addr())
			a, b := sqlfault.Join(t, holder, "a"), sqlfault.Join(t, taker, "b")
			old := claimed(t, a, driver.Claim{Shard: "s"})
			sqlfault.Exec(t, setup.DB(t, d.dsn), "CREATE TABLE payments (token bigint)")
			d.caughtUp(1)
			d.must(d.standby.Kill(t.Context()))
			lost := claimed(t, b, driver.Claim{Shard: "s", Seen: driver.Owner{Session: old.Session, Token: old.Token}, Preempt: true})
			d.must(d.toPrimary.Refuse())
			d.must(d.primary.Kill(t.Context()))
			d.promote(d.standby)
			d.must(d.toStandby.Admit())

			db := setup.DB(t, d.dsn.At(d.standby.Addr()))
			pay := func(by *Backend, f driver.Fence) error {
				tx := sqlfault.Tx(t, db, stdsql.LevelReadCommitted)
				if err := by.FenceTx(t.Context(), tx, f); err != nil {
					return errors.Join(err, tx.Rollback())
				}
				sqlfault.Exec(t, tx, fmt.Sprintf("INSERT INTO payments VALUES (%d)", f.Token))
				return tx.Commit()
			}
			payPgx := func(by *Backend, f driver.Fence) error {
				tx, err := beginPgx(t.Context(), db, by)
				d.must(err)
				if err := tx.Fence(t.Context(), f); err != nil {
					return errors.Join(err, tx.Rollback(t.Context()))
				}
				d.must(tx.Exec(t.Context(), fmt.Sprintf("INSERT INTO payments VALUES (%d)", f.Token)))
				return tx.Commit(t.Context())
			}
			refused := func(want error) {
				t.Helper()
				for _, by := range []*Backend{holder, taker} {
					for _, f := range []driver.Fence{old, lost} {
						for name, pay := range map[string]func(*Backend, driver.Fence) error{"FenceTx": pay, "FencePgx": payPgx} {
							if err := pay(by, f); !errors.Is(err, want) {
								t.Errorf("%s under token %d, with %d lost: %v; want %v", name, f.Token, lost.Token, err, want)
							}
						}
					}
				}
			}
			refused(driver.ErrRetry)
			d.until("a heartbeat is accepted", func() bool { return a.Beat(t.Context()) == nil })
			refused(driver.ErrFenced)
			now := claimed(t, a, driver.Claim{Shard: "other"})
			if err := errors.Join(pay(taker, now), payPgx(taker, now)); err != nil || now.Token <= lost.Token {
				t.Errorf("under token %d, granted after the promotion: %v", now.Token, err)
			}
			var paid []int64
			rows, err := db.QueryContext(t.Context(), "SELECT token FROM payments")
			d.must(err)
			for rows.Next() {
				paid = append(paid, 0)
				d.must(rows.Scan(&paid[len(paid)-1]))
			}
			d.must(errors.Join(rows.Err(), rows.Close()))
			if want := []int64{int64(now.Token), int64(now.Token)}; !slices.Equal(paid, want) {
				t.Errorf("paid under %v, want %v", paid, want)
			}
		})
	}
}

// TestSecondPromotionFromOldest promotes one standby and then another, which followed only the
// first primary. The processes at one standby know nothing of the other standby. The second
// standby's tokens are greater than the first's (I2).
func TestSecondPromotionFromOldest(t *testing.T) {
	t.Parallel()
	for i := range failovers(t) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			d := newDrill(t, Options{})
			oldest := servers.New(t, servers.Postgres, &servers.Options{NoSync: true, Upstream: d.primary})
			claimed(t, sqlfault.Join(t, d.open(true, d.primary.Addr()), "a"), driver.Claim{Shard: "s"})
			d.caughtUp(2)
			d.must(oldest.Kill(t.Context()))
			d.must(d.standby.Kill(t.Context()))
			d.must(d.primary.Kill(t.Context()))
			var newest driver.Token
			for _, promoted := range []*servers.Server{d.standby, oldest} {
				d.promote(promoted)
				b := d.open(false, promoted.Addr())
				for n := range 10 {
					f := claimed(t, sqlfault.Join(t, b, fmt.Sprint("n", n)), driver.Claim{Shard: driver.ShardID(fmt.Sprint("t", n))})
					if f.Token <= newest {
						t.Fatalf("token %d was granted; token %d had been granted by the server promoted before", f.Token, newest)
					}
					newest = f.Token
				}
				d.must(promoted.Kill(t.Context()))
			}
		})
	}
}

// open opens a backend that reaches the servers at the addresses, in order.
func (d *drill) open(create bool, addrs ...string) *Backend {
	d.t.Helper()
	o := d.o
	o.Create = create
	dsn := strings.Replace(d.dsn.Reveal(), d.dsn.Addr(), strings.Join(addrs, ","), 1) + "&target_session_attrs=read-write"
	b, err := Open(d.t.Context(), dsn, "drill", &o)
	d.must(err)
	d.t.Cleanup(func() {
		if err := b.Close(); err != nil {
			d.t.Error(err)
		}
	})
	return b
}

func claimed(t *testing.T, s driver.Session, c driver.Claim) driver.Fence {
	t.Helper()
	for {
		r, err := s.Acquire(t.Context(), []driver.Claim{c})
		if err == nil {
			err = r[0].Err
		}
		if err == nil {
			return r[0].Fence
		}
		if !errors.Is(err, driver.ErrRetry) {
			t.Fatal(err)
		}
	}
}

// drillResult counts grants, tokens of a shard that were granted to two sessions, members that
// neither serve nor halt, members that halted, and members that reported the store's loss.
type drillResult struct{ grants, repeated, silent, halted, reported int }

func (r *drillResult) add(o drillResult) {
	r.grants += o.grants
	r.repeated += o.repeated
	r.silent += o.silent
	r.halted += o.halted
	r.reported += o.reported
}

// drill is a primary with an asynchronous standby, and the members that use it.
type drill struct {
	t         *testing.T
	o         Options
	dsn       servers.DSN
	primary   *servers.Server
	standby   *servers.Server
	toPrimary *faultproxy.Proxy // of the members that hold lost grants
	toStandby *faultproxy.Proxy

	mu     sync.Mutex
	grants map[core.Fence]bool
	lost   map[*drillMember]bool // members that have reported that the store lost writes
}

type drillMember struct {
	*core.Elector
	name string
}

func newDrill(t *testing.T, o Options) *drill {
	d := &drill{t: t, o: o, grants: make(map[core.Fence]bool), lost: make(map[*drillMember]bool)}
	d.primary = servers.New(t, servers.Postgres, &servers.Options{NoSync: true})
	var err error
	d.dsn, err = d.primary.CreateDatabase(t.Context()) // the database ends with its server
	d.must(err)
	d.must(Migrate(t.Context(), d.dsn.Reveal(), &o))
	d.standby = servers.New(t, servers.Postgres, &servers.Options{NoSync: true, Upstream: d.primary})
	d.toPrimary, d.toStandby = d.proxy(d.primary), d.proxy(d.standby)
	d.must(d.toStandby.Refuse())
	return d
}

func (d *drill) proxy(s *servers.Server) *faultproxy.Proxy {
	p, err := faultproxy.New(s.Addr(), nil)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		if err := p.Close(); err != nil {
			d.t.Error(err)
		}
	})
	return p
}

// start runs a member that reaches the servers at the addresses, in order.
func (d *drill) start(name string, addrs ...string) *drillMember {
	d.t.Helper()
	dsn := strings.Replace(d.dsn.Reveal(), d.dsn.Addr(), strings.Join(addrs, ","), 1)
	dsn += "&target_session_attrs=read-write"
	o := d.o
	o.Create = name == "old-1"
	b, err := Open(d.t.Context(), dsn, "drill", &o)
	if err != nil {
		d.t.Fatal(err)
	}
	m := &drillMember{name: name}
	hooks := core.Hooks{OnEvent: func(e core.Event) {
		d.mu.Lock()
		defer d.mu.Unlock()
		switch {
		case e.Kind == core.LeaseGranted:
			d.grants[e.Fence] = true
		case errors.Is(e.Err, core.ErrStoreLost):
			d.lost[m] = true
		}
	}}
	m.Elector, err = core.NewElector(b, &core.Options{
		Node: name, TTL: failoverTTL, Resync: 5 * failoverTTL, Hooks: hooks,
	})
	if err != nil {
		d.t.Fatal(errors.Join(err, b.Close()))
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(d.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	d.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, core.ErrStoreChanged) {
			d.t.Errorf("%s: %v", name, err)
		}
		if err := b.Close(); err != nil {
			d.t.Error(err)
		}
	})
	return m
}

// contend serves shards. Under each lease, it appends an entry and keeps the lease.
func (m *drillMember) contend(t *testing.T, shards ...string) {
	t.Helper()
	err := m.Contend(func(ctx context.Context, l *core.Lease) error {
		if _, err := l.Append(ctx, []byte(m.name)); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}, shards...)
	if err != nil {
		t.Fatal(err)
	}
}

// serves reports whether the member holds the shard and has committed.
func (m *drillMember) serves(shard string) bool {
	for _, l := range m.View().Leases {
		if string(l.Fence.Shard) == shard && l.State == core.LeaseHeld {
			return true
		}
	}
	return false
}

func (d *drill) until(what string, ok func() bool) {
	d.t.Helper()
	ample.Wait(d.t, "not yet: "+what, ok)
}

// play loses three kinds of grants: of a shard that the standby does not know, of a shard for which
// the standby knows a different owner, and to a session that the standby does not know.
func (d *drill) play() drillResult {
	t := d.t
	shards := []string{"kept", "moved", "new", "stranger"}
	first, second := d.toPrimary.Addr(), d.toStandby.Addr()
	giver, taker := d.start("old-1", first, second), d.start("old-2", first, second)
	giver.contend(t, "kept", "moved", "stranger")
	d.until("old-1 serves", func() bool {
		return giver.serves("kept") && giver.serves("moved") && giver.serves("stranger")
	})
	d.caughtUp(1)
	d.must(d.standby.Kill(t.Context()))

	taker.contend(t, "moved", "new")
	d.until("old-2 serves new", func() bool { return taker.serves("new") })
	// On a busy machine, the call may fail temporarily. The member continues, and the test waits
	// for the next owner.
	_ = giver.Withdraw(t.Context(), "moved")
	d.until("old-2 serves moved", func() bool { return taker.serves("moved") })
	stranger := d.start("old-3", first, second)
	stranger.contend(t, "stranger")
	_ = giver.Withdraw(t.Context(), "stranger")
	d.until("old-3 serves stranger", func() bool { return stranger.serves("stranger") })
	old := []*drillMember{giver, taker, stranger}
	for _, m := range old {
		d.until(m.name+" knows all", func() bool {
			v := m.View()
			return !slices.ContainsFunc(shards, func(s string) bool { o, _ := v.Owner(s); return o.Node == "" })
		})
	}
	d.must(d.toPrimary.Refuse())
	d.must(d.primary.Kill(t.Context()))

	d.promote(d.standby)
	fresh := d.start("fresh", d.standby.Addr())
	fresh.contend(t, shards...)
	d.until("the fresh member serves what nobody holds", func() bool { return fresh.serves("new") })
	d.must(d.toStandby.Admit())
	giver.contend(t, "moved", "stranger")

	r := drillResult{}
	all := append(old, fresh)
	settled := func(m *drillMember) bool {
		v := m.View()
		return v.Err != nil || v.Trusted && d.agrees(m, all, shards)
	}
	ample.Soon(t.Context(), func() bool {
		return settled(giver) && settled(taker) && settled(stranger) && settled(fresh)
	})
	for _, m := range all {
		if !settled(m) {
			r.silent++
			t.Logf("%s neither serves nor halts: %+v", m.name, m.View())
		}
		if m.View().Err != nil {
			r.halted++
		}
	}
	if !d.o.NoIncarnation {
		d.until("a member reports what was lost", func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return len(d.lost) > 0
		})
	}
	d.judge(&r)
	return r
}

// agrees reports whether the member knows a live owner of each shard, and whether that owner holds
// the shard.
func (d *drill) agrees(m *drillMember, all []*drillMember, shards []string) bool {
	v := m.View()
	for _, s := range shards {
		o, _ := v.Owner(s)
		k := slices.IndexFunc(all, func(m *drillMember) bool { return m.name == o.Node })
		if k < 0 || !all[k].serves(s) || all[k].View().Session != o.Session {
			return false
		}
	}
	return true
}

// judge counts the tokens of a shard that were granted to two sessions.
func (d *drill) judge(r *drillResult) {
	d.mu.Lock()
	defer d.mu.Unlock()
	type grant struct {
		shard core.ShardID
		token core.Token
	}
	granted := map[grant]int{}
	for f := range d.grants {
		granted[grant{f.Shard, f.Token}]++
	}
	for g, n := range granted {
		if n > 1 {
			r.repeated++
			d.t.Logf("shard %q: token %d was granted to %d sessions", g.shard, g.token, n)
		}
	}
	r.grants, r.reported = len(d.grants), len(d.lost)
}

// caughtUp waits until so many standbys have everything that the primary has. A standby that is not
// connected yet has no row.
func (d *drill) caughtUp(standbys int) {
	d.t.Helper()
	db := setup.DB(d.t, d.primary.Admin())
	d.until("the standbys have caught up", func() bool {
		var n int
		err := db.QueryRowContext(d.t.Context(), "SELECT count(*) FROM pg_stat_replication WHERE flush_lsn >= pg_current_wal_lsn()").Scan(&n)
		if err != nil {
			d.t.Fatal(err)
		}
		return n >= standbys
	})
}

// promote starts the standby, whose primary is gone, and promotes it.
func (d *drill) promote(standby *servers.Server) {
	d.t.Helper()
	d.must(standby.Restart(d.t.Context()))
	db := setup.DB(d.t, standby.Admin())
	if _, err := db.ExecContext(d.t.Context(), "SELECT pg_promote()"); err != nil {
		d.t.Fatal(err)
	}
}

func (d *drill) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}
