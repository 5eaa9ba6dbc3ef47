package sharding

// Minimal gives every member the floor or the ceiling of its weighted share, with
// the fewest moves that lead there from the owners at present. Without rules the
// number of moves is exactly the least possible; with them the balance is as good
// as moves of single shards make it. The zero value is ready for use. It is the
// default.
type Minimal struct {
	Rules Rules
	// Budget is how many shards one plan moves for balance's sake; 0: all. Orphans,
	// drains and rules are not counted. The next plan goes on.
	Budget int
}

var _ Assigner = Minimal{}

// Plan implements Assigner.
func (a Minimal) Plan(c *Cluster) *Plan {
	d := newDraft(c, a.Rules)
	share := shares(len(c.Shards), c.Members, d.fits, d.have)
	if d.rules != nil {
		return a.ruled(d, share)
	}
	left, unfinished := a.Budget, false
	lists := d.owned(func(m int) bool { return d.have[m] > share[m] })
	for m, list := range lists {
		k := d.have[m] - share[m]
		if k <= 0 || list == nil {
			continue
		}
		unfinished = unfinished || k > len(list)
		for _, s := range d.latest(list, k, m) {
			if a.Budget > 0 && left == 0 {
				unfinished = true
				break
			}
			left--
			d.release(s, Shared)
		}
	}
	d.fill(share)
	p := d.plan(share)
	p.Unfinished = unfinished
	return p
}

// ruled is Plan under rules.
func (a Minimal) ruled(d *draft, share []int) *Plan {
	d.place(func(m int32, _ float64) float64 { return float64(d.have[m]-share[m]) / float64(max(share[m], 1)) },
		func(int32, int32) {})
	left, unfinished := a.Budget, false
	lists := d.owned(func(m int) bool { return d.have[m] > share[m] })
	for m, list := range lists {
		for _, s := range d.latest(list, len(list), m) {
			if d.have[m] <= share[m] {
				break
			}
			to := d.best(s, strictly, func(x int32, _ float64) float64 {
				if d.have[x] >= share[x] {
					return never
				}
				return 0
			})
			switch {
			case to == None:
			case a.Budget > 0 && left == 0:
				unfinished = true
			default:
				left--
				d.pass(s, to, Shared)
			}
		}
	}
	p := d.plan(share)
	p.Unfinished = unfinished
	return p
}
