package core

import (
	"testing"
	"time"
)

// Shards that are set aside count as unowned no more, and as quarantined only with an end.
func TestSetAside(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.member("a")
		var h leases
		w.must(a.Contend(h.hold, "s"))
		w.must(a.Prefer(Preference{Shard: "s"}))
		time.Sleep(time.Minute)
		until := time.Now().Add(time.Hour)
		a.SetAside(map[string]Aside{"s": {Why: "ill", Until: until}, "unknown": {Why: "ill", Until: until}})
		v := a.View()
		if o, _ := v.Owner("s"); o.Aside != (Aside{"ill", until}) || v.Quarantined() != 1 {
			t.Errorf("got %+v, %d in quarantine", o, v.Quarantined())
		}
		a.SetAside(nil)
		if v := a.View(); v.Quarantined() != 0 || v.Shards[0].Aside != (Aside{}) {
			t.Errorf("got %+v", v.Shards)
		}
	})
	v := &View{Trusted: true, Shards: []Ownership{{Shard: "a"}, {Shard: "b", Aside: Aside{Why: "merged"}},
		{Shard: "c", Aside: Aside{Why: "ill", Until: time.Now()}}, {Shard: "_d"}}}
	if n, reserved := v.Unowned(); n != 1 || reserved != 1 || v.Quarantined() != 1 {
		t.Errorf("got %d unowned, %d reserved, %d in quarantine, want one each", n, reserved, v.Quarantined())
	}
}
