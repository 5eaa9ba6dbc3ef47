package effect

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// TestNotSentErrors: only errors from dialing and from looking up a name are NotDone.
func TestNotSentErrors(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	_, refused := gone.Client().Post(gone.URL, "text/plain", strings.NewReader("x")) //nolint:bodyclose // there is none
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	read := &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset")}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{refused, true},
		{&url.Error{Op: "Post", URL: "http://x", Err: dial}, true},
		{fmt.Errorf("charge: %w", &url.Error{Op: "Post", URL: "http://x", Err: dial}), true},
		{&url.Error{Op: "Post", URL: "http://x", Err: &net.OpError{Op: "proxyconnect", Net: "tcp", Err: dial}}, true},
		{&net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}, true},
		{&url.Error{Op: "Post", URL: "http://x", Err: &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host"}}}, true},
		{&url.Error{Op: "Post", URL: "http://x", Err: read}, false},
		{&url.Error{Op: "Post", URL: "http://x", Err: &net.OpError{Op: "write", Err: errors.New("broken pipe")}}, false},
		{&url.Error{Op: "Post", URL: "http://x", Err: io.EOF}, false},
		{context.DeadlineExceeded, false},
		{errors.Join(read, dial), false},
		{fmt.Errorf("%w, then %w", read, dial), false},
	} {
		got, ok := errors.AsType[*certain](NotSent(c.err))
		if ok != c.want || ok && (got.final || !got.unsent) || !errors.Is(NotSent(c.err), c.err) {
			t.Errorf("%v: got %+v, want that it is not done: %v", c.err, got, c.want)
		}
	}
	if NotSent(nil) != nil {
		t.Error("an error for none")
	}
}

// TestNotSent: a request that got no connection is attempted again. If a request was redirected, or
// if http.Transport repeated it, the receiver may have served it, so the error from the last
// connection proves nothing.
func TestNotSent(t *testing.T) {
	bubble(t, func(w *world) {
		for name, c := range map[string]struct {
			refused, served int    // numbers of connections, in this order; later ones are refused
			answer          string // to the first request; if empty, the request is read, and the connection is closed
			calls           int
			want            error
		}{
			"refused, then served": {refused: 2, served: 1, answer: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", calls: 3},
			"redirected":           {served: 1, answer: "HTTP/1.1 303 See Other\r\nLocation: http://b/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", calls: 1, want: ErrInDoubt},
			"repeated":             {served: 1, calls: 1, want: ErrInDoubt},
		} {
			w.shard = strings.ReplaceAll(name, ", ", "-")[:8]
			p := w.lead("n1")
			l := p.open(Options{})
			dials := 0
			client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
				if dials++; dials <= c.refused || dials > c.refused+c.served {
					return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
				}
				ours, theirs := net.Pipe()
				go serveOnce(theirs, c.answer)
				return ours, nil
			}}}
			calls := 0
			_, err := w.do(l, "pay/1", func(ctx context.Context, id string) ([]byte, error) {
				calls++
				if name == "repeated" { // on a connection that was used before
					if resp, err := get(ctx, client); err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
				}
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://a/", strings.NewReader("x"))
				if err != nil {
					return nil, err
				}
				r.Header.Set("Idempotency-Key", id)
				resp, err := client.Do(r)
				if err != nil {
					return nil, NotSent(err)
				}
				return nil, resp.Body.Close()
			})
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || calls != c.calls {
				w.Errorf("%s: got %v after %d calls, want %v after %d", name, err, calls, c.want, c.calls)
			}
			client.CloseIdleConnections()
			l.Close()
			p.resign()
		}
	})
}

// get sends an earlier request, whose context does not come from the ledger.
func get(_ context.Context, client *http.Client) (*http.Response, error) {
	return client.Get("http://a/warm")
}

// serveOnce answers the requests on a connection up to the first POST, to which it sends the given
// answer.
func serveOnce(c net.Conn, answer string) {
	defer c.Close()
	for in := bufio.NewReader(c); ; {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodPost {
			_, _ = io.WriteString(c, answer)
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}
}
