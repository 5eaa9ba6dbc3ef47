package mysql

import (
	"context"
	"flag"
	"os"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
	"github.com/tenure-go/tenure/internal/proof/system"
)

var pool servers.Pool

var setup = &sqlfault.Setup{
	Kind: servers.MariaDB, Pool: &pool, Driver: "mysql", Opener: Opener(),
	Migrate: func(ctx context.Context, dsn string) error { return Migrate(ctx, dsn, nil) },
	Open: func(ctx context.Context, dsn, namespace string) (driver.Backend, error) {
		b, err := Open(ctx, dsn, namespace, &Options{Create: true})
		if err != nil {
			return nil, err
		}
		return b, nil
	},
}

func TestMain(m *testing.M) {
	if code, is := system.Member(Opener()); is {
		os.Exit(code)
	}
	system.AddFlags(flag.CommandLine)
	os.Exit(pool.RunExamples(m, servers.MariaDB, "MYSQL_DSN"))
}
