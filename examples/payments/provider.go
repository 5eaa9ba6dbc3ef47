package main

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
)

// A provider charges once for each idempotency key, and closes the connection instead of sending
// every third answer. A provider is safe for concurrent use.
type provider struct {
	half chan struct{} // closed when half of the payments are charged

	mu       sync.Mutex
	due      []payment
	receipts map[string]string // the receipts by idempotency key
	charged  map[string]int    // number of charges, by order
	requests int
}

func newProvider(due []payment) *provider {
	return &provider{half: make(chan struct{}), due: due, receipts: map[string]string{}, charged: map[string]int{}}
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, order := r.Header.Get("Idempotency-Key"), r.FormValue("order")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
	if p.receipts[id] == "" {
		p.charged[order]++
		p.receipts[id] = fmt.Sprintf("receipt %d", len(p.receipts)+1)
		if len(p.receipts) == len(p.due)/2 {
			close(p.half)
		}
	}
	if p.requests%3 == 0 {
		panic(http.ErrAbortHandler) // the provider has charged, and the answer is lost
	}
	_, _ = fmt.Fprint(w, p.receipts[id])
}

// Each payment must have been charged exactly once.
func (p *provider) check() (report string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.due {
		if n := p.charged[d.order]; n != 1 {
			err = errors.Join(err, fmt.Errorf("%s was charged %d times", d.order, n))
		}
	}
	return fmt.Sprintf("%d payments, %d requests, %d answers lost, %d charges", len(p.due), p.requests, p.requests/3, len(p.receipts)), err
}
