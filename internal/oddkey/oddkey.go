// Package oddkey lets backends report items under invalid keys. List leaves such items out, and
// views name them.
package oddkey

import (
	"slices"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/listing"
)

// Why is the reason given in the DamagedError.
const Why = "its key is not valid, or too long"

// Found holds the items that List left out. The zero value is ready for use. A Found is safe
// for concurrent use.
type Found struct {
	mu  sync.Mutex
	all []*driver.DamagedError
}

// Set replaces the items of a shard.
func (f *Found) Set(shard driver.ShardID, found []*driver.DamagedError) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = slices.DeleteFunc(f.all, func(d *driver.DamagedError) bool { return d.Shard == shard })
	f.all = append(f.all, found[:min(len(found), listing.MaxDamaged-len(f.all))]...)
}

// Tell adds the items to a view.
func (f *Found) Tell(v *driver.View) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v.Damaged = append(v.Damaged, f.all[:min(len(f.all), listing.MaxDamaged-len(v.Damaged))]...)
}
