package servers

import (
	"fmt"
	"strings"
)

// TLS is a server's requirement for connections over TCP. The server gets its own CA.
type TLS uint8

// The levels of TLS.
const (
	TLSOff    TLS = iota // plaintext
	TLSServer            // plaintext is refused
	TLSMutual            // plaintext is refused, and clients without a certificate of the CA
)

// Options of a server. nil means the zero Options. Passwords are always required and generated. A
// server of the environment accepts no options.
type Options struct {
	// TLS is the server's requirement for connections over TCP. Default TLSOff.
	TLS TLS
	// Config has extra lines for the server's configuration file, which override earlier ones:
	// "name = value", in the server's section.
	Config []string
	// NoSync omits fsync. A killed server still loses nothing, but a machine without power would.
	// Default false, with the real cost of durability.
	NoSync bool
	// DiskBytes is the size of a separate file system for the data, so that a test can fill it. It
	// needs root. Default 0: the directory for temporary files.
	DiskBytes int64
	// SlowFlush lets Server.SlowFlush delay each flush of a file (fsync, fdatasync). It needs a C
	// compiler, and a server that flushes through the C library: PostgreSQL, MariaDB, Redis.
	SlowFlush bool
	// Upstream is the server behind a PgBouncer, the primary of an asynchronous PostgreSQL standby
	// with its databases and passwords, or the Redis that Sentinels watch. This package must have
	// started it, and the caller closes it.
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
