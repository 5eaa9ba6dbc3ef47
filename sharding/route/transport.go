package route

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/problem"
)

// TransportOptions are the options of a Transport.
type TransportOptions struct {
	// Allow reports whether the request, with its header and body, may be sent to an address that
	// an answer names. Required, because an untrusted server could otherwise have credentials
	// sent anywhere.
	Allow func(u *url.URL) bool
	// Base sends the requests. Default http.DefaultTransport.
	Base http.RoundTripper
	// Attempts is the largest number of times that a request is sent. Default 5, at most 100.
	Attempts int
	// Wait is the longest wait before the next attempt if the shard has no owner. Default 1 s, at
	// most 1 min.
	Wait time.Duration
}

// Transport is an http.RoundTripper that sends a request again if a Handler refused it. It sends
// the request to the owner in the answer or, if the shard had none, a little later. It follows only
// answers that say that nothing was done. It sends a body again only if the request has GetBody, as
// requests of http.NewRequest have. It returns the answer of the last attempt. A Transport is safe
// for concurrent use.
type Transport struct{ o TransportOptions }

// NewTransport returns a Transport. The error matches core.ErrInvalid.
func NewTransport(o *TransportOptions) (*Transport, error) {
	if o == nil || o.Allow == nil {
		return nil, fmt.Errorf("tenure: %w: a Transport needs Allow: say to which addresses requests may go", core.ErrInvalid)
	}
	t := &Transport{o: *o}
	if t.o.Base == nil {
		t.o.Base = http.DefaultTransport
	}
	if t.o.Attempts == 0 {
		t.o.Attempts = 5
	}
	if t.o.Wait == 0 {
		t.o.Wait = time.Second
	}
	if t.o.Attempts < 1 || t.o.Attempts > 100 {
		return nil, fmt.Errorf("tenure: %w: Attempts %d is outside 1 to 100", core.ErrInvalid, t.o.Attempts)
	}
	if t.o.Wait < 0 || t.o.Wait > time.Minute {
		return nil, fmt.Errorf("tenure: %w: Wait %v is outside 0 to 1m", core.ErrInvalid, t.o.Wait)
	}
	return t, nil
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	first := r
	for attempt := 1; ; attempt++ {
		resp, err := t.o.Base.RoundTrip(r)
		if err != nil || attempt == t.o.Attempts || !again(first) {
			return resp, err
		}
		next, wait := t.next(first, resp)
		if next == nil {
			return resp, nil
		}
		if wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-r.Context().Done():
				timer.Stop()
				return nil, r.Context().Err()
			}
		}
		if first.GetBody != nil {
			if next.Body, err = first.GetBody(); err != nil {
				return nil, fmt.Errorf("tenure: reading the body again: %w", err)
			}
		}
		r = next
	}
}

// again reports whether the request can be sent again.
func again(r *http.Request) bool { return r.Body == nil || r.Body == http.NoBody || r.GetBody != nil }

// next returns the request that follows an answer, or nil if no request follows. The answer is
// then unchanged.
func (t *Transport) next(first *http.Request, resp *http.Response) (next *http.Request, wait time.Duration) {
	p := refusal(resp)
	if p == nil {
		return nil, 0
	}
	next = first.Clone(first.Context())
	if p.Type == ProblemOwner {
		to, err := CheckAddress(p.Address)
		if err != nil || !t.o.Allow(to) {
			return nil, 0
		}
		direct(next, to)
	} else {
		wait = pause(resp, t.o.Wait)
	}
	_ = resp.Body.Close() // it was read
	return next, wait
}

// direct sets the address that a request goes to.
func direct(r *http.Request, to *url.URL) {
	if r.Host == "" {
		r.Host = r.URL.Host // the site of the request does not change
	}
	r.URL.Scheme, r.URL.Host = to.Scheme, to.Host
}

// refusal returns the document of an answer if nothing was done, or nil. The answer stays readable.
func refusal(resp *http.Response) *problem.Document {
	if resp.StatusCode != http.StatusMisdirectedRequest && resp.StatusCode != http.StatusServiceUnavailable {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, problem.MaxBytes+1))
	resp.Body = rest(body, resp.Body)
	if err != nil || len(body) > problem.MaxBytes {
		return nil
	}
	seen := *resp
	seen.Body = rest(body, nil)
	p := readProblem(&seen)
	switch {
	case p == nil:
	case p.Type == ProblemOwner && resp.StatusCode == http.StatusMisdirectedRequest:
		return p
	case (p.Type == ProblemUnowned || p.Type == ProblemUnreachable) && resp.StatusCode == http.StatusServiceUnavailable:
		return p
	}
	return nil
}

// rest returns a body of which a part was read.
func rest(read []byte, body io.ReadCloser) io.ReadCloser { return &remainder{read, body} }

type remainder struct {
	read []byte
	body io.ReadCloser // nil: the body has ended
}

func (b *remainder) Read(p []byte) (int, error) {
	if len(b.read) > 0 {
		n := copy(p, b.read)
		b.read = b.read[n:]
		return n, nil
	}
	if b.body == nil {
		return 0, io.EOF
	}
	return b.body.Read(p)
}

func (b *remainder) Close() error {
	if b.body == nil {
		return nil
	}
	return b.body.Close()
}
