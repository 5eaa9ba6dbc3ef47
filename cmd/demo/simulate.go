//go:build unix

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/tenure-go/tenure/internal/simulation"
)

const simulateUsage = `The sharding simulation runs members and shards over virtual time while members
crash, leave and join, and prints how many shards moved, for how long they had no
owner, and the calls to the store.

	go run ./cmd/demo -simulate [flags]

Exit code 0: no shard is forgotten and shares are even at the end. 1: not so. 2: bad
input.

Flags:
`

// simulate is the command with -simulate as its first argument.
func simulate(args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("demo -simulate", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	var c simulation.Config
	f.IntVar(&c.Members, "members", 100, "members")
	f.IntVar(&c.Shards, "shards", 10_000, "shards")
	f.DurationVar(&c.Time, "time", 24*time.Hour, "virtual time")
	f.Float64Var(&c.Churn, "churn", 0.05, "share of the members that go per hour, half of them by crashing")
	f.DurationVar(&c.TTL, "ttl", 30*time.Second, "TTL of the members")
	f.Uint64Var(&c.Seed, "seed", 1, "the same seed gives the same result")
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		f.SetOutput(stdout)
		fmt.Fprint(stdout, simulateUsage)
		f.PrintDefaults()
		return exitOK
	}
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %s: use flags only, see -simulate -h", quote(f.Arg(0)))
	}
	var r *simulation.Result
	if err == nil {
		r, err = simulation.Simulate(c)
	}
	if err != nil {
		fmt.Fprintln(stderr, oneLine(err))
		return exitInput
	}
	fmt.Fprint(stdout, r)
	if err := r.Err(); err != nil {
		fmt.Fprintln(stderr, oneLine(err))
		return exitDamage
	}
	return exitOK
}
