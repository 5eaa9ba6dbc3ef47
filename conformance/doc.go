// Package conformance has the suites that every backend of Tenure must pass. [Test] runs the
// driver-level suite, whose cases are named "Area/Property" and reach the store through a harness
// of functions. A failure begins with the id of the broken rule, and explains the rule in one line:
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
// Open is enough to begin with. Other functions of a [Store] (network faults, a compaction, a
// restart, a count of calls) let more cases run. The suite skips cases that lack a function, and
// its report lists them with the reason. [KVFaults] and [KVDamage] cause faults around a store of
// package kv. [Proxy] causes faults in front of any server.
//
// [Check] does the same outside go test. [TestSystem] tests the backend together with core, with
// real processes that are killed, stopped and cut off. [TestGarbage] adds a hostile member.
//
// # What it does not do
//
// The driver-level suite stops no processes and knows no particular store. It can show that faults
// exist, not that there are none. In the short form, its racing cases run thousands of
// interleavings. With [Harness.Long], they run twenty times as many. Each case records the answers
// to its clients, and checks them against the order that the store must have had.
package conformance
