package zookeeper

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

// paths maps the keys of package kv to nodes below a root. Directories are nodes without data.
// A record is always a leaf, so that it can be deleted:
//
//	<ns>/!state/shard/eu      /tenure/<ns>/!state/shard/eu
//	<ns>/!item/eu/config/db   /tenure/<ns>/!item/eu/config:db
type paths struct{ root string }

// parted lists the fixed parts of keys that have one level of directories below them.
var parted = []string{"!state", "!log", "!item"}

// separator replaces "/" in a leaf's name, and must not occur in keys.
const separator = ":"

// node returns a key's directory and node, or an error if a part of the key would need escaping.
func (p paths) node(key string) (dir, node string, err error) {
	at := strings.Index(key, "/!")
	if at <= 0 {
		return "", "", badKey(key)
	}
	part, leaf, below := strings.Cut(key[at+1:], "/")
	if slices.Contains(parted, part) {
		if _, leaf, below = strings.Cut(leaf, "/"); !below {
			return "", "", badKey(key)
		}
	}
	if !below {
		leaf = part
	}
	if !plain(key) || leaf == "" {
		return "", "", badKey(key)
	}
	// Both paths share one string, because claiming thousands of shards creates thousands of
	// strings.
	node = p.root + "/" + key[:len(key)-len(leaf)] + strings.ReplaceAll(leaf, "/", separator)
	return node[:len(node)-len(leaf)-1], node, nil
}

// plain reports whether every part of a key can be used unchanged as a node's name.
func plain(key string) bool {
	begin := 0
	for i := 0; i <= len(key); i++ {
		if i < len(key) && key[i] != '/' {
			if key[i] <= ' ' || key[i] > '~' || key[i] == separator[0] {
				return false
			}
			continue
		}
		if part := key[begin:i]; part == "" || part == "." || part == ".." {
			return false
		}
		begin = i + 1
	}
	return true
}

// scope locates the records with a prefix, which are leaves of one directory, or of all directories
// inside one directory.
type scope struct {
	prefix string // of keys
	dir    string // node
	nested bool   // the leaves are in directories of dir
	base   string // key of dir, followed by "/"
}

// scope returns a prefix's scope. The prefix includes at least the fixed part, such as
// "<ns>/!beat/".
func (p paths) scope(prefix string) (scope, error) {
	at := strings.Index(prefix, "/!")
	if at <= 0 {
		return scope{}, badKey(prefix)
	}
	part, rest, ok := strings.Cut(prefix[at+1:], "/")
	if !ok || !plain(strings.TrimSuffix(prefix, "/")) {
		return scope{}, badKey(prefix)
	}
	s := scope{prefix: prefix, base: prefix[:at+1] + part + "/"}
	if slices.Contains(parted, part) {
		sub, _, ok := strings.Cut(rest, "/")
		if ok {
			s.base += sub + "/"
		}
		s.nested = !ok
	}
	s.dir = p.root + "/" + strings.TrimSuffix(s.base, "/")
	return s, nil
}

func (s scope) below(name string) scope {
	return scope{prefix: s.prefix, base: s.base + name + "/", dir: s.dir + "/" + name}
}

// keys returns the keys of the leaves that match the prefix.
func (s scope) keys(leaves []string) []string {
	keys := make([]string, 0, len(leaves))
	for _, leaf := range leaves {
		if key := s.base + strings.ReplaceAll(leaf, separator, "/"); strings.HasPrefix(key, s.prefix) {
			keys = append(keys, key)
		}
	}
	return keys
}

// partOf returns a key's namespace and fixed part.
func partOf(key string) (ns, part string) {
	at := strings.Index(key, "/!")
	part, _, _ = strings.Cut(key[at+1:], "/")
	return key[:at], part
}

func badKey(key string) error {
	return fmt.Errorf("tenure: %w: %.80q is no key of this package", driver.ErrInvalid, key)
}
