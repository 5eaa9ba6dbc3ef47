package bucket_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"gocloud.dev/blob/memblob"

	"github.com/tenure-go/tenure/backends/bucket"
	"github.com/tenure-go/tenure/core"
)

// One leader on a bucket and nothing else. A real program opens s3://my-bucket instead.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	opened := memblob.OpenBucket(nil)
	defer opened.Close()
	b, err := bucket.OpenBucket(ctx, opened, "orders", &bucket.Options{Create: true})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	err = core.RunSingleton(ctx, b, "hello", func(ctx context.Context, lease *core.Lease) error {
		n, err := lease.Append(ctx, []byte("hello"))
		fmt.Println("wrote entry", n)
		return err
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// wrote entry 1
}
