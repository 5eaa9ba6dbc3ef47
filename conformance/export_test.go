package conformance

import "github.com/tenure-go/tenure/internal/proof/suite"

// NewProxy is Proxy with its inner proxy.
var NewProxy = newProxy

// Cases lists the cases of the suite.
var Cases = listCases

// Of returns the report that r shows.
func (r *Report) Of() *suite.Report { return r.of }
