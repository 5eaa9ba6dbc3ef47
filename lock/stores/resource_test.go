package stores_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/ample"
)

// resource contains the data that the locks protect, which is a counter for each name. A holder
// reads the counter and writes the value plus one.
type resource struct {
	*httptest.Server
	fenced bool // it refuses tokens lower than the greatest token that it has seen, even from readers

	mu       sync.Mutex
	rng      *rand.Rand
	counters map[string]*counter
	refused  int
	hold     *hold
}

type counter struct {
	value  int
	seen   int64   // the greatest token
	writes []write // that were accepted, in this order
}

type write struct {
	token int64
	pid   int
	value int
}

// hold intercepts a process's next request of one kind, and delays that request.
type hold struct {
	path    string
	pid     int
	name    string // of the request
	token   int64
	caught  chan struct{}
	release chan struct{}
}

func newResource(t *testing.T, fenced bool, seed uint64) *resource {
	r := &resource{fenced: fenced, rng: rand.New(rand.NewPCG(seed, 3)), counters: map[string]*counter{}}
	for i := range names {
		r.counters[name(i)] = &counter{}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /read", r.read)
	mux.HandleFunc("POST /write", r.write)
	r.Server = httptest.NewServer(mux)
	t.Cleanup(r.Close)
	return r
}

// read answers with the counter. The counter is read before a reply is held back.
func (r *resource) read(w http.ResponseWriter, q *http.Request) {
	token, pid := r.arrives(q)
	r.mu.Lock()
	c := r.counters[q.FormValue("name")]
	admitted, value := r.admit(c, token), c.value
	r.mu.Unlock()
	r.holds(q, pid, token)
	if !admitted {
		http.Error(w, "the token is not the greatest", http.StatusPreconditionFailed)
		return
	}
	_, _ = fmt.Fprint(w, value)
}

// write sets the counter. A request that is held back arrives late.
func (r *resource) write(w http.ResponseWriter, q *http.Request) {
	token, pid := r.arrives(q)
	value, err := strconv.Atoi(q.FormValue("value"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.holds(q, pid, token)
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counters[q.FormValue("name")]
	if !r.admit(c, token) {
		r.refused++
		http.Error(w, "the token is not the greatest", http.StatusPreconditionFailed)
		return
	}
	c.value = value
	c.writes = append(c.writes, write{token, pid, value})
}

// arrives delays a request by a random time.
func (r *resource) arrives(q *http.Request) (token int64, pid int) {
	token, _ = strconv.ParseInt(q.FormValue("token"), 10, 64)
	pid, _ = strconv.Atoi(q.FormValue("pid"))
	r.mu.Lock()
	d := time.Duration(r.rng.Int64N(int64(2 * time.Millisecond)))
	r.mu.Unlock()
	time.Sleep(d)
	return token, pid
}

// admit compares a token. It returns false if the request must be refused. The caller holds r.mu.
func (r *resource) admit(c *counter, token int64) bool {
	if token < c.seen {
		return !r.fenced
	}
	c.seen = token
	return true
}

func (r *resource) holds(q *http.Request, pid int, token int64) {
	r.mu.Lock()
	h := r.hold
	if h == nil || h.pid != pid || h.path != q.URL.Path {
		r.mu.Unlock()
		return
	}
	r.hold = nil
	r.mu.Unlock()
	h.name, h.token = q.FormValue("name"), token
	close(h.caught)
	<-h.release
}

// catch holds back a process's next request to a path, or returns nil if no such request arrives.
func (r *resource) catch(pid int, path string) *hold {
	h := &hold{path: path, pid: pid, caught: make(chan struct{}), release: make(chan struct{})}
	r.mu.Lock()
	r.hold = h
	r.mu.Unlock()
	select {
	case <-h.caught:
		return h
	case <-time.After(ample.Time):
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hold == nil { // at the last moment
		close(h.release)
	}
	r.hold = nil
	return nil
}

// overtaken reports whether a write was accepted whose token is greater than that of a held
// request.
func (r *resource) overtaken(h *hold) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.counters[h.name].writes {
		if w.token > h.token {
			return true
		}
	}
	return false
}

// counts returns the number of accepted writes of each name.
func (r *resource) counts() (out [names]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range names {
		out[i] = len(r.counters[name(i)].writes)
	}
	return out
}

// judge finds violations that fenced locks prevent: lost updates, and accepted writes whose token
// is not greater than all earlier tokens. Each write is made under a new lock with a new token.
func judge(writes []write) (disordered, lost []string) {
	value, newest := 0, write{}
	for i, w := range writes {
		if w.token <= newest.token {
			disordered = append(disordered, fmt.Sprintf("write %d has token %d of process %d, after token %d of process %d",
				i+1, w.token, w.pid, newest.token, newest.pid))
		} else {
			newest = w
		}
		if w.value != value+1 {
			lost = append(lost, fmt.Sprintf("write %d of process %d makes the counter %d, where it was %d", i+1, w.pid, w.value, value))
		}
		value = w.value
	}
	return disordered, lost
}

// TestJudge: judge finds each kind of damage, and reports no damage if there is none.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name             string
		writes           []write
		disordered, lost int
	}{
		{"in order", []write{{1, 7, 1}, {2, 8, 2}, {5, 7, 3}}, 0, 0},
		{"a stopped holder writes", []write{{1, 7, 1}, {3, 8, 2}, {2, 7, 2}, {4, 8, 3}}, 1, 1},
		{"two holders under one token", []write{{1, 7, 1}, {1, 8, 2}}, 1, 0},
		{"a lower token after two greater ones", []write{{3, 7, 1}, {1, 8, 2}, {2, 7, 3}}, 2, 0},
		{"both have read before", []write{{1, 7, 1}, {2, 8, 1}}, 0, 1},
	} {
		disordered, lost := judge(c.writes)
		if len(disordered) != c.disordered || len(lost) != c.lost {
			t.Errorf("%s: %q, %q", c.name, disordered, lost)
		}
	}
}

// TestResource: with the fence, the resource refuses lower tokens, even from readers. Without the
// fence, it refuses no tokens.
func TestResource(t *testing.T) {
	for _, fenced := range []bool{true, false} {
		r := newResource(t, fenced, 1)
		for _, c := range []struct {
			path   string
			token  int
			status int
		}{{"/read", 1, 200}, {"/read", 2, 200}, {"/write", 1, 412}, {"/write", 2, 200}, {"/read", 1, 412}, {"/write", 3, 200}} {
			want := c.status
			if !fenced {
				want = http.StatusOK
			}
			res, err := http.Post(fmt.Sprintf("%s%s?name=%s&value=1&token=%d", r.URL, c.path, name(0), c.token), "", nil)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != want {
				t.Errorf("fenced %v: %s with token %d: %s", fenced, c.path, c.token, res.Status)
			}
		}
	}
}
