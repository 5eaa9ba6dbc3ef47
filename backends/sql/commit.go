package sql

import (
	"cmp"
	"context"
	"slices"

	"github.com/tenure-go/tenure/core/driver"
)

// transactionBytes bounds the keys and values of one database transaction; a
// larger batch of commits is split.
const transactionBytes = 4 << 20

// Commit writes under leases. See driver.Session.
func (s *session) Commit(ctx context.Context, writes []driver.Write) ([]driver.CommitResult, error) {
	if err := s.b.begin(ctx); err != nil {
		return nil, err
	}
	limits := s.b.info.Limits
	if err := driver.CheckWrites(writes, limits); err != nil {
		return nil, err
	}
	writes = cloneWrites(writes)
	next := func(from int) int {
		size, to := 0, from
		for to < len(writes) && to-from < limits.BatchItems && (to == from || size < transactionBytes) {
			for i := range writes[to].Ops {
				size += len(writes[to].Ops[i].Value)
			}
			to++
		}
		return to
	}
	return inParts(len(writes), next, func(from, to int, results []driver.CommitResult) error {
		return s.b.commit(ctx, writes[from:to], results)
	}, func(err error) driver.CommitResult { return driver.CommitResult{Err: err} })
}

// cloneWrites copies everything the caller may change after the call returned,
// which can be before the store is done with it.
func cloneWrites(writes []driver.Write) []driver.Write {
	writes = slices.Clone(writes)
	for i := range writes {
		ops := slices.Clone(writes[i].Ops)
		size := 0
		for j := range ops {
			size += len(ops[j].Value)
		}
		buf := make([]byte, 0, size)
		for j := range ops {
			start := len(buf)
			buf = append(buf, ops[j].Value...)
			ops[j].Value = buf[start:len(buf):len(buf)]
		}
		writes[i].Ops = ops
	}
	return writes
}

// commit decides and writes a batch in one transaction.
func (b *Backend) commit(ctx context.Context, writes []driver.Write, results []driver.CommitResult) error {
	if len(writes) == 1 && b.stmts.has(logsAppend) && onlyAppends(writes[0].Ops) {
		if applied, err := b.commitAppend(ctx, &writes[0], &results[0]); applied || err != nil {
			return err
		}
	}
	return b.commitBatch(ctx, writes, results)
}

func onlyAppends(ops []driver.Op) bool {
	return !slices.ContainsFunc(ops, func(op driver.Op) bool { return op.Kind != driver.OpAppend })
}

// commitAppend has one statement decide and write, which the store can send with
// BEGIN and COMMIT at once, and reports whether the write was applied. Why it was
// not, which is rare, commitBatch says.
func (b *Backend) commitAppend(ctx context.Context, w *driver.Write, res *driver.CommitResult) (bool, error) {
	seen := b.floor.Load()
	payloads, cuts := joinPayloads(w.Ops)
	head := driver.Head{Number: w.Number, Nonce: w.Nonce, Token: w.Fence.Token}
	var floor int64
	var applied *bool
	err := b.store.WriteData(ctx, func(ctx context.Context, data *Tx) (err error) {
		applied, err = data.ask(ctx, logsAppend, []any{b.name, b.id, seen, string(w.Fence.Shard), string(w.Fence.Session),
			int64(w.Fence.Token), int64(w.Number), int64(w.Nonce), bucketOf(w.Fence.Shard, b.buckets), len(w.Ops), array(cuts), payloads},
			&floor, &head.Seq, &head.Oldest)
		return err
	})
	if err != nil || !*applied {
		return false, err
	}
	*res = driver.CommitResult{Head: head}
	raise(&b.floor, floor)
	return true, nil
}

