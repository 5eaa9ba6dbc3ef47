package zookeeper

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/internal/changelog"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// stepped is a follower on a link. The test runs the follower's steps, and writes the change logs
// that the follower reads, as another process does.
type stepped struct {
	*follower
	t     *testing.T
	link  *link
	fired *watches
	dir   string
	admin *zk.Conn
	page  *kv.Page // last delivered
}

// fromNew returns the store of an unused namespace.
func fromNew(t *testing.T, server *servers.Server) (s *store, namespace string) {
	t.Helper()
	namespace = t.Name() + "/" + rand.Text()[:8]
	b, err := Open(t.Context(), []string{server.Addr()}, namespace, &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b.store, namespace
}

func step(t *testing.T) *stepped {
	t.Helper()
	server := pool.Get(t, servers.ZooKeeper, nil)
	s, namespace := fromNew(t, server)
	lk, err := s.reads.link(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sc, err := s.paths.scope(namespace + "/!feed/")
	if err != nil {
		t.Fatal(err)
	}
	st := &stepped{t: t, link: lk, fired: newWatches(), dir: sc.dir, admin: client(t, server)}
	st.follower = &follower{store: s, scopes: []scope{sc}, records: make(map[string]followed),
		fn: func(p *kv.Page) error {
			st.page = p
			return nil
		}}
	t.Cleanup(lk.watch(st.fired))
	return st
}

func (s *stepped) do(what string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
}

func (s *stepped) create(name, value string) {
	s.t.Helper()
	_, err := s.admin.Create(s.dir+"/"+name, []byte(value), 0, zk.WorldACL(zk.PermAll))
	s.do("create", err)
}

// take waits until the watch of a node has fired, and returns all nodes whose watches have fired.
func (s *stepped) take(node string) map[string]struct{} {
	s.t.Helper()
	all := make(map[string]struct{})
	for ctx := bounded(s.t, ample.Time); ; {
		for n := range s.fired.take() {
			all[n] = struct{}{}
		}
		if _, ok := all[node]; ok {
			return all
		}
		select {
		case <-s.fired.wake:
		case <-ctx.Done():
			s.t.Fatalf("no watch of %s fired; of %v did", node, all)
		}
	}
}

// some reads the nodes whose watches fired as many times as follower.on does.
func (s *stepped) some(fired map[string]struct{}) {
	s.t.Helper()
	for listed := true; listed; fired = s.fired.take() {
		_, listed = fired[s.dir]
		_, err := s.follower.some(s.t.Context(), s.link, fired)
		s.do("some", err)
	}
}

// logs returns the records that the follower delivers, as name=value.
func (s *stepped) logs() string {
	s.t.Helper()
	s.do("deliver", s.deliver(1))
	var all []string
	for _, p := range s.page.Pairs {
		_, name := split(p.Key)
		all = append(all, name+"="+string(p.Value))
	}
	return strings.Join(all, " ")
}

// TestFollowNewChangeLog: if the read without an event is the first to find a change log, the log
// gets a watch like any other. It does not matter whether the directory's event arrives before or
// after that read.
func TestFollowNewChangeLog(t *testing.T) {
	t.Parallel()
	s := step(t)
	s.do("all", s.all(t.Context(), s.link, true))
	s.create("n", "1")
	s.do("again", s.all(t.Context(), s.link, false))
	if got := s.logs(); got != "n=1" {
		t.Fatalf("delivered %q", got)
	}
	s.some(s.take(s.dir))
	_, err := s.admin.Set(s.dir+"/n", []byte("2"), -1)
	s.do("set", err)
	s.some(s.take(s.dir + "/n"))
	if got := s.logs(); got != "n=2" {
		t.Errorf("delivered %q, want n=2", got)
	}
}

// TestFollowRemovedChangeLog: a change log that is missing when it is read is delivered as missing
// only together with the other writes of its removal's transaction. If it is created again, it is
// followed again.
func TestFollowRemovedChangeLog(t *testing.T) {
	t.Parallel()
	for name, arm := range map[string]bool{"event": true, "again": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := step(t)
			s.create("a", "1")
			s.create("b", "1")
			s.do("all", s.all(t.Context(), s.link, true))
			_, err := s.admin.Multi(&zk.DeleteRequest{Path: s.dir + "/a", Version: -1},
				&zk.SetDataRequest{Path: s.dir + "/b", Data: []byte("tombstone"), Version: -1})
			s.do("remove", err)
			// This resembles a read of everything that listed a, and read b, earlier.
			s.do("load", s.load(t.Context(), s.link, []watched{{s.scopes[0].base + "a", s.dir + "/a"}}, arm))
			if got := s.logs(); got != "a=1 b=1" {
				t.Errorf("delivered %q, want both as they were", got)
			}
			s.create("a", "2")
			s.some(s.take(s.dir))
			if got := s.logs(); got != "a=2 b=tombstone" {
				t.Errorf("delivered %q, want both as they are", got)
			}
			_, err = s.admin.Set(s.dir+"/a", []byte("3"), -1)
			s.do("set", err)
			s.some(s.take(s.dir + "/a"))
			_, err = s.admin.Multi(&zk.DeleteRequest{Path: s.dir + "/a", Version: -1},
				&zk.SetDataRequest{Path: s.dir + "/b", Data: []byte("again"), Version: -1})
			s.do("remove", err)
			s.some(s.take(s.dir))
			if got := s.logs(); got != "b=again" {
				t.Errorf("delivered %q, want b=again", got)
			}
		})
	}
}

