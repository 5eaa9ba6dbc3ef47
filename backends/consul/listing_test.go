package consul

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/internal/kvkeys"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

const listed, longValue = 100, 400 << 10

// A slowList returns records, nine in ten of which are long. When a record is requested, all
// earlier records must have been decoded, without the long values.
type slowList struct {
	t    *testing.T
	into *listing
	sent int
	rest string
}

func (l *slowList) RoundTrip(r *http.Request) (*http.Response, error) {
	l.into, _ = r.Context().Value(listingKey{}).(*listing)
	l.sent, l.rest = 0, "["
	return &http.Response{StatusCode: 200, Header: http.Header{"X-Consul-Index": {"9"}}, Body: io.NopCloser(l), Request: r}, nil
}

func (l *slowList) Read(p []byte) (int, error) {
	if l.rest == "" && l.sent == listed+1 {
		return 0, io.EOF
	}
	if l.rest == "" && l.sent == listed {
		l.rest, l.sent = "]", listed+1
	}
	if l.rest == "" {
		if n := len(l.into.page.Pairs); n < l.sent-1 {
			l.t.Errorf("%d of the %d records that came are decoded: the others are in memory", n, l.sent)
		}
		size := longValue
		if l.sent%10 == 0 {
			size = 10
		}
		comma := ","
		if l.sent == 0 {
			comma = ""
		}
		l.rest = fmt.Sprintf(`%s{"Key":"a/!state/%03d","Value":%q,"ModifyIndex":%d}`, comma, l.sent,
			base64.StdEncoding.EncodeToString(make([]byte, size)), l.sent+1)
		l.sent++
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// TestListing: at most one long value of a list, or of followed records, is in memory at a time.
func TestListing(t *testing.T) {
	t.Parallel()
	from := &slowList{t: t}
	cfg := api.DefaultConfig()
	cfg.Address, cfg.HttpClient = "127.0.0.1:1", &http.Client{Transport: lister{from}}
	c, err := api.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := openListing(t, shared(c, func() {}))
	read := func(what string, p *kv.Page, err error) {
		if err != nil || len(p.Pairs) != listed || p.Rev < 9 {
			t.Fatalf("%s: %v, %v", what, p, err)
		}
		for i, pair := range p.Pairs {
			if long := i%10 != 0; pair.Rev != kv.Rev(i+1) || long != (pair.Long == longValue) || long != (pair.Value == nil) || !long && len(pair.Value) != 10 {
				t.Errorf("%s: record %d is %s, revision %d, with %d bytes of %d", what, i, pair.Key, pair.Rev, len(pair.Value), pair.Long)
			}
		}
	}
	p, err := s.Range(t.Context(), kv.Range{Prefix: "a/!state/", Largest: 16 << 10})
	read("a range", p, err)
	p, err = s.wait(t.Context(), "a/!state/", 0)
	read("a blocked query", p, err)
}

// TestListingOfConfig: the package's own clients decode a list as it arrives. The server sends an
// invalid record and then nothing.
func TestListingOfConfig(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Consul-Index", "9")
		_, _ = io.WriteString(w, "[null,")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	all, err := (&Config{Address: server.URL}).slots(true, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	s := openListing(t, all[0])
	if _, err := s.Range(ctx, kv.Range{Prefix: "a/!state/"}); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "null") {
		t.Errorf("a list that does not end: %v", err)
	}
}

func openListing(t *testing.T, at *slots) *store {
	t.Helper()
	o, err := (*Options)(nil).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	keys, err := kvkeys.New("a")
	if err != nil {
		t.Fatal(err)
	}
	s := newStore([]*slots{at}, keys, o)
	t.Cleanup(func() { _ = s.Close() })
	return s
}
