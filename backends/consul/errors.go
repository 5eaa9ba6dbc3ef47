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

// errClosed is outside the closed set, because a pending call may have been applied.
var errClosed = errors.New("tenure: the client of consul was closed")

// writeError classifies the failure of a request that was sent to change something (rule E1). A
// refusal is certain if it comes before Consul hands the transaction to its log, or if the
// connection was never made. Everything else is unknown, because an agent that lost the leader
// answers 500 both before and after that point.
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

// neverSent reports whether no byte of the request left, because there was no connection or the
// server's certificate was refused.
func neverSent(err error) bool {
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, &certificate)
}

func notSent(err error) error {
	return fmt.Errorf("tenure: %w: nothing was sent to consul: %w", driver.ErrRetry, err)
}

// operationError returns nil if the operation was refused because a condition does not hold.
// Otherwise, it returns why the transaction was not applied.
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

// readError returns the error of a failed read.
func readError(err error) error {
	if text := err.Error(); strings.Contains(text, "Permission denied") || strings.Contains(text, "ACL not found") {
		return fmt.Errorf("consul: %w: %s: %w", driver.ErrDenied, adviceACL, err)
	}
	return fmt.Errorf("consul: %w", err)
}
