package tenurehttp

import (
	"cmp"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/effect"
)

// Limits of what is shown of effects.
const (
	maxEffectShards = 100         // with the most effects that wait for a person, then the most in doubt
	effectsEvery    = time.Second // the shortest time between two counts
)

// effectsJSON is the number of effects of this process that wait. It is immutable.
type effectsJSON struct {
	// InDoubt counts effects about which Resolve or the next Do decides. Unresolved counts effects
	// that wait for a person. Oldest is when the oldest of both began.
	InDoubt    int           `json:"in_doubt"`
	Unresolved int           `json:"unresolved"`
	Oldest     time.Time     `json:"oldest,omitzero"`
	Shards     []effectShard `json:"shards"`
	More       bool          `json:"more,omitempty"` // there are more shards
}

// effectShard is the number of effects of a shard that wait.
type effectShard struct {
	Shard      string `json:"shard"`
	InDoubt    int    `json:"in_doubt"`
	Unresolved int    `json:"unresolved"`
}

// effects counts for all streams and answers. It is safe for concurrent use.
type effects struct {
	counts func() effect.Counts // may be nil

	mu   sync.Mutex
	last *effectsJSON
	next time.Time
}

// look counts at most once in effectsEvery. It returns nil if the handler shows no effects.
func (e *effects) look() *effectsJSON {
	if e.counts == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if began := time.Now(); !began.Before(e.next) {
		e.last, e.next = newEffects(e.counts()), began.Add(effectsEvery)
	}
	return e.last
}

func newEffects(c effect.Counts) *effectsJSON {
	out := &effectsJSON{InDoubt: c.InDoubt.Number, Unresolved: c.Unresolved.Number, Shards: []effectShard{}}
	for _, w := range []effect.Waiting{c.InDoubt, c.Unresolved} {
		year := w.Oldest.Year() // JSON has no other years, but a record may
		if w.Number > 0 && year >= 0 && year <= 9999 && (out.Oldest.IsZero() || w.Oldest.Before(out.Oldest)) {
			out.Oldest = w.Oldest
		}
	}
	shards := slices.Clone(c.Shards)
	slices.SortStableFunc(shards, func(a, b effect.ShardCounts) int {
		return cmp.Or(cmp.Compare(b.Unresolved, a.Unresolved), cmp.Compare(b.InDoubt, a.InDoubt))
	})
	out.More = len(shards) > maxEffectShards
	for _, s := range shards[:min(len(shards), maxEffectShards)] {
		out.Shards = append(out.Shards, effectShard{Shard: cut(s.Shard, maxShardName), InDoubt: s.InDoubt, Unresolved: s.Unresolved})
	}
	return out
}

// countEffects adds the waiting effects to an update if they have changed.
func (f *feed) countEffects(u *update) (news bool) {
	e := f.h.effects.look()
	if e == nil || reflect.DeepEqual(e, f.effects) {
		return false
	}
	u.Effects, f.effects = e, e
	return true
}
