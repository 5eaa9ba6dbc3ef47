// Package oddkey lets backends report items with invalid keys. List omits such items, but views
// list their keys.
package oddkey

import (
	"slices"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/listing"
)

// Why is the reason that the DamagedError gives.
const Why = "its key is not valid, or too long"

// Found contains the items that List left out. The zero value is ready for use. A Found is safe for
// concurrent use.
type Found struct {
	mu  sync.Mutex
	all []*driver.DamagedError
}

// Set replaces the items that were found in a shard.
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