// commitBatch reads and locks, decides, and writes. Everything is checked before
// anything is written, so the writes stay independent. The tail counters are locked
// last.
func (b *Backend) commitBatch(ctx context.Context, writes []driver.Write, results []driver.CommitResult) error {
	seen := b.floor.Load()
	var floor int64
	var heads []driver.ShardHead // as the writes left them
	err := b.store.WriteData(ctx, func(ctx context.Context, data *Tx) error {
		heads = nil
		check := b.askData(ctx, data, namespaceRead, seen)
		records, err := b.readShards(ctx, data, shardsHold, namesOf(writes, func(w driver.Write) string { return string(w.Fence.Shard) }))
		if err != nil {
			return err
		}
		ns, err := check()
		if err != nil {
			return err
		}
		if floor, err = b.judge(ctx, data, records, ns.floor(), seen); err != nil {
			return err
		}
		var logs []logChange
		for i := range writes {
			results[i], err = b.decideWrite(ctx, data, &writes[i], records[writes[i].Fence.Shard])
			if err != nil {
				return err
			}
			if results[i].Err != nil {
				continue
			}
			log, err := b.writeItems(ctx, data, &writes[i], records[writes[i].Fence.Shard].head, &results[i])
			if err != nil {
				return err
			}
			h := results[i].Head
			err = data.write(ctx, headWrite, b.name, string(writes[i].Fence.Shard),
				int64(h.Number), int64(h.Seq), int64(h.Oldest), int64(h.Nonce), int64(h.Token))
			if err != nil {
				return err
			}
			heads = append(heads, driver.ShardHead{Shard: writes[i].Fence.Shard, Head: h})
			if log.appends() > 0 || log.trim > 0 {
				logs = append(logs, log)
			}
		}
		return b.writeLogs(ctx, data, logs)
	})
	if err == nil && len(heads) == 0 && b.showsEarly() {
		err = b.barrier(ctx) // for what the refusals say of owners and heads
	}
	if err == nil {
		err = b.settle(ctx, true, sight{floor: floor, heads: heads})
	}
	return b.adopting(ctx, err)
}

// judge says which of the records have a token that was never granted. floor was read
// before the records, so that it is read again for one that seems to.
func (b *Backend) judge(ctx context.Context, data *Tx, records map[driver.ShardID]record, floor, seen int64) (int64, error) {
	for shard, r := range records {
		if int64(r.owner.Token) > floor {
			ns, err := b.checkData(ctx, data, namespaceRead, seen)
			if err != nil {
				return floor, err
			}
			floor = max(floor, ns.floor())
		}
		r.judge(floor)
		records[shard] = r
	}
	return floor, nil
}

// decideWrite applies rules F1 and F2: the fence first, then the number, then the
// preconditions in the order of the operations; and D1 before them all. The result
// carries the head that the write will leave, or the refusal.
func (b *Backend) decideWrite(ctx context.Context, data *Tx, w *driver.Write, r record) (driver.CommitResult, error) {
	if err := b.damagedShard(w.Fence.Shard, r); err != nil {
		return driver.CommitResult{Err: err}, nil
	}
	if r.owner != (driver.Owner{Session: w.Fence.Session, Token: w.Fence.Token}) {
		return driver.CommitResult{Err: &driver.FencedError{Fence: w.Fence, Current: r.owner}}, nil
	}
	conflict := func(op int) (driver.CommitResult, error) {
		return driver.CommitResult{Err: &driver.ConflictError{Shard: w.Fence.Shard, Op: op, Head: r.head}}, nil
	}
	if w.Number != r.head.Number+1 {
		return conflict(driver.NumberConflict)
	}
	versions, err := b.readVersions(ctx, data, w)
	if err != nil {
		return driver.CommitResult{}, err
	}
	head := driver.Head{Number: w.Number, Seq: r.head.Seq, Oldest: max(r.head.Oldest, 1), Nonce: w.Nonce, Token: w.Fence.Token}
	for i := range w.Ops {
		switch op := &w.Ops[i]; op.Kind {
		case driver.OpPut, driver.OpDelete:
			at := versions[op.Key]
			if op.IfVersion == driver.Absent && at != 0 || op.IfVersion > 0 && at != op.IfVersion {
				return conflict(i)
			}
		case driver.OpAppend:
			head.Seq++
		case driver.OpTrim:
			if op.Through > r.head.Seq {
				return conflict(i)
			}
			head.Oldest = max(head.Oldest, op.Through+1)
		}
	}
	return driver.CommitResult{Head: head}, nil
}

