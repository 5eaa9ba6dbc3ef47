package redis_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/backends/redis"
	"github.com/tenure-go/tenure/core"
)

// The leader sets its own key in a script that also checks the lease.
func ExampleGuardScript() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	addr := os.Getenv("REDIS_ADDR") // such as 127.0.0.1:6379
	b, err := redis.Open(ctx, &goredis.UniversalOptions{Addrs: []string{addr}}, "example",
		&redis.Options{Create: true}) // the first time only
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	client := goredis.NewClient(&goredis.Options{Addr: addr, MaxRetries: -1}) // a retry might pay twice
	defer client.Close()
	script, err := redis.GuardScript(`return redis.call('SET', KEYS[1], ARGV[1])`)
	if err != nil {
		log.Fatal(err)
	}

	pay := func(fence core.Fence) error {
		keys, args := b.Guard(fence, []string{"{example}/paid/42"}, "yes")
		return script.Run(ctx, client, keys, args...).Err()
	}
	var fence core.Fence
	err = core.RunSingleton(ctx, b, "payments", func(_ context.Context, lease *core.Lease) error {
		fence = lease.Fence()
		return pay(fence)
	}, nil)
	fmt.Println("as leader:", err)
	fmt.Println("afterwards fenced:", redis.Fenced(pay(fence)))
	// Output:
	// as leader: <nil>
	// afterwards fenced: true
}
