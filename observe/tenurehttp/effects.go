package tenurehttp

import (
	"cmp"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/effect"
)

// Bounds of what is shown of effects.
const (
	maxEffectShards = 100         // those with most that wait for a person, then with most in doubt
	effectsEvery    = time.Second // at most so often they are counted
)

// effectsJSON is how many effects of this process wait. It does not change.
type effectsJSON struct {
	// InDoubt are those about which Resolve or the next Do decides, Unresolved those that wait for
	// a person, and Oldest is when the oldest of both began.
	InDoubt    int           `json:"in_doubt"`
	Unresolved int           `json:"unresolved"`
	Oldest     time.Time     `json:"oldest,omitzero"`
	Shards     []effectShard `json:"shards"`
	More       bool          `json:"more,omitempty"` // there are shards beside these
}

// effectShard is how many effects of a shard wait.
type effectShard struct {
	Shard      string `json:"shard"`
	InDoubt    int    `json:"in_doubt"`
	Unresolved int    `json:"unresolved"`
}

// effects counts for all streams and answers. Safe for concurrent use.
type effects struct {
	counts func() effect.Counts // may be nil

	mu   sync.Mutex
	last *effectsJSON
	next time.Time
}

// look counts at most once in effectsEvery; nil if the handler shows no effects.
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
		year := w.Oldest.Year() // JSON has no other years, and a record may have any
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

// countEffects adds the effects that wait to an update, if they have changed.
func (f *feed) countEffects(u *update) (news bool) {
	e := f.h.effects.look()
	if e == nil || reflect.DeepEqual(e, f.effects) {
		return false
	}
	u.Effects, f.effects = e, e
	return true
}
