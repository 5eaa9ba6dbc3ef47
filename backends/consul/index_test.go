package consul

import (
	"testing"
	"time"
)

// TestTurn covers each case that Consul documents for the index of a blocked query.
func TestTurn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		a     answer
		idle  int
		next  uint64
		pause time.Duration
	}{
		{"the first answer", answer{asked: 0, index: 7, changed: true}, 0, 7, 0},
		{"a change", answer{asked: 7, index: 9, changed: true}, 0, 9, 0},
		{"the time was over", answer{asked: 9, index: 9, waited: true}, 0, 9, 0},
		{"it went back: from the beginning", answer{asked: 9, index: 5, changed: true}, 0, 0, 0},
		{"it went back and nothing differs: once for free", answer{asked: 9, index: 5}, 1, 0, 0},
		{"it went back again", answer{asked: 9, index: 5}, 2, 0, idlePace},
		{"from the beginning nothing differs", answer{asked: 0, index: 5}, 2, 5, idlePace},
		{"an index of zero would not block", answer{asked: 0, index: 0, changed: true}, 0, 1, 0},
		{"zero after another is back as well", answer{asked: 9, index: 0, changed: true}, 0, 0, 0},
		{"it moved on and nothing differs", answer{asked: 7, index: 9}, 1, 9, 0},
		{"it moves on and on, as that of an empty prefix", answer{asked: 7, index: 9}, 2, 9, spuriousPace},
		{"it stands still and did not block", answer{asked: 7, index: 7}, 2, 7, idlePace},
	} {
		if next, pause := turn(c.a, c.idle); next != c.next || pause != c.pause {
			t.Errorf("%s: got index %d after %v, want %d after %v", c.name, next, pause, c.next, c.pause)
		}
	}
}

// TestTurnRate simulates servers that answer every query immediately.
func TestTurnRate(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(asked uint64, n int) uint64{
		"always the same index":  func(uint64, int) uint64 { return 5 },
		"always one before":      func(asked uint64, _ int) uint64 { return max(asked, 2) - 1 },
		"two servers in turn":    func(_ uint64, n int) uint64 { return uint64(100 - 10*(n%2)) },
		"no index":               func(uint64, int) uint64 { return 0 },
		"back after each change": func(asked uint64, _ int) uint64 { return asked / 2 },
	} {
		var now time.Duration
		index, requests := uint64(50), 0
		for idle := 1; now < time.Minute; idle++ {
			next, pause := turn(answer{asked: index, index: serve(index, requests)}, idle)
			index, requests = next, requests+1
			now += max(pause, time.Millisecond)
		}
		if requests > 2*60+2 { // no pause follows the first answer without news
			t.Errorf("%s: %d requests in a minute, want at most two a second", name, requests)
		}
	}
}
