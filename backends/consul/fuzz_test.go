package consul

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/changelog"
	"github.com/tenure-go/tenure/internal/kvkeys"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

// answering is a server that gives every request the same answer.
type answering struct {
	status int
	index  string
	body   []byte
}

func (a *answering) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return nil, err
		}
		req.Body.Close()
	}
	return &http.Response{
		Status: strconv.Itoa(a.status), StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Request: req,
		Header:  http.Header{"X-Consul-Index": {a.index}}, Body: io.NopCloser(bytes.NewReader(a.body)),
	}, nil
}

// FuzzAnswers gives arbitrary answers to each kind of request. Each result is an error or valid. No
// record has an impossible revision, and no call hangs or panics.
func FuzzAnswers(f *testing.F) {
	const ns, key = "a", "a/!state/shard/s"
	for _, body := range []string{
		`[{"Key":"` + key + `","Value":"MQ==","ModifyIndex":7,"CreateIndex":7,"Flags":1}]`,
		`["` + key + `"]`,
		`[null]`,
		`null`,
		`{"Results":[null]}`,
		`{"Results":[{"KV":null}]}`,
		`{"Results":[{"KV":{"Key":"` + key + `","ModifyIndex":18446744073709551615}}],"Errors":[]}`,
		`{"Results":[{"KV":{"Key":"a/!id","ModifyIndex":3}},{"KV":{"Key":"` + key +
			`","Value":"MQ==","ModifyIndex":9}}]}`,
		`{"Errors":[{"OpIndex":0,"What":"index is stale"},{"OpIndex":-1,"What":""},null]}`,
	} {
		for _, status := range []int{200, 409, 500} {
			f.Add(status, "12", []byte(body))
		}
	}
	f.Add(200, "18446744073709551615", []byte(`[]`))
	f.Add(200, "-1", []byte(`[]`))
	f.Fuzz(func(t *testing.T, status int, index string, body []byte) {
		if status < 100 || status > 599 {
			return // no HTTP
		}
		cfg := api.DefaultConfig()
		cfg.Address, cfg.HttpClient = "127.0.0.1:1", &http.Client{Transport: &answering{status, index, body}}
		c, err := api.NewClient(cfg)
		if err != nil {
			t.Fatal(err)
		}
		o, err := (*Options)(nil).withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		keys, err := kvkeys.New(ns)
		if err != nil {
			t.Fatal(err)
		}
		s := newStore([]*slots{shared(c, func() {})}, keys, o)
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
		defer cancel()
		page := func(what string, p *kv.Page, err error) {
			if err != nil {
				return
			}
			if p.Rev < 0 {
				t.Errorf("%s is at revision %d", what, p.Rev)
			}
			for _, pair := range p.Pairs {
				if pair.Rev < 0 || pair.Rev == 0 && pair.Value != nil {
					t.Errorf("%s has the record %+v", what, pair)
				}
			}
		}
		p, err := s.Get(ctx, key)
		if page("a read", p, err); err == nil && (len(p.Pairs) != 1 || p.Pairs[0].Key != key) {
			t.Errorf("a read of %s has %+v", key, p.Pairs)
		}
		p, err = s.Range(ctx, kv.Range{Prefix: ns + "/!state/"})
		page("a range", p, err)
		p, err = s.Range(ctx, kv.Range{Prefix: ns + "/!state/", Limit: 3, KeysOnly: true})
		page("a range of keys", p, err)
		p, err = s.Range(ctx, kv.Range{Prefix: ns + "/!state/", Limit: 3})
		page("a part of a range", p, err)
		stop := errors.New("stop")
		if err := s.Follow(ctx, []string{ns + "/!feed/"},
			func(p *kv.Page) error { page("a watch", p, nil); return stop }); err == nil {
			t.Error("a watch ended without an error")
		}
		out, err := s.Apply(ctx, &changelog.Batch{Batch: kv.Batch{
			Guard: []kv.Compare{{Key: "a/!id", Rev: 3}},
			Txns: []kv.Txn{
				{If: []kv.Compare{{Key: key, Rev: 8}}, Ops: []kv.Op{{Key: key, Value: []byte("2")}}, Else: []string{key}, Prev: true},
				{Ops: []kv.Op{{Key: "a/!item/s/x", Delete: true}}, Then: []string{key}},
			},
		}})
		if err == nil {
			outcome(t, out)
		} else if errors.Is(err, driver.ErrStoreChanged) {
			t.Errorf("an answer passes for a changed store: %v", err)
		}
		if err := ctx.Err(); err != nil {
			t.Error("the answers take too long")
		}
	})
}

func outcome(t *testing.T, out *changelog.Outcome) {
	if !out.Refused && len(out.Results) != 2 {
		t.Fatalf("%d results of two transactions", len(out.Results))
	}
	if out.Refused && len(out.Guard) != 1 {
		t.Errorf("the guard is %+v", out.Guard)
	}
	for i, r := range out.Results {
		if r.Err == nil && (r.Rev < 0 || r.Prev < 0 || r.OK && r.Rev == 0) {
			t.Errorf("result %d is %+v", i, r)
		}
		for _, p := range r.Reads {
			if p.Rev < 0 {
				t.Errorf("result %d reads %+v", i, p)
			}
		}
	}
}
