package stores_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

type mode string

const (
	keyed  mode = "keys"   // one charge for each idempotency key
	plain  mode = "plain"  // a charge for each request; it reports whether it has charged a key
	fenced mode = "tokens" // like plain, but it refuses requests and questions with lower tokens
)

// provider receives effects. It charges, and loses requests and replies.
type provider struct {
	mode mode
	*httptest.Server
	requests, lostRequests, lostReplies, busy, refused atomic.Int64

	mu      sync.Mutex
	rng     *rand.Rand
	charges map[string]int
	token   int64 // the highest token seen
	leader  int   // the process that sent that token
}

func newProvider(t *testing.T, m mode, seed uint64) *provider {
	p := &provider{mode: m, rng: rand.New(rand.NewPCG(seed, 3)), charges: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charge", p.charge)
	mux.HandleFunc("POST /find", p.find)
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// admit records a request's token. It returns false if the request must be refused.
func (p *provider) admit(r *http.Request) bool {
	token, _ := strconv.ParseInt(r.FormValue("token"), 10, 64)
	pid, _ := strconv.Atoi(r.FormValue("pid"))
	if token >= p.token {
		p.token, p.leader = token, pid
		return true
	}
	return p.mode != fenced
}

func (p *provider) charge(w http.ResponseWriter, r *http.Request) {
	p.requests.Add(1)
	p.mu.Lock()
	dice, part := p.rng.IntN(1000), p.rng.Float64()
	p.mu.Unlock()
	before := time.Duration(part * float64(*latency))
	time.Sleep(before)
	switch {
	case dice < 10:
		p.busy.Add(1)
		http.Error(w, "busy: nothing happened", http.StatusServiceUnavailable)
		return
	case dice < 20 && p.mode != plain: // a plain provider cannot report whether such a request is on its way
		p.lostRequests.Add(1)
		hangUp(w)
		return
	}
	id := r.FormValue("id")
	p.mu.Lock()
	admitted := p.admit(r)
	if admitted && (p.mode != keyed || p.charges[id] == 0) {
		p.charges[id]++
	}
	p.mu.Unlock()
	if !admitted {
		p.refused.Add(1)
		http.Error(w, "the token is not the highest: nothing happened", http.StatusPreconditionFailed)
		return
	}
	time.Sleep(*latency - before)
	if dice < 40 {
		p.lostReplies.Add(1)
		hangUp(w)
		return
	}
	_, _ = fmt.Fprintf(w, "receipt of %s", id)
}

// find returns how often an id was charged.
func (p *provider) find(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.admit(r) {
		http.Error(w, "the token is not the highest", http.StatusPreconditionFailed)
		return
	}
	_, _ = fmt.Fprint(w, p.charges[r.FormValue("id")])
}

func hangUp(w http.ResponseWriter) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		c.Close()
	}
}

// seen returns the number of ids that were charged, and the process that sent the highest token.
func (p *provider) seen() (ids, leader int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.charges), p.leader
}
