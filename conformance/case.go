package conformance

import (
	"slices"
	"strings"
)

// Case is one property that the suite checks.
type Case struct {
	Area     string
	Property string
	Rules    []Rule   // rules that a failure may name
	Needs    []string // fields of Store and Wire that it needs; without them, it is skipped
	Shows    string   // its statement, in one line

	run   func(*fixture)
	alone bool // it measures the process or the store, so it runs alone
}

// Name returns "Area/Property".
func (c Case) Name() string { return c.Area + "/" + c.Property }

// Cases returns every case of the suite, grouped by area.
func Cases() []Case {
	return slices.Concat(
		membershipCases(),
		labelCases(),
		acquireCases(),
		tokenCases(),
		releaseCases(),
		lockCases(),
		historyCases(),
		commitCases(),
		fenceCases(),
		logCases(),
		viewCases(),
		errorCases(),
		chaosCases(),
	)
}

// missing returns the functions that the case needs and the store lacks.
func (c Case) missing(s *Store) []string {
	var missing []string
	for _, need := range c.Needs {
		if !s.has(need) {
			missing = append(missing, need)
		}
	}
	return missing
}

// has reports whether the store offers the function with that field name. A Wire's functions
// are known only after it was opened: see fixture.wire.
func (s *Store) has(field string) bool {
	switch field {
	case "OpenExisting":
		return s.OpenExisting != nil
	case "OpenNamespace":
		return s.OpenNamespace != nil
	case "OpenLying":
		return s.OpenLying != nil
	case "OpenSeveral":
		return s.OpenSeveral != nil
	case "Calls":
		return s.Calls != nil
	case "Fork":
		return s.Fork != nil
	case "RaiseFloor":
		return s.RaiseFloor != nil
	case "Guards":
		return len(s.Guards) > 0
	case "Compact":
		return s.Compact != nil
	case "Tamper":
		return s.Tamper != nil
	case "Wipe":
		return s.Wipe != nil
	case "Snapshot":
		return s.Snapshot != nil
	case "Isolate":
		return s.Isolate != nil
	case "Narrow":
		return s.Narrow != nil
	case "Deny":
		return s.Deny != nil
	case "Restart":
		return s.Restart != nil
	}
	return strings.HasPrefix(field, "Wire.") && s.OpenFaulty != nil
}
