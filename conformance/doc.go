// Package conformance is the driver-level suite that every backend of Tenure must pass. Its cases
// are named "Area/Property". A failure begins with the id of the broken rule, and explains the rule
// in one line. The package needs only this module, so any backend can use it:
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
// [Run] runs the suite under any [T], and [Check] runs it outside go test.
//
// # What it does not do
//
// The suite stops no processes and knows no particular store. Package system kills real servers,
// and cuts their connections. The suite can show that a backend has faults, but not that it has
// none. In the short form, its racing cases run thousands of interleavings. With [Harness.Long],
// they run twenty times as many. Each case records the answers to its clients, and checks them
// against the order that the store must have had.
package conformance
