package follower

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/tenure-go/tenure/core"
)

// Options say how a Tailer reads and applies. The zero value, and nil, work. A
// Tailer copies its options.
type Options struct {
	// Batch is the most entries that one Apply gets, and one read asks for. Default
	// 512, at most 65536. A batch begins small, and ends early where entries are
	// large.
	Batch int
	// Parallel is for how many shards one Applier is called at a time. Default 16.
	// A shard that blocks takes one of them; one that failed and waits takes none.
	Parallel int
	// Buffer bounds the bytes of entries that came by the stream and wait for an
	// Applier. Default 16 MiB, at least 64 KiB; a shard has at most a 64th. Entries
	// that do not fit are read again when their turn comes. Beside it a Tailer
	// holds at most Parallel batches of each Applier and one page of the stream.
	Buffer int
	// Reads is how many reads for catching up run at a time, over all Appliers.
	// Default 4.
	Reads int
	// ReadRate is how many such reads begin in a second. Default 1000; negative for
	// no bound.
	ReadRate int

	// Resync is the time between two reads of all heads, which find entries that
	// the stream missed, and the longest wait of one call of the stream. Default 30
	// s, at least 10 ms.
	Resync time.Duration
	// Pulse is how often all heads are read besides while Fresh is asked, which proves
	// that the stream brings every entry. Fresh vouches for nothing when the last
	// proof is older than 2 * Pulse. Default 1.5 s, at least 10 ms.
	Pulse time.Duration
	// CallTimeout bounds every other call to the store, and a 30th of the time to
	// read a snapshot. Default 10 s.
	CallTimeout time.Duration
	// BackoffMin and BackoffMax bound the wait after an error of the store or of an
	// Applier. It doubles. Defaults 50 ms, and 30 s or BackoffMin if that is more.
	BackoffMin, BackoffMax time.Duration
	// DrainBudget is how long Run, when it ends, waits for Appliers to return.
	// Default 10 s. Those that do not are left behind and reported.
	DrainBudget time.Duration

	// Snapshots is how trimmed logs are restored; nil stands for NewSnapshotter
	// with nil options. Followers and owners need the same.
	Snapshots *Snapshotter

	// Hooks report events to the application.
	Hooks Hooks
	// Logger gets at Warn the first failure of each Applier and shard, one after 1, 5
	// and 15 minutes and then every 15; at Info their end, and each restored snapshot.
	// Default slog.Default, as it is in NewTailer.
	Logger *slog.Logger
}

// Hooks are called on events. Any may be nil. They run in the goroutine of the
// event, several at a time, and must return quickly and not call the Tailer.
type Hooks struct {
	// OnError: the store or an Applier failed, and is tried again.
	OnError func(Failure)
	// OnApply: a batch was applied.
	OnApply func(Applied)
	// OnRestore: a snapshot was restored.
	OnRestore func(Restored)
	// OnReset: the stream could not go on from its cursor, and all heads were read.
	// The first time is the beginning.
	OnReset func(Reset)
}

// Applied is a batch that was applied.
type Applied struct {
	Applier  string
	Position Position // the shard's after it
	Entries  int
	Took     time.Duration
}

// Restored is a snapshot that was restored.
type Restored struct {
	Applier  string
	Position Position
}

// Reset is a new beginning of the stream.
type Reset struct {
	Shards int // those whose heads were read
}

// Failure is something that did not work and is tried again.
type Failure struct {
	Applier string   // empty: the stream, or the reading of heads
	From    Position // where the shard is; the failing entry follows. Zero as Applier
	Attempt int      // 1, 2, ...: how often in a row
	Err     error
}

// Validate checks the options, with their defaults filled in. The error matches
// core.ErrInvalid and says what to change.
func (o *Options) Validate() error {
	_, err := o.resolve()
	return err
}

// resolve returns a copy with the defaults filled in, or an error for the first that is invalid.
func (o *Options) resolve() (*Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	def(&c.Batch, 512)
	def(&c.Parallel, 16)
	def(&c.Buffer, 16<<20)
	def(&c.Reads, 4)
	def(&c.ReadRate, 1000)
	def(&c.Resync, 30*time.Second)
	def(&c.Pulse, 1500*time.Millisecond)
	def(&c.CallTimeout, 10*time.Second)
	def(&c.BackoffMin, 50*time.Millisecond)
	def(&c.BackoffMax, max(30*time.Second, c.BackoffMin))
	def(&c.DrainBudget, 10*time.Second)
	switch {
	case c.Batch < 0 || c.Batch > 1<<16:
		return nil, optErr("Batch %d is outside 1 to 65536", c.Batch)
	case c.Parallel < 0 || c.Parallel > 1<<16:
		return nil, optErr("Parallel %d is outside 1 to 65536", c.Parallel)
	case c.Buffer < 64<<10:
		return nil, optErr("Buffer %d is below 65536 bytes: raise it", c.Buffer)
	case c.Reads < 0 || c.Reads > 1<<16:
		return nil, optErr("Reads %d is outside 1 to 65536", c.Reads)
	case c.Resync < 10*time.Millisecond:
		return nil, optErr("Resync %v is below 10ms, and would read all heads that often: raise it", c.Resync)
	case c.Pulse < 10*time.Millisecond:
		return nil, optErr("Pulse %v is below 10ms, and would read all heads that often: raise it", c.Pulse)
	case c.CallTimeout < 0 || c.BackoffMin < 0 || c.DrainBudget < 0:
		return nil, optErr("CallTimeout %v, BackoffMin %v or DrainBudget %v is negative: leave it 0 for its default",
			c.CallTimeout, c.BackoffMin, c.DrainBudget)
	case c.BackoffMax < c.BackoffMin:
		return nil, optErr("BackoffMax %v is below BackoffMin %v: raise it", c.BackoffMax, c.BackoffMin)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Snapshots == nil {
		s, err := NewSnapshotter(nil)
		if err != nil {
			return nil, err
		}
		c.Snapshots = s
	}
	return &c, nil
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func optErr(format string, args ...any) error {
	return fmt.Errorf("tenure: %w options: %s", core.ErrInvalid, fmt.Sprintf(format, args...))
}
