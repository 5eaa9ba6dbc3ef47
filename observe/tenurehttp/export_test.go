package tenurehttp

// Tests decode the handler's answers into these types.
type (
	View    = viewJSON
	Member  = memberJSON
	Shard   = shardJSON
	Move    = moveJSON
	Lag     = lagJSON
	Leader  = leaderJSON
	Status  = statusJSON
	Problem = problemJSON

	MemberShares = memberShares
	Range        = rangeJSON
	Effects      = effectsJSON
	EffectShard  = effectShard
)

// LeaderOf is the answer of /leader for a shard.
func LeaderOf(here bool, s Shard) Leader { return Leader{Leader: here, shardJSON: s} }
