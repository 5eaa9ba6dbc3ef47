package system

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tenure-go/tenure/internal/proof/harness"
	"github.com/tenure-go/tenure/internal/proof/intercept"
)

// errLost is the error of a call whose request or reply was lost. The outcome is unknown (E1).
var errLost = errors.New("tenure: system: lost on the wire")

// wire loses requests and replies, and delivers requests late. A wire is safe for concurrent use.
type wire struct {
	ttl  time.Duration
	ctx  context.Context // for late deliveries
	stop context.CancelFunc
	late sync.WaitGroup

	mu   sync.Mutex
	rand *rand.Rand
	calm bool
}

func newWire(ttl time.Duration, seed uint64) *wire {
	ctx, stop := context.WithCancel(context.Background())
	return &wire{ttl: ttl, ctx: ctx, stop: stop, rand: rand.New(rand.NewPCG(seed, 0x31fe))}
}

// mishap is what happens to a call on the wire.
type mishap int

const (
	none mishap = iota
	loseRequest
	loseReply
	deliverLate
)

// These constants are the frequencies of the mishaps, per thousand calls.
const (
	requestsLost  = 8
	repliesLost   = 12
	requestsLate  = 8
	outOfThousand = 1000
)

// draw chooses the mishap of a call, and its delay.
func (w *wire) draw(op intercept.Op) (mishap, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.rand.IntN(outOfThousand)
	late := time.Duration(w.rand.Int64N(int64(w.ttl * 3 / 2)))
	switch {
	case w.calm || op == intercept.Close: // so that a process can leave
		return none, 0
	case n < requestsLost:
		return loseRequest, 0
	case n < requestsLost+repliesLost:
		return loseReply, 0
	case n < requestsLost+repliesLost+requestsLate && op != intercept.Join:
		// A join first reads the store, so it consists of more than one request.
		return deliverLate, late
	}
	return none, 0
}

func (w *wire) settle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calm = true
}

// around is the wire's intercept.Around.
func (w *wire) around(ctx context.Context, c *intercept.Call, proceed func(context.Context) error) error {
	if !c.Op.Writes() {
		return proceed(ctx)
	}
	what, late := w.draw(c.Op)
	switch what {
	case loseRequest:
		return errLost
	case loseReply:
		_ = proceed(ctx) // the result is lost
		return errLost
	case deliverLate:
		w.late.Go(func() {
			t := time.NewTimer(late)
			defer t.Stop()
			select {
			case <-t.C:
			case <-w.ctx.Done():
				return
			}
			ctx, cancel := context.WithTimeout(w.ctx, harness.LateLimit)
			defer cancel()
			_ = proceed(ctx)
		})
		return errLost
	default:
		return proceed(ctx)
	}
}

// close drops undelivered calls, and waits for calls in flight.
func (w *wire) close() {
	w.stop()
	w.late.Wait()
}
