package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tenure-go/tenure/core/driver"
)

const (
	// transactionBytes limits the keys and values of one database transaction. A larger batch of
	// commits is split. A single statement contains all keys and values. Even in base64, and with
	// opBytes for each operation, it fits in a server's smallest packet limit (4 MiB).
	transactionBytes = 2 << 20
	// opBytes is the maximum size of an operation without its key and value.
	opBytes = 64
)

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
		for to < len(writes) && to-from < limits.BatchItems {
			for i := range writes[to].Ops {
				size += len(writes[to].Ops[i].Key) + len(writes[to].Ops[i].Value) + opBytes
			}
			if size > transactionBytes && to > from {
				break
			}
			to++
		}
		return to
	}
	alone := len(writes) == 1
	return inParts(len(writes), next, func(from, to int, results []driver.CommitResult) error {
		return s.b.commit(ctx, writes[from:to], alone, results)
	}, func(err error) driver.CommitResult { return driver.CommitResult{Err: err} })
}

// cloneWrites copies all data that the caller may change after the call has returned, because the
// store may still be reading it.
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

// commit checks and writes a batch. A write that is alone in its call waits for its row.
func (b *Backend) commit(ctx context.Context, writes []driver.Write, alone bool, results []driver.CommitResult) error {
	err := ErrUndecided
	switch appends := onlyAppends(writes); {
	case appends && alone && b.stmts.has(logAppend):
		err = b.commitAppend(ctx, &writes[0], &results[0])
	case appends && !alone && b.stmts.has(logsAppend):
		err = b.commitAppends(ctx, writes, results)
	}
	switch {
	case errors.Is(err, ErrUndecided):
		return b.commitBatch(ctx, writes, alone, results)
	case err != nil:
		return err
	}
	var left []driver.Write // writes whose conditions did not hold; commitBatch finds out why
	var at []int
	for i := range writes {
		if results[i].Head.Number == 0 {
			left, at = append(left, writes[i]), append(at, i)
		}
	}
	if len(left) == 0 {
		return nil
	}
	rest := make([]driver.CommitResult, len(left))
	if err = b.commitBatch(ctx, left, alone, rest); err != nil && len(left) == len(writes) {
		return err
	}
	for k, i := range at { // writes that were made stay, whatever the result of the others
		if results[i] = rest[k]; err != nil {
			results[i].Err = err
		}
	}
	return nil
}

// commitBatch first reads and locks the rows, then decides, and then writes. Each step uses one
// statement for the whole batch. Because all checks precede all writes, the writes stay
// independent. Unless the write is alone, rows that another transaction has locked are skipped. The
// tail counters are locked last.
func (b *Backend) commitBatch(ctx context.Context, writes []driver.Write, alone bool, results []driver.CommitResult) error {
	seen := b.floor.Load()
	var floor int64
	var heads []driver.ShardHead // the heads after the writes
	err := b.store.WriteData(ctx, func(ctx context.Context, data *Tx) error {
		heads = nil
		records, busy, ns, err := b.holdShards(ctx, data, writes, alone, seen)
		if err != nil {
			return err
		}
		if floor, err = b.judge(ctx, data, records, ns.floor(), seen); err != nil {
			return err
		}
		for i := range writes {
			shard := writes[i].Fence.Shard
			if _, is := busy[shard]; is {
				results[i] = driver.CommitResult{Err: errLocked(shard)}
			} else {
				results[i] = driver.CommitResult{Err: b.refuse(&writes[i], records[shard])}
			}
		}
		found, err := b.readConditions(ctx, data, writes, records, results)
		if err != nil {
			return err
		}
		var changes changes
		for i := range writes {
			w := &writes[i]
			if results[i].Err != nil {
				continue
			}
			before := records[w.Fence.Shard].head
			if results[i] = found.decide(w, before); results[i].Err == nil {
				changes.add(w, before, results[i].Head, b.buckets)
				heads = append(heads, driver.ShardHead{Shard: w.Fence.Shard, Head: results[i].Head})
			}
		}
		return changes.write(ctx, data, b.name, found.positions)
	})
	if err == nil && len(heads) == 0 && b.showsEarly() {
		err = b.barrier(ctx) // because the refusals show owners and heads
	}
	if err == nil {
		err = b.settle(ctx, true, sight{floor: floor, heads: heads})
	}
	return b.adopting(ctx, err)
}

