package main

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
)

// A provider stands for a payment provider. It charges once for each idempotency key, and hangs up
// instead of every third answer. It is safe for concurrent use.
type provider struct {
	half chan struct{} // closed when half of the payments are charged

	mu       sync.Mutex
	due      []payment
	receipts map[string]string // by idempotency key
	charged  map[string]int    // by order: how often
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
		panic(http.ErrAbortHandler) // it has charged, and the answer is lost
	}
	_, _ = fmt.Fprint(w, p.receipts[id])
}

// check reports the charges, and returns an error if a payment was not charged exactly once.
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
