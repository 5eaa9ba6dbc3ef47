package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/backends/zookeeper"
	"github.com/tenure-go/tenure/core"
)

// The application chooses the root of the namespace, and only the application's user may read and
// write there.
func ExampleOpen() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	servers := strings.Split(os.Getenv("ZOOKEEPER_SERVERS"), ",") // such as zk-0:2181,zk-1:2181,zk-2:2181
	b, err := zookeeper.Open(ctx, servers, "example", &zookeeper.Options{
		Create: true, // the first time only
		Root:   "/shop/tenure", User: "shop", Password: "secret",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	err = core.RunSingleton(ctx, b, "hello", func(ctx context.Context, lease *core.Lease) error {
		_, err := lease.Append(ctx, []byte("hello"))
		fmt.Println("wrote to the log of", lease.Shard())
		return err
	}, nil)
	fmt.Println("error:", err)

	other, err := connect(ctx, servers)
	if err != nil {
		log.Fatal(err)
	}
	defer other.Close()
	_, _, err = other.Children("/shop/tenure/example")
	fmt.Println("others are kept out:", errors.Is(err, zk.ErrNoAuth))
	// Output:
	// wrote to the log of hello
	// error: <nil>
	// others are kept out: true
}

// connect makes the application's own connection. Its calls end with ctx.
func connect(ctx context.Context, servers []string) (*zk.Conn, error) {
	conn, _, err := zk.Connect(servers, 10*time.Second, zk.WithLogger(log.New(io.Discard, "", 0)))
	if err == nil {
		context.AfterFunc(ctx, conn.Close)
	}
	return conn, err
}

// The leader makes its own node, in a Multi that ZooKeeper refuses once the lease has ended.
func ExampleBackend_GuardOps() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	servers := strings.Split(os.Getenv("ZOOKEEPER_SERVERS"), ",")
	b, err := zookeeper.Open(ctx, servers, "example", &zookeeper.Options{Create: true})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	conn, err := connect(ctx, servers)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	pay := func(guard []any) error {
		_, err := conn.Multi(append(guard, &zk.CreateRequest{
			Path: "/paid-", Data: []byte("42"), Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagSequence,
		})...)
		return err
	}
	var guard []any
	err = core.RunSingleton(ctx, b, "payments", func(ctx context.Context, lease *core.Lease) error {
		var err error
		if guard, err = b.GuardOps(ctx, lease.Fence()); err != nil {
			return err // matches core.ErrLost if another process leads
		}
		return pay(guard)
	}, nil)
	fmt.Println("as leader:", err)
	fmt.Println("afterwards refused:", errors.Is(pay(guard), zk.ErrBadVersion))
	// Output:
	// as leader: <nil>
	// afterwards refused: true
}
