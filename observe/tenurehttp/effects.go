package tenurehttp

import (
	"cmp"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/effect"
)

const (
	maxEffectShards = 100         // the shards with the most effects that wait for a person come first, then the shards with the most effects in doubt
	effectsEvery    = time.Second // the minimum time between two counts
)

// An effectsJSON is immutable.
type effectsJSON struct {
	// InDoubt counts the effects that Resolve or the next Do will decide. Unresolved counts the
	// effects that a person must decide. Oldest is the time when the oldest of these effects began.
	InDoubt    int           `json:"in_doubt"`
	Unresolved int           `json:"unresolved"`
	Oldest     time.Time     `json:"oldest,omitzero"`
	Shards     []effectShard `json:"shards"`
	More       bool          `json:"more,omitempty"` // there are more shards
}

type effectShard struct {
	Shard      string `json:"shard"`
	InDoubt    int    `json:"in_doubt"`
	Unresolved int    `json:"unresolved"`
}

// effects counts waiting effects for all streams and answers. It is safe for concurrent use.
type effects struct {
	counts func() effect.Counts // may be nil

	mu   sync.Mutex
	last *effectsJSON
	next time.Time
}

// look counts at most once per effectsEvery. If the handler shows no effects, look returns nil.
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
		year := w.Oldest.Year() // JSON cannot represent other years, but a record may contain them
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

// If the counts of waiting effects have changed, countEffects adds them to an update.
func (f *feed) countEffects(u *update) (news bool) {
	e := f.h.effects.look()
	if e == nil || reflect.DeepEqual(e, f.effects) {
		return false
	}
	u.Effects, f.effects = e, e
	return true
}
