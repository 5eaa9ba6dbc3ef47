package driver

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// These limits on names and keys are the same on every store. An application can therefore change
// its backend without renaming anything.
const (
	MaxNameLen        = 128 // bytes in the name of a shard or node, or in a part of a namespace
	MaxNamespaceParts = 8   // parts in a namespace, joined by "/"
	MaxSessionLen     = 64  // bytes in a session id
	MaxKeyLen         = 512 // bytes in an item's key
	MaxMetaEntries    = 16  // entries in Member.Meta
	MaxMetaBytes      = 2048
)

// MaxListBytes is the maximum total size of the values that List returns if both limit and largest
// are positive.
const MaxListBytes = 16 << 20

// MaxIdleLabels is the number of records that a namespace keeps for node labels without a live
// member (rule M3).
const MaxIdleLabels = 64

// Reserved reports whether name starts with "_". Such names are reserved for Tenure.
func Reserved(name string) bool { return strings.HasPrefix(name, "_") }

// LockPrefix is the name prefix of the shards that package lock uses as locks. A lock's record is
// removed when the lock is free (rule R2).
const LockPrefix = "_lock."

// MaxFreeLocks limits the records of free locks that have no head. A namespace keeps at most this
// many such records for each process that released locks (rule R2).
const MaxFreeLocks = 2048

// IsLock reports whether the shard is a lock (rule R2).
func IsLock(s ShardID) bool { return strings.HasPrefix(string(s), LockPrefix) }

// CheckShard validates a shard's name: [A-Za-z0-9_][A-Za-z0-9._-]{0,127}. The error matches
// ErrInvalid and explains what to change.
func CheckShard(s ShardID) error {
	if IsLock(s) { // an error counts the bytes of the lock's name as the caller wrote it
		return checkPart("lock", string(s), len(LockPrefix), MaxNameLen)
	}
	return checkName("shard", string(s), MaxNameLen)
}

// CheckNode validates a node label, which has the same grammar as a shard's name.
func CheckNode(node string) error { return checkName("node", node, MaxNameLen) }

// CheckSession validates a session id. A session id has the grammar of a name and at most
// MaxSessionLen bytes, and does not start with "_".
func CheckSession(s SessionID) error {
	if Reserved(string(s)) {
		return invalid("session id %s starts with %q: use letters and digits", quote(string(s)), "_")
	}
	return checkName("session id", string(s), MaxSessionLen)
}

// CheckNamespace validates a namespace: one to MaxNamespaceParts names joined by "/". The fixed
// parts of stored keys start with a character that names cannot contain, so that namespaces "a" and
// "a/b" never overlap.
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

// CheckKey validates an item's key. A key consists of parts in the grammar of a name, joined by
// "/", and has at most MaxKeyLen bytes.
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
func CheckList(shard ShardID, prefix string, limit, largest int) error {
	if err := CheckShard(shard); err != nil {
		return err
	}
	if limit < 0 {
		return fmt.Errorf("tenure: %w: listing %d items: use 0 for all", ErrInvalid, limit)
	}
	if largest < 0 {
		return fmt.Errorf("tenure: %w: listing values of %d bytes: use 0 for any size", ErrInvalid, largest)
	}
	return CheckPrefix(prefix)
}

// CheckPrefix validates a prefix for List. The prefix is either empty, for all items of the shard,
// or the beginning of a valid key. List compares the prefix byte by byte, so "1" also matches "10".
// To match only whole parts of keys, end the prefix with "/".
func CheckPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	return CheckKey(strings.TrimSuffix(prefix, "/"))
}

func checkName(what, s string, limit int) error { return checkPart(what, s, 0, limit) }

// checkPart is like checkName, but its errors do not show the first out bytes of s.
func checkPart(what, s string, out, limit int) error {
	if s == "" {
		return invalid("%s is empty: give it a name of letters, digits, %q, %q and %q", what, "_", "-", ".")
	}
	if len(s) > limit {
		return invalid("%s %s has %d bytes: the limit is %d", what, quote(s[out:]), len(s)-out, limit-out)
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_':
		case i > 0 && (c == '.' || c == '-'):
		default:
			r, _ := utf8.DecodeRuneInString(s[i:])
			return invalid("%s %s has %q at byte %d: use letters, digits and %q, and after the first character also %q and %q",
				what, quote(s[out:]), r, i-out, "_", "-", ".")
		}
	}
	return nil
}

// quote returns at most 40 bytes of an untrusted name, in quotation marks.
func quote(s string) string {
	if len(s) > 40 {
		return fmt.Sprintf("%q...", s[:40])
	}
	return fmt.Sprintf("%q", s)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("tenure: %w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