// holdShards locks and reads a batch's rows, and checks the namespace. Unless the write is alone,
// the result busy contains the rows that another transaction has locked.
func (b *Backend) holdShards(ctx context.Context, data *Tx, writes []driver.Write, alone bool, seen int64) (
	records, busy map[driver.ShardID]record, ns namespace, err error) {
	how := shardsTry
	if alone {
		how = shardsHold
	}
	check := b.askData(ctx, data, namespaceRead, seen)
	names := namesOf(writes, func(w driver.Write) string { return string(w.Fence.Shard) })
	if records, err = b.readShards(ctx, data, how, names); err != nil {
		return nil, nil, ns, err
	}
	if ns, err = check(); err == nil && !alone {
		busy, err = b.readRest(ctx, data, names, records)
	}
	return records, busy, ns, err
}

// errLocked returns the error for a batched write that would have to wait for another transaction.
func errLocked(shard driver.ShardID) error {
	return fmt.Errorf("tenure: shard %q: %w: another transaction has its row locked; sent alone, the write waits for it",
		shard, driver.ErrRetry)
}

// judge marks the records whose token was never granted. The floor was read before the records, so
// judge rereads it if a record's token is above it.
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

// refuse applies rule D1, and then the parts of rules F1 and F2 that depend on the record. The
// fence is checked before the number.
func (b *Backend) refuse(w *driver.Write, r record) error {
	if err := b.damagedShard(w.Fence.Shard, r); err != nil {
		return err
	}
	if r.owner != (driver.Owner{Session: w.Fence.Session, Token: w.Fence.Token}) {
		return &driver.FencedError{Fence: w.Fence, Current: r.owner}
	}
	if w.Number != r.head.Number+1 {
		return &driver.ConflictError{Shard: w.Fence.Shard, Op: driver.NumberConflict, Head: r.head}
	}
	return nil
}

// conditions contains the values on which the remaining writes depend. They are read while the rows
// are locked.
type conditions struct {
	versions  map[itemName]driver.Version // of the items with a precondition
	positions map[driver.ShardID]int64    // of the last row that a trim removes
}

type itemName struct {
	shard driver.ShardID
	key   string
}

func (b *Backend) readConditions(ctx context.Context, data *Tx, writes []driver.Write, records map[driver.ShardID]record,
	results []driver.CommitResult) (*conditions, error) {
	c := &conditions{make(map[itemName]driver.Version), make(map[driver.ShardID]int64)}
	var items, trims [][]any
	for i := range writes {
		if results[i].Err != nil {
			continue
		}
		shard := writes[i].Fence.Shard
		for _, op := range writes[i].Ops {
			if op.IfVersion != driver.AnyVersion {
				items = append(items, []any{string(shard), op.Key})
			}
		}
		head := records[shard].head
		if through := trimmed(&writes[i], head); through >= oldest(head) {
			trims = append(trims, []any{string(shard), int64(through)})
		}
	}
	err := data.queueRows(ctx, itemsVersions, items, func(r Row) error {
		var name itemName
		var v driver.Version
		err := r.Scan(&name.shard, &name.key, &v)
		c.versions[name] = v
		return err
	}, b.name)
	if err != nil {
		return nil, err
	}
	err = data.queueRows(ctx, logsPositions, trims, func(r Row) error {
		var shard driver.ShardID
		var position int64
		err := r.Scan(&shard, &position)
		c.positions[shard] = position
		return err
	}, b.name)
	if err == nil && len(items)+len(trims) > 0 {
		err = data.flush(ctx)
	}
	return c, err
}

// oldest returns the number of the first entry that the log contains or will contain.
func oldest(head driver.Head) driver.Seq { return max(head.Oldest, 1) }

// trimmed returns the last log entry that a write removes, or 0 if it removes no entries.
func trimmed(w *driver.Write, head driver.Head) (through driver.Seq) {
	for i := range w.Ops {
		if op := &w.Ops[i]; op.Kind == driver.OpTrim && op.Through <= head.Seq {
			through = max(through, op.Through)
		}
	}
	return through
}

// decide applies rule F2 to the preconditions, in the order of the operations. The result contains
// either the refusal, or the new head and the versions of the written items.
func (c *conditions) decide(w *driver.Write, before driver.Head) (res driver.CommitResult) {
	conflict := func(op int) driver.CommitResult {
		return driver.CommitResult{Err: &driver.ConflictError{Shard: w.Fence.Shard, Op: op, Head: before}}
	}
	res.Head = driver.Head{Number: w.Number, Seq: before.Seq, Oldest: oldest(before), Nonce: w.Nonce, Token: w.Fence.Token}
	for i := range w.Ops {
		op := &w.Ops[i]
		switch op.Kind {
		case driver.OpPut, driver.OpDelete:
			at := c.versions[itemName{w.Fence.Shard, op.Key}]
			if op.IfVersion == driver.Absent && at != 0 || op.IfVersion > 0 && at != op.IfVersion {
				return conflict(i)
			}
		case driver.OpAppend:
			res.Head.Seq++
		case driver.OpTrim:
			if op.Through > before.Seq {
				return conflict(i)
			}
			res.Head.Oldest = max(res.Head.Oldest, op.Through+1)
		}
		if op.Kind == driver.OpPut {
			if res.Versions == nil {
				res.Versions = make([]driver.Version, len(w.Ops))
			}
			res.Versions[i] = driver.Version(w.Number)
		}
	}
	return res
}