// TestFollowOnlyItsOwn: another follower of the same link costs nothing and delivers nothing here.
func TestFollowOnlyItsOwn(t *testing.T) {
	t.Parallel()
	s, ns := fromNew(t, pool.Get(t, servers.ZooKeeper, nil))
	pages := make(chan []string, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	follow := func(name, prefix string) {
		go func() {
			ended <- s.Follow(ctx, []string{prefix}, func(p *kv.Page) error {
				got := []string{name}
				for _, r := range p.Pairs {
					got = append(got, string(r.Value))
				}
				pages <- got
				return nil
			})
		}()
		if got := <-pages; !slices.Equal(got, []string{name}) {
			t.Fatalf("delivered %q at first", got)
		}
	}
	follow("logs", ns+"/!feed/")
	follow("beats", ns+"/!beat/x")
	const beats = 30
	logs := 0
	for i := range beats {
		op := kv.Op{Key: ns + "/!beat/x", Value: fmt.Append(nil, i)}
		if out, err := s.Apply(t.Context(),
			&changelog.Batch{Batch: kv.Batch{Heartbeat: true, Txns: []kv.Txn{{Ops: []kv.Op{op}}}}}); err != nil ||
			!out.Results[0].OK {
			t.Fatal(out, err)
		}
		for seen := false; !seen; {
			got := <-pages
			if got[0] == "logs" {
				logs++
			}
			seen = slices.Equal(got, []string{"beats", fmt.Sprint(i)})
		}
	}
	cancel()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if logs > beats/3 { // each is delivered again every minute
		t.Errorf("change logs were delivered %d times of %d heartbeats", logs, beats)
	}
}

// TestErrorsAreOneLine: an error is one line, even if it names several servers.
func TestErrorsAreOneLine(t *testing.T) {
	t.Parallel()
	first, second := errors.New("first"), errors.New("second")
	if err := joined(nil, first, nil, second); err.Error() != "first; second" || !errors.Is(err, first) ||
		!errors.Is(err, second) {
		t.Errorf("%q", err)
	}
	if err := joined(nil, nil); err != nil {
		t.Error(err)
	}
	_, err := Open(bounded(t, 10*time.Second), []string{"127.0.0.1:1", "127.0.0.1:2"}, "app", nil)
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "127.0.0.1:1") ||
		!strings.Contains(err.Error(), "127.0.0.1:2") {
		t.Errorf("%q", err)
	}
}
