package conformance

import "github.com/tenure-go/tenure/internal/proof/suite"

// T is the part of *testing.T that the suite uses. Its methods are Name, Context, Helper, Parallel,
// Logf, Errorf, Fatalf, Skipf, Cleanup and Run. They have the same meaning as in package testing.
// [Check] has its own T, so that the suite also runs outside go test.
type T = suite.T
