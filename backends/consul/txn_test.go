package consul

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvkeys"
)

func verbs(r *request) string {
	var v []string
	for _, o := range r.ops {
		v = append(v, fmt.Sprint(o.KV.Verb, " ", o.KV.Key))
	}
	return strings.Join(v, ", ")
}

func TestOperations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		txn  kv.Txn
		want string
	}{
		{"a compare of a record that is put is part of the put",
			kv.Txn{If: []kv.Compare{{Key: "a", Rev: 7}}, Ops: []kv.Op{{Key: "a"}}}, "cas a"},
		{"absence too",
			kv.Txn{If: []kv.Compare{{Key: "a", Rev: kv.Absent}}, Ops: []kv.Op{{Key: "a"}}}, "cas a"},
		{"existence is read, and returns the revision before",
			kv.Txn{If: []kv.Compare{{Key: "a", Rev: kv.Exists}}, Ops: []kv.Op{{Key: "a"}}, Prev: true}, "get a, set a"},
		{"delete-cas of a missing record succeeds, so it is not used",
			kv.Txn{If: []kv.Compare{{Key: "a", Rev: 7}}, Ops: []kv.Op{{Key: "a", Delete: true}}},
			"check-index a, delete a"},
		{"conditions, puts, reads",
			kv.Txn{If: []kv.Compare{{Key: "b", Rev: kv.Absent}, {Key: "a", Rev: 3}},
				Ops: []kv.Op{{Key: "a"}, {Key: "c"}}, Then: []string{"d"}},
			"check-not-exists b, cas a, set c, get-or-empty d"},
		{"nothing is compared", kv.Txn{Ops: []kv.Op{{Key: "a"}}, Prev: true}, "get-or-empty a, set a"},
		{"tidying does not fetch the records that it removes",
			kv.Txn{If: []kv.Compare{{Key: "a", Rev: kv.Exists}}, Ops: []kv.Op{{Key: "a", Delete: true}}}, "delete a"},
	} {
		r := new(request)
		r.txn(&c.txn, 0)
		if got := verbs(r); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// TestEqualValuesDiffer: Consul ignores a write of equal bytes and flags.
func TestEqualValuesDiffer(t *testing.T) {
	t.Parallel()
	if a, b := put(verbSet, "k", []byte("v"), 0), put(verbSet, "k", []byte("v"), 0); a.KV.Flags == b.KV.Flags {
		t.Errorf("two writes of one value have the flags %d", a.KV.Flags)
	}
}

// TestSharedConditions: the claims for one holder's shards share one check that the holder is
// absent. If the check fails, all claims are refused.
func TestSharedConditions(t *testing.T) {
	t.Parallel()
	r := new(request)
	for i, key := range []string{"a", "b"} {
		r.txn(&kv.Txn{If: []kv.Compare{{Key: key, Rev: 3}, {Key: "holder", Rev: kv.Absent}}, Ops: []kv.Op{{Key: key}}},
			i)
	}
	if got, want := verbs(r), "check-not-exists holder, cas a, cas b"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	failed := func(index int, what string) *reply {
		a := new(reply)
		a.Errors = append(a.Errors, struct {
			OpIndex int
			What    string
		}{index, what})
		return a
	}
	if got, err := r.refusals(failed(0, `key "holder" exists`)); err != nil || !got[0] || !got[1] {
		t.Errorf("the holder is there: refused %v, %v; want both", got, err)
	}
	if got, err := r.refusals(failed(2, "index is stale")); err != nil || got[0] || !got[1] {
		t.Errorf("b has moved: refused %v, %v; want the second", got, err)
	}
	// A removed part must not leave its condition behind.
	r.cut()
	r.txn(&kv.Txn{If: []kv.Compare{{Key: "other", Rev: kv.Absent}}, Ops: []kv.Op{{Key: "c"}}}, 1)
	r.cut()
	r.txn(&kv.Txn{If: []kv.Compare{{Key: "other", Rev: kv.Absent}}, Ops: []kv.Op{{Key: "c"}}}, 1)
	if got, want := verbs(r), "check-not-exists holder, cas a, check-not-exists other, set c"; got != want {
		t.Errorf("after a cut: got %s, want %s", got, want)
	}
}

// TestRefusedByRights: Consul reports a missing permission in the same way as a failed condition.
func TestRefusedByRights(t *testing.T) {
	t.Parallel()
	o := operation{keyOperation{Verb: verbCAS, Key: "a"}}
	for what, want := range map[string]error{
		"failed to set key \"a\", index is stale":                                   nil,
		"Permission denied: token with AccessorID 'x' lacks permission 'key:write'": driver.ErrRetry,
		"unknown KV verb \"get-or-empty\"":                                          driver.ErrUnsupported,
	} {
		if err := operationError(&o, what); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", what, err, want)
		}
	}
}

func TestWitness(t *testing.T) {
	t.Parallel()
	keys, err := kvkeys.New("n")
	if err != nil {
		t.Fatal(err)
	}
	shard := func(rev kv.Rev) kv.Pair { return kv.Pair{Key: keys.Shard("s"), Rev: rev} }
	w := &witness{keys: keys}
	w.check(kv.Pair{}, shard(5))
	before := w.now()
	w.check(kv.Pair{}, shard(9)) // learned during a read
	w.check(before, shard(5))    // a read that returns the state at its sending
	if w.rev() != 0 {
		t.Error("a read that is older than a later answer shows no step back")
	}
	w.check(w.now(), kv.Pair{Key: keys.Beat("x"), Rev: 1})
	if w.rev() != 0 || w.now().Key != keys.Shard("s") {
		t.Error("a record that is not permanent says nothing")
	}
	w.check(w.now(), shard(5))
	if w.rev() == 0 {
		t.Error("a permanent record that went back was not noticed")
	}
}

func TestCommonPrefix(t *testing.T) {
	t.Parallel()
	for want, of := range map[string][]string{
		"n/!beat/":   {"n/!beat/ab", "n/!beat/ac"},
		"n/!beat/ab": {"n/!beat/ab"},
		"n/":         {"n/!beat/", "n/!feed/"},
		"n/!feed/":   {"n/!feed/"},
	} {
		if got := commonPrefix(of); got != want {
			t.Errorf("%q: got %q, want %q", of, got, want)
		}
	}
	page := &kv.Page{Pairs: []kv.Pair{{Key: "n/a"}, {Key: "n/b"}, {Key: "n/c"}}}
	keep(page, []string{"n/a", "n/c"})
	if got := len(page.Pairs); got != 2 ||
		!slices.ContainsFunc(page.Pairs, func(p kv.Pair) bool { return p.Key == "n/c" }) {
		t.Errorf("got %v, want the records of the prefixes", page.Pairs)
	}
}
