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

// Header is the HTTP header that carries a request's fence, in the form that Format returns.
const Header = "Tenure-Fence"

// Transport is an http.RoundTripper that sends the fence in the request's context (see NewContext)
// as a header. Transport sends a request without a fence unchanged. Transport is safe for
// concurrent use.
type Transport struct {
	// Base sends the requests. If Base is nil, the Transport uses http.DefaultTransport.
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

// HTTPOptions configure a Mark's Handler. A nil *HTTPOptions is valid.
type HTTPOptions struct {
	// Resource returns the resource to which a request writes. The default is the shard of the
	// request's fence, which the caller chooses. Set Resource unless every caller may write to
	// every shard.
	Resource func(r *http.Request, f driver.Fence) string
	// Unfenced, if not nil, reports whether a request without the header, such as a read, may pass.
	// By default, every request needs a fence.
	Unfenced func(r *http.Request) bool
	// MayWrite, if not nil, checks each request in addition to the Mark's Options.MayWrite. For
	// example, MayWrite can check the authenticated caller. If MayWrite returns false, the answer's
	// status is 403.
	MayWrite func(r *http.Request, f driver.Fence, resource string) bool
}

const (
	problemRefused = "urn:tenure:fence:refused" // 412
	problemMissing = "urn:tenure:fence:missing" // 428
	problemInvalid = "urn:tenure:fence:invalid" // 400
	problemForeign = "urn:tenure:fence:foreign" // 403: another shard's resource
	problemMark    = "urn:tenure:fence:mark"    // 503: the mark could not be read or raised, or ErrBusy
)

// answerTime is how long a superseded request may take to write its answer.
const answerTime = time.Second

// Handler passes a request to next only if the mark admits the request's fence. Each request is
// served in Mark.Do. Therefore, when a request with a higher token has been answered, or a Seal has
// returned, all requests with lower tokens have ended. If the mark does not admit the fence,
// Handler answers with a problem document (RFC 9457). The status is 412 (refused), 428 (no fence),
// 400 (not a fence), 403 (another shard's resource) or 503 (the mark's storage failed, or ErrBusy).
// The document's type is urn:tenure:fence:refused, :missing, :invalid, :foreign or :mark. For a
// refused fence, the document also contains resource, shard, holder, token, current_shard,
// current_holder and current_token.
//
// If a higher token supersedes a request, the request's context ends, reads from the request's body
// fail immediately, and writes to its answer fail a second later. These reads and writes fail only
// if the ResponseWriter of every middleware in front of the Handler has an Unwrap method
// (http.ResponseController). If next ignores the context and the failed reads and writes, the
// higher token waits for up to Options.Wait. To limit slow clients whose requests are not
// superseded, also set time-outs on the server.
//
// Handler does not authenticate callers, and any caller can raise a mark permanently. Therefore,
// put an authenticating handler in front of Handler, and set Resource.
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
			problem.Document{Type: problemMissing, Status: http.StatusPreconditionRequired,
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

// When the context superseded ends, endWith ends the request's reads and writes. The caller calls
// done before the handler returns.
func endWith(superseded context.Context, w http.ResponseWriter) (done func()) {
	ended := make(chan struct{})
	stop := context.AfterFunc(superseded, func() {
		defer close(ended)
		control, now := http.NewResponseController(w), time.Now()
		// If w does not support deadlines, only Options.Wait limits how long the higher token
		// waits.
		_ = control.SetReadDeadline(now)
		_ = control.SetWriteDeadline(now.Add(answerTime))
	})
	return func() {
		if !stop() {
			<-ended
		}
	}
}

// WriteError answers a request with the problem document that ResponseError reads. A handler calls
// WriteError with an error from SQL.AdmitTx or from a Mark. For an error that is not a refusal,
// WriteError answers 503, which means that nothing was done. Therefore, do not call WriteError with
// an error from a write or from Commit.
func WriteError(w http.ResponseWriter, err error) {
	if e, ok := errors.AsType[*ForeignError](err); ok {
		problem.Document{Type: problemForeign, Status: http.StatusForbidden, Title: "another shard's resource",
			Detail:   e.Error(),
			Resource: e.Resource, Shard: string(e.Fence.Shard), Holder: string(e.Fence.Session), Token: e.Fence.Token}.Write(w)
		return
	}
	if errors.Is(err, driver.ErrInvalid) {
		problem.Document{Type: problemInvalid, Status: http.StatusBadRequest, Title: "not a fence",
			Detail: err.Error()}.Write(w)
		return
	}
	if errors.Is(err, ErrBusy) {
		problem.Document{Type: problemMark, Status: http.StatusServiceUnavailable, Title: ErrBusy.Error(),
			Detail: "nothing was done; try again"}.Write(w)
		return
	}
	e, ok := errors.AsType[*RefusedError](err)
	if !ok {
		// A storage's error may contain host and user names, so clients do not receive it.
		problem.Document{Type: problemMark, Status: http.StatusServiceUnavailable,
			Title:  "the fence could not be checked",
			Detail: "nothing was done; try again"}.Write(w)
		return
	}
	problem.Document{
		Type: problemRefused, Status: http.StatusPreconditionFailed, Title: "the lease was superseded",
		Detail:   e.Error(),
		Resource: e.Resource, Shard: string(e.Fence.Shard), Holder: string(e.Fence.Session), Token: e.Fence.Token,
		CurrentShard: string(e.Current.Shard), CurrentHolder: string(e.Current.Session), CurrentToken: e.Current.Token,
	}.Write(w)
}

// ResponseError returns the reason why a Handler refused the request, or nil if the request passed.
// The reason is a *RefusedError (412) or a *ForeignError (403). If the request carried no fence
// (428) or an invalid fence (400), the error matches driver.ErrInvalid. If the mark could not be
// checked (503), the error matches driver.ErrRetry. In all these cases, the request was not carried
// out. These errors omit invalid fences and resources. ResponseError reads at most 64 KiB of the
// body in a Handler's response. The caller must always close the body. All other responses, even
// with these statuses, come from the application, and ResponseError returns nil for them. A nil
// result does not mean success, so check the status next.
func ResponseError(r *http.Response) error {
	switch r.StatusCode {
	case http.StatusPreconditionFailed, http.StatusPreconditionRequired, http.StatusBadRequest, http.StatusForbidden,
		http.StatusServiceUnavailable:
	default:
		return nil
	}
	p, err := problem.Read(r, problemRefused, problemForeign, problemMissing, problemInvalid, problemMark)
	if err != nil {
		// The read's error is not wrapped, because its text may quote the whole body.
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
	case problemRefused:
		return &RefusedError{
			Resource: p.Resource,
			Fence:    sent,
			Current: known(driver.Fence{Shard: driver.ShardID(p.CurrentShard), Session: driver.SessionID(p.CurrentHolder),
				Token: p.CurrentToken}),
		}
	case problemForeign:
		return &ForeignError{Resource: p.Resource, Fence: sent}
	case problemMissing, problemInvalid:
		return fmt.Errorf("tenure: %w: status %d: %.500q", driver.ErrInvalid, r.StatusCode, p.Detail)
	case problemMark:
		return fmt.Errorf("tenure: %w: status %d: %.500q", driver.ErrRetry, r.StatusCode, p.Detail)
	}
	return nil
}

// Because the names in a fence may be logged, known replaces an invalid fence with the zero Fence.
func known(f driver.Fence) driver.Fence {
	if driver.CheckFence(f) != nil {
		return driver.Fence{}
	}
	return f
}
