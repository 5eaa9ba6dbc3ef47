// Package stores_test runs followers on real stores and in real processes. The command make
// follower-long runs its long forms.
package stores_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/servers"
)

var (
	kills   = flag.Int("kills", 4, "how often a follower is killed, in each way of keeping its positions")
	stops   = flag.Int("stops", 4, "how often a follower is stopped with SIGSTOP")
	entries = flag.Int("entries", 20_000,
		"entries followed without a gap on SQLite and PostgreSQL; a tenth on the others")
	all     = flag.Bool("all", false, "follow on every store that can be had, not on the embedded ones alone")
	lagFor  = flag.Duration("lagfor", time.Second, "how long the lag is measured at 1,000 entries per second")
	blocked = flag.Duration("blocked", 2*time.Second, "how long an applier is blocked while memory is measured")
)

var pool servers.Pool

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		if err := child(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(pool.Run(m))
}
