package route

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/tenure-go/tenure/core"
)

// TransportOptions of a Transport.
type TransportOptions struct {
	// Allow has to allow an address that an answer names before the request, with its
	// header and body, is sent there. Required: a server that is not trusted could have
	// credentials sent anywhere.
	Allow func(u *url.URL) bool
	// Base does the requests. Default http.DefaultTransport.
	Base http.RoundTripper
	// Attempts is how often a request is sent at most. Default 5, at most 100.
	Attempts int
	// Wait is the longest wait before the next attempt where nobody owns the shard.
	// Default 1 s, at most 1 min.
	Wait time.Duration
}

// Transport is an http.RoundTripper that sends a request again, to the owner that a
// Handler has answered with, or a little later where the shard had none. Only answers are
// followed by which nothing was done; a body is sent again only if the request has
// GetBody, as those of http.NewRequest have. After the last attempt the answer is the
// caller's. Safe for concurrent use.
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

// next is the request that follows an answer, nil for none: then the answer is as it was.
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

// direct has a request go to an address.
func direct(r *http.Request, to *url.URL) {
	if r.Host == "" {
		r.Host = r.URL.Host // whose site it is does not change on the way
	}
	r.URL.Scheme, r.URL.Host = to.Scheme, to.Host
}

// refusal is the Problem of an answer by which nothing was done, or nil. The answer is as it was.
func refusal(resp *http.Response) *Problem {
	if resp.StatusCode != http.StatusMisdirectedRequest && resp.StatusCode != http.StatusServiceUnavailable {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem+1))
	resp.Body = rest(body, resp.Body)
	if err != nil || len(body) > maxProblem {
		return nil
	}
	seen := *resp
	seen.Body = rest(body, nil)
	p := ReadProblem(&seen)
	switch {
	case p == nil:
	case p.Type == ProblemOwner && resp.StatusCode == http.StatusMisdirectedRequest:
		return p
	case (p.Type == ProblemUnowned || p.Type == ProblemUnreachable) && resp.StatusCode == http.StatusServiceUnavailable:
		return p
	}
	return nil
}

// rest is a body of which a part was read.
func rest(read []byte, body io.ReadCloser) io.ReadCloser { return &remainder{read, body} }

type remainder struct {
	read []byte
	body io.ReadCloser // nil: no more
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
