package etcd

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// restore copies the records of one server to an empty server, with the revisions that a restored
// snapshot would have.
func restore(t *testing.T, from, to *clientv3.Client) {
	t.Helper()
	ctx := bounded(t, ample.Time)
	all, err := from.Get(ctx, "\x00", clientv3.WithFromKey())
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all.Kvs, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.ModRevision, b.ModRevision) })
	now, err := to.Get(ctx, "padding")
	if err != nil {
		t.Fatal(err)
	}
	at := now.Header.Revision
	for rest := all.Kvs; len(rest) > 0; {
		rev := rest[0].ModRevision
		for at+1 < rev {
			resp, err := to.Put(ctx, "padding", "")
			if err != nil {
				t.Fatal(err)
			}
			at = resp.Header.Revision
		}
		var ops []clientv3.Op
		for len(rest) > 0 && rest[0].ModRevision == rev {
			ops = append(ops, clientv3.OpPut(string(rest[0].Key), string(rest[0].Value)))
			rest = rest[1:]
		}
		resp, err := to.Txn(ctx).Then(ops...).Commit()
		if err != nil || resp.Header.Revision != rev {
			t.Fatalf("restored at revision %d, want %d: %v", resp.Header.Revision, rev, err)
		}
		at = rev
	}
}

var restoresFlag = flag.Int("restores", 1, "how often TestRestoredCluster restores two clusters from one state")

// I2: a cluster is restored under a different id. A former process uses no lease that it gets
// there, and a new process never gets a token that was granted before.
//
// Then the same state is restored into a third cluster, whose tokens are greater than those of the
// second (I2). After a process has opened the namespace in the third cluster, no former fence
// passes in either restored cluster (F1).
func TestRestoredCluster(t *testing.T) {
	t.Parallel()
	for i := range *restoresFlag {
		t.Run(fmt.Sprint(i), restoredCluster)
	}
}

func restoredCluster(t *testing.T) {
	three := servers.New(t, servers.Etcd, &servers.Options{NoSync: true})
	one := servers.New(t, servers.Etcd, &servers.Options{NoSync: true})
	two := servers.New(t, servers.Etcd, &servers.Options{NoSync: true})
	client := newClient(t, config(t, one))
	b, err := OpenClient(t.Context(), client, "app", &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	join := func(b *Backend, id driver.SessionID) driver.Session {
		s, err := b.Join(t.Context(), driver.Member{Session: id, Node: string(id), TTL: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	claim := func(ctx context.Context, s driver.Session, shard driver.ShardID) (driver.Fence, error) {
		r, err := s.Acquire(ctx, []driver.Claim{{Shard: shard}})
		if err == nil {
			err = r[0].Err
		}
		if err != nil {
			return driver.Fence{}, err
		}
		return r[0].Fence, nil
	}
	old := join(b, "old")
	held, err := claim(t.Context(), old, "s")
	if err != nil {
		t.Fatal(err)
	}
	restore(t, client, newClient(t, config(t, three)))
	restore(t, client, newClient(t, config(t, two)))
	other, err := Open(t.Context(), config(t, one), "app", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	lost, err := claim(t.Context(), join(other, "other"), "t")
	if err != nil {
		t.Fatal(err)
	}

	client.SetEndpoints(two.Addr())
	if f, err := claim(t.Context(), old, "u"); !errors.Is(err, driver.ErrStoreChanged) {
		t.Errorf("a claim to a restored cluster: %+v, %v, want ErrStoreChanged", f, err)
	}
	if err := old.Beat(t.Context()); !errors.Is(err, driver.ErrStoreChanged) {
		t.Errorf("a heartbeat to a restored cluster: %v, want ErrStoreChanged", err)
	}

	fresh, err := Open(t.Context(), config(t, two), "app", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	again, err := claim(t.Context(), join(fresh, "fresh"), "t")
	if err != nil || again.Token < lost.Token+1<<39 {
		t.Errorf("after the restore token %d was granted, %v; token %d had been granted before", again.Token, err,
			lost.Token)
	}
	newest := again.Token
	for n, server := range []*servers.Server{two, three} {
		at := newClient(t, config(t, server))
		if server == three {
			last, err := Open(t.Context(), config(t, three), "app", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer last.Close()
			f, err := claim(t.Context(), join(last, "last"), "t")
			if err != nil || f.Token <= newest {
				t.Errorf("after the second restore from the oldest state token %d was granted, %v; token %d had been granted before",
					f.Token, err, newest)
			}
		}
		guard := guardOf(at, "texts/")
		for _, by := range []*Backend{b, other} {
			for _, f := range []driver.Fence{held, lost} {
				write, err := guard.Begin(t.Context(), by, f)
				if err == nil {
					err = write(t.Context(), "late")
				}
				if !errors.Is(err, driver.ErrFenced) {
					t.Errorf("Guard under token %d of before restore %d, with %d lost: %v; want it fenced", f.Token, n+1, lost.Token, err)
				}
			}
		}
	}
}
