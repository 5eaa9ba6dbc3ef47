package zookeeper

import (
	"strings"
	"testing"

	"github.com/tenure-go/tenure/backends/kv"
)

// FuzzFrames cuts a server's bytes in two ways. The result does not depend on where the network
// cuts the bytes.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0}, uint8(3))
	f.Add([]byte{0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 2}, uint8(5))
	f.Add([]byte{0x80, 0, 0, 0, 0}, uint8(1))
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		whole, cut := newObservedConn(nil, nil), newObservedConn(nil, nil)
		whole.feed(stream)
		for rest := stream; len(rest) > 0; {
			n := min(len(rest), int(size%32)+1)
			cut.feed(rest[:n])
			rest = rest[n:]
		}
		if a, b := whole.zxid.Load(), cut.zxid.Load(); a != b || a < 0 {
			t.Errorf("zxid %d, and %d in pieces of %d bytes", a, b, size%32+1)
		}
		if whole.have != cut.have || whole.left != cut.left || whole.head != cut.head {
			t.Errorf("the state is %v %d %d, and in pieces %v %d %d", whole.head, whole.have, whole.left, cut.head,
				cut.have, cut.left)
		}
	})
}

// FuzzSentStats reads arbitrary change logs, because any member may write one. It learns only stats
// of the namespace's records, and no later stats.
func FuzzSentStats(f *testing.F) {
	f.Add("1 2 3\n!state/shard/s1 0 77 7\n!head/s1 70 60 3", int64(99))
	f.Add("\nx 1 1 1", int64(9))
	f.Add("\n!state/../!id 5 5 5\n!beat/x 1 1 1\n!head/ 1 1 1", int64(9))
	f.Add("\n!state/shard/s 9223372036854775807 1 2147483647", int64(1)<<62)
	f.Fuzz(func(t *testing.T, value string, rev int64) {
		if rev <= 0 {
			return // the server's own
		}
		s := newStore(paths{"/t"}, rights{}, []string{"nowhere"}, nil)
		defer s.Close()
		log := found{value: []byte(value), stat: stat{rev: kv.Rev(rev)}, exists: true}
		log.split("/t/a/b/!feed/x")
		if strings.Contains(string(log.value), "\n") {
			t.Errorf("the change log itself is %q", log.value)
		}
		s.learnSent("a/b/!feed/x", log)
		for key, m := range s.stats.m {
			if !strings.HasPrefix(key, "a/b/!state/") && !strings.HasPrefix(key, "a/b/!head/") {
				t.Errorf("a change log has the stat of %q", key)
			}
			if _, _, err := s.paths.node(key); err != nil {
				t.Errorf("a change log has the stat of an impossible record: %v", err)
			}
			if m.rev <= 0 || m.rev > kv.Rev(rev) || m.version < 0 || m.created <= 0 {
				t.Errorf("a change log at %d has the stat %+v", rev, m)
			}
		}
	})
}

// FuzzNames lists a directory with a node that has an arbitrary name. A name that counts as a key
// leads to that node only.
func FuzzNames(f *testing.F) {
	f.Add("!item/eu/", "config:db")
	f.Add("!item/eu/config/", "config:db")
	f.Add("!state/shard/", "..")
	f.Add("!beat/", "a:..:b")
	f.Fuzz(func(t *testing.T, prefix, leaf string) {
		if leaf == "" || strings.Contains(leaf, "/") {
			return // no server has such a node
		}
		p := paths{"/t"}
		sc, err := p.scope("a/" + prefix)
		if err != nil || sc.nested {
			return
		}
		for _, key := range sc.keys([]string{leaf}) {
			if !strings.HasPrefix(key, "a/"+prefix) {
				t.Errorf("%q is not below %q", key, prefix)
			}
			if _, node, err := p.node(key); err == nil && node != sc.dir+"/"+leaf {
				t.Errorf("node %q in %q has the key %q, which leads to %q", leaf, sc.dir, key, node)
			}
		}
	})
}

// FuzzMarker reads arbitrary identity records, because any member may write one.
func FuzzMarker(f *testing.F) {
	f.Add([]byte(`{"id":"ABC"}`))
	f.Add([]byte(`{"id":"../x"}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		name := marker(value)
		if name == "" {
			return
		}
		if rest, ok := strings.CutPrefix(name, "!id"+separator); !ok || !plain(rest) || strings.Contains(name, "/") {
			t.Errorf("the marker of %q is %q", value, name)
		}
	})
}
