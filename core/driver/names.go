package driver

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds of names and keys. They are the same on every store, so that an
// application can change its backend without renaming anything.
const (
	MaxNameLen        = 128 // bytes of a shard, node or namespace part
	MaxNamespaceParts = 8   // parts of a namespace, joined by "/"
	MaxSessionLen     = 64  // bytes of a session id
	MaxKeyLen         = 512 // bytes of an item's key
	MaxMetaEntries    = 16  // entries of Member.Meta
	MaxMetaBytes      = 2048
)

// MaxIdleLabels is how many node labels under which nobody lives a namespace keeps
// a record of (rule M3).
const MaxIdleLabels = 64

// Reserved reports whether name is Tenure's own: it starts with "_".
func Reserved(name string) bool { return strings.HasPrefix(name, "_") }

// LockPrefix begins the names of shards that are locks, as package lock makes them: their
// records go when they are free (rule R2).
const LockPrefix = "_lock."

// MaxFreeLocks bounds the records of free locks without a head that a namespace keeps, for
// each process that released some (rule R2).
const MaxFreeLocks = 2048

// IsLock reports whether the shard is a lock (rule R2).
func IsLock(s ShardID) bool { return strings.HasPrefix(string(s), LockPrefix) }

// CheckShard validates a shard's name: [A-Za-z0-9_][A-Za-z0-9._-]{0,127}. The
// error matches ErrInvalid and says what to change.
func CheckShard(s ShardID) error { return checkName("shard", string(s), MaxNameLen) }

// CheckNode validates a node label, by the same grammar as a shard's name.
func CheckNode(node string) error { return checkName("node", node, MaxNameLen) }

// CheckSession validates a session id: the grammar of a name, at most
// MaxSessionLen bytes, not starting with "_".
func CheckSession(s SessionID) error {
	if Reserved(string(s)) {
		return invalid("session id %s starts with %q: use letters and digits", quote(string(s)), "_")
	}
	return checkName("session id", string(s), MaxSessionLen)
}

// CheckNamespace validates a namespace: one to MaxNamespaceParts names joined by
// "/". The fixed parts of stored keys start with a character that names cannot,
// so that namespaces "a" and "a/b" never overlap.
func CheckNamespace(ns string) error {
	parts := strings.SplitN(ns, "/", MaxNamespaceParts+1)
	if len(parts) > MaxNamespaceParts {
		return invalid("namespace %s has more than %d parts: join fewer names with %q", quote(ns), MaxNamespaceParts, "/")
	}
	for _, p := range parts {
		if err := checkName("namespace part", p, MaxNameLen); err != nil {
			return err
		}
	}
	return nil
}

// CheckKey validates the key of an item: parts by the grammar of a name, joined
// by "/", at most MaxKeyLen bytes in all.
func CheckKey(key string) error {
	if len(key) > MaxKeyLen {
		return invalid("key %s has %d bytes: the limit is %d", quote(key), len(key), MaxKeyLen)
	}
	for p := range strings.SplitSeq(key, "/") {
		if err := checkName("key part", p, MaxKeyLen); err != nil {
			return err
		}
	}
	return nil
}

// CheckList validates the arguments of Backend.List.
func CheckList(shard ShardID, prefix string, limit int) error {
	if err := CheckShard(shard); err != nil {
		return err
	}
	if limit < 0 {
		return fmt.Errorf("tenure: %w: listing %d items: use 0 for all", ErrInvalid, limit)
	}
	return CheckPrefix(prefix)
}

// CheckPrefix validates the prefix that List takes: empty (all items of the
// shard), or the beginning of a valid key. It is compared byte by byte: "1" also
// matches "10"; end it with "/" to name one part exactly.
func CheckPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	return CheckKey(strings.TrimSuffix(prefix, "/"))
}

func checkName(what, s string, limit int) error {
	if s == "" {
		return invalid("%s is empty: give it a name of letters, digits, %q, %q and %q", what, "_", "-", ".")
	}
	if len(s) > limit {
		return invalid("%s %s has %d bytes: the limit is %d", what, quote(s), len(s), limit)
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_':
		case i > 0 && (c == '.' || c == '-'):
		default:
			r, _ := utf8.DecodeRuneInString(s[i:])
			return invalid("%s %s has %q at byte %d: use letters, digits and %q, and after the first character also %q and %q",
				what, quote(s), r, i, "_", "-", ".")
		}
	}
	return nil
}

// quote shows at most 40 bytes of a name from outside.
func quote(s string) string {
	if len(s) > 40 {
		return fmt.Sprintf("%q...", s[:40])
	}
	return fmt.Sprintf("%q", s)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("tenure: %w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
