package zookeeper

import (
	"context"
	"crypto/rand"
	"math/big"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/internal/boundjson"
	"github.com/tenure-go/tenure/internal/changelog"
	"github.com/tenure-go/tenure/internal/route"
)

var _ changelog.Store = (*store)(nil)

// store is a changelog.Store on ZooKeeper. It uses permanent nodes, compared by their versions,
// and zxids as revisions. Nothing depends on sessions. It is safe for concurrent use.
type store struct {
	paths  paths
	rights rights
	stats  stats

	identity atomic.Pointer[identity] // the one last read

	// Heartbeats have separate links (rule E4), one to each server, and so have reads and
	// watches. If only one server is named, heartbeats have two links to it. The name may stand
	// for several servers, and one connection may be lost unnoticed.
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
	var routes *route.Routes // of the calls that follow heartbeats to another server
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

// doubt ends the links on which nothing was read since a given moment. It is for when calls on
// one link have waited in vain since then. Whatever silenced one connection has often silenced
// others, and each would cost calls.
func (s *store) doubt(since time.Time) {
	for _, l := range s.connectors() {
		l.doubt(since)
	}
}

// pick returns a random server, so that processes spread over them.
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

// maxIdentity limits the bytes decoded of an identity record.
const maxIdentity = 16 << 10

// marker returns the name of the node that is created together with an identity record, from the
// record's random id. A namespace that was removed and created again has records with the same
// versions as before, and only a name distinguishes them (rule I1). It returns "" for an invalid
// record.
func marker(value []byte) string {
	var id struct {
		ID string `json:"id"`
	}
	if boundjson.Unmarshal(value, maxIdentity, 16, &id) != nil || !plain(id.ID) || strings.ContainsRune(id.ID, '/') {
		return ""
	}
	return "!id" + separator + id.ID
}

// rights are the ACLs of nodes that the store creates.
type rights struct {
	// own are the schemes and ids of the run-time role.
	own []zk.ACL
	// admins have all rights. If there are any, only they may change ACLs.
	admins []zk.ACL
}

// directory returns the ACL of a directory. The ACL for permanent nodes does not allow their
// deletion: tokens and fences depend on their versions, which would start again.
func (r rights) directory(permanent bool) []zk.ACL {
	perms := int32(zk.PermRead | zk.PermWrite | zk.PermCreate)
	if !permanent {
		perms |= zk.PermDelete
	}
	return r.list(perms)
}

// record returns the ACL of a record. The right to delete a record is in its directory's ACL.
func (r rights) record() []zk.ACL { return r.list(zk.PermRead | zk.PermWrite) }

// of returns the ACL of a key's record. If there are administrators, only they may change the
// identity, on which tokens depend.
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
