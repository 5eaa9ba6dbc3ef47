package kv

import "slices"

// recent is a map that also keeps its items in the order of their last changes. Listing the latest
// changes takes time proportional to their number. The items are linked by index in one slice, so
// even a large map causes little work for the garbage collector. A recent is not safe for
// concurrent use.
type recent[K comparable, V any] struct {
	index        map[K]int32
	items        []recentItem[K, V]
	oldest, last int32 // -1 when empty
	free         int32 // first removed item, linked by next; -1 when empty
}

type recentItem[K comparable, V any] struct {
	key        K
	val        V
	rev        Rev   // revision of the record
	seq        int64 // number of the change
	prev, next int32
}

func (r *recent[K, V]) init() {
	r.index = make(map[K]int32)
	r.oldest, r.last, r.free = -1, -1, -1
}

func (r *recent[K, V]) get(k K) (*recentItem[K, V], bool) {
	i, ok := r.index[k]
	if !ok {
		return nil, false
	}
	return &r.items[i], true
}

func (r *recent[K, V]) expect(n int) {
	r.items = slices.Grow(r.items, max(0, n-len(r.items)))
}

// The item moves to the end of the list. From call to call, seq must not decrease.
func (r *recent[K, V]) set(k K, v V, rev Rev, seq int64) {
	i, ok := r.index[k]
	switch {
	case ok:
		k = r.items[i].key // share the string of the item
		r.unlink(i)
	case r.free >= 0:
		i = r.free
		r.free = r.items[i].next
		r.index[k] = i
	default:
		i = int32(len(r.items))
		r.items = append(r.items, recentItem[K, V]{})
		r.index[k] = i
	}
	r.items[i] = recentItem[K, V]{key: k, val: v, rev: rev, seq: seq, prev: r.last, next: -1}
	if r.last >= 0 {
		r.items[r.last].next = i
	} else {
		r.oldest = i
	}
	r.last = i
}

func (r *recent[K, V]) remove(k K) {
	i, ok := r.index[k]
	if !ok {
		return
	}
	r.unlink(i)
	delete(r.index, k)
	r.items[i] = recentItem[K, V]{next: r.free}
	r.free = i
}

func (r *recent[K, V]) unlink(i int32) {
	it := &r.items[i]
	if it.prev >= 0 {
		r.items[it.prev].next = it.next
	} else {
		r.oldest = it.next
	}
	if it.next >= 0 {
		r.items[it.next].prev = it.prev
	} else {
		r.last = it.prev
	}
}

// The function f is called for each item that changed after seq, latest first.
func (r *recent[K, V]) since(seq int64, f func(*recentItem[K, V])) {
	for i := r.last; i >= 0 && r.items[i].seq > seq; i = r.items[i].prev {
		f(&r.items[i])
	}
}
