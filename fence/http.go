package fence

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

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
	// Resource names what a request writes to. Default: the shard of its fence, which
	// the caller chooses: set it unless every caller may write to every shard.
	Resource func(r *http.Request, f driver.Fence) string
	// Unfenced, if not nil, lets a request without the header pass to which it
	// answers true, such as a read. Default: none passes.
	Unfenced func(r *http.Request) bool
}

// Types of the problem documents (RFC 9457) that a Handler answers with.
const (
	ProblemRefused = "urn:tenure:fence:refused" // 412
	ProblemMissing = "urn:tenure:fence:missing" // 428
	ProblemInvalid = "urn:tenure:fence:invalid" // 400
	ProblemMark    = "urn:tenure:fence:mark"    // 503: the mark could not be read or raised
)

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
// 400 (not a fence) or 503 (the mark's storage failed), with a Problem.
//
// It does not authenticate, and a caller can raise a mark for good: put what does
// before it, and set Resource.
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
			problem(w, Problem{Type: ProblemMissing, Status: http.StatusPreconditionRequired, Title: "the request has no fence",
				Detail: "send the lease's fence in the header " + Header})
			return
		}
		f, err := Parse(values[0])
		if err == nil && len(values) > 1 {
			err = errors.New("tenure: more than one fence")
		}
		resource := string(f.Shard)
		if err == nil && o.Resource != nil {
			resource = o.Resource(r, f)
		}
		if err == nil {
			err = CheckResource(resource)
		}
		if err != nil {
			problem(w, Problem{Type: ProblemInvalid, Status: http.StatusBadRequest, Title: "not a fence", Detail: err.Error()})
			return
		}
		ctx, leave, err := m.Enter(r.Context(), resource, f)
		if err != nil {
			refuse(w, err)
			return
		}
		defer leave()
		next.ServeHTTP(w, r.WithContext(NewContext(ctx, f)))
	})
}

func refuse(w http.ResponseWriter, err error) {
	e, ok := errors.AsType[*RefusedError](err)
	if !ok {
		// A storage's error may name hosts and users: it is not for clients.
		problem(w, Problem{Type: ProblemMark, Status: http.StatusServiceUnavailable, Title: "the fence could not be checked",
			Detail: "nothing was done; try again"})
		return
	}
	problem(w, Problem{
		Type: ProblemRefused, Status: http.StatusPreconditionFailed, Title: "the lease was superseded", Detail: e.Error(),
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

// ResponseError returns why a Handler did not let the request pass, or nil if it
// did: a *RefusedError (412), an error that matches driver.ErrInvalid (428 and 400:
// the request carried no fence, or not one that the resource takes), or one that
// matches driver.ErrRetry (503). Nothing was done in any of these cases. Of such a
// response it reads the body, at most 64 KiB; the caller closes it in any case. Other
// responses, also of these statuses, are the application's: nil.
func ResponseError(r *http.Response) error {
	switch r.StatusCode {
	case http.StatusPreconditionFailed, http.StatusPreconditionRequired, http.StatusBadRequest, http.StatusServiceUnavailable:
	default:
		return nil
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/problem+json" {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	var kind struct{ Type string }
	if err == nil {
		err = json.Unmarshal(body, &kind)
	}
	var p Problem
	switch kind.Type {
	case ProblemRefused, ProblemMissing, ProblemInvalid, ProblemMark:
		err = json.Unmarshal(body, &p)
	}
	if err != nil {
		return fmt.Errorf("tenure: status %d: reading why the fence was not admitted: %w", r.StatusCode, err)
	}
	switch p.Type {
	case ProblemRefused:
		return &RefusedError{
			Resource: p.Resource,
			Fence:    driver.Fence{Shard: driver.ShardID(p.Shard), Session: driver.SessionID(p.Holder), Token: p.Token},
			Current:  Holder{Shard: driver.ShardID(p.CurrentShard), Session: driver.SessionID(p.CurrentHolder), Token: p.CurrentToken},
		}
	case ProblemMissing, ProblemInvalid:
		return fmt.Errorf("tenure: %w: status %d: %.500q", driver.ErrInvalid, r.StatusCode, p.Detail)
	case ProblemMark:
		return fmt.Errorf("tenure: %w: status %d: %.500q", driver.ErrRetry, r.StatusCode, p.Detail)
	}
	return nil
}
