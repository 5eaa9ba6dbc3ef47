package sqlfault

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// BenchmarkCommit appends batches of 128-byte entries to one shard's log, as group
// commit does for as many producers.
func BenchmarkCommit(b *testing.B, open func(b *testing.B) driver.Backend) {
	for _, n := range []int{1, 64, 500} {
		b.Run(fmt.Sprintf("append%d", n), func(b *testing.B) {
			s := Join(b, open(b), "n1")
			granted, _ := Acquire(b, s, Claims(1))
			payloads := make([][]byte, n)
			for i := range payloads {
				payloads[i] = make([]byte, 128)
			}
			number := driver.WriteNo(0)
			for b.Loop() {
				number++
				Commit(b, s, AppendOf(granted[0].Fence, number, payloads...))
			}
			b.ReportMetric(float64(int(number)*n)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

// BenchmarkBeat changes one session's record.
func BenchmarkBeat(b *testing.B, be driver.Backend) {
	s := Join(b, be, "n1")
	for b.Loop() {
		if err := s.Beat(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHandover passes a lease to another member, whose first write follows.
func BenchmarkHandover(b *testing.B, be driver.Backend) {
	from, to := Join(b, be, "n1"), Join(b, be, "n2")
	granted, _ := Acquire(b, from, Claims(1))
	fence := granted[0].Fence
	for b.Loop() {
		res, err := from.Transfer(b.Context(), []driver.Handover{{Fence: fence, To: to.ID()}})
		if err != nil || res[0].Err != nil {
			b.Fatal(err, res)
		}
		fence = res[0].Fence
		Commit(b, to, AppendOf(fence, res[0].Head.Number+1, []byte("first")))
		from, to = to, from
	}
}

// BenchmarkTail is how late a follower in another process has an entry, from the
// acknowledgement of the commit; both are backends of one namespace.
func BenchmarkTail(b *testing.B, leader, follower driver.Backend) {
	s := Join(b, leader, "n1")
	granted, _ := Acquire(b, s, Claims(1))
	page, err := follower.TailLog(b.Context(), "", 100)
	if err != nil {
		b.Fatal(err)
	}
	type arrival struct {
		at  time.Time
		err error
	}
	arrived := make(chan arrival, 1)
	number, lag := driver.WriteNo(0), time.Duration(0)
	for b.Loop() {
		number++
		go func() {
			var err error
			page, err = follower.TailLog(b.Context(), page.Cursor, 100)
			arrived <- arrival{time.Now(), err}
		}()
		Commit(b, s, AppendOf(granted[0].Fence, number, make([]byte, 128)))
		committed := time.Now()
		a := <-arrived
		if a.err != nil {
			b.Fatal(a.err)
		}
		lag += max(0, a.at.Sub(committed))
	}
	b.ReportMetric(float64(lag.Microseconds())/float64(number), "lag-µs/op")
}

// BenchmarkIdlePoll is one look at the store by a blocked Observe: its cost times
// the polls per second is what an idle process costs.
func BenchmarkIdlePoll(b *testing.B, be driver.Backend) {
	Join(b, be, "n1")
	view, err := be.Observe(b.Context(), driver.ObserveQuery{})
	if err != nil {
		b.Fatal(err)
	}
	beats := []driver.Beat{{Session: view.Members[0].Session}}
	for b.Loop() {
		if _, err := be.Observe(b.Context(), driver.ObserveQuery{Since: view.Cursor, Beats: beats}); err != nil {
			b.Fatal(err)
		}
	}
}
