// Package conformance is the driver-level suite that every backend of Tenure
// must pass: one exported function, a harness of funcs, and cases named
// "Area/Property" whose failures begin with the id of the rule that was broken
// and explain it in one line. It needs nothing beside this module, so that a backend
// anywhere can use it:
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
// Open is enough to begin with. Other functions of a [Store] (faults of the
// network, a compaction, a restart, counting calls) let more cases run; those that
// cannot are skipped, and the report lists them with the reason. [KVFaults] and
// [KVDamage] cause them around a store of package kv, [Proxy] before any server.
//
// [Run] does the same under any [T], and [Check] outside of go test.
//
// # What it does not do
//
// The suite does not stop processes and knows no store: real servers, killed and
// cut off, are the system suite's. It shows the presence of faults. The racing
// cases look at thousands of interleavings in the short form and at twenty times as
// many with [Harness.Long]; each records its clients' answers and checks them
// against the order that the store must have had.
package conformance
