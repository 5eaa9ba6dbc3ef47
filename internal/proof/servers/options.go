package servers

import (
	"fmt"
	"strings"
)

// TLS is a server's requirement of connections over TCP. Its CA is made for it.
type TLS uint8

// The levels of TLS.
const (
	TLSOff    TLS = iota // plaintext
	TLSServer            // plaintext is refused
	TLSMutual            // and so are clients without a certificate of the CA
)

// Options of a server; nil means the zero Options. Passwords are always required
// and generated. A server from the environment is as it is, and takes none.
type Options struct {
	// TLS is the server's requirement of connections over TCP. Default TLSOff.
	TLS TLS
	// Config has extra lines for the server's configuration file, which win over
	// those before: "name = value", in the section of the server.
	Config []string
	// NoSync leaves out fsync: a killed server loses nothing, a machine without
	// power would. Default false, with the real cost of durability.
	NoSync bool
	// DiskBytes is the size of a file system of the data's own, so that a test can
	// fill it. Needs root. Default 0: the directory for temporary files.
	DiskBytes int64
	// SlowFlush lets Server.SlowFlush delay each flush of a file (fsync, fdatasync). Needs
	// a C compiler. For servers that flush through the C library: PostgreSQL, MariaDB, Redis.
	SlowFlush bool
	// Upstream is the server behind a PgBouncer, or the primary of a PostgreSQL that
	// is to be its asynchronous standby, with its databases and passwords, or the Redis
	// that Sentinels watch. It must have been started here and stays the caller's to close.
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
	case kind == Sentinel && (o.Upstream == nil || o.Upstream.kind != Redis || o.TLS != TLSOff):
		return fmt.Errorf("tenure: %s: set Options.Upstream to a Redis server, without TLS", kind)
	case o.Upstream != nil && kind != Sentinel &&
		(kind != PgBouncer && kind != Postgres || o.Upstream.kind != Postgres):
		return fmt.Errorf("tenure: %s: Options.Upstream is a PostgreSQL server, for PgBouncer and PostgreSQL", kind)
	}
	return nil
}
