package engine

import (
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/listing"
)

// damaged returns the error for an unreadable row, with the row's table and names (D1).
func (b *Backend) damaged(table, name string, shard driver.ShardID, why string) *driver.DamagedError {
	return driver.Damaged(fmt.Sprintf("%s%s %s/%.200s", b.stmts.prefix, table, b.name, name), shard, why)
}

// damagedShard returns an error if a shard's row has no valid owner or head.
func (b *Backend) damagedShard(shard driver.ShardID, r record) error {
	if r.why == "" {
		return nil
	}
	return b.damaged("shards", string(shard), shard, r.why)
}

// These constants are the reasons why a row cannot be read.
const (
	whyOwner = "it names no valid session and token"
	whyToken = "its token was never granted"
	whyName  = "its name is not valid, or too long"
)

// checkOwner returns the reason why a row cannot have the given owner, or "". No token above floor
// was ever granted. The names must be valid, because data from a store is untrusted, and the names
// appear in views and logs.
func checkOwner(o driver.Owner, granted driver.Token, floor int64) (why string) {
	switch {
	case o.Token <= 0 || o.Session != "" && driver.CheckSession(o.Session) != nil:
		return whyOwner
	case int64(o.Token) > floor || granted >= o.Token || granted < 0:
		return whyToken
	}
	return ""
}

// note adds damaged rows to a view's list, up to the limit of that list.
func note(view []*driver.DamagedError, damaged ...*driver.DamagedError) []*driver.DamagedError {
	return append(view, damaged[:min(len(damaged), listing.MaxDamaged-len(view))]...)
}
