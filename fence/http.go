package fence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// Header carries a fence in an HTTP request, in the form of Format.
const Header = "Tenure-Fence"

// Transport is an http.RoundTripper that sends the fence of the request's context,
// see NewContext, in its header; a request without one passes unchanged. Safe for
// concurrent use.
type Transport struct {
	// Base does the requests; nil: http.DefaultTransport.
	Base http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if f, ok := FromContext(r.Context()); ok {
		r = r.Clone(r.Context())
		r.Header.Set(Header, Format(f))
	}
	return base.RoundTrip(r)
}

// HTTPOptions of a Mark's Handler. Nil works.
type HTTPOptions struct {
	// Resource names the resource that a request writes to. Default: the shard of its
	// fence, which the caller chooses: set it unless every caller may write to every
	// shard.
	Resource func(r *http.Request, f driver.Fence) string
	// Unfenced, if not nil, lets a request without the header pass to which it
	// answers true, such as a read. Default: none passes.
	Unfenced func(r *http.Request) bool
	// MayWrite, if not nil, has to allow a request beside the Mark's own: for instance
	// by whom the request was authenticated as. Others are answered 403.
	MayWrite func(r *http.Request, f driver.Fence, resource string) bool
}

// Types of the problem documents (RFC 9457) that a Handler answers with.
const (
	ProblemRefused = "urn:tenure:fence:refused" // 412
	ProblemMissing = "urn:tenure:fence:missing" // 428
	ProblemInvalid = "urn:tenure:fence:invalid" // 400
	ProblemForeign = "urn:tenure:fence:foreign" // 403: another shard's resource
	ProblemMark    = "urn:tenure:fence:mark"    // 503: the mark could not be read or raised, or ErrBusy
)

// answerTime is the time that a superseded request has to write its answer.
const answerTime = time.Second

// maxProblem bounds the body of a problem that is read, in bytes.
const maxProblem = 64 << 10

// Problem is the body of such an answer. Resource, Holder, Token, CurrentHolder and
// CurrentToken are those of a refusal.
type Problem struct {
	Type          string       `json:"type"`
	Title         string       `json:"title"`
	Status        int          `json:"status"`
	Detail        string       `json:"detail,omitempty"`
	Resource      string       `json:"resource,omitempty"`
	Shard         string       `json:"shard,omitempty"`
	Holder        string       `json:"holder,omitempty"`
	Token         driver.Token `json:"token,omitempty"`
	CurrentShard  string       `json:"current_shard,omitempty"`
	CurrentHolder string       `json:"current_holder,omitempty"`
	CurrentToken  driver.Token `json:"current_token,omitempty"`
}

// Handler lets requests pass to next only with a fence that the mark admits. They
// run in Do, so that an answer of a higher token's request, or of a Seal, means that
// no lower one runs any more. Otherwise it answers 412 (refused), 428 (no fence),
// 400 (not a fence), 403 (another shard's resource) or 503 (the mark's storage failed,
// or ErrBusy), with a Problem.
//
// A request that a higher token supersedes is ended: its context ends, reads of its
// body fail at once, and writes of its answer a second later. Middleware in front needs
// an Unwrap method for that (http.ResponseController); a next that waits for none of
// the three keeps a higher token waiting for up to Options.Wait. The server needs its
// own time-outs against clients that are slow without being superseded.
//
// It does not authenticate, and a caller can raise a mark for good: put an
// authenticating handler before it, and set Resource.
func (m *Mark) Handler(next http.Handler, o *HTTPOptions) http.Handler {
	if o == nil {
		o = &HTTPOptions{}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		values := r.Header.Values(Header)
		if len(values) == 0 {
			if o.Unfenced != nil && o.Unfenced(r) {
				next.ServeHTTP(w, r)
				return
			}
			problem(w, Problem{Type: ProblemMissing, Status: http.StatusPreconditionRequired,
				Title:  "the request has no fence",
				Detail: "send the lease's fence in the header " + Header})
			return
		}
		f, err := Parse(values[0])
		if err == nil && len(values) > 1 {
			err = fmt.Errorf("tenure: %w: more than one fence", driver.ErrInvalid)
		}
		resource := string(f.Shard)
		if err == nil && o.Resource != nil {
			resource = o.Resource(r, f)
		}
		if err == nil {
			err = CheckResource(resource)
		}
		if err == nil && o.MayWrite != nil && !o.MayWrite(r, f, resource) {
			err = &ForeignError{Resource: resource, Fence: f}
		}
		if err != nil {
			WriteError(w, err)
			return
		}
		ctx, e, err := m.enter(r.Context(), resource, f)
		if err != nil {
			WriteError(w, err)
			return
		}
		defer e.leave()
		defer endWith(e.superseded, w)()
		next.ServeHTTP(w, r.WithContext(NewContext(ctx, f)))
	})
}

