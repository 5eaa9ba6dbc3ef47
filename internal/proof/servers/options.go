package servers

import (
	"fmt"
	"strings"
)

// TLS is what a server requires of TCP connections. Each server gets a separate CA.
type TLS uint8

// The levels of TLS.
const (
	TLSOff    TLS = iota // plaintext
	TLSServer            // plaintext is refused
	TLSMutual            // plaintext is refused, and so are clients without a certificate of the CA
)

// Options configures a server. Nil means the zero Options. Servers always require passwords, which
// this package generates. A server specified by the environment accepts no options.
type Options struct {
	// TLS is what the server requires of TCP connections. The default is TLSOff.
	TLS TLS
	// Config contains extra lines for the server's section of the configuration file, in the form
	// "name = value". The extra lines override earlier lines. For S3 and GCS, the lines are variables
	// of the server's environment.
	Config []string
	// NoSync omits fsync. A killed server still keeps all data, but a power failure may lose data.
	// By default, NoSync is false, so tests include the real cost of durability.
	NoSync bool
	// DiskBytes is the size of a separate file system for the data, which a test can fill. This
	// option requires root. If DiskBytes is 0, the data is in the temporary directory.
	DiskBytes int64
	// SlowFlush lets Server.SlowFlush delay each flush of a file (fsync, fdatasync). This option
	// requires a C compiler, and a server that flushes through the C library: PostgreSQL, MariaDB
	// or Redis.
	SlowFlush bool
	// Upstream is the server behind a PgBouncer, the primary of an asynchronous PostgreSQL standby,
	// or the Redis server that Sentinels watch. A standby has the databases and passwords of its
	// primary. This package must have started Upstream, and the caller closes Upstream.
	Upstream *Server
}

func (o *Options) check(kind Kind) error {
	for _, line := range o.Config {
		if strings.ContainsAny(line, "\r\n\x00") {
			return fmt.Errorf("tenure: %s: configuration line %q holds a line break: give one line per element", kind,
				line)
		}
	}
	switch {
	case o.TLS > TLSMutual:
		return fmt.Errorf("tenure: %s: TLS level %d does not exist", kind, o.TLS)
	case o.DiskBytes < 0:
		return fmt.Errorf("tenure: %s: DiskBytes %d is negative", kind, o.DiskBytes)
	case kind == PgBouncer && (o.Upstream == nil || o.Upstream.kind != Postgres):
		return fmt.Errorf("tenure: %s: set Options.Upstream to a PostgreSQL server", kind)
	case (kind == S3 || kind == GCS) && o.TLS != TLSOff:
		return fmt.Errorf("tenure: %s: this package starts the server without TLS", kind)
	case kind == Sentinel && (o.Upstream == nil || o.Upstream.kind != Redis || o.TLS != TLSOff):
		return fmt.Errorf("tenure: %s: set Options.Upstream to a Redis server, without TLS", kind)
	case o.Upstream != nil && kind != Sentinel &&
		(kind != PgBouncer && kind != Postgres || o.Upstream.kind != Postgres):
		return fmt.Errorf("tenure: %s: Options.Upstream is a PostgreSQL server, for PgBouncer and PostgreSQL", kind)
	}
	return nil
}
