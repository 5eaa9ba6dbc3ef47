// Package conformance contains the suites that every backend of Tenure must pass. [Test] runs the
// driver-level suite. Each case has a name of the form "Area/Property", and uses the store through
// the functions of a [Harness]. A failure message begins with the id of the broken rule, followed
// by a one-line explanation:
//
//	func TestConformance(t *testing.T) {
//		conformance.Test(t, conformance.Harness{
//			Name: "mystore",
//			New: func(t conformance.T) *conformance.Store {
//				ns := uniqueNamespace()
//				return &conformance.Store{
//					Open: func(ctx context.Context) (driver.Backend, error) {
//						b, err := mystore.Open(ctx, addr, ns, &mystore.Options{Create: true})
//						if err != nil {
//							return nil, err // not b: a nil *Backend in an interface is not nil
//						}
//						return b, nil
//					},
//				}
//			},
//		})
//	}
//
// A [Store] requires only the function Open. The Store's other functions cause network faults,
// compact or restart the store, or count calls. The suite skips the cases that need a missing
// function. The report lists each skipped case with the reason. [KVFaults] and [KVDamage] inject
// faults into a store of package kv. [Proxy] injects network faults in front of any server.
//
// [Check] runs the same suite outside go test. [TestSystem] tests the backend together with core,
// with real processes that are killed, stopped and cut off. [TestGarbage] adds a hostile member.
//
// # What it does not do
//
// The driver-level suite stops no processes and contains no code for a particular store. The suite
// can reveal faults in a store, but cannot prove that there are no others. The suite's race cases
// run thousands of interleavings, or twenty times as many with [Harness.Long]. Each race case
// records its clients' answers, and checks that some order of the calls explains them all.
package conformance
