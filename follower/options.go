package follower

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/goexit"
)

// Options configure a Tailer. Nil and the zero value mean the defaults. A Tailer copies its
// options. The configuration's section "follower" (config.Config.Section) can set the fields that
// have a yaml key.
type Options struct {
	// Batch is the maximum number of entries in one call of Apply and in one read. Default 512, at
	// most 65536. The first batches are smaller. If entries are large, batches become smaller, too.
	Batch int `yaml:"batch"`
	// Parallel is the maximum number of shards for which one Applier is called concurrently.
	// Default 16. A shard does not count while it waits after a failure.
	Parallel int `yaml:"parallel"`
	// Buffer is the maximum total size, in bytes, of the stream's entries that wait for an Applier.
	// Default 16 MiB, at least 64 KiB. One shard may use up to a 64th of Buffer. Entries that do
	// not fit are read from the log later. In addition, a Tailer keeps at most Parallel batches for
	// each Applier and one page of the stream.
	Buffer int `yaml:"buffer"`
	// Reads is the maximum number of concurrent catch-up reads, for all Appliers together. Default
	// 4.
	Reads int `yaml:"reads"`
	// ReadRate is the maximum number of catch-up reads that begin per second. Default 1000; a
	// negative value means no limit.
	ReadRate int `yaml:"read_rate"`

	// Resync is the time between two reads of all heads, which find entries that the stream missed.
	// Resync also limits how long one call of the stream waits. Default 30 s, at least 10 ms.
	Resync time.Duration `yaml:"resync"`
	// Pulse is the time between two additional reads of all heads, which are made only while Fresh
	// is called. Each of these reads proves that the stream has missed no entry. If the last proof
	// is older than 2 * Pulse, Fresh counts the proof's age as lag. Default 1.5 s, at least 10 ms.
	Pulse time.Duration `yaml:"pulse"`
	// CallTimeout limits each call to the store that Resync does not limit. The time limit for
	// reading a snapshot is 30 times CallTimeout. Default 10 s.
	CallTimeout time.Duration `yaml:"call_timeout"`
	// BackoffMin is the first wait after an error from the store or from an Applier. The wait
	// doubles with each further error. Default 50 ms.
	BackoffMin time.Duration `yaml:"backoff_min"`
	// BackoffMax limits the wait after an error. The default is the greater of 30 s and BackoffMin.
	BackoffMax time.Duration `yaml:"backoff_max"`
	// DrainBudget is how long Run waits for Appliers to return when Run ends. Default 10 s. If an
	// Applier takes longer, Run leaves the Applier's goroutine behind and returns an error.
	DrainBudget time.Duration `yaml:"drain_budget"`

	// Snapshots is the Snapshotter that restores shards whose logs were trimmed. The default is
	// NewSnapshotter with nil options. Followers and owners must use the same Blobs.
	Snapshots *Snapshotter `yaml:"-"`

	// OnEvent is called for each Event, in the goroutine in which the event occurs, so calls may
	// run concurrently. OnEvent must return quickly and must not call the Tailer. By default, no
	// function is called.
	OnEvent func(Event) `yaml:"-"`
	// For each Applier and shard, Logger receives the first failure at Warn, further failures after
	// 1, 5 and 15 minutes, and then one failure every 15 minutes. It receives the end of the
	// failures, and each restored snapshot, at Info. The default is the result of slog.Default when
	// NewTailer is called.
	Logger *slog.Logger `yaml:"-"`
}

// Event describes what happened in a Tailer. Its Kind determines which of the other fields are set.
type Event struct {
	Kind     EventKind
	Applier  string
	Position Position // the shard's position after the event
	Count    int
	Took     time.Duration
	Err      error
}

// EventKind is the kind of an Event.
type EventKind string

// The kinds of events.
const (
	// Applied means that the Applier has applied a batch of Count entries. Took is the duration of
	// the call.
	Applied EventKind = "applied"
	// Restored means that the Applier has restored the snapshot at Position.
	Restored EventKind = "restored"
	// Failed means that a call to the store or to the Applier has failed Count times in a row, and
	// that the Tailer will try again. Err is the last failure's error. The failing entry follows
	// Position. If Applier is empty, the stream or a read of all heads failed.
	Failed EventKind = "failed"
	// Reset means that the stream could not continue where it ended, so the Tailer read the heads
	// of all shards. Count is the number of shards. The first Reset occurs when the stream begins.
	Reset EventKind = "reset"
)

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
	c.Logger = goexit.Logger(c.Logger)
	c.OnEvent = goexit.Told(c.OnEvent)
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
