package consul

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/tenure-go/tenure/backends/kv"
)

// listing is a list of records that is decoded as it arrives, so that no long value stays in
// memory. With the caller's own client, the whole answer is decoded instead.
type listing struct {
	largest int // longest value to keep, in bytes; 0: any
	page    kv.Page
}

type listingKey struct{}

// lister is a transport that decodes an answer into the request's listing.
type lister struct{ http.RoundTripper }

func (t lister) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	into, _ := r.Context().Value(listingKey{}).(*listing)
	if err != nil || into == nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	defer resp.Body.Close()
	if err := into.read(resp.Body); err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(strings.NewReader("[]"))
	return resp, nil
}

func (l *listing) read(from io.Reader) error {
	d := json.NewDecoder(from)
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return errors.Join(err, errors.New("it answered without a list"))
	}
	for d.More() {
		var p *api.KVPair
		if err := d.Decode(&p); err != nil {
			return err
		}
		if err := l.add(p); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

func (l *listing) add(p *api.KVPair) error {
	if p == nil || p.Key == "" || p.ModifyIndex == 0 {
		return errors.New("it answered with a record that is null, or without a key or an index")
	}
	if err := possible(p.ModifyIndex); err != nil {
		return err
	}
	pair := (&entry{Key: p.Key, Value: p.Value, ModifyIndex: p.ModifyIndex}).pair()
	pair.Cut(l.largest)
	l.page.Pairs = append(l.page.Pairs, pair)
	return nil
}
