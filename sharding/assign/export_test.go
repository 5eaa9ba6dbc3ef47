package assign

import "testing"

// CheckShape is shape.Check, which this package cannot import.
var CheckShape func(t testing.TB, c *Cluster, p *Plan)