// endWith ends the reads and the writes of a request when superseded ends. done is
// called before the handler returns.
func endWith(superseded context.Context, w http.ResponseWriter) (done func()) {
	ended := make(chan struct{})
	stop := context.AfterFunc(superseded, func() {
		defer close(ended)
		control, now := http.NewResponseController(w), time.Now()
		// Where it cannot be done, Options.Wait is the bound.
		_ = control.SetReadDeadline(now)
		_ = control.SetWriteDeadline(now.Add(answerTime))
	})
	return func() {
		if !stop() {
			<-ended
		}
	}
}

// WriteError answers a request with the Problem that ResponseError reads: for a handler
// that is refused by SQL.AdmitTx or a Mark itself. An error that is no refusal is
// answered 503, "nothing was done": give it none of a write or of Commit.
func WriteError(w http.ResponseWriter, err error) {
	if e, ok := errors.AsType[*ForeignError](err); ok {
		problem(w, Problem{Type: ProblemForeign, Status: http.StatusForbidden, Title: "another shard's resource",
			Detail:   e.Error(),
			Resource: e.Resource, Shard: string(e.Fence.Shard), Holder: string(e.Fence.Session), Token: e.Fence.Token})
		return
	}
	if errors.Is(err, driver.ErrInvalid) {
		problem(w, Problem{Type: ProblemInvalid, Status: http.StatusBadRequest, Title: "not a fence",
			Detail: err.Error()})
		return
	}
	if errors.Is(err, ErrBusy) {
		problem(w, Problem{Type: ProblemMark, Status: http.StatusServiceUnavailable, Title: ErrBusy.Error(),
			Detail: "nothing was done; try again"})
		return
	}
	e, ok := errors.AsType[*RefusedError](err)
	if !ok {
		// A storage's error may name hosts and users: it is not for clients.
		problem(w, Problem{Type: ProblemMark, Status: http.StatusServiceUnavailable,
			Title:  "the fence could not be checked",
			Detail: "nothing was done; try again"})
		return
	}
	problem(w, Problem{
		Type: ProblemRefused, Status: http.StatusPreconditionFailed, Title: "the lease was superseded",
		Detail:   e.Error(),
		Resource: e.Resource, Shard: string(e.Fence.Shard), Holder: string(e.Fence.Session), Token: e.Fence.Token,
		CurrentShard: string(e.Current.Shard), CurrentHolder: string(e.Current.Session), CurrentToken: e.Current.Token,
	})
}

func problem(w http.ResponseWriter, p Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // a client that is gone needs no answer
}

// ResponseError returns the reason for which a Handler refused the request, or nil if it passed: a
// *RefusedError (412; invalid fences and resources in it are left out), a *ForeignError (403), an
// error that matches driver.ErrInvalid (428 and 400: the request carried no fence, or not one that
// the resource takes), or one that matches driver.ErrRetry (503). Nothing was done in any of these
// cases. Of such a response it reads the body, at most 64 KiB; the caller closes it in any case.
// Other responses, also of these statuses, are the application's: nil. Nil does not mean success: look
// at the status next.
func ResponseError(r *http.Response) error {
	switch r.StatusCode {
	case http.StatusPreconditionFailed, http.StatusPreconditionRequired, http.StatusBadRequest, http.StatusForbidden,
		http.StatusServiceUnavailable:
	default:
		return nil
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil ||
		media != "application/problem+json" {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxProblem))
	var kind struct{ Type string }
	if err == nil {
		err = json.Unmarshal(body, &kind)
	}
	var p Problem
	switch kind.Type {
	case ProblemRefused, ProblemForeign, ProblemMissing, ProblemInvalid, ProblemMark:
		err = json.Unmarshal(body, &p)
	}
	if err != nil {
		// Not wrapped: it may quote all that was read.
		return fmt.Errorf("tenure: status %d: reading why the fence was not admitted: %.200q", r.StatusCode,
			err.Error())
	}
	sent := known(driver.Fence{Shard: driver.ShardID(p.Shard), Session: driver.SessionID(p.Holder), Token: p.Token})
	if CheckResource(p.Resource) != nil {
		p.Resource = ""
	}
	switch p.Type {
	case ProblemRefused:
		return &RefusedError{
			Resource: p.Resource,
			Fence:    sent,
			Current: known(driver.Fence{Shard: driver.ShardID(p.CurrentShard), Session: driver.SessionID(p.CurrentHolder),
				Token: p.CurrentToken}),
		}
	case ProblemForeign:
		return &ForeignError{Resource: p.Resource, Fence: sent}
	case ProblemMissing, ProblemInvalid:
		return fmt.Errorf("tenure: %w: status %d: %.500q", driver.ErrInvalid, r.StatusCode, p.Detail)
	case ProblemMark:
		return fmt.Errorf("tenure: %w: status %d: %.500q", driver.ErrRetry, r.StatusCode, p.Detail)
	}
	return nil
}

// known is the fence that a response names, or none: names go on into logs.
func known(f driver.Fence) driver.Fence {
	if driver.CheckFence(f) != nil {
		return driver.Fence{}
	}
	return f
}
