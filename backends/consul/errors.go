package consul

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/tenure-go/tenure/core/driver"
)

// errClosed does not satisfy driver.NotApplied, because a pending call may have been applied.
var errClosed = errors.New("tenure: the client of consul was closed")

// writeError classifies a failed write (rule E1). If Consul had not yet passed the write to the
// log, or if there was no connection, the write was certainly not applied. Every other outcome is
// unknown, because an agent that lost its leader returns status 500 both before and after this
// step.
func writeError(err error) error {
	var status api.StatusError
	if errors.As(err, &status) {
		switch status.Code {
		case http.StatusBadRequest:
			return fmt.Errorf("tenure: %w: consul does not understand the request: %w", driver.ErrInvalid, err)
		case http.StatusForbidden, http.StatusUnauthorized:
			return fmt.Errorf("tenure: %w: %w: %s: %w", driver.ErrRetry, driver.ErrDenied, adviceACL, err)
		case http.StatusRequestEntityTooLarge:
			return fmt.Errorf("tenure: %w: raise txn_max_req_len or lower Options.MaxTxnBytes and MaxTxnOps: %w",
				driver.ErrTooLarge, err)
		case http.StatusTooManyRequests:
			return fmt.Errorf("tenure: %w: consul limits requests or connections "+
				"(limits.http_max_conns_per_client): %w", driver.ErrRetry, err)
		}
	}
	if neverSent(err) {
		return notSent(err)
	}
	return fmt.Errorf("tenure: consul: the outcome is unknown: %w", err)
}

const adviceACL = "the ACL token lacks a right, expired or was revoked: see the policy in docs/backends/consul.md"

// neverSent reports whether a request failed before its first byte was sent, for lack of a
// connection or because the server's certificate was refused.
func neverSent(err error) bool {
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, &certificate)
}

func notSent(err error) error {
	return fmt.Errorf("tenure: %w: nothing was sent to consul: %w", driver.ErrRetry, err)
}

// operationError returns the reason why an operation was refused, or nil if a condition did not
// hold.
func operationError(o *operation, what string) error {
	switch lower := strings.ToLower(what); {
	case strings.Contains(lower, "permission denied") || strings.Contains(lower, "lacks permission"):
		return fmt.Errorf("tenure: %w: %w: %s: %s %q: %s", driver.ErrRetry, driver.ErrDenied, adviceACL, o.KV.Verb, o.KV.Key, what)
	case strings.Contains(lower, "unknown kv verb"):
		return fmt.Errorf("tenure: %w: this consul is too old: %s; use 1.14 or later", driver.ErrUnsupported, what)
	}
	switch o.KV.Verb {
	case verbCAS, verbGet, verbCheckIndex, verbCheckNotExists:
		return nil
	}
	return fmt.Errorf("tenure: %w: %s %q: %s", driver.ErrRetry, o.KV.Verb, o.KV.Key, what)
}

func readError(err error) error {
	if text := err.Error(); strings.Contains(text, "Permission denied") || strings.Contains(text, "ACL not found") {
		return fmt.Errorf("consul: %w: %s: %w", driver.ErrDenied, adviceACL, err)
	}
	return fmt.Errorf("consul: %w", err)
}
