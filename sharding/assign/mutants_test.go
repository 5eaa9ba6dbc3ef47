package assign

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

func TestMutants(t *testing.T) {
	mutate.All(t, mutantsFlag, time.Minute, false, []mutate.Mutant{
		{Name: "a shard is offered to the emptiest alone", Killer: "TestLargeShardToALargeMember", Edits: []mutate.Edit{{
			File: "balance.go", In: "loads.try", Old: "to = l.coldest(from, x)", New: "to = l.coldest(from, 0*x)"}}},
		{Name: "the bound of a minute does not hold", Killer: "TestBalanceKeepsItsPromises", Edits: []mutate.Edit{{
			File: "load.go", In: "loads.affords", Old: "enough := !l.known || sum+x <= limit*l.total ||", New: "enough := true ||"}}},
		{Name: "a move for balance's sake makes another member the highest", Killer: "TestBalanceKeepsItsPromises", Edits: []mutate.Edit{{
			File: "balance.go", In: "loads.try",
			Old: "if before-after <= least || !l.affords", New: "if before-after+least < -1e300 || !l.affords"}}},
		{Name: "ranges are split beyond MaxShards", Killer: "TestBalanceKeepsItsPromises", Edits: []mutate.Edit{{
			File: "reshape.go", In: "loads.split", Old: "most := min(keyspace.MaxCuts, l.a.MaxShards-l.ranges)", New: "most := keyspace.MaxCuts"}}},
		{Name: "a range that is split or merged is moved", Killer: "TestBalanceKeepsItsPromises", Edits: []mutate.Edit{{
			File: "rules.go", In: "Shard.held", Old: "{ return s.Fixed || s.Busy }", New: "{ return s.Fixed }"}}},
		{Name: "a split and a merge touch the same range", Killer: "TestBalanceKeepsItsPromises", Edits: []mutate.Edit{{
			File: "reshape.go", In: "loads.cold", Old: "if l.touched[a] || l.touched[b] || !l.changeable", New: "if !l.changeable"}}},
		{Name: "a death overloads the last of a zone", Killer: "TestHeirsInTheZone", Edits: []mutate.Edit{{
			File: "heirs.go", In: "Heirs", Old: "return 2 * int(math.Ceil(", New: "return 9 * int(math.Ceil("}}},
	})
}
