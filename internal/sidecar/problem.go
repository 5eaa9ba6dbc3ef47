package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core"
)

// Clients act on an error's code, and people read its message.
const (
	codeInvalid   = "invalid"       // the input is not valid
	codeNoToken   = "unauthorized"  // the token is missing or wrong
	codeNotFound  = "not_found"     // the route, item or shard does not exist
	codeOver      = "lease_over"    // the lease has ended
	codeContended = "contended"     // another client of this sidecar contends for the shard
	codeNotHeld   = "not_held"      // the lease is not held now
	codeFenced    = "fenced"        // the token is not the current token
	codeHeld      = "held"          // another owner holds the lock
	codeNoEffects = "no_effects"    // a lock has no effects
	codeConflict  = "conflict"      // a precondition does not hold
	codeTrimmed   = "trimmed"       // the log begins later
	codeTooLarge  = "too_large"     // a limit is exceeded
	codeBusy      = "busy"          // there are too many requests, streams or attempts of effects
	codeFull      = "full"          // too many effects are in doubt
	codeDamaged   = "damaged"       // a record of the store cannot be read
	codeStore     = "unavailable"   // the store did not answer or refused the call
	codeUnknown   = "unknown"       // the outcome of a write is unknown
	codeStopping  = "stopping"      // the sidecar is stopping
	codeChanged   = "store_changed" // the store was replaced
)

type problem struct {
	status int

	Code    string `json:"code"`
	Message string `json:"message"`
	// Applied is "no" if nothing was or will be written, and "unknown" otherwise.
	Applied string `json:"applied"`
	// Op is the index of the operation whose precondition does not hold.
	Op *int `json:"op,omitempty"`
	// Oldest is the first entry that a trimmed log still contains.
	Oldest core.Seq `json:"oldest,omitempty"`
}

func (p *problem) Error() string { return p.Message }

// A message may quote text from a client, so its size in bytes is limited.
const maxMessage = 1000

func refuse(status int, code, format string, args ...any) *problem {
	return &problem{status: status, Code: code, Message: cut(fmt.Sprintf(format, args...), maxMessage), Applied: "no"}
}

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

func problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	of := func(status int, code string) *problem { return refuse(status, code, "%v", err) }
	if conflict, ok := errors.AsType[*core.ConflictError](err); ok {
		p := of(http.StatusPreconditionFailed, codeConflict)
		if conflict.Op >= 0 {
			p.Op = &conflict.Op
		}
		return p
	}
	if trimmed, ok := errors.AsType[*core.TrimmedError](err); ok {
		p := of(http.StatusGone, codeTrimmed)
		p.Oldest = trimmed.Oldest
		return p
	}
	switch {
	case errors.Is(err, core.ErrUnknown):
		p := of(http.StatusGatewayTimeout, codeUnknown)
		p.Applied = "unknown"
		return p
	case errors.Is(err, core.ErrTooLarge):
		return of(http.StatusRequestEntityTooLarge, codeTooLarge)
	case errors.Is(err, core.ErrInvalid):
		return of(http.StatusBadRequest, codeInvalid)
	case errors.Is(err, core.ErrStoreChanged):
		return of(http.StatusServiceUnavailable, codeChanged)
	case errors.Is(err, core.ErrFenced):
		return of(http.StatusConflict, codeFenced)
	case errors.Is(err, core.ErrLost):
		return of(http.StatusConflict, codeNotHeld)
	case errors.Is(err, core.ErrContended):
		return of(http.StatusConflict, codeContended)
	case errors.Is(err, core.ErrStopped):
		return of(http.StatusServiceUnavailable, codeStopping)
	case errors.Is(err, core.ErrDamaged):
		return of(http.StatusInternalServerError, codeDamaged)
	case errors.Is(err, context.DeadlineExceeded):
		return refuse(http.StatusServiceUnavailable, codeStore, "the store did not answer in time: try again")
	}
	return of(http.StatusServiceUnavailable, codeStore)
}

func fail(w http.ResponseWriter, err error) {
	p := problemOf(err)
	if p.Code == codeBusy || p.Code == codeStore {
		w.Header().Set("Retry-After", "1")
	}
	if p.Code == codeNoToken {
		w.Header().Set("WWW-Authenticate", `Bearer realm="tenure"`)
	}
	answer(w, p.status, map[string]*problem{"error": p})
}

func answer(w http.ResponseWriter, status int, v any) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // if the client has disconnected, the error does not matter
}
