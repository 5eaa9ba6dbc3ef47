package engine

import (
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/listing"
)

// damaged returns the error of a row that cannot be read, with its table and its names (D1).
func (b *Backend) damaged(table, name string, shard driver.ShardID, why string) *driver.DamagedError {
	return driver.Damaged(fmt.Sprintf("%s%s %s/%.200s", b.stmts.prefix, table, b.name, name), shard, why)
}

// damagedShard returns the error of a shard's row without a valid owner or head. It returns nil
// if the row is valid.
func (b *Backend) damagedShard(shard driver.ShardID, r record) error {
	if r.why == "" {
		return nil
	}
	return b.damaged("shards", string(shard), shard, r.why)
}

// Reasons why a row cannot be read.
const (
	whyOwner = "it names no valid session and token"
	whyToken = "its token was never granted"
	whyName  = "its name is not valid, or too long"
)

// checkOwner returns why a row cannot have that owner, or "". No token above floor was granted.
// Data read from a store is untrusted, and names appear in views and logs.
func checkOwner(o driver.Owner, granted driver.Token, floor int64) (why string) {
	switch {
	case o.Token <= 0 || o.Session != "" && driver.CheckSession(o.Session) != nil:
		return whyOwner
	case int64(o.Token) > floor || granted >= o.Token || granted < 0:
		return whyToken
	}
	return ""
}

// note adds damaged rows to those of a view, up to its limit.
func note(view []*driver.DamagedError, damaged ...*driver.DamagedError) []*driver.DamagedError {
	return append(view, damaged[:min(len(damaged), listing.MaxDamaged-len(view))]...)
}
