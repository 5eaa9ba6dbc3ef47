package mysql

import (
	"flag"
	"os"
	"testing"

	"github.com/tenure-go/tenure/conformance/system"
	"github.com/tenure-go/tenure/internal/servers"
)

// pool holds the servers that the tests share.
var pool servers.Pool

func TestMain(m *testing.M) {
	if code, is := system.Member(Opener()); is {
		os.Exit(code)
	}
	system.AddFlags(flag.CommandLine)
	os.Exit(pool.Run(m))
}
