package consul

import (
	"context"
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
)

const (
	// maxTxnOps is the number of operations that Consul 1.14 or later takes in one
	// transaction.
	maxTxnOps = 128
	// defaultTxnBytes is the longest request of a transaction, Consul's own default of
	// txn_max_req_len.
	defaultTxnBytes = 512 << 10
)

// Options configure Open and OpenClient. The zero value and nil are valid.
type Options struct {
	// Create writes the namespace's identity if it has none. Without it, a missing identity is
	// an error, because it may mean a wiped store (rule I1).
	Create bool `json:"create" yaml:"create"`

	// MaxTxnOps limits the operations of one transaction. Default (0) 128, Consul's own limit.
	// If a proxy accepts fewer, set a lower value, at least 32.
	MaxTxnOps int `json:"max_txn_ops" yaml:"max_txn_ops"`

	// MaxTxnBytes limits the request of a transaction, in bytes. Default (0) 512 KiB; 64 KiB to
	// 16 MiB. Raise it only together with the servers' txn_max_req_len and kv_max_value_size.
	MaxTxnBytes int `json:"max_txn_bytes" yaml:"max_txn_bytes"`

	// Token, if set, returns the ACL token of each request, instead of the client's.
	// Use it for tokens that change. It must be safe for concurrent use and must not
	// block.
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
		c.MaxTxnBytes = defaultTxnBytes
	}
	if c.MaxTxnOps == 0 {
		c.MaxTxnOps = maxTxnOps
	}
	if c.MaxTxnOps < 32 || c.MaxTxnOps > maxTxnOps {
		return nil, fmt.Errorf("tenure: %w: %d operations in a transaction: use 32 to %d", driver.ErrInvalid,
			c.MaxTxnOps, maxTxnOps)
	}
	if c.MaxTxnBytes < 64<<10 || c.MaxTxnBytes > 16<<20 {
		return nil, fmt.Errorf("tenure: %w: %d bytes in a transaction: use 64 KiB to 16 MiB", driver.ErrInvalid,
			c.MaxTxnBytes)
	}
	return &c, nil
}
