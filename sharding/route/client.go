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

// ClientOptions are the options of a Client.
type ClientOptions struct {
	// Members are the URLs at which some members serve the map of owners (NewOwners), such as
	// "http://10.0.0.7:8080/owners". There are at most 1000. The Client asks one member, and if
	// that fails, the next one. Allow does not apply to them. Required.
	Members []string
	// Header is added to the requests for the map, for example a credential. It is sent only to
	// Members.
	Header http.Header
	// Allow reports whether a request, with its header and body, may be sent to an owner's
	// address. Nil, the default, allows every address that is not loopback, link-local, multicast
	// or unspecified. A name that resolves to such an address is refused in any case.
	Allow func(u *url.URL) bool
	// AddressKey is the key of a member's metadata that holds its address. Default
	// DefaultAddressKey.
	AddressKey string
	// Base sends all requests. If Base is set, Allow must be set too, because Base connects without
	// the Client's checks. The default also checks the addresses of names, uses no proxy, and
	// limits connecting to 10 s.
	Base http.RoundTripper
	// Attempts is the largest number of attempts of Do. Default 20, at most 1000.
	Attempts int
	// Wait is the longest wait before the next attempt; a change of the map ends the wait. The
	// first wait is 20 ms, and each further wait is twice as long, up to Wait. Default 1 s, at
	// most 1 min.
	Wait time.Duration
	// Logger gets a line at Warn when no member answers. The Client then continues with the map
	// that it has. Default: slog.Default at the call of NewClient.
	Logger *slog.Logger
}

// Limits of a Client.
const (
	maxMembers    = 1000
	maxMap        = 24 << 20               // bytes of an answer, unpacked
	maxMapValues  = 1_000_000              // of an answer: more than 200,000 shards have, or 100,000 ranges
	maxNewsAge    = 365 * 24 * 3600        // seconds; a larger age from a member is ignored
	pollWait      = 10 * time.Second       // how long a member is asked to wait for a change
	pollPatience  = 10 * time.Second       // additional time for its answer
	pollEvery     = 5 * time.Millisecond   // between requests
	pollIdle      = time.Second            // after an immediate answer without a change
	firstPause    = 20 * time.Millisecond  // before the second attempt
	minHurry      = time.Second            // between requests that Refresh hurries
	maxHurry      = 30 * time.Second       // if they bring nothing new
	minFailed     = 100 * time.Millisecond // after all members failed
	maxFailed     = 5 * time.Second
	followAtOnce  = 2 // answers that name an owner; later ones are followed after a pause
	maxPerHost    = 256
	idlePerClient = 1024
)

// Client sends requests to the owner of their key, in one hop and without a store. Run keeps the
// map of owners that members serve (NewOwners) up to date, and Do uses it. A map that is out of
// date does no harm: the member that it names refuses the request, and the Client follows the
// answer. A Client is safe for concurrent use.
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

// newTransport returns a transport without a proxy.
func newTransport(dial dialFunc) *http.Transport {
	return &http.Transport{
		DialContext: dial, ForceAttemptHTTP2: true, MaxIdleConns: idlePerClient, MaxIdleConnsPerHost: maxPerHost,
		IdleConnTimeout: 30 * time.Second, TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: time.Second,
	}
}

// Run keeps the map up to date until ctx ends, and then returns nil. Call Run once. When it
// returns, every goroutine has ended. Do continues with the last map.
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

// Refresh requests the map immediately, instead of waiting until a member reports a change. It does not
// wait, and has an effect at most once a second. Do calls it.
func (c *Client) Refresh() {
	select {
	case c.hurry <- struct{}{}:
	default:
	}
}

// Age returns the age of the map: the time since the member that last confirmed it had news from
// the store. known reports whether there is a map. The Client asks a member at least every 20 s.
// It also uses an older map, which may be out of date.
func (c *Client) Age() (age time.Duration, known bool) { return c.table.age() }

// Owner returns the owner of a key according to the known map. Meta holds the owner's addresses,
// which are not checked. The error matches sharding.ErrNoOwner.
func (c *Client) Owner(key string) (sharding.Route, error) {
	owner, _, _, err := c.table.find(key)
	return owner, err
}

// ErrAddress: the owner publishes no address, or one that is not allowed. Nothing was sent to it.
var ErrAddress error = errtext.NotApplied("the owner has no address that is allowed")

// Do sends a request to the owner of a key and returns its answer, whose body the caller closes. Do
// replaces the host of the request's URL, and keeps it as the Host header.
//
// Do tries again, at most Attempts times, if nothing was done. That is so if a Handler refused the
// request, the shard had no owner, or Do could not connect to the owner. Unless Base is set, Do
// also tries again if the owner closed an idle HTTP/1 connection before the request was written. Do
// sends a body again only if the request has GetBody, as requests of http.NewRequest have. It
// returns any other answer, including redirects, and the answer of the last attempt. After any
// other error, the request may have been done. If the shard has no owner, the error matches
// sharding.ErrNoOwner. The error may also match ErrAddress.
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
