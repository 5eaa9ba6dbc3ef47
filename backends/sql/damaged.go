package sql

import (
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
)

// damaged names a row that cannot be read: its table, and the names in it (D1).
func (b *Backend) damaged(table, name string, shard driver.ShardID, why string) *driver.DamagedError {
	return driver.Damaged(fmt.Sprintf("%s%s %s/%.200s", b.stmts.prefix, table, b.name, name), shard, why)
}

// damagedShard is why the row of a shard names no owner, or has no head, that could
// have been written in order; nil if it can be used.
func (b *Backend) damagedShard(shard driver.ShardID, r record) error {
	if r.why == "" {
		return nil
	}
	return b.damaged("shards", string(shard), shard, r.why)
}

// Why a row cannot be read.
const (
	whyOwner = "it names no valid session and token"
	whyToken = "its token was never granted"
	whyName  = "its name is not valid, or too long"
)

// checkOwner reports why a row cannot name that owner, while no token above floor was
// granted, or nothing: what is read from a store is untrusted, and names go on into
// views and logs.
func checkOwner(o driver.Owner, granted driver.Token, floor int64) (why string) {
	switch {
	case o.Token <= 0 || o.Session != "" && driver.CheckSession(o.Session) != nil:
		return whyOwner
	case int64(o.Token) > floor || granted >= o.Token || granted < 0:
		return whyToken
	}
	return ""
}

// note adds damaged rows to those of a view, up to its bound.
func note(view []*driver.DamagedError, damaged ...*driver.DamagedError) []*driver.DamagedError {
	return append(view, damaged[:min(len(damaged), driver.MaxDamaged-len(view))]...)
}
