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

// A board is a member's display of every airport, of any owner. It is built from
// the logs, in memory, so that a process which starts reads them from the first
// entry. Safe for concurrent use.
type board struct {
	began int64 // host's monotonic clock, nanoseconds

	mu      sync.Mutex
	chains  map[string]chain // by airport
	entries int
	fresh   int     // of them, decided since this process began
	lags    []int64 // of a sample of those, from the decision to the board, microseconds
}

// maxLags bounds the sample, and with it a line of the protocol.
const maxLags = 2000

func newBoard(began int64) *board { return &board{began: began, chains: map[string]chain{}} }

func (b *board) apply(_ context.Context, batch follower.Batch) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := monotonic()
	for _, e := range batch.Entries {
		d, err := decodeDecision(e.Payload)
		if err != nil {
			d = decision{} // of no airport: the board differs from the file from here on
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

// shown is the board as an event.
func (b *board) shown() event {
	b.mu.Lock()
	defer b.mu.Unlock()
	return event{Is: isShown, Count: b.entries, Board: digest(b.chains), Lags: slices.Clone(b.lags)}
}

// A chain stands for a log: two are equal if all their decisions are, and come in
// one order.
type chain [sha256.Size]byte

// next is the chain after one more decision.
func (c chain) next(d decision) chain {
	return sha256.Sum256(append(c[:], d.facts().encode()...))
}

// digest stands for the logs of all airports.
func digest(chains map[string]chain) string {
	var all strings.Builder
	for _, airport := range slices.Sorted(maps.Keys(chains)) {
		fmt.Fprintf(&all, "%s %x\n", airport, chains[airport])
	}
	sum := sha256.Sum256([]byte(all.String()))
	return hex.EncodeToString(sum[:])
}

// trueBoard is the digest of the board that the file asks for.
func trueBoard(t *timetable) string {
	chains := make(map[string]chain, len(t.airports))
	for _, airport := range t.airports {
		for _, d := range truth(t.from[airport]) {
			chains[airport] = chains[airport].next(d)
		}
	}
	return digest(chains)
}
