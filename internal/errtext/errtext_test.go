package errtext

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestErrorf(t *testing.T) {
	inner := Errorf("tenure: reading: %w", io.EOF)
	both := Errorf("tenure: shard %q: %w: %w", "s", inner, io.ErrClosedPipe)
	if got, want := both.Error(), `tenure: shard "s": reading: EOF: io: read/write on closed pipe`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, err := range []error{inner, io.EOF, io.ErrClosedPipe} {
		if !errors.Is(both, err) {
			t.Errorf("%v does not match %v", both, err)
		}
	}
}

func TestInKeys(t *testing.T) {
	type common struct {
		Insecure bool `yaml:"insecure"`
		Interval int  `yaml:"interval"`
	}
	type settings struct {
		common    `yaml:",inline"`
		MaxTxnOps int  `yaml:"max_txn_ops"`
		User      int  `yaml:"user"`
		TLS       bool `yaml:"tls"`
		Hidden    bool `yaml:"-"`
		Limits    struct {
			Deaths int `yaml:"deaths"`
		} `yaml:"limits"`
	}
	for text, want := range map[string]string{
		"set Options.TLS, or Options.Insecure":                     "set tls, or insecure",
		"lower Options.MaxTxnOps, or raise max-txn-ops":            "lower max_txn_ops, or raise max-txn-ops",
		"Limits.Deaths 101 is above 100, not Limits.Hidden":        "limits.deaths 101 is above 100, not Limits.Hidden",
		"raise x or lower MaxTxnOps":                               "raise x or lower max_txn_ops",
		"check the certificate, or set Insecure":                   "check the certificate, or set insecure",
		"invalid sharding options: Interval 1ns is below 1ms":      "invalid sharding options: interval 1ns is below 1ms",
		"the server says: User guest has no Options.Hidden, NoTLS": "the server says: User guest has no Options.Hidden, NoTLS",
	} {
		inner := fmt.Errorf("%s: %w", text, io.EOF)
		if got := InKeys(inner, settings{}); got.Error() != want+": EOF" || !errors.Is(got, io.EOF) {
			t.Errorf("got %q, want %q", got, want+": EOF")
		}
	}
}
