// Package count counts the quarantined shards and troubled members in a View, for metrics and the
// board.
package count

import "github.com/tenure-go/tenure/core"

// Quarantined returns the number of shards that Tenure temporarily withholds from all members
// because the shards' owners keep dying.
func Quarantined(v *core.View) (n int) {
	for i := range v.Shards {
		if !v.Shards[i].AsideUntil.IsZero() {
			n++
		}
	}
	return n
}

// Troubled returns the number of members that are in trouble.
func Troubled(v *core.View) (n int) {
	if v.Trouble != "" && v.Session == "" {
		n++
	}
	for i := range v.Members {
		if m := &v.Members[i]; m.Trouble() != "" || v.Trouble != "" && m.Session == v.Session {
			n++
		}
	}
	return n
}
