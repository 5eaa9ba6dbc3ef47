package consul

import (
	"context"
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
)

const (
	// maxTxnOps is Consul's limit on the operations in one transaction, from version 1.14.
	maxTxnOps = 128
	// defaultTxnBytes is Consul's default for txn_max_req_len, the maximum length of a
	// transaction's request.
	defaultTxnBytes = 512 << 10
)

// Options configure Open and OpenClient. The zero value and nil are valid.
type Options struct {
	// Create lets Open write the namespace's identity if it does not exist. Without Create, a missing
	// identity is an error, because the store may have been wiped (rule I1).
	Create bool `json:"create" yaml:"create"`

	// MaxTxnOps limits the number of operations in one transaction. Default (0) 128, Consul's own
	// limit. If a proxy accepts fewer operations, set a lower value, but at least 32.
	MaxTxnOps int `json:"max_txn_ops" yaml:"max_txn_ops"`

	// MaxTxnBytes limits the size of a transaction's request, in bytes. Default (0) 512 KiB; 64 KiB
	// to 16 MiB. Raise it only together with the servers' txn_max_req_len and kv_max_value_size.
	MaxTxnBytes int `json:"max_txn_bytes" yaml:"max_txn_bytes"`

	// Token, if set, returns the ACL token for each request, in place of the client's token. Use it
	// for tokens that change. The function must be safe for concurrent use and must not block.
	Token func(ctx context.Context) (string, error) `json:"-" yaml:"-"`

	// Insecure allows connections to other hosts without TLS or without certificate checks. Default
	// false: Open refuses such a configuration.
	Insecure bool `json:"insecure" yaml:"insecure"`
}

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