// readVersions reads the versions of the items that have a precondition.
func (b *Backend) readVersions(ctx context.Context, data *Tx, w *driver.Write) (map[string]driver.Version, error) {
	var keys []string
	for i := range w.Ops {
		if w.Ops[i].IfVersion != driver.AnyVersion {
			keys = append(keys, w.Ops[i].Key)
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	versions := make(map[string]driver.Version, len(keys))
	err := data.rows(ctx, itemsVersions, []any{b.name, string(w.Fence.Shard), array(keys)}, func(r Row) error {
		var key string
		var v driver.Version
		if err := r.Scan(&key, &v); err != nil {
			return err
		}
		versions[key] = v
		return nil
	})
	return versions, err
}

// logChange is what one write does to its shard's log.
type logChange struct {
	fence    driver.Fence
	number   driver.WriteNo
	first    driver.Seq // of the entries appended
	payloads []byte     // of all of them, one after the other
	cuts     []int      // where each begins in it, and the last ends
	trim     driver.Seq // 0: nothing to trim
	bucket   int64
}

// appends is the number of entries appended.
func (l *logChange) appends() int { return len(l.cuts) - 1 }

// writeItems writes the puts and deletes of one write, whose number is their
// version, and returns what it does to the log.
func (b *Backend) writeItems(ctx context.Context, data *Tx, w *driver.Write, before driver.Head, res *driver.CommitResult) (logChange, error) {
	log := logChange{fence: w.Fence, number: w.Number, first: before.Seq + 1, bucket: bucketOf(w.Fence.Shard, b.buckets)}
	if res.Head.Oldest > max(before.Oldest, 1) {
		log.trim = res.Head.Oldest - 1
	}
	log.payloads, log.cuts = joinPayloads(w.Ops)
	values := []byte{}
	var puts [][3]any
	var deletes []string
	for i := range w.Ops {
		switch op := &w.Ops[i]; op.Kind {
		case driver.OpPut:
			if res.Versions == nil {
				res.Versions = make([]driver.Version, len(w.Ops))
			}
			res.Versions[i] = driver.Version(w.Number)
			puts = append(puts, [3]any{op.Key, len(values), len(op.Value)})
			values = append(values, op.Value...)
		case driver.OpDelete:
			deletes = append(deletes, op.Key)
		}
	}
	shard := string(w.Fence.Shard)
	if len(puts) > 0 {
		if err := data.write(ctx, itemsPut, b.name, shard, int64(w.Number), array(puts), values); err != nil {
			return log, err
		}
	}
	if len(deletes) > 0 {
		if err := data.write(ctx, itemsDelete, b.name, shard, array(deletes)); err != nil {
			return log, err
		}
	}
	return log, nil
}

// joinPayloads puts the payloads of the entries appended one after the other, and
// says where each begins, and the last ends.
func joinPayloads(ops []driver.Op) (payloads []byte, cuts []int) {
	size := 0
	for i := range ops {
		if ops[i].Kind == driver.OpAppend {
			size += len(ops[i].Value)
		}
	}
	payloads = make([]byte, 0, size)
	cuts = append(make([]int, 0, len(ops)+1), 0)
	for i := range ops {
		if ops[i].Kind == driver.OpAppend {
			payloads = append(payloads, ops[i].Value...)
			cuts = append(cuts, len(payloads))
		}
	}
	return payloads, cuts
}

// writeLogs appends and trims. Each bucket's counter orders the entries of its
// shards (L4). Counters are locked last, and in order, so that no two commits wait
// for each other.
func (b *Backend) writeLogs(ctx context.Context, data *Tx, logs []logChange) error {
	slices.SortStableFunc(logs, func(x, y logChange) int { return cmp.Compare(x.bucket, y.bucket) })
	for _, l := range logs {
		shard := string(l.fence.Shard)
		if l.trim > 0 {
			if err := data.write(ctx, tailTrim, b.name, l.bucket, shard, int64(l.trim)); err != nil {
				return err
			}
			if err := data.write(ctx, logsTrim, b.name, shard, int64(l.trim)); err != nil {
				return err
			}
		}
		n := l.appends()
		if n == 0 {
			continue
		}
		if err := data.write(ctx, tailAdvance, b.name, l.bucket, n); err != nil {
			return err
		}
		if err := data.write(ctx, logsInsert, b.name, shard, int64(l.first), int64(l.first)+int64(n)-1,
			int64(l.fence.Token), int64(l.number), l.bucket, array(l.cuts), l.payloads); err != nil {
			return err
		}
	}
	return nil
}
