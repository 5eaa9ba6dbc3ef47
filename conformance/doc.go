// Package conformance is the driver-level suite that every backend of Tenure must pass: one
// exported function, a harness of funcs, and cases named "Area/Property". A failure begins with the
// id of the broken rule and explains it in one line. The package needs only this module, so any
// backend can use it:
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
// Open is enough to begin with. Other functions of a [Store] (faults of the network, a compaction,
// a restart, counting calls) let more cases run. The others are skipped, and the report lists them
// with the reason. [KVFaults] and [KVDamage] cause faults around a store of package kv, and [Proxy]
// before any server.
//
// [Run] does the same under any [T], and [Check] outside of go test.
//
// # What it does not do
//
// The suite does not stop processes and knows no store. Package system kills real servers and cuts
// them off. The suite can show that faults exist, not that there are none. In the short form its
// racing cases run thousands of interleavings, and with [Harness.Long] twenty times as many. Each
// records its clients' answers and checks them against the order that the store must have had.
package conformance
