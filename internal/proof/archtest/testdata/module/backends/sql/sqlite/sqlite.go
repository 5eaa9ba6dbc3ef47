package sqlite

import (
	"embed"
	"regexp"

	_ "modernc.org/sqlite"

	_ "example.com/synthetic/backends/sql/internal/engine"
	_ "github.com/jackc/pgx/v5" // want `backends/sql/sqlite may not import github.com/jackc/pgx/v5`
)

//go:embed *.sql
var schema embed.FS

var identifier = regexp.MustCompile(`^[a-z]+$`)

var Pattern = regexp.MustCompile(`^[a-z]+$`) // want `package-level state Pattern`
