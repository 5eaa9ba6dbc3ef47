package etcd

import (
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
)

const (
	// defaultTxnOps is etcd's default for max-txn-ops, the number of operations in one transaction.
	defaultTxnOps = 128
	// defaultRequestBytes is etcd's default for max-request-bytes.
	defaultRequestBytes = 3 << 19
)

const minTxnOps = 16

// Options configure Open and OpenClient. The zero value and nil are valid.
type Options struct {
	// Create lets Open write the namespace's identity if it does not exist. Without Create, a missing
	// identity is an error, because the store may have been wiped (rule I1).
	Create bool `json:"create" yaml:"create"`

	// MaxTxnOps limits the number of operations in one transaction: 16 to 10,000. Default (0): the
	// largest of 128, 64, 32 and 16 that the server accepts. Raise it only together with the
	// max-txn-ops of all members.
	MaxTxnOps int `json:"max_txn_ops" yaml:"max_txn_ops"`

	// MaxRequestBytes limits the size of a request, in bytes. Default (0) 1.5 MiB; 64 KiB to 64
	// MiB. Change it together with the max-request-bytes of all members.
	MaxRequestBytes int `json:"max_request_bytes" yaml:"max_request_bytes"`

	// Insecure allows connections to other hosts without TLS or without certificate checks. Default
	// false: Open refuses such a configuration.
	Insecure bool `json:"insecure" yaml:"insecure"`
}

func (o *Options) withDefaults() (*Options, error) {
	c := Options{}
	if o != nil {
		c = *o
	}
	if c.MaxRequestBytes == 0 {
		c.MaxRequestBytes = defaultRequestBytes
	}
	if c.MaxTxnOps != 0 && (c.MaxTxnOps < minTxnOps || c.MaxTxnOps > 10_000) {
		return nil, fmt.Errorf("tenure: %w: %d operations in a transaction: use %d to 10000, or 0 to ask the server",
			driver.ErrInvalid, c.MaxTxnOps, minTxnOps)
	}
	if c.MaxRequestBytes < 64<<10 || c.MaxRequestBytes > 64<<20 {
		return nil, fmt.Errorf("tenure: %w: %d bytes in a request: use 64 KiB to 64 MiB", driver.ErrInvalid,
			c.MaxRequestBytes)
	}
	return &c, nil
}
