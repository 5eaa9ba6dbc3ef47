package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
)

// Recorder records the operations of one process, in memory or in a file. A Recorder is safe for
// concurrent use. Recording an operation costs two clock readings and, with a file, writing two
// lines.
type Recorder struct {
	process string

	mu   sync.Mutex
	ops  []Operation // if in memory
	next int64
	file *os.File // nil if in memory
	err  error    // the first failure to write
}

// NewRecorder returns a Recorder that keeps operations in memory, for use with History. Each run of
// a process needs a different name. The name must not be empty.
func NewRecorder(process string) (*Recorder, error) {
	if process == "" {
		return nil, errors.New("tenure: history: the process has no name: give each incarnation its own")
	}
	return &Recorder{process: process}, nil
}

// Create returns a Recorder that writes to a new file, for use with Load. Each line of the file is
// one JSON value. If the file exists, Create returns an error, because a process must not continue
// another process's history. The Recorder writes each line immediately, and writes the line for a
// call before the call begins. A killed process therefore never loses a line.
func Create(path, process string) (*Recorder, error) {
	r, err := NewRecorder(process)
	if err != nil {
		return nil, err
	}
	r.file, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("tenure: history: %w", err)
	}
	r.write(header{Process: process, Clock: clockID()})
	if r.err != nil {
		return nil, errors.Join(r.err, r.file.Close())
	}
	return r, nil
}

// Call records that an operation is about to begin, and returns it with its process, number and
// time. Use Call before the operation.
func (r *Recorder) Call(op Operation) Operation {
	op.Call = Now()
	op.Return, op.Outcome = 0, ""
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.add(op)
}

// Return records how an operation from Call ended: its outcome, reason and results. Use Return
// after the operation.
func (r *Recorder) Return(op Operation) {
	op.Return = Now()
	if op.Outcome == "" {
		op.Outcome = Unknown
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if op.Process != r.process || op.ID < 1 || op.ID > r.next {
		r.fail(fmt.Errorf("tenure: history: operation %d of %q was returned to the recorder of %q: return the "+
			"operation of Call", op.ID, op.Process, r.process))
		return
	}
	if r.file == nil {
		r.ops[op.ID-1] = op
		return
	}
	r.write(op)
}

// Note records an event that happens now, or a fact that is known now.
func (r *Recorder) Note(op Operation) {
	op.Call = Now()
	op.Return, op.Outcome = op.Call, OK
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(op)
}

// Trust records that the process trusts its lease from now until the given instant. Call Trust
// after a grant, and after each heartbeat that extends the trust.
func (r *Recorder) Trust(f driver.Fence, until Instant) {
	r.Note(Operation{Kind: Trust, Shard: f.Shard, Fence: f, Until: until})
}

// Distrust records that the process no longer trusts the lease, even before the time given to
// Trust.
func (r *Recorder) Distrust(f driver.Fence) {
	r.Note(Operation{Kind: Distrust, Shard: f.Shard, Fence: f})
}

// Exited records that another process, and thus its trust, has ended.
func (r *Recorder) Exited(process string) { r.Note(Operation{Kind: Exit, Ended: process}) }

// Applied records that a follower applied an entry.
func (r *Recorder) Applied(e driver.Entry) {
	r.Note(Operation{Kind: Apply, Shard: e.Shard, Entries: []Entry{entry(e)}})
}

// Restored records that a follower restored a snapshot, and continues after the given entry.
func (r *Recorder) Restored(shard driver.ShardID, after driver.Seq) {
	r.Note(Operation{Kind: Restore, Shard: shard, After: after})
}

func entry(e driver.Entry) Entry {
	return Entry{Seq: e.Seq, Token: e.Token, Number: e.Number, Digest: Digest(e.Payload)}
}

// History returns a copy of the operations recorded in memory.
func (r *Recorder) History() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Merge(&History{Operations: r.ops})
}

// Close closes the file, and returns the first write error. Without an error, the history is
// complete. Do not record operations after Close.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file != nil {
		r.fail(r.file.Close())
	}
	return r.err
}

func (r *Recorder) add(op Operation) Operation {
	r.next++
	op.Process, op.ID = r.process, r.next
	if r.file == nil {
		r.ops = append(r.ops, op)
	} else {
		r.write(op)
	}
	return op
}

func (r *Recorder) write(v any) {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = r.file.Write(append(b, '\n'))
	}
	r.fail(err)
}

func (r *Recorder) fail(err error) {
	if r.err == nil && err != nil {
		r.err = fmt.Errorf("tenure: history: recording: %w", err)
	}
}
