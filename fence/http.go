package fence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/problem"
)

// Header carries a fence in an HTTP request, in the form of Format.
const Header = "Tenure-Fence"

// Transport is an http.RoundTripper that sends the fence of the request's context (see NewContext)
// in a header. A request without a fence passes unchanged. Transport is safe for concurrent use.
type Transport struct {
	// Base sends the requests. If nil, it is http.DefaultTransport.
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

// HTTPOptions configure a Mark's Handler. A nil HTTPOptions works.
type HTTPOptions struct {
	// Resource returns the resource that a request writes to. Default: the shard of its fence,
	// which the caller chooses. Set Resource, unless every caller may write to every shard.
	Resource func(r *http.Request, f driver.Fence) string
	// Unfenced, if not nil, reports whether a request without the header may pass, such as a read.
	// Default: no request passes.
	Unfenced func(r *http.Request) bool
	// MayWrite, if not nil, must also allow each request that the Mark's own MayWrite allows. It
	// can check the authenticated caller, for example. The answer to other requests is 403.
	MayWrite func(r *http.Request, f driver.Fence, resource string) bool
}

// The types of the problem documents (RFC 9457) in a Handler's answers. For a refused fence, a
// document also contains resource, shard, holder, token, current_shard, current_holder and
// current_token.
const (
	ProblemRefused = "urn:tenure:fence:refused" // 412
	ProblemMissing = "urn:tenure:fence:missing" // 428
	ProblemInvalid = "urn:tenure:fence:invalid" // 400
	ProblemForeign = "urn:tenure:fence:foreign" // 403: another shard's resource
	ProblemMark    = "urn:tenure:fence:mark"    // 503: the mark could not be read or raised, or ErrBusy
)

// answerTime limits how long a superseded request may take to write its answer.
const answerTime = time.Second

// Handler passes a request to next only if the mark admits its fence. Requests run in Do.
// Therefore, the answer to a higher token's request, or to a Seal, means that no request with a
// lower token still runs. Otherwise, Handler answers with a problem document and status 412
// (refused), 428 (no fence), 400 (not a fence), 403 (another shard's resource) or 503 (the mark's
// storage failed, or ErrBusy).
//
// If a higher token supersedes a request, the request's context ends, and reads of its body fail
// immediately. Writes of its answer fail a second later. For this, middleware in front needs an
// Unwrap method (http.ResponseController). If next waits for none of the three, the higher token
// waits for up to Options.Wait. The server needs its own time-outs against slow clients that are
// not superseded.
//
// Handler does not authenticate, and a caller can raise a mark permanently. Put an authenticating
// handler before it, and set Resource.
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
			problem.Document{Type: ProblemMissing, Status: http.StatusPreconditionRequired,
				Title:  "the request has no fence",
				Detail: "send the lease's fence in the header " + Header}.Write(w)
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

// endWith ends the reads and the writes of a request when superseded ends. The caller calls done
// before the handler returns.
func endWith(superseded context.Context, w http.ResponseWriter) (done func()) {
	ended := make(chan struct{})
	stop := context.AfterFunc(superseded, func() {
		defer close(ended)
		control, now := http.NewResponseController(w), time.Now()
		// If w does not support deadlines, only Options.Wait limits the wait.
		_ = control.SetReadDeadline(now)
		_ = control.SetWriteDeadline(now.Add(answerTime))
	})
	return func() {
		if !stop() {
			<-ended
		}
	}
}

// WriteError answers a request with the problem document that ResponseError reads. It is for a
// handler that SQL.AdmitTx or a Mark refuses. For an error that is not a refusal, it answers 503,
// "nothing was done". Therefore, do not pass it an error from a write or from Commit.
func WriteError(w http.ResponseWriter, err error) {
	if e, ok := errors.AsType[*ForeignError](err); ok {
		problem.Document{Type: ProblemForeign, Status: http.StatusForbidden, Title: "another shard's resource",
			Detail:   e.Error(),
			Resource: e.Resource, Shard: string(e.Fence.Shard), Holder: string(e.Fence.Session), Token: e.Fence.Token}.Write(w)
		return
	}
	if errors.Is(err, driver.ErrInvalid) {
		problem.Document{Type: ProblemInvalid, Status: http.StatusBadRequest, Title: "not a fence",
			Detail: err.Error()}.Write(w)
		return
	}
	if errors.Is(err, ErrBusy) {
		problem.Document{Type: ProblemMark, Status: http.StatusServiceUnavailable, Title: ErrBusy.Error(),
			Detail: "nothing was done; try again"}.Write(w)
		return
	}
	e, ok := errors.AsType[*RefusedError](err)
	if !ok {
		// A storage's error may name hosts and users, so clients do not get it.
		problem.Document{Type: ProblemMark, Status: http.StatusServiceUnavailable,
			Title:  "the fence could not be checked",
			Detail: "nothing was done; try again"}.Write(w)
		return
	}
	problem.Document{
		Type: ProblemRefused, Status: http.StatusPreconditionFailed, Title: "the lease was superseded",
		Detail:   e.Error(),
		Resource: e.Resource, Shard: string(e.Fence.Shard), Holder: string(e.Fence.Session), Token: e.Fence.Token,
		CurrentShard: string(e.Current.Shard), CurrentHolder: string(e.Current.Session), CurrentToken: e.Current.Token,
	}.Write(w)
}

// ResponseError returns the reason why a Handler refused the request, or nil if the request passed.
// The reason is a *RefusedError (412) or a *ForeignError (403). If the request carried no fence, or
// an invalid one (428 and 400), the error matches driver.ErrInvalid. If the mark could not be
// checked (503), it matches driver.ErrRetry. In all these cases, nothing was done. The errors omit
// invalid fences and resources. ResponseError reads at most 64 KiB of such a response's body; the
// caller closes the body in any case. For other responses, even with these statuses, it returns
// nil, because they are the application's. Nil does not mean success: check the status next.
func ResponseError(r *http.Response) error {
	switch r.StatusCode {
	case http.StatusPreconditionFailed, http.StatusPreconditionRequired, http.StatusBadRequest, http.StatusForbidden,
		http.StatusServiceUnavailable:
	default:
		return nil
	}
	p, err := problem.Read(r, ProblemRefused, ProblemForeign, ProblemMissing, ProblemInvalid, ProblemMark)
	if err != nil {
		// The error is not wrapped, because it may quote everything that was read.
		return fmt.Errorf("tenure: status %d: reading why the fence was not admitted: %.200q", r.StatusCode,
			err.Error())
	}
	if p == nil {
		return nil
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

// known returns the fence in a response, or the zero Fence if it is invalid, because its names may
// be logged.
func known(f driver.Fence) driver.Fence {
	if driver.CheckFence(f) != nil {
		return driver.Fence{}
	}
	return f
}
