package conformance

import (
	"reflect"
	"slices"
	"strings"

	"github.com/tenure-go/tenure/internal/proof/suite"
)

// testCase is one property that the suite checks. See suite.Case for its fields.
type testCase struct {
	Area     string
	Property string
	Rules    []rule
	Needs    []string
	Shows    string

	run   func(*fixture)
	alone bool // the case measures the process or the store, so it runs alone
}

// Name returns "Area/Property".
func (c testCase) Name() string { return c.Area + "/" + c.Property }

// allCases returns every case of the suite, grouped by area.
func allCases() []testCase {
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

func listCases() (list []suite.Case) {
	for _, c := range allCases() {
		list = append(list, suite.Case{Name: c.Name(), Rules: c.Rules, Needs: c.Needs, Shows: c.Shows})
	}
	return list
}

// missing returns the functions that the case needs but the store lacks.
func (c testCase) missing(s *Store) []string {
	var missing []string
	for _, need := range c.Needs {
		if !s.has(need) {
			missing = append(missing, need)
		}
	}
	return missing
}

// The result is true if the store has the function with the given field name. A Wire's functions
// are known only once the Wire is open (see fixture.wire).
func (s *Store) has(field string) bool {
	switch {
	case field == "Guards":
		return len(s.Guards) > 0
	case strings.HasPrefix(field, "Wire."):
		return s.OpenFaulty != nil
	}
	return !reflect.ValueOf(s).Elem().FieldByName(field).IsNil()
}
