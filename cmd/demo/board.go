//go:build unix

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/tenure-go/tenure/follower"
)

// A board is a member's display of all airports. The board exists only in memory, so a new process
// reads the logs from the first entry. A board is safe for concurrent use.
type board struct {
	began int64 // start of the process on the host's monotonic clock, in nanoseconds

	mu      sync.Mutex
	chains  map[string]chain // chains by airport
	entries int
	fresh   int     // number of entries decided since this process started
	lags    []int64 // sample of the times, in microseconds, that these entries took from the decision to the board
}

// maxLags bounds the number of lags in a report, so that a protocol line stays short.
const maxLags = 2000

func newBoard(began int64) *board { return &board{began: began, chains: map[string]chain{}} }

func (b *board) apply(_ context.Context, batch follower.Batch) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := monotonic()
	for _, e := range batch.Entries {
		d, err := decodeDecision(e.Payload)
		if err != nil {
			d = decision{} // the decision of no airport: from this entry on, the board differs from the file
		}
		b.chains[batch.Shard()] = b.chains[batch.Shard()].next(d)
		b.entries++
		if d.At <= b.began {
			continue
		}
		b.fresh++
		if lag := (now - d.At) / 1000; len(b.lags) < maxLags {
			b.lags = append(b.lags, lag)
		} else if i := rand.IntN(b.fresh); i < maxLags {
			b.lags[i] = lag
		}
	}
	return nil
}

func (b *board) shown() event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return event{Is: isShown, Count: b.entries, Board: digest(b.chains), Lags: slices.Clone(b.lags)}
}

// A chain is a digest of a log. Two chains are equal if their logs contain the same decisions in
// the same order.
type chain [sha256.Size]byte

func (c chain) next(d decision) chain {
	return sha256.Sum256(append(c[:], d.facts().encode()...))
}

func digest(chains map[string]chain) string {
	var all strings.Builder
	for _, airport := range slices.Sorted(maps.Keys(chains)) {
		fmt.Fprintf(&all, "%s %x\n", airport, chains[airport])
	}
	sum := sha256.Sum256([]byte(all.String()))
	return hex.EncodeToString(sum[:])
}

// trueBoard computes the digest of the correct board from the file.
func trueBoard(t *timetable) string {
	chains := make(map[string]chain, len(t.airports))
	for _, airport := range t.airports {
		for _, d := range truth(t.from[airport]) {
			chains[airport] = chains[airport].next(d)
		}
	}
	return digest(chains)
}
