package system

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// memberEnv is the environment variable that makes a process a member.
const memberEnv = "TENURE_SYSTEM_MEMBER"

// Main implements a TestMain. If Run started this test binary as a member, Main runs the member. In
// any other process, Main adds the flags and runs the tests. Main returns the exit status.
//
//	func TestMain(m *testing.M) { os.Exit(system.Main(m, sqlite.Opener())) }
func Main(m *testing.M, openers ...driver.Opener) int {
	if code, is := Member(openers...); is {
		return code
	}
	AddFlags(flag.CommandLine)
	return m.Run()
}

// Member is the part of Main that runs a member. Use Member in a TestMain that also does other
// work. Member reports whether Run started this process as a member. If so, Member runs the member
// to its end, and returns the exit status. Call Member first.
func Member(openers ...driver.Opener) (code int, is bool) {
	if os.Getenv(memberEnv) == "" {
		return 0, false
	}
	return runMember(os.Stdin, os.Stdout, os.Stderr, openers), true
}

// These are the flags of Run.
const (
	seedsFlag    = "system.seeds"
	firstFlag    = "system.first"
	seedFlag     = "system.seed"
	controlFlag  = "system.control"
	parallelFlag = "system.parallel"
	ttlFlag      = "system.ttl"
)

// AddFlags is the part of Main that adds the flags. Use AddFlags in a TestMain that also does other
// work. Call AddFlags before the flags are parsed.
func AddFlags(fs *flag.FlagSet) {
	fs.Int(seedsFlag, 0, "how many seeds the system suite runs; 0: as the test says")
	fs.Uint64(firstFlag, 1, "the first of the seeds that the system suite runs")
	fs.Uint64(seedFlag, 0, "the one seed that the system suite runs; 0: many")
	fs.Int(parallelFlag, 1, "how many seeds the system suite plays at a time, each on its own server, where the "+
		"test can")
	fs.Duration(ttlFlag, 0, "the TTL of the members; 0: as the test says")
	fs.Bool(controlFlag, false, "run the system suite without the fence, which must do damage")
}

// Parallel returns the value of the flag -system.parallel, but at least 1. Use the value for
// Config.Parallel and for the number of servers.
func Parallel() int { return max(1, flagged[int](flag.CommandLine, parallelFlag)) }

// TTL returns the value of the flag -system.ttl, or standard if the flag is not set.
func TTL(standard time.Duration) time.Duration {
	if ttl := flagged[time.Duration](flag.CommandLine, ttlFlag); ttl > 0 {
		return ttl
	}
	return standard
}

// flagged returns a flag's value. If AddFlags was not called, flagged returns the zero value.
func flagged[T any](fs *flag.FlagSet, name string) T {
	var none T
	f := fs.Lookup(name)
	if f == nil {
		return none
	}
	if g, ok := f.Value.(flag.Getter); ok {
		if v, ok := g.Get().(T); ok {
			return v
		}
	}
	return none
}
