package route

import (
	"cmp"
	"context"
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
	"github.com/tenure-go/tenure/internal/errtext"
	"github.com/tenure-go/tenure/internal/goexit"
	"github.com/tenure-go/tenure/internal/peerdial"
	"github.com/tenure-go/tenure/sharding"
)

// ClientOptions configure a Client.
type ClientOptions struct {
	// Members lists up to 1000 URLs at which members serve the map of owners (NewOwners), such as
	// "http://10.0.0.7:8080/owners". The Client requests the map from one member. If the request
	// fails, the Client tries the next member. Allow does not apply to these URLs. Members is
	// required.
	Members []string
	// Header is added to requests for the map, for example to carry a credential. Header is sent
	// only to Members.
	Header http.Header
	// Allow reports whether a request, with its header and body, may be sent to an owner's address.
	// Nil, the default, allows every address that is not loopback, link-local, multicast or
	// unspecified. A name that resolves to such an address is always refused.
	Allow func(u *url.URL) bool
	// AddressKey is the metadata key of a member's address. The default is "http".
	AddressKey string
	// Base sends all requests. If Base is set, Allow must be set as well, because Base connects
	// without the Client's checks. The default also checks the addresses to which names resolve,
	// uses no proxy, and limits each connection attempt to 10 s.
	Base http.RoundTripper
	// Attempts is the maximum number of times that Do tries to send a request. The default is 20,
	// and the maximum is 1000.
	Attempts int
	// Wait limits the wait before the next attempt. The first wait is 20 ms, and the wait doubles
	// each time, up to Wait. The wait ends early if the map changes. The default is 1 s, and the
	// maximum is 1 min.
	Wait time.Duration
	// Logger receives a line at Warn when no member answers. The Client then continues with its
	// copy of the map. The default is the result of slog.Default when NewClient is called.
	Logger *slog.Logger
}

const (
	maxMembers    = 1000
	maxMap        = 24 << 20               // maximum size of an uncompressed answer, in bytes
	maxMapValues  = 1_000_000              // maximum number of values in an answer; 200,000 shards or 100,000 ranges have fewer
	maxNewsAge    = 365 * 24 * 3600        // seconds; a larger age from a member is ignored
	pollWait      = 10 * time.Second       // how long a member should wait for a change
	pollPatience  = 10 * time.Second       // additional time for the member's answer
	pollEvery     = 5 * time.Millisecond   // minimum time between requests
	pollIdle      = time.Second            // wait after an immediate answer without a change
	firstPause    = 20 * time.Millisecond  // wait before the second attempt
	minHurry      = time.Second            // minimum time between requests that Refresh causes
	maxHurry      = 30 * time.Second       // limit of that time while these requests return nothing new
	minFailed     = 100 * time.Millisecond // shortest wait after all members have failed
	maxFailed     = 5 * time.Second
	followAtOnce  = 2 // number of answers naming an owner that Do follows immediately; it pauses before it follows later answers
	maxPerHost    = 256
	idlePerClient = 1024
)

// Client sends each request to the owner of a key, in one hop and without a store. Run keeps a copy
// of the map of owners up to date, and Do uses this copy. Members serve the map (NewOwners). An
// outdated map does no harm: a member that does not own the key refuses the request and answers
// with the owner. The Client then sends the request to that owner. A Client is safe for concurrent
// use.
type Client struct {
	o     ClientOptions
	asks  http.RoundTripper // sends requests for the map
	base  http.RoundTripper // sends requests to owners
	own   []*http.Transport
	table table
	hurry chan struct{}
	ran   atomic.Bool
}

// NewClient returns a Client. NewClient does no I/O. The error matches core.ErrInvalid.
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
	c.o.AddressKey = cmp.Or(o.AddressKey, defaultAddressKey)
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
	if c.o.Logger == nil {
		c.o.Logger = slog.Default()
	}
	c.o.Logger = goexit.Logger(c.o.Logger)
	if c.asks, c.base = o.Base, o.Base; o.Base == nil {
		asks, base := newTransport((&net.Dialer{Timeout: 10 * time.Second}).DialContext),
			newTransport(counted(peerdial.Dial(o.Allow != nil, false)))
		c.asks, c.base, c.own = asks, base, []*http.Transport{asks, base}
	}
	c.table = table{key: c.o.AddressKey, changed: make(chan struct{}), learnt: map[string]learnt{}}
	return c, nil
}

func newTransport(dial dialFunc) *http.Transport {
	return &http.Transport{
		DialContext: dial, ForceAttemptHTTP2: true, MaxIdleConns: idlePerClient, MaxIdleConnsPerHost: maxPerHost,
		IdleConnTimeout: 30 * time.Second, TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: time.Second,
	}
}

// Run keeps the map up to date until ctx ends, and then returns nil. Call Run only once. When Run
// returns, every goroutine has ended. Do continues to use the last map.
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

// Refresh makes Run request the map immediately, instead of waiting until a member reports a
// change. Refresh itself does not wait, and has an effect at most once a second. Do calls Refresh
// when necessary.
func (c *Client) Refresh() {
	select {
	case c.hurry <- struct{}{}:
	default:
	}
}

// Age returns the map's age. The age is the time since the store's last answer to the member that
// last confirmed the map. Age also reports whether the Client has a map. At least every 20 s, the
// Client sends a request to a member. If no member answers, the Client continues to use its map,
// which may be out of date.
func (c *Client) Age() (age time.Duration, known bool) { return c.table.age() }

// Owner returns a key's owner according to the Client's map. Meta contains the owner's addresses,
// which are not checked. The error matches sharding.ErrNoOwner.
func (c *Client) Owner(key string) (sharding.Route, error) {
	owner, _, _, err := c.table.find(key)
	return owner, err
}

// ErrAddress means that the owner publishes no address, or publishes an address that is not
// allowed. Nothing was sent to the owner.
var ErrAddress error = errtext.NotApplied("the owner has no address that is allowed")

// Do sends a request to a key's owner and returns the answer, whose body the caller closes. Do
// replaces the host in the request's URL, and keeps the original host in the Host header.
//
// Do makes up to Attempts attempts. It tries again only if a Handler refused the request, the shard
// had no owner, or Do could not connect to the owner. In these cases, nothing was done. Unless Base
// is set, Do also tries again if the owner closed an idle HTTP/1 connection before the request was
// written. Do sends a body again only if the request has GetBody, as requests from http.NewRequest
// do. Do returns any other answer, including a redirect, and the answer to the last attempt. If the
// shard has no owner, the error matches sharding.ErrNoOwner. If the owner has no allowed address,
// the error matches ErrAddress. After any other error, the owner may have served the request.
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
			_ = resp.Body.Close() // the body has been read
		}
		if err := s.pause(); err != nil {
			s.end()
			return nil, err
		}
	}
}
