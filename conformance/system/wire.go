package system

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// errLost is what a caller gets whose request or reply was lost: the outcome is
// unknown (E1).
var errLost = errors.New("tenure: system: lost on the wire")

// wire loses requests and replies, and delivers requests late. It is safe for
// concurrent use.
type wire struct {
	ttl  time.Duration
	ctx  context.Context // of late deliveries
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

// mishap is what becomes of a call on the wire.
type mishap int

const (
	none mishap = iota
	loseRequest
	loseReply
	deliverLate
)

// How many calls in a thousand meet each.
const (
	requestsLost  = 8
	repliesLost   = 12
	requestsLate  = 8
	outOfThousand = 1000
)

// draw decides what becomes of a call, and how late it is.
func (w *wire) draw(k callKind) (mishap, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.rand.IntN(outOfThousand)
	late := time.Duration(w.rand.Int64N(int64(w.ttl * 3 / 2)))
	switch {
	case w.calm || k == callClose: // a process that leaves must be able to
		return none, 0
	case n < requestsLost:
		return loseRequest, 0
	case n < requestsLost+repliesLost:
		return loseReply, 0
	case n < requestsLost+repliesLost+requestsLate && k != callJoin:
		// A join asks the store first: as a whole it is not one request.
		return deliverLate, late
	}
	return none, 0
}

func (w *wire) settle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calm = true
}

// around is the wire's part in a call.
func (w *wire) around(ctx context.Context, c call, do func(context.Context) error) error {
	what, late := w.draw(c.kind)
	switch what {
	case loseRequest:
		return errLost
	case loseReply:
		_ = do(ctx) // nobody learns it
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
			ctx, cancel := context.WithTimeout(w.ctx, lateLimit)
			defer cancel()
			_ = do(ctx)
		})
		return errLost
	}
	return do(ctx)
}

// close drops what was not delivered yet, and waits for what is under way.
func (w *wire) close() {
	w.stop()
	w.late.Wait()
}
