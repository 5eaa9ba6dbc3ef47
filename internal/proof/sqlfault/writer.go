package sqlfault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// Outcomes counts the outcomes of a Writer's commits.
type Outcomes struct{ Acknowledged, Refused, Unknown, UnknownApplied int }

// A Writer appends the numbers 1, 2, 3 and so on to one shard's log under one lease. Under any
// fault of the store, the Writer appends each number exactly once. If the outcome of a commit is
// unknown, the Writer reads the log, as core does. Only one goroutine may use a Writer.
type Writer struct {
	Outcomes
	b     driver.Backend
	s     driver.Session
	fence driver.Fence
	head  driver.Head

	patience time.Duration // for one attempt to write or read; 0: no limit
}

// NewWriter joins and takes the shard.
func NewWriter(ctx context.Context, b driver.Backend, shard driver.ShardID) (*Writer, error) {
	id := driver.SessionID("w" + strconv.FormatUint(rand.Uint64(), 36))
	s, err := b.Join(ctx, driver.Member{Session: id, Node: string(id), TTL: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	res, err := s.Acquire(ctx, []driver.Claim{{Shard: shard}})
	if err != nil {
		return nil, err
	}
	return &Writer{b: b, s: s, fence: res[0].Fence, head: res[0].Head}, res[0].Err
}

// Append writes the next entry, and retries until the entry is written. Append returns an error if
// a rule was broken or the context ended.
func (w *Writer) Append(ctx context.Context) error {
	number := w.head.Number + 1
	write := driver.Write{Fence: w.fence, Number: number, Nonce: driver.Nonce(rand.Uint64() | 1),
		Ops: []driver.Op{{Kind: driver.OpAppend, Value: strconv.AppendInt(nil, int64(number), 10)}}}
	unsure := false
	for ctx.Err() == nil {
		err := w.try(ctx, write)
		var conflict *driver.ConflictError
		switch {
		case err == nil:
			w.Acknowledged++
			return nil
		case errors.As(err, &conflict) && unsure && conflict.Head.Number == number &&
			conflict.Head.Nonce == write.Nonce:
			w.UnknownApplied++
			w.head = conflict.Head
			return nil
		case errors.Is(err, driver.ErrRetry):
			w.Refused++
		case driver.Unknown(err):
			w.Unknown++
			unsure = true
		default:
			return fmt.Errorf("commit %d: %w", number, err)
		}
	}
	return ctx.Err()
}

func (w *Writer) try(ctx context.Context, write driver.Write) error {
	ctx, cancel := w.limit(ctx)
	defer cancel()
	res, err := w.s.Commit(ctx, []driver.Write{write})
	if err != nil {
		return err
	}
	if res[0].Err == nil {
		w.head = res[0].Head
	}
	return res[0].Err
}

func (w *Writer) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.patience == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, w.patience)
}

// Check reads the whole log. The log must contain each entry once and in order. An earlier fault
// may have broken connections, so Check repeats failed reads until the context ends.
func (w *Writer) Check(ctx context.Context) error {
	after := driver.Seq(0)
	for after < w.head.Seq {
		limited, cancel := w.limit(ctx)
		page, err := w.b.ReadLog(limited, w.fence.Shard, after, 1000)
		cancel()
		if (driver.Unknown(err) || errors.Is(err, driver.ErrRetry)) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return err
		}
		if page.Head != w.head {
			return fmt.Errorf("the head is %+v and should be %+v", page.Head, w.head)
		}
		for _, e := range page.Entries {
			after++
			if e.Seq != after || string(e.Payload) != strconv.Itoa(int(after)) {
				return fmt.Errorf("entry %d is number %d, %q", after, e.Seq, e.Payload)
			}
		}
	}
	return nil
}
