package history

import (
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
)

// tokensIncrease finds tokens that are not greater than all tokens granted earlier in the
// namespace, and tokens that two leases of a shard share (S2, A2). Shards that are claimed in one
// call may get the same token.
func tokensIncrease(x *index) []Finding {
	var out []Finding
	all := grants(x.all)
	type key struct {
		shard driver.ShardID
		token driver.Token
	}
	seen := map[key]*grant{}
	for _, g := range all {
		k := key{g.fence.Shard, g.fence.Token}
		switch other := seen[k]; {
		case g.fence.Token <= 0:
			out = append(out, finding("S2", CheckTokens, k.shard, []*Operation{g.by},
				"token %d was granted, which is not positive", k.token))
		case other != nil:
			out = append(out, finding("S2", CheckTokens, k.shard, []*Operation{other.by, g.by},
				"token %d was granted to both %s and %s", k.token, other.fence.Session, g.fence.Session))
		}
		seen[k] = g
	}
	// The loop runs from the highest token down. early is the earliest certain grant of the current
	// token or a higher token.
	var early *grant
	for end := len(all); end > 0; {
		start := end
		for start > 0 && all[start-1].fence.Token == all[end-1].fence.Token {
			start--
			if g := all[start]; early == nil || g.last < early.last {
				early = g
			}
		}
		for _, g := range all[start:end] {
			if early.last < g.first {
				out = append(out, finding("S2", CheckTokens, g.fence.Shard, []*Operation{early.by, g.by},
					"token %d was granted after token %d%s", g.fence.Token, early.fence.Token, elsewhere(early, g)))
			}
		}
		end = start
	}
	return out
}

func elsewhere(a, b *grant) string {
	if a.fence.Shard == b.fence.Shard {
		return ""
	}
	return fmt.Sprintf(" of shard %q, and a token is greater than all before it in the namespace", a.fence.Shard)
}
