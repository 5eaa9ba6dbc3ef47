package core

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/seam"
)

// Shards that are set aside do not count as unowned, and count as quarantined only if they have
// an end.
func TestSetAside(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.member("a")
		var h leases
		w.must(a.Contend(h.hold, "s"))
		w.must(a.inside().Prefer(seam.Preference{Shard: "s"}))
		time.Sleep(time.Minute)
		until := time.Now().Add(time.Hour)
		a.inside().SetAside(map[string]seam.Aside{"s": {Why: "ill", Until: until}, "unknown": {Why: "ill", Until: until}})
		v := a.View()
		if o, _ := v.Owner("s"); o.Aside != "ill" || o.AsideUntil != until || v.Quarantined() != 1 {
			t.Errorf("got %+v, %d in quarantine", o, v.Quarantined())
		}
		a.inside().SetAside(nil)
		if v := a.View(); v.Quarantined() != 0 || v.Shards[0].Aside != "" {
			t.Errorf("got %+v", v.Shards)
		}
	})
	v := &View{Trusted: true, Shards: []Ownership{{Shard: "a"}, {Shard: "b", Aside: "merged"},
		{Shard: "c", Aside: "ill", AsideUntil: time.Now()}, {Shard: "_d"}}}
	if n, reserved := v.Unowned(); n != 1 || reserved != 1 || v.Quarantined() != 1 {
		t.Errorf("got %d unowned, %d reserved, %d in quarantine, want one each", n, reserved, v.Quarantined())
	}
}
