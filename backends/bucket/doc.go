// Package bucket is a backend for a bucket of an object store: Amazon S3, Google Cloud Storage,
// Azure Blob Storage, or a server with the API of one of them. It needs no other store.
//
//	import _ "gocloud.dev/blob/s3blob" // the driver of your store
//
//	b, err := bucket.Open(ctx, "s3://my-bucket?region=eu-central-1", "orders", nil)
//
// [OpenBucket] uses a bucket that the caller has opened. See docs/backends/bucket.md for rights,
// costs and limits.
//
// # The log
//
// A namespace is a log of numbered objects. The only operation that must be atomic is to create an
// object if its name is free. Each object contains the writes of one or more transactions. Each
// process replays the log into memory, evaluates conditions there, and then creates the next
// object. If another process has created an object with this number, the process replays that
// object, and tries the next number. All calls that wait at the same time share one object, and
// heartbeats go first. A revision is the position of a transaction in the log.
//
// From time to time, a process writes all records into a checkpoint, and deletes the objects before
// the last checkpoint but one. A process that starts, or that was away for longer, begins at a
// checkpoint.
//
// # Why no write is lost
//
// Once an object has been deleted, its number is free again. A process that was suspended before a
// create may therefore create an object that nobody reads. Three rules prevent harm:
//
//   - Objects are deleted in ascending order, and each deletion is acknowledged before the next one
//     is sent. As long as an object of the log exists, no later object has been deleted.
//   - Each object contains a random number, its nonce, and the nonce of its predecessor.
//   - A process knows an object whose place in the log is proven. After a create, and after each
//     read of the log's end, the process reads this object again. If it still has its nonce, the
//     objects after it belong to the log, and the last of them takes its place. Otherwise, the
//     process begins at a checkpoint, and the outcome of its create is unknown.
//
// Watches deliver only objects whose place is proven. No rule depends on a clock. If a create gets
// no answer, the process reads the object and compares its nonce. An object that names a different
// predecessor counts as empty.
//
// # What it does not do
//
// If a bucket is emptied, or restored to an older version, a running process returns
// driver.ErrStoreChanged. A process that starts later cannot notice this, nor can a process if
// others have written a new checkpoint after the restore. Stop all processes, and call
// [RaiseFloor].
//
// The tests run on a bucket in memory, on versitygw, which has the API of Amazon S3, and on
// fake-gcs-server, which has the API of Google Cloud Storage. No test has run on a cloud. No test
// has run on Azure Blob Storage or on a server with its API. The command "tenure certify" opens no
// buckets. To test your bucket, run package conformance on it.
//
// If a bucket has versions, versitygw 1.8.0 takes the mark of a deletion for an object. After such a
// bucket was emptied, it can be used again only if its versions are removed, too.
//
// If the store's client sends a create twice, both requests have the same nonce. The second must
// not arrive after more than a thousand further objects have been written.
package bucket
