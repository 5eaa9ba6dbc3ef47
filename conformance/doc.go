// Package conformance is the driver-level suite that every backend of Tenure must pass. It consists
// of one exported function, a harness of functions, and cases named "Area/Property". A failure
// begins with the id of the broken rule, and explains the rule in one line. The package needs only
// this module, so any backend can use it:
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
// restart, a count of calls) let more cases run. Cases that lack a function are skipped, and the
// report lists them with the reason. [KVFaults] and [KVDamage] cause faults around a store of
// package kv. [Proxy] causes faults in front of any server.
//
// [Run] does the same under any [T], and [Check] does it outside go test.
//
// # What it does not do
//
// The suite stops no processes and knows no particular store. Package system kills real servers,
// and cuts them off. The suite can show that faults exist, not that there are none. In the short
// form, its racing cases run thousands of interleavings. With [Harness.Long], they run twenty
// times as many. Each case records the answers to its clients, and checks them against the order
// that the store must have had.
package conformance
