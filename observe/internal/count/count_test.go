package count

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/mark"
)

// Shards that are set aside count as quarantined only if AsideUntil is set.
func TestQuarantined(t *testing.T) {
	t.Parallel()
	v := &core.View{Shards: []core.Ownership{{Shard: "a"}, {Shard: "b", Aside: "merged"},
		{Shard: "c", Aside: "ill", AsideUntil: time.Now()}}}
	if n := Quarantined(v); n != 1 {
		t.Errorf("%d in quarantine, want 1", n)
	}
}

// A member in trouble counts once, even while it has no session.
func TestTroubled(t *testing.T) {
	t.Parallel()
	troubled := core.MemberState{Meta: map[string]string{mark.TroubleKey: "the disk is full"}}
	for _, c := range []struct {
		v    core.View
		want int
	}{
		{core.View{Members: []core.Member{{Session: "1"}, {Session: "2"}}, Session: "1"}, 0},
		{core.View{Members: []core.Member{{Session: "1"}, {Session: "2"}}, Session: "1", Trouble: "full"}, 1},
		{core.View{Members: []core.Member{{Session: "1", MemberState: troubled}, {Session: "2"}}, Session: "1", Trouble: "full"}, 1},
		{core.View{Members: []core.Member{{Session: "1"}, {Session: "2", MemberState: troubled}}, Session: "1"}, 1},
		{core.View{Members: []core.Member{{Session: "2", MemberState: troubled}}, Trouble: "full"}, 2},
	} {
		if n := Troubled(&c.v); n != c.want {
			t.Errorf("%d of %+v in trouble, want %d", n, c.v, c.want)
		}
	}
}
