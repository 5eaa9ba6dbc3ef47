package fence_test

import (
	"os"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/servers"
)

var pool servers.Pool

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == writerArg {
		os.Exit(writer(os.Args[2:]))
	}
	os.Exit(pool.Run(m))
}
