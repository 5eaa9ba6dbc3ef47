package route

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/peerdial"
	"github.com/tenure-go/tenure/sharding"
)

// ClientOptions of a Client.
type ClientOptions struct {
	// Members are the URLs of the maps of owners (NewOwners) of some members, at most 1000:
	// "http://10.0.0.7:8080/owners". The Client asks one of them, and the next one when it
	// fails. They need no Allow. Required.
	Members []string
	// Header goes with the requests for the map, such as a credential, and to Members only.
	Header http.Header
	// Allow has to allow an owner's address before a request, with its header and body, is
	// sent there. Nil, the default, allows those that are not loopback, link-local, multicast
	// or unspecified. A name that resolves to one of these is refused in any case.
	Allow func(u *url.URL) bool
	// AddressKey is the key of a member's metadata that holds its address. Default
	// DefaultAddressKey.
	AddressKey string
	// Base does all requests, and needs Allow, as it connects as it likes. Default: one that
	// heeds what Allow says of names, asks no proxy, and has 10 s to connect.
	Base http.RoundTripper
	// Attempts is how often Do tries at most. Default 20, at most 1000.
	Attempts int
	// Wait is the longest wait before the next attempt, unless the map changes before. The
	// first waits are shorter: 20 ms, doubled each time. Default 1 s, at most 1 min.
	Wait time.Duration
	// OnError is called when no member answers: the Client goes on with the map that it has.
	// It is called from Run, which it must not hold up. Default: a line at Warn to slog.Default.
	OnError func(error)
}

// Bounds of a Client.
const (
	maxMembers    = 1000
	maxMap        = 64 << 20               // bytes of an answer, unpacked
	maxNewsAge    = 365 * 24 * 3600        // seconds; a member that tells more is not believed
	pollWait      = 10 * time.Second       // a member is asked to wait so long for a change
	pollPatience  = 10 * time.Second       // and has that time to answer
	pollEvery     = 5 * time.Millisecond   // between requests
	pollIdle      = time.Second            // after an answer that came at once, and has nothing new
	firstPause    = 20 * time.Millisecond  // before the second attempt
	minHurry      = time.Second            // between requests that Refresh hurries
	maxHurry      = 30 * time.Second       // if they bring nothing new
	minFailed     = 100 * time.Millisecond // after all members failed
	maxFailed     = 5 * time.Second
	followAtOnce  = 2 // answers that name an owner; later ones are followed after a pause
	maxPerHost    = 256
	idlePerClient = 1024
)

// Client sends requests to the owner of their key, in one hop and without a store: Run keeps the
// map of owners that members serve (NewOwners), and Do goes by it. A map that is out of date does
// no harm: the member that it names refuses, and the Client follows what it answers. Safe for
// concurrent use.
type Client struct {
	o     ClientOptions
	asks  http.RoundTripper // for the map
	base  http.RoundTripper // to owners
	own   []*http.Transport
	table table
	hurry chan struct{}
	ran   atomic.Bool
}

// NewClient returns a Client. It does no I/O. The error matches core.ErrInvalid.
func NewClient(o *ClientOptions) (*Client, error) {
	bad := func(format string, args ...any) (*Client, error) {
		return nil, fmt.Errorf("tenure: %w: %s", core.ErrInvalid, fmt.Sprintf(format, args...))
	}
	if o == nil || len(o.Members) == 0 || len(o.Members) > maxMembers {
		return bad("a Client needs 1 to %d Members: URLs such as http://10.0.0.7:8080/owners", maxMembers)
	}
	for i, m := range o.Members {
		u, err := url.Parse(m)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return bad("member %d of Members: write it as http://host:port/owners, a credential into Header", i)
		}
	}
	c := &Client{o: *o, hurry: make(chan struct{}, 1)}
	c.o.Members, c.o.Header = slices.Clone(o.Members), o.Header.Clone()
	c.o.AddressKey = cmp.Or(o.AddressKey, DefaultAddressKey)
	c.o.Attempts = cmp.Or(o.Attempts, 20)
	c.o.Wait = cmp.Or(o.Wait, time.Second)
	switch {
	case c.o.Attempts < 1 || c.o.Attempts > 1000:
		return bad("Attempts %d is outside 1 to 1000", o.Attempts)
	case c.o.Wait < 0 || c.o.Wait > time.Minute:
		return bad("Wait %v is outside 0 to 1m", o.Wait)
	case o.Base != nil && o.Allow == nil:
		return bad("Base needs Allow: say to which addresses requests may go")
	}
	if c.o.OnError == nil {
		c.o.OnError = func(err error) { slog.Warn("tenure: route: no member answers", slog.Any("error", err)) }
	}
	if c.asks, c.base = o.Base, o.Base; o.Base == nil {
		asks, base := newTransport((&net.Dialer{Timeout: 10 * time.Second}).DialContext), newTransport(counted(peerdial.Dial(o.Allow != nil)))
		c.asks, c.base, c.own = asks, base, []*http.Transport{asks, base}
	}
	c.table = table{key: c.o.AddressKey, changed: make(chan struct{}), learnt: map[string]learnt{}}
	return c, nil
}

