package zookeeper

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/backends/kv"
)

// txn is a batch's transaction, expressed in nodes.
type txn struct {
	conds []cond
	ops   []write
}

type cond struct {
	key, node string
	rev       kv.Rev
	// If volatile is true, this package may have recreated the record since its version was
	// learned, so the record is read again. Items are volatile. Writing items also compares the
	// shard's head, which every deletion of an item changes.
	volatile bool
}

type write struct {
	key, dir, node string
	value          []byte // a copy, because the library encodes it when it sends
	delete         bool
}

func (s *store) txn(t *kv.Txn) (txn, error) {
	out := txn{conds: make([]cond, len(t.If)), ops: make([]write, len(t.Ops))}
	for i, c := range t.If {
		_, node, err := s.paths.node(c.Key)
		if err != nil {
			return txn{}, err
		}
		_, part := partOf(c.Key)
		out.conds[i] = cond{c.Key, node, c.Rev, part == "!item"}
	}
	for i, op := range t.Ops {
		dir, node, err := s.paths.node(op.Key)
		if err != nil {
			return txn{}, err
		}
		out.ops[i] = write{op.Key, dir, node, bytes.Clone(op.Value), op.Delete}
		if !op.Delete && out.ops[i].value == nil {
			out.ops[i].value = []byte{}
		}
	}
	return out, nil
}

// knowledge is the known state of records while a batch is applied, either read for the batch or
// remembered.
type knowledge struct {
	fresh map[string]found
	stats *stats
}

// verdict is the result of checking a condition.
type verdict uint8

const (
	unsure verdict = iota // unknown until read
	holds                 // holds, or the store decides
	fails
)

// judge checks a condition. A read cannot be older than the condition's revision, because reads
// follow a write on the same connection.
func (k *knowledge) judge(c cond) (verdict, stat) {
	f, read := k.fresh[c.key]
	switch {
	case read && c.rev == kv.Absent, read && c.rev == kv.Exists:
		if f.exists == (c.rev == kv.Exists) {
			return holds, f.stat
		}
		return fails, stat{}
	case c.rev <= 0:
		return holds, stat{}
	case read:
		if f.exists && f.stat.rev == c.rev {
			return holds, f.stat
		}
		return fails, stat{}
	}
	if m, ok := k.stats.get(c.key); ok && m.rev == c.rev && !c.volatile {
		return holds, m
	}
	return unsure, stat{}
}

// exists reports whether a record exists, and whether this is known.
func (k *knowledge) exists(key string) (there, known bool) {
	if f, ok := k.fresh[key]; ok {
		return f.exists, true
	}
	if _, ok := k.stats.get(key); ok {
		return true, true
	}
	return false, false
}

// multi collects the operations of one Multi.
type multi struct {
	ops    []any
	effect []effect // of each operation
	absent map[string]bool
	bytes  int
	rights rights
	zxid   bool // an operation's answer contains the zxid
}

// effect is an operation's effect on a record. The key is empty if there is no effect.
type effect struct {
	key    string
	former stat // compared by the operation, if any
	kind   effectKind
}

type effectKind uint8

const (
	checked effectKind = iota
	created
	changed
	deleted
	born   // the directory that represents a permanent record
	marked // the check for the identity's marker
)

// These constants are sizes in bytes on the wire, without a node's path and value.
const (
	opBytes  = 64
	aclBytes = 128
)

func (m *multi) add(op any, size int, e effect) {
	m.ops = append(m.ops, op)
	m.effect = append(m.effect, e)
	m.bytes += opBytes + size
}

func (m *multi) check(node string, version int32, e effect) {
	m.add(&zk.CheckVersionRequest{Path: node, Version: version}, len(node), e)
}

func (m *multi) create(node string, value []byte, acl []zk.ACL, e effect) {
	m.add(&zk.CreateRequest{Path: node, Data: value, Acl: acl}, len(node)+len(value)+aclBytes*len(acl), e)
}

func (m *multi) set(node string, value []byte, version int32, e effect) {
	m.add(&zk.SetDataRequest{Path: node, Data: value, Version: version}, len(node)+len(value), e)
	m.zxid = true
}

