package core

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/seam"
)

// A shard that is set aside does not count as unowned.
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
		if o, _ := v.Owner("s"); o.Aside != "ill" || o.AsideUntil != until {
			t.Errorf("got %+v", o)
		}
		a.inside().SetAside(nil)
		if v := a.View(); v.Shards[0].Aside != "" || !v.Shards[0].AsideUntil.IsZero() {
			t.Errorf("got %+v", v.Shards)
		}
	})
	v := &View{Trusted: true, Shards: []Ownership{{Shard: "a"}, {Shard: "b", Aside: "merged"},
		{Shard: "c", Aside: "ill", AsideUntil: time.Now()}, {Shard: "_d"}}}
	if n, reserved := v.Unowned(); n != 1 || reserved != 1 {
		t.Errorf("got %d unowned, %d reserved, want one each", n, reserved)
	}
}
