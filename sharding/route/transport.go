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

// TransportOptions configure a Transport.
type TransportOptions struct {
	// Allow reports whether the request, with its header and body, may be sent to an address from
	// an answer. Allow is required, because an untrusted server could otherwise make the Transport
	// send credentials to any address.
	Allow func(u *url.URL) bool
	// Base sends the requests. The default is http.DefaultTransport.
	Base http.RoundTripper
	// Attempts is the maximum number of times that the Transport sends a request. The default is 5,
	// and the maximum is 100.
	Attempts int
	// Wait limits the wait before the next attempt if the shard has no owner. The default is 1 s,
	// and the maximum is 1 min.
	Wait time.Duration
}

// Transport is an http.RoundTripper that sends a request again if a Handler refused it. The
// Transport sends the request to the owner in the answer. If the shard had no owner, it tries again
// a little later. It sends a request again only if the answer states that nothing was done. It
// sends a body again only if the request has GetBody, as requests from http.NewRequest do.
// RoundTrip returns the answer to the last attempt. A Transport is safe for concurrent use.
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

func again(r *http.Request) bool { return r.Body == nil || r.Body == http.NoBody || r.GetBody != nil }

// If no further request should be sent, next returns nil and leaves the answer unchanged.
func (t *Transport) next(first *http.Request, resp *http.Response) (next *http.Request, wait time.Duration) {
	p := refusal(resp)
	if p == nil {
		return nil, 0
	}
	next = first.Clone(first.Context())
	if p.Type == problemOwner {
		to, err := checkAddress(p.Address)
		if err != nil || !t.o.Allow(to) {
			return nil, 0
		}
		direct(next, to)
	} else {
		wait = pause(resp, t.o.Wait)
	}
	_ = resp.Body.Close() // the body has been read
	return next, wait
}

func direct(r *http.Request, to *url.URL) {
	if r.Host == "" {
		r.Host = r.URL.Host // the request keeps its original host
	}
	r.URL.Scheme, r.URL.Host = to.Scheme, to.Host
}

// If nothing was done, refusal returns the problem document in the answer. The caller can still
// read the answer's body.
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
	case p.Type == problemOwner && resp.StatusCode == http.StatusMisdirectedRequest:
		return p
	case (p.Type == problemUnowned || p.Type == problemUnreachable) && resp.StatusCode == http.StatusServiceUnavailable:
		return p
	}
	return nil
}

// The first part of the answer's body has already been read.
func rest(read []byte, body io.ReadCloser) io.ReadCloser { return &remainder{read, body} }

type remainder struct {
	read []byte
	body io.ReadCloser // nil once the body has ended
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
