package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/intercept"
	"github.com/tenure-go/tenure/internal/proof/outage"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/share"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestClusterStruck appends to a log, each entry exactly once, while the leader moves and members
// are killed, stalled and restarted.
func TestClusterStruck(t *testing.T) {
	t.Parallel()
	cluster := servers.NewCluster(t, servers.Etcd, 3, nil)
	members := cluster.Members()
	c := config(t, members...)
	client := newClient(t, c)
	b := intercept.Wrap(openOn(t, c, Options{}), impatient)
	n, seen := 0, driver.WriteNo(0)
	sqlfault.FaultWhileWriting(t, b, int64(share.Of(t, "faults", 9, 3)), func(ctx context.Context) (int, error) {
		// Inject a fault only after progress.
		if page, err := b.ReadLog(ctx, "faulted", 0, 1); err != nil || page.Head.Number < seen+10 {
			return 0, nil
		} else {
			seen = page.Head.Number
		}
		s := members[n%3]
		n++
		switch n % 3 {
		case 0:
			return moveLeader(ctx, client)
		case 1:
			return 1, s.Restart(ctx)
		}
		if err := s.Stop(ctx); err != nil {
			return 0, err
		}
		wait(ctx, 300*time.Millisecond)
		return 1, s.Cont()
	})
}

// impatient gives every commit a time-out, as core does.
func impatient(ctx context.Context, c *intercept.Call, proceed func(context.Context) error) error {
	if c.Op == intercept.Commit {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
	}
	return proceed(ctx)
}

// moveLeader asks the leader to hand leadership to another member.
func moveLeader(ctx context.Context, client *clientv3.Client) (int, error) {
	var leader, other uint64
	var at string
	for _, e := range client.Endpoints() {
		resp, err := client.Status(ctx, e)
		if err != nil {
			return 0, err
		}
		if leader = resp.Leader; resp.Header.MemberId == leader {
			at = e
		} else {
			other = resp.Header.MemberId
		}
	}
	if at == "" || other == 0 {
		return 0, nil // in the middle of an election
	}
	conn, err := client.Dial(at)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	_, err = etcdserverpb.NewMaintenanceClient(conn).MoveLeader(ctx, &etcdserverpb.MoveLeaderRequest{TargetID: other})
	return 1, err
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// TestQuorumLost stalls and then kills two of three members, for ten TTLs. No member of Tenure is
// evicted, and each shard stays with its owner.
func TestQuorumLost(t *testing.T) {
	t.Parallel()
	cluster := servers.NewCluster(t, servers.Etcd, 3, nil)
	c := config(t, cluster.Members()...)
	outage.Quorum(t, cluster, 500*time.Millisecond, func(int) driver.Backend { return openOn(t, c, Options{}) })
}

// TestFull raises the space alarm. Reads continue, and heartbeats are refused rather than
// unanswered. The lease survives the alarm.
func TestFull(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Etcd,
		&servers.Options{NoSync: true, Config: []string{"quota-backend-bytes = 16777216"}})
	c := config(t, server)
	client, b := newClient(t, c), openOn(t, c, Options{})
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	f := granted[0].Fence
	sqlfault.Commit(t, s, sqlfault.AppendOf(f, 1, []byte("before")))
	var err error
	for i := 0; err == nil && i < 100; i++ {
		_, err = client.Put(t.Context(), fmt.Sprint("fill/", i), strings.Repeat("x", 1<<20))
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("filling: %v", err)
	}
	res, err := s.Commit(t.Context(), []driver.Write{sqlfault.AppendOf(f, 2, []byte("during"))})
	if err == nil {
		err = res[0].Err
	}
	if err == nil || driver.NotApplied(err) || !strings.Contains(err.Error(), "quota-backend-bytes") {
		t.Errorf("a commit: %v, want an unknown outcome with advice", err)
	}
	if err := s.Beat(t.Context()); !errors.Is(err, driver.ErrRetry) {
		t.Errorf("a heartbeat: %v, want ErrRetry", err)
	}
	if page, err := b.ReadLog(t.Context(), f.Shard, 0, 10); err != nil || len(page.Entries) != 1 {
		t.Errorf("the log: %+v, %v", page, err)
	}
	if view, err := b.Observe(t.Context(), driver.ObserveQuery{}); err != nil || len(view.Members) != 1 {
		t.Errorf("the view: %+v, %v", view, err)
	}
	del, err := client.Delete(t.Context(), "fill/", clientv3.WithPrefix())
	if err == nil {
		_, err = client.Compact(t.Context(), del.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err == nil {
		_, err = client.Defragment(t.Context(), c.Endpoints[0])
	}
	if err == nil {
		_, err = client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Beat(t.Context()); err != nil {
		t.Errorf("a heartbeat afterwards: %v", err)
	}
	sqlfault.Commit(t, s, sqlfault.AppendOf(f, 2, []byte("after")))
}

// TestTokensExpire: tokens that are valid for one second are renewed for writes, reads and watches,
// without a failed call.
func TestTokensExpire(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Etcd,
		&servers.Options{NoSync: true, Config: []string{"auth-token-ttl = 1", "bcrypt-cost = 4"}})
	_, user := enableAuth(t, server, "readwrite", t.Name()+"/", clientv3.GetPrefixRangeEnd(t.Name()+"/"))
	b := openOn(t, user, Options{})
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	view, err := b.Observe(t.Context(), driver.ObserveQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		wait(t.Context(), 2500*time.Millisecond) // unused tokens expire
		if err := s.Beat(t.Context()); err != nil {
			t.Errorf("a heartbeat: %v", err)
		}
		sqlfault.Commit(t, s, sqlfault.AppendOf(granted[0].Fence, driver.WriteNo(i+1), []byte("x")))
		if _, err := b.ReadLog(t.Context(), granted[0].Fence.Shard, 0, 10); err != nil {
			t.Errorf("a read: %v", err)
		}
		other := sqlfault.Join(t, b, fmt.Sprint("other", i))
		next, err := b.Observe(bounded(t, ample.Time), driver.ObserveQuery{Since: view.Cursor})
		if err != nil || len(next.Members) == 0 {
			t.Fatalf("after %s joined the view is %+v, %v", other.ID(), next, err)
		}
		view = next
	}
}
