package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// lockPatience is how long logs_append waits for a row that another transaction has locked. A write
// by the shard's owner takes less time.
const lockPatience = 10 * time.Millisecond

// ErrUndecided means that a transaction had no effect, because log_append or logs_append found no
// row or waited too long for a locked row. The Store's error then matches ErrUndecided.
var ErrUndecided = errors.New("a row is missing or locked")

func onlyAppends(writes []driver.Write) bool {
	return !slices.ContainsFunc(writes, func(w driver.Write) bool {
		return slices.ContainsFunc(w.Ops, func(op driver.Op) bool { return op.Kind != driver.OpAppend })
	})
}

// commitAppend checks and writes a commit with one statement, which the store can send together
// with BEGIN and COMMIT. If the statement writes nothing, which is rare, the result has no head.
// The caller then uses commitBatch, which finds the reason.
func (b *Backend) commitAppend(ctx context.Context, w *driver.Write, res *driver.CommitResult) error {
	payloads, cuts := joinPayloads(w.Ops)
	params := []any{b.name, b.id, b.floor.Load(), string(w.Fence.Shard), string(w.Fence.Session), int64(w.Fence.Token), int64(w.Number),
		int64(w.Nonce), bucketOf(w.Fence.Shard, b.buckets), len(w.Ops), array(cuts), payloads}
	head := driver.Head{Number: w.Number, Nonce: w.Nonce, Token: w.Fence.Token}
	var floor int64
	var applied *bool
	err := b.store.WriteData(ctx, func(ctx context.Context, data *Tx) (err error) {
		applied, err = data.ask(ctx, logAppend, params, &floor, &head.Seq, &head.Oldest)
		return err
	})
	if err == nil && *applied {
		*res = driver.CommitResult{Head: head}
		raise(&b.floor, floor)
	}
	return err
}

// commitAppends is like commitAppend, but for a batch of commits.
func (b *Backend) commitAppends(ctx context.Context, writes []driver.Write, results []driver.CommitResult) error {
	order := make([]int, len(writes)) // of the shards, in the order in which their rows are locked
	at := make(map[driver.ShardID]int, len(writes))
	for i := range writes {
		order[i], at[writes[i].Fence.Shard] = i, i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(writes[i].Fence.Shard, writes[j].Fence.Shard) })
	patience := strconv.FormatInt(lockPatience.Milliseconds(), 10)
	params := append([]any{b.name, b.id, b.floor.Load(), patience}, b.appendParams(writes, order)...)
	var floor int64
	err := b.store.WriteData(ctx, func(ctx context.Context, data *Tx) error {
		return data.queue(ctx, logsAppend, params, func(r Row) error {
			var shard driver.ShardID
			var head driver.Head
			if err := r.Scan(&floor, &shard, &head.Seq, &head.Oldest); err != nil {
				return err
			}
			i := at[shard]
			w := &writes[i]
			head.Number, head.Nonce, head.Token = w.Number, w.Nonce, w.Fence.Token
			results[i] = driver.CommitResult{Head: head}
			return nil
		})
	})
	if err == nil {
		raise(&b.floor, floor)
	}
	return err
}

// appendParams returns the list parameters of logs_append.
func (b *Backend) appendParams(writes []driver.Write, order []int) []any {
	n := len(order)
	var (
		shards, sessions, cuts  = make([]string, n), make([]string, n), make([]string, n)
		tokens, numbers, nonces = make([]int64, n), make([]int64, n), make([]int64, n)
		counts, places, backs   = make([]int64, n), make([]int64, n), make([]int64, n)
		payloads                = make([][]byte, n)
		rises                   = make([]int64, b.buckets)
		buckets, totals         []int64
	)
	for i, k := range order {
		w := &writes[k]
		shards[i], sessions[i] = string(w.Fence.Shard), string(w.Fence.Session)
		tokens[i], numbers[i], nonces[i] = int64(w.Fence.Token), int64(w.Number), int64(w.Nonce)
		var at []int
		payloads[i], at = joinPayloads(w.Ops)
		cuts[i], counts[i], places[i] = array(at), int64(len(w.Ops)), bucketOf(w.Fence.Shard, b.buckets)
		rises[places[i]] += counts[i]
	}
	for bucket, n := range rises {
		if n > 0 {
			buckets, totals = append(buckets, int64(bucket)), append(totals, n)
		}
	}
	for i, bucket := range places {
		rises[bucket] -= counts[i]
		backs[i] = rises[bucket]
	}
	return []any{shards, sessions, tokens, numbers, nonces, counts, places, backs, cuts, payloads, buckets, totals}
}
