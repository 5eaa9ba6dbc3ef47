package follower

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/goexit"
)

// Options say how a Tailer reads and applies entries. Nil and the zero value mean the defaults.
// A Tailer copies its options. The fields that have a key can be set in the configuration below
// follower: config.Config.Section reads them.
type Options struct {
	// Batch is the largest number of entries that one Apply gets, and one read asks for. Default
	// 512, at most 65536. Batches begin small, and shrink if entries are large.
	Batch int `yaml:"batch"`
	// Parallel is the number of shards for which one Applier is called at a time. Default 16. A
	// shard whose Apply blocks uses one of them; a shard that waits after a failure uses none.
	Parallel int `yaml:"parallel"`
	// Buffer limits the bytes of entries that came by the stream and wait for an Applier. Default
	// 16 MiB, at least 64 KiB; a shard has at most a 64th. Entries that do not fit are read again
	// when their turn comes. In addition a Tailer holds at most Parallel batches of each Applier
	// and one page of the stream.
	Buffer int `yaml:"buffer"`
	// Reads is the number of reads for catching up that run at a time, over all Appliers. Default
	// 4.
	Reads int `yaml:"reads"`
	// ReadRate is the number of such reads that begin in a second. Default 1000; negative for no
	// limit.
	ReadRate int `yaml:"read_rate"`

	// Resync is the time between two reads of all heads, which find entries that the stream missed.
	// It is also the longest wait of one call of the stream. Default 30 s, at least 10 ms.
	Resync time.Duration `yaml:"resync"`
	// Pulse is the time between further reads of all heads while Fresh is called. Each proves that
	// the stream brings every entry. If the last proof is older than 2 * Pulse, Fresh counts its
	// age as lag. Default 1.5 s, at least 10 ms.
	Pulse time.Duration `yaml:"pulse"`
	// CallTimeout limits every other call to the store. Reading a snapshot may take 30 times as
	// long. Default 10 s.
	CallTimeout time.Duration `yaml:"call_timeout"`
	// BackoffMin is the first wait after an error of the store or of an Applier. It doubles with each
	// further error. Default 50 ms.
	BackoffMin time.Duration `yaml:"backoff_min"`
	// BackoffMax is the longest such wait. Default: the greater of 30 s and BackoffMin.
	BackoffMax time.Duration `yaml:"backoff_max"`
	// DrainBudget is how long Run, when it ends, waits for Appliers to return. Default 10 s. Run
	// leaves later Appliers behind and reports them.
	DrainBudget time.Duration `yaml:"drain_budget"`

	// Snapshots restores trimmed logs. Default: NewSnapshotter with nil options. Followers and
	// owners need the same Blobs.
	Snapshots *Snapshotter `yaml:"-"`

	// Hooks report events to the application.
	Hooks Hooks `yaml:"-"`
	// Logger gets at Warn the first failure of each Applier and shard, one after 1, 5 and 15
	// minutes, and one every 15 minutes afterwards. At Info, it gets their end, and each
	// restored snapshot. Default: slog.Default at the call of NewTailer.
	Logger *slog.Logger `yaml:"-"`
}

// Hooks are called on events. Any of them may be nil. Each hook runs in the goroutine of its event,
// and several may run at a time. A hook must return quickly and must not call the Tailer.
type Hooks struct {
	// OnError: a call to the store or an Applier failed, and the Tailer tries again.
	OnError func(Failure)
	// OnApply: a batch was applied.
	OnApply func(Applied)
	// OnRestore: a snapshot was restored.
	OnRestore func(Restored)
	// OnReset: the stream could not continue from its cursor, and all heads were read. The first
	// call comes at the beginning.
	OnReset func(Reset)
}

// Applied is a batch that was applied.
type Applied struct {
	Applier  string
	Position Position // the shard's position after the batch
	Entries  int
	Took     time.Duration
}

// Restored is a snapshot that was restored.
type Restored struct {
	Applier  string
	Position Position
}

// Reset is the event that the stream began again.
type Reset struct {
	Shards int // the number of shards whose heads were read
}

// Failure is a failure after which the Tailer tries again.
type Failure struct {
	Applier string   // empty: the stream, or the reading of heads
	From    Position // the shard's position; the failing entry follows. Zero if Applier is empty
	Attempt int      // 1, 2, ...: the number of failures in a row
	Err     error
}

// Validate checks the options, with their defaults filled in. The error matches core.ErrInvalid and
// states the change to make.
func (o *Options) Validate() error {
	_, err := o.resolve()
	return err
}

// resolve returns a copy with the defaults filled in, or an error for the first invalid option.
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
	h := &c.Hooks
	h.OnError, h.OnApply = goexit.Told(h.OnError), goexit.Told(h.OnApply)
	h.OnRestore, h.OnReset = goexit.Told(h.OnRestore), goexit.Told(h.OnReset)
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