// changes contains the rows that the statements write for a batch.
type changes struct {
	heads, puts, deletes, trims [][]any
	logs                        []logChange
}

// logChange is the change of one write to its shard's log.
type logChange struct {
	fence    driver.Fence
	number   driver.WriteNo
	last     driver.Seq // number of the last entry appended
	payloads []byte     // all payloads concatenated
	cuts     []int      // start of each payload, and the end of the last
	trim     bool
	bucket   int64
}

func (l *logChange) appends() int { return len(l.cuts) - 1 }

// add collects the changes of one write.
func (c *changes) add(w *driver.Write, before, after driver.Head, buckets int64) {
	shard := string(w.Fence.Shard)
	c.heads = append(c.heads, []any{shard, int64(after.Number), int64(after.Seq), int64(after.Oldest), int64(after.Nonce), int64(after.Token)})
	for i := range w.Ops {
		switch op := &w.Ops[i]; op.Kind {
		case driver.OpPut:
			c.puts = append(c.puts, []any{shard, op.Key, int64(w.Number), op.Value})
		case driver.OpDelete:
			c.deletes = append(c.deletes, []any{shard, op.Key})
		default: // appends and trims are log changes
		}
	}
	log := logChange{fence: w.Fence, number: w.Number, last: after.Seq, bucket: bucketOf(w.Fence.Shard, buckets)}
	log.payloads, log.cuts = joinPayloads(w.Ops)
	if log.trim = after.Oldest > oldest(before); log.trim {
		c.trims = append(c.trims, []any{shard, int64(after.Oldest) - 1})
	}
	if log.appends() > 0 || log.trim {
		c.logs = append(c.logs, log)
	}
}

// Each bucket's counter orders the entries of its shards (L4). The counters are locked last and in
// order, which prevents deadlocks.
func (c *changes) write(ctx context.Context, data *Tx, name string, positions map[driver.ShardID]int64) error {
	var tails, inserts [][]any
	slices.SortStableFunc(c.logs, func(x, y logChange) int { return cmp.Compare(x.bucket, y.bucket) })
	for len(c.logs) > 0 {
		n := 1
		for n < len(c.logs) && c.logs[n].bucket == c.logs[0].bucket {
			n++
		}
		tail, rows := inBucket(c.logs[:n], positions)
		tails, inserts = append(tails, tail), append(inserts, rows...)
		c.logs = c.logs[n:]
	}
	for _, step := range []struct {
		how  Statement
		rows [][]any
	}{
		{itemsPut, c.puts}, {itemsDelete, c.deletes}, {headsWrite, c.heads},
		{tailsLock, tails}, {tailsMove, tails}, {logsTrim, c.trims}, {logsInsert, inserts},
	} {
		if step.how == tailsLock && !data.stmts.has(tailsLock) {
			continue
		}
		if err := data.writeRows(ctx, step.how, step.rows, name); err != nil {
			return err
		}
	}
	return nil
}

// inBucket returns how far a bucket's counter moves, and the rows that are appended to the bucket's
// logs.
func inBucket(logs []logChange, positions map[driver.ShardID]int64) (tail []any, inserts [][]any) {
	count, removed := 0, int64(0)
	for i := range logs {
		count += logs[i].appends()
		if logs[i].trim {
			removed = max(removed, positions[logs[i].fence.Shard])
		}
	}
	back := count
	for i := range logs {
		l := &logs[i]
		n := l.appends()
		if n == 0 {
			continue
		}
		back -= n
		inserts = append(inserts, []any{string(l.fence.Shard), int64(l.last) - int64(n) + 1, int64(l.last),
			int64(l.fence.Token), int64(l.number), l.bucket, back, array(l.cuts), l.payloads})
	}
	return []any{logs[0].bucket, count, removed}, inserts
}

// joinPayloads concatenates the payloads of the appended entries. The cuts are the offsets at which
// the payloads begin, and the end of the last one.
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