// newTransport asks no proxy.
func newTransport(dial dialFunc) *http.Transport {
	return &http.Transport{
		DialContext: dial, ForceAttemptHTTP2: true, MaxIdleConns: idlePerClient, MaxIdleConnsPerHost: maxPerHost,
		IdleConnTimeout: 30 * time.Second, TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: time.Second,
	}
}

// Run keeps the map until ctx ends, and returns nil then. Run is called once. Every goroutine is
// joined when it returns; Do goes on with the last map.
func (c *Client) Run(ctx context.Context) error {
	if c.ran.Swap(true) {
		return fmt.Errorf("tenure: %w: Run is called once; make another Client", core.ErrStopped)
	}
	defer func() {
		for _, t := range c.own {
			t.CloseIdleConnections()
		}
	}()
	p := &poll{c: c, at: rand.IntN(len(c.o.Members)), hurry: minHurry}
	for ctx.Err() == nil {
		p.once(ctx)
	}
	return nil
}

// Refresh asks for the map at once, instead of waiting for a member to tell what changed. It does
// not wait, and it is heeded once a second at most. Do calls it.
func (c *Client) Refresh() {
	select {
	case c.hurry <- struct{}{}:
	default:
	}
}

// Age is how old the newest news from the store is of the member that confirmed the map last, and
// whether there is a map. Members are asked at least every 20 s; a map that is older is served, too,
// and may be out of date.
func (c *Client) Age() (age time.Duration, known bool) { return c.table.age() }

// Owner returns the owner of a key by the map that is known. Meta has its addresses, which are
// not checked. The error matches sharding.ErrNoOwner.
func (c *Client) Owner(key string) (sharding.Route, error) {
	owner, _, _, err := c.table.find(key)
	return owner, err
}

// ErrAddress: the owner tells no address, or one that is not allowed. Nothing was sent to it.
var ErrAddress = errors.New("the owner has no address that is allowed")

// Do sends a request to the owner of a key and returns its answer, whose body the caller closes.
// The host of the request's URL is replaced; it stays as the Host header.
//
// Do tries again, at most Attempts times, where nothing was done: a Handler refused the request,
// nobody owned the shard, or the owner could not be connected to. It does so, too, if the owner
// closed an idle connection of HTTP/1 before the request was written to it, but not with Base. A
// body is sent again only if the request has GetBody, as those of http.NewRequest have. Any other
// answer is the caller's, redirects too, and so is the answer of the last attempt. After another
// error the request may have been done. The error matches sharding.ErrNoOwner where nobody owned the shard, and
// ErrAddress.
func (c *Client) Do(key string, r *http.Request) (*http.Response, error) {
	s := &sending{c: c, key: key, first: r}
	for {
		s.attempt++
		resp, undone, err := s.try()
		if !undone || s.attempt == c.o.Attempts || !again(r) {
			s.end()
			return resp, err
		}
		if resp != nil {
			_ = resp.Body.Close() // it was read
		}
		if err := s.pause(); err != nil {
			s.end()
			return nil, err
		}
	}
}
