package sqlfault

import (
	stdsql "database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
)

// CheckNames creates rows with names and tokens that no correct member writes, as a compromised
// member could. The backend must return none of these rows, and the other records must stay usable.
func CheckNames(t *testing.T, b driver.Backend, db *stdsql.DB) {
	t.Helper()
	s := Join(t, b, "n1")
	granted, _ := Acquire(t, s, Claims(4))
	escape := "\x1b[2J\n"
	statements := []string{
		"UPDATE tenure_shards SET session = 'x" + escape + "' WHERE shard = 'shard-00000'",
		"UPDATE tenure_shards SET shard = 'y" + escape + "' WHERE shard = 'shard-00002'",
		"UPDATE tenure_namespaces SET revision = revision + 1",
	}
	for _, st := range statements {
		if _, err := db.ExecContext(t.Context(), st); err != nil {
			t.Fatal(err)
		}
	}

	// If the schema checks this column, the row stays unchanged.
	_, err := db.ExecContext(t.Context(), "UPDATE tenure_shards SET token = -5 WHERE shard = 'shard-00001'")
	damaged, sound := []int{0, 1}, []int{3}
	if err != nil {
		damaged, sound = []int{0}, []int{1, 3}
	}

	view, err := b.Observe(t.Context(), driver.ObserveQuery{})
	if err != nil {
		t.Fatal(err)
	}
	if len(view.Shards) != len(sound) || len(view.Members) != 1 {
		t.Errorf("the view has %+v, want the shards %v only", view, sound)
	}
	tail, err := b.TailLog(t.Context(), "", 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range tail.Heads {
		if driver.CheckShard(h.Shard) != nil {
			t.Errorf("the tail names %q", h.Shard)
		}
	}
	for _, i := range append(damaged, 2) {
		f := granted[i].Fence
		results, err := s.Commit(t.Context(), []driver.Write{AppendOf(f, 1, nil)})
		want := driver.ErrDamaged
		if i == 2 { // no row has its name
			want = driver.ErrFenced
		}
		if err != nil || !errors.Is(results[0].Err, want) || strings.Contains(results[0].Err.Error(), "\x1b") {
			t.Errorf("commit to %s: %v, %v, want it refused as %v, and no names", f.Shard, err, results[0].Err, want)
		}
	}
	claims := Claims(4)
	for i := range claims {
		claims[i].Seen = driver.Owner{Session: "other", Token: 1}
	}
	results, err := s.Acquire(t.Context(), append(claims, driver.Claim{Shard: "fresh"}))
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range damaged {
		if err := results[i].Err; !errors.Is(err, driver.ErrDamaged) {
			t.Errorf("claim of a damaged shard: %v", err)
		}
	}
	if results[4].Err != nil {
		t.Errorf("claim of another shard in the same batch: %v", results[4].Err)
	}
	for _, i := range sound {
		Commit(t, s, AppendOf(granted[i].Fence, 1, nil))
	}
}
