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

// store implements changelog.Store on ZooKeeper. The store compares permanent nodes by their
// versions, uses zxids as revisions, and does not depend on sessions. A store is safe for
// concurrent use.
type store struct {
	paths  paths
	rights rights
	stats  stats

	identity atomic.Pointer[identity] // the identity that was read last

	// Heartbeats have separate links (rule E4), one to each server. Reads and watches have a
	// separate link, too. If only one server is given, heartbeats have two links to it, because one
	// may be lost unnoticed, and because the name may represent several servers.
	routes        *route.Routes
	beats         []*connector
	writes, reads *connector

	life context.Context // ends with Close
	end  context.CancelFunc

	mu   sync.Mutex
	dirs map[string]struct{} // directories that are known to exist
}

// identity contains the parts of the namespace's identity record that the store needs.
type identity struct {
	stat   stat
	marker string // name of the node that was created with the record
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

// After calls on one link have gone unanswered since the given time, doubt ends all links that have
// been silent since then. The cause often affects several connections.
func (s *store) doubt(since time.Time) {
	for _, l := range s.connectors() {
		l.doubt(since)
	}
}

// pick returns a random server, which spreads processes across the servers.
func pick(n int) int {
	i, err := rand.Int(rand.Reader, big.NewInt(int64(n)))
	if err != nil {
		return 0
	}
	return int(i.Int64())
}

// Close ends the links and waits for all goroutines.
func (s *store) Close() error {
	s.end()
	var all sync.WaitGroup
	for _, l := range s.connectors() {
		all.Go(l.close)
	}
	all.Wait()
	return nil
}

// maxIdentity is the maximum length of an identity record that is decoded, in bytes.
const maxIdentity = 16 << 10

// marker returns the name of the node created together with an identity record, or "" if the record
// is invalid. The name contains the record's random id. After a namespace is removed and recreated,
// its records have the same versions as before, and only the marker's name differs (rule I1).
func marker(value []byte) string {
	var id struct {
		ID string `json:"id"`
	}
	if boundjson.Unmarshal(value, maxIdentity, 16, &id) != nil || !plain(id.ID) || strings.ContainsRune(id.ID, '/') {
		return ""
	}
	return "!id" + separator + id.ID
}

// rights are the ACLs for nodes that the store creates.
type rights struct {
	// The run-time role has these schemes and ids.
	own []zk.ACL
	// Administrators have all permissions, and if there are any, only they may change ACLs.
	admins []zk.ACL
}

// directory returns a directory's ACL, which does not allow the deletion of permanent nodes. Tokens
// and fences depend on these nodes' versions, which would restart after a deletion.
func (r rights) directory(permanent bool) []zk.ACL {
	perms := int32(zk.PermRead | zk.PermWrite | zk.PermCreate)
	if !permanent {
		perms |= zk.PermDelete
	}
	return r.list(perms)
}

// record returns a record's ACL. The permission to delete a record is in its directory's ACL.
func (r rights) record() []zk.ACL { return r.list(zk.PermRead | zk.PermWrite) }

// Because tokens depend on the identity, only administrators, if there are any, may change it.
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
