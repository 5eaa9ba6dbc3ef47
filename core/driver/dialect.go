package driver

// Dialect is the SQL dialect of an application's database, for packages fence and follower.
type Dialect string

// These are the dialects that packages fence and follower support.
const (
	SQLite   Dialect = "sqlite"
	Postgres Dialect = "postgres"
	MySQL    Dialect = "mysql" // and MariaDB
)
