package driver

import (
	"fmt"
	"time"
)

// CheckMember validates a member's record against the store's limits.
func CheckMember(m Member, l Limits) error {
	if err := CheckSession(m.Session); err != nil {
		return err
	}
	if err := CheckNode(m.Node); err != nil {
		return err
	}
	if m.TTL < l.MinTTL {
		return invalid("TTL %v is below this store's floor of %v: raise it", m.TTL, l.MinTTL)
	}
	if m.TTL < time.Millisecond || m.TTL > 24*time.Hour {
		return invalid("TTL %v is outside 1ms to 24h", m.TTL)
	}
	return checkState(m.MemberState)
}

// CheckUpdate validates an update to a member's state.
func CheckUpdate(st MemberState) error {
	if st.Update == 0 {
		return invalid("an update without a number: count the updates of a session from 1")
	}
	return checkState(st)
}

func checkState(st MemberState) error {
	if st.Update < 0 || int64(st.Update) > MaxCount {
		return invalid("update number %d is outside 0 to %d", st.Update, int64(MaxCount))
	}
	if st.Weight < 0 {
		return invalid("weight %d is negative", st.Weight)
	}
	if len(st.Meta) > MaxMetaEntries {
		return invalid("member metadata has %d entries: the limit is %d", len(st.Meta), MaxMetaEntries)
	}
	n := 0
	for k, v := range st.Meta {
		if err := checkName("metadata key", k, MaxNameLen); err != nil {
			return err
		}
		n += len(k) + len(v)
	}
	if n > MaxMetaBytes {
		return invalid("member metadata has %d bytes: the limit is %d", n, MaxMetaBytes)
	}
	return nil
}

// CheckFence validates a fence's names and token.
func CheckFence(f Fence) error {
	if err := CheckShard(f.Shard); err != nil {
		return err
	}
	if err := CheckSession(f.Session); err != nil {
		return err
	}
	if f.Token <= 0 {
		return invalid("token %d of shard %q is not positive: a fence comes from a grant", f.Token, f.Shard)
	}
	return nil
}

// CheckClaims validates the names and tokens of a batch of claims, and checks that each shard
// occurs only once.
func CheckClaims(claims []Claim) error {
	return each(claims, "shard", func(c Claim) (ShardID, error) {
		if err := CheckShard(c.Shard); err != nil {
			return "", err
		}
		if c.Seen.Token < 0 || (c.Seen.Token == 0 && c.Seen.Session != "") {
			return "", invalid("shard %q: seen token %d is not positive", c.Shard, c.Seen.Token)
		}
		if c.Seen.Session != "" {
			return c.Shard, CheckSession(c.Seen.Session)
		}
		return c.Shard, nil
	})
}

// CheckTransfers validates the names and tokens of a batch of transfers. CheckTransfers also checks
// that each shard occurs only once, and that every fence belongs to the transferring session.
func CheckTransfers(to []Transfer, self SessionID) error {
	return each(to, "shard", func(h Transfer) (ShardID, error) {
		if err := CheckFence(h.Fence); err != nil {
			return "", err
		}
		if h.Fence.Session != self {
			return "", invalid("shard %q: the fence is of session %q: a session transfers only its own leases", h.Fence.Shard, h.Fence.Session)
		}
		return h.Fence.Shard, CheckSession(h.To)
	})
}

// CheckFences validates a batch of fences to release, and checks that each shard occurs only once.
func CheckFences(fences []Fence) error {
	return each(fences, "shard", func(f Fence) (ShardID, error) { return f.Shard, CheckFence(f) })
}

// CheckSuspects validates a batch of sessions to evict, and checks that each session occurs only
// once.
func CheckSuspects(suspects []Suspect) error {
	return each(suspects, "session", func(s Suspect) (SessionID, error) {
		if s.Version <= 0 {
			return "", invalid("session %q: the version to evict is not positive", s.Session)
		}
		return s.Session, CheckSession(s.Session)
	})
}

// CheckWrites validates a batch of commits before the backend sends any of them. Each shard must
// occur only once, and each write must be within the limits.
func CheckWrites(writes []Write, l Limits) error {
	return each(writes, "shard", func(w Write) (ShardID, error) { return w.Fence.Shard, CheckWrite(w, l) })
}

// CheckWrite validates the names and sizes of one commit, and checks that each key occurs only
// once. The error matches ErrInvalid or ErrTooLarge.
func CheckWrite(w Write, l Limits) error {
	if err := CheckFence(w.Fence); err != nil {
		return err
	}
	if w.Number <= 0 {
		return invalid("write number %d is not positive", w.Number)
	}
	if w.Nonce == 0 {
		return invalid("write %d of shard %q has no nonce", w.Number, w.Fence.Shard)
	}
	if len(w.Ops) == 0 {
		return invalid("write %d of shard %q has no operation", w.Number, w.Fence.Shard)
	}
	if l.WriteOps > 0 && len(w.Ops) > l.WriteOps {
		return tooLarge("write of shard %q has %d operations: this store takes %d; split it", w.Fence.Shard, len(w.Ops), l.WriteOps)
	}
	size, keys := 0, 0
	for i := range w.Ops {
		op := &w.Ops[i]
		if err := checkOp(i, op); err != nil {
			return err
		}
		size += len(op.Key) + len(op.Value)
		if op.keyed() {
			keys++
		}
	}
	if l.WriteBytes > 0 && size > l.WriteBytes {
		return tooLarge("write of shard %q has %d bytes of keys and values: this store takes %d; split it", w.Fence.Shard, size, l.WriteBytes)
	}
	if keys < 2 {
		return nil
	}
	seen := make(map[string]struct{}, keys)
	for i := range w.Ops {
		if !w.Ops[i].keyed() {
			continue
		}
		k := w.Ops[i].Key
		if _, dup := seen[k]; dup {
			return invalid("operation %d: key %q occurs twice in one write", i, k)
		}
		seen[k] = struct{}{}
	}
	return nil
}

func (o *Op) keyed() bool { return o.Kind == OpPut || o.Kind == OpDelete }

func checkOp(i int, op *Op) error {
	switch op.Kind {
	case OpPut, OpDelete:
		if err := CheckKey(op.Key); err != nil {
			return err
		}
		if op.IfVersion < Absent {
			return invalid("operation %d: IfVersion %d is neither AnyVersion, Absent nor an item's version", i, op.IfVersion)
		}
	case OpAppend:
	case OpTrim:
		if op.Through < 0 {
			return invalid("operation %d: trim through %d is negative", i, op.Through)
		}
	default:
		return invalid("operation %d has kind %d, which does not exist", i, op.Kind)
	}
	return nil
}

func each[T any, K ~string](items []T, what string, check func(T) (K, error)) error {
	var seen map[K]struct{}
	if len(items) > 1 {
		seen = make(map[K]struct{}, len(items))
	}
	for _, it := range items {
		k, err := check(it)
		if err != nil {
			return err
		}
		if seen == nil {
			continue
		}
		if _, dup := seen[k]; dup {
			return invalid("%s %q occurs twice in one batch", what, k)
		}
		seen[k] = struct{}{}
	}
	return nil
}

func tooLarge(format string, args ...any) error {
	return fmt.Errorf("tenure: %w: %s", ErrTooLarge, fmt.Sprintf(format, args...))
}