func (m *multi) remove(node string, version int32, e effect) {
	m.add(&zk.DeleteRequest{Path: node, Version: version}, len(node), e)
}

// Because ZooKeeper has no check for absence, a node's absence is asserted by creating and deleting
// the node.
func (m *multi) without(node string) {
	if m.absent[node] {
		return
	}
	m.absent[node] = true
	m.create(node, nil, m.rights.record(), effect{})
	m.remove(node, -1, effect{})
}

// anyVersion matches every version of an existing node.
const anyVersion = -1

// txn adds a transaction whose conditions were found to hold.
func (m *multi) txn(t *txn, k *knowledge) {
	written := make(map[string]cond, len(t.ops))
	for _, op := range t.ops {
		written[op.key] = cond{}
	}
	for _, c := range t.conds {
		if _, ok := written[c.key]; ok {
			written[c.key] = c
			continue
		}
		_, mk := k.judge(c)
		switch c.rev {
		case kv.Absent:
			m.without(c.node)
		case kv.Exists:
			m.check(c.node, anyVersion, effect{})
		default:
			m.check(c.node, mk.version, effect{})
		}
	}
	for _, op := range t.ops {
		m.op(op, written[op.key], k)
	}
}

// op adds an operation. If c is a condition on the same record, the operation includes c.
func (m *multi) op(op write, c cond, k *knowledge) {
	there, known := k.exists(op.key)
	version, former := int32(anyVersion), stat{}
	if c.key != "" {
		there, known = c.rev != kv.Absent, true
		if c.rev > 0 {
			_, former = k.judge(c)
			version = former.version
		}
	}
	switch {
	case op.delete && (there || !known):
		m.remove(op.node, version, effect{key: op.key, kind: deleted})
	case op.delete:
		m.without(op.node)
	case there, !known && isEnded(op.key):
		m.set(op.node, op.value, version, effect{op.key, former, changed})
	default:
		m.create(op.node, op.value, m.rights.of(op.key), effect{key: op.key, kind: created})
		m.twin(op)
	}
}

// isEnded reports whether a key's record shows how sessions ended. All such records are created at
// the namespace's first join.
func isEnded(key string) bool { return strings.Contains(key, "/!node/!ended-") }

// twin adds a permanent node's twin, which is created together with the node and never deleted. A
// shard's twin is its log directory, and the twin of a namespace's identity is its marker. A record
// that was deleted by hand is therefore not recreated with versions that a previous owner
// remembers.
func (m *multi) twin(op write) {
	ns, part := partOf(op.key)
	root := op.dir[:strings.LastIndex(op.dir, "/"+ns)+1+len(ns)]
	switch {
	case part == "!state" && strings.HasPrefix(op.key[len(ns):], "/!state/shard/"):
		_, name := split(op.node)
		m.create(root+"/!log/"+name, nil, m.rights.directory(false), effect{key: op.key, kind: born})
	case part == "!id":
		m.create(root+"/"+marker(op.value), nil, m.rights.record(), effect{key: op.key, kind: born})
	}
}

// finish adds an operation whose answer contains the zxid, unless there already is one. The answer
// to a create lacks the zxid.
func (m *multi) finish() {
	if m.zxid {
		return
	}
	var best *zk.CreateRequest
	var key string
	for i, op := range m.ops {
		if c, ok := op.(*zk.CreateRequest); ok && m.effect[i].kind == created &&
			(best == nil || len(c.Data) < len(best.Data)) {
			best, key = c, m.effect[i].key
		}
	}
	if best == nil {
		return
	}
	if _, part := partOf(key); part == "!id" && len(m.rights.admins) > 0 { // its creator may not change it
		dir, _ := split(best.Path)
		m.set(dir, nil, anyVersion, effect{})
		return
	}
	m.set(best.Path, best.Data, 0, effect{key: key, kind: changed})
}

// maxPacket is the server's default for jute.maxbuffer, minus space for headers.
const maxPacket = 1<<20 - 4<<10

func tooMuch(size int) string {
	return fmt.Sprintf("a transaction has about %d bytes and a server takes %d (jute.maxbuffer)", size, maxPacket)
}
