package consul

import (
	"context"
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
)

const (
	// DefaultMaxTxnOps is how many operations Consul takes in one transaction, from
	// 1.14 on.
	DefaultMaxTxnOps = 128
	// DefaultMaxTxnBytes is how long the request of a transaction may be: Consul's
	// own default of txn_max_req_len.
	DefaultMaxTxnBytes = 512 << 10
)

// Options for Open and OpenConfig. The zero value, and nil, work.
type Options struct {
	// Create writes the namespace's identity if it has none. Without it a missing
	// identity is an error, because it may mean a wiped store (rule I1).
	Create bool `json:"create" yaml:"create"`

	// MaxTxnOps bounds the operations of one transaction. Default (0)
	// DefaultMaxTxnOps, Consul's own limit; set it lower for a proxy that takes
	// less, to at least 32.
	MaxTxnOps int `json:"max_txn_ops" yaml:"max_txn_ops"`

	// MaxTxnBytes is how long a transaction's request may be. Default (0)
	// DefaultMaxTxnBytes; 64 KiB to 16 MiB. Only raise it together with the servers'
	// txn_max_req_len and kv_max_value_size.
	MaxTxnBytes int `json:"max_txn_bytes" yaml:"max_txn_bytes"`

	// Token, if set, is asked for the ACL token of each request, instead of the
	// client's: for tokens that change. It must be safe for concurrent use and must
	// not block.
	Token func(ctx context.Context) (string, error) `json:"-" yaml:"-"`

	// Insecure allows a connection to another host without TLS, or without checking its
	// certificate. Default false: such a configuration is refused.
	Insecure bool `json:"insecure" yaml:"insecure"`
}

// withDefaults returns a copy with the defaults filled in, or an error that says what to change.
func (o *Options) withDefaults() (*Options, error) {
	c := Options{}
	if o != nil {
		c = *o
	}
	if c.MaxTxnBytes == 0 {
		c.MaxTxnBytes = DefaultMaxTxnBytes
	}
	if c.MaxTxnOps == 0 {
		c.MaxTxnOps = DefaultMaxTxnOps
	}
	if c.MaxTxnOps < 32 || c.MaxTxnOps > DefaultMaxTxnOps {
		return nil, fmt.Errorf("tenure: %w: %d operations in a transaction: use 32 to %d", driver.ErrInvalid,
			c.MaxTxnOps, DefaultMaxTxnOps)
	}
	if c.MaxTxnBytes < 64<<10 || c.MaxTxnBytes > 16<<20 {
		return nil, fmt.Errorf("tenure: %w: %d bytes in a transaction: use 64 KiB to 16 MiB", driver.ErrInvalid,
			c.MaxTxnBytes)
	}
	return &c, nil
}
