package driver

// Dialect selects the SQL of an application's database, for packages fence and follower.
type Dialect string

// The dialects.
const (
	SQLite   Dialect = "sqlite"
	Postgres Dialect = "postgres"
	MySQL    Dialect = "mysql" // and MariaDB
)
