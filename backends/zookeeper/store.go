package zookeeper

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"math/big"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/internal/changelog"
	"github.com/tenure-go/tenure/internal/route"
)

var _ changelog.Store = (*store)(nil)

// store is a changelog.Store on ZooKeeper: permanent nodes, compared by their versions,
// with zxids for revisions. Nothing rests on sessions. Safe for concurrent use.
type store struct {
	paths  paths
	rights rights
	stats  stats

	identity atomic.Pointer[identity] // as it was read last

	// Heartbeats have their own lines (rule E4), one to each server, and so have reads
	// and watches. Where one server is named, heartbeats have two lines to it: it may
	// be several, and one connection may be lost unnoticed.
	routes        *route.Routes
	beats         []*connector
	writes, reads *connector

	life context.Context // ends with Close
	end  context.CancelFunc

	mu   sync.Mutex
	dirs map[string]struct{} // directories that are known to exist
}

// identity is the state that the store needs of the namespace's identity record.
type identity struct {
	stat   stat
	marker string // name of the node that was made together with it
}

func newStore(p paths, r rights, servers []string, dial linker) *store {
	life, end := context.WithCancel(context.Background())
	s := &store{paths: p, rights: r, life: life, end: end, dirs: make(map[string]struct{})}
	s.stats.m = make(map[string]stat)
	n := max(2, len(servers))
	s.routes = route.New(life, n, pick(n))
	for i := range n {
		at := i % len(servers)
		s.beats = append(s.beats, newConnector(life, servers[at:at+1], nil, dial))
	}
	var routes *route.Routes // of the calls that follow the heartbeats to another server
	if len(servers) > 1 {
		routes = s.routes
	}
	s.writes = newConnector(life, servers, routes, dial)
	s.reads = newConnector(life, servers, routes, dial)
	s.reads.asks = true
	for _, l := range s.connectors() {
		l.lost = s.doubt
	}
	return s
}

func (s *store) connectors() []*connector { return append([]*connector{s.writes, s.reads}, s.beats...) }

// doubt ends the links on which nothing came since a moment, from when on calls on one waited
// in vain: what loses one connection in silence loses others, of which each would cost calls.
func (s *store) doubt(since time.Time) {
	for _, l := range s.connectors() {
		l.doubt(since)
	}
}

// pick spreads processes over the servers.
func pick(n int) int {
	i, err := rand.Int(rand.Reader, big.NewInt(int64(n)))
	if err != nil {
		return 0
	}
	return int(i.Int64())
}

// Close ends the links, and joins everything.
func (s *store) Close() error {
	s.end()
	var all sync.WaitGroup
	for _, l := range s.connectors() {
		all.Go(l.close)
	}
	all.Wait()
	return nil
}

// marker names the node that is made together with an identity record, by the
// record's random id. A namespace that was removed and made again has records with
// the same versions as before; only a name distinguishes them (rule I1). It is
// empty for an invalid record.
func marker(value []byte) string {
	var id struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(value, &id) != nil || !plain(id.ID) || strings.ContainsRune(id.ID, '/') {
		return ""
	}
	return "!id" + separator + id.ID
}

// rights are the ACLs of nodes that the store creates.
type rights struct {
	// own are the schemes and ids of the run-time role.
	own []zk.ACL
	// admins have all rights; if there are any, only they may change ACLs.
	admins []zk.ACL
}

// directory is the ACL of a directory. That of permanent nodes does not let them be
// deleted: tokens and fences rest on their versions, which would start again.
func (r rights) directory(permanent bool) []zk.ACL {
	perms := int32(zk.PermRead | zk.PermWrite | zk.PermCreate)
	if !permanent {
		perms |= zk.PermDelete
	}
	return r.list(perms)
}

// record is the ACL of a record: the right to delete it is its directory's.
func (r rights) record() []zk.ACL { return r.list(zk.PermRead | zk.PermWrite) }

// of is the ACL of the record of a key. The identity, on which tokens rest, is for
// administrators to change, if there are any.
func (r rights) of(key string) []zk.ACL {
	if _, part := partOf(key); part == "!id" && len(r.admins) > 0 {
		return r.list(zk.PermRead)
	}
	return r.record()
}

func (r rights) list(perms int32) []zk.ACL {
	if len(r.admins) == 0 {
		perms |= zk.PermAdmin
	}
	acl := make([]zk.ACL, 0, len(r.own)+len(r.admins))
	for _, a := range r.own {
		a.Perms = perms
		acl = append(acl, a)
	}
	for _, a := range r.admins {
		a.Perms = zk.PermAll
		acl = append(acl, a)
	}
	return acl
}

func split(node string) (dir, name string) {
	at := strings.LastIndexByte(node, '/')
	return node[:at], node[at+1:]
}
