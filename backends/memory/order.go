package memory

import (
	"slices"
	"sort"
)

// order is a sorted set of keys, kept as a sorted list of small sorted blocks, so an insertion
// moves few keys.
type order struct{ blocks [][]string }

const maxBlock = 512

// find returns the index of the block that key belongs to.
func (o *order) find(key string) int {
	i := sort.Search(len(o.blocks), func(i int) bool { return o.blocks[i][0] > key })
	return max(0, i-1)
}

func (o *order) insert(key string) {
	if len(o.blocks) == 0 {
		o.blocks = [][]string{{key}}
		return
	}
	i := o.find(key)
	block := o.blocks[i]
	at, found := slices.BinarySearch(block, key)
	if found {
		return
	}
	block = slices.Insert(block, at, key)
	o.blocks[i] = block
	if len(block) > maxBlock {
		half := len(block) / 2
		o.blocks[i] = slices.Clone(block[:half])
		o.blocks = slices.Insert(o.blocks, i+1, slices.Clone(block[half:]))
	}
}

func (o *order) remove(key string) {
	if len(o.blocks) == 0 {
		return
	}
	i := o.find(key)
	at, found := slices.BinarySearch(o.blocks[i], key)
	if !found {
		return
	}
	o.blocks[i] = slices.Delete(o.blocks[i], at, at+1)
	if len(o.blocks[i]) == 0 {
		o.blocks = slices.Delete(o.blocks, i, i+1)
	}
}

// The callback receives the keys from the given key on, in order, until it returns false.
func (o *order) from(key string, f func(key string) bool) {
	if len(o.blocks) == 0 {
		return
	}
	for i := o.find(key); i < len(o.blocks); i++ {
		at := 0
		if o.blocks[i][0] < key {
			at, _ = slices.BinarySearch(o.blocks[i], key)
		}
		for _, k := range o.blocks[i][at:] {
			if !f(k) {
				return
			}
		}
	}
}
