package consul

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/system"
)

var pool servers.Pool

var outageRounds = flag.Int("outage.rounds", 0, "rounds at each of three TTLs of the tests that take servers away; 0: "+
	"a few at one")

func TestMain(m *testing.M) {
	if how := os.Getenv(holderVariable); how != "" {
		if err := holder(how); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if code, is := system.Member(Opener()); is {
		os.Exit(code)
	}
	system.AddFlags(flag.CommandLine)
	os.Exit(pool.RunExamples(m, servers.Consul, "CONSUL_ADDR"))
}
