package mysql

import (
	"os"
	"testing"

	"github.com/tenure-go/tenure/conformance/servers"
)

// pool holds the servers that the tests share.
var pool servers.Pool

func TestMain(m *testing.M) { os.Exit(pool.Run(m)) }
