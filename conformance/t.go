package conformance

import "github.com/tenure-go/tenure/internal/proof/suite"

// T is the part of *testing.T that the suite uses. T has the methods Name, Context, Helper,
// Parallel, Logf, Errorf, Fatalf, Skipf, Cleanup and Run, with the same meaning as in package
// testing. [Check] uses a different implementation of T, so the suite also runs outside go test.
type T = suite.T
