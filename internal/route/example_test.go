package route_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-go/tenure/internal/route"
)

// All calls go to one server until that server fails. A watch on that server then ends, and the
// caller begins a new one on another server.
func Example() {
	life, end := context.WithCancel(context.Background())
	defer end()
	servers := []string{"store-0:7000", "store-1:7000", "store-2:7000"}
	routes := route.New(life, len(servers), 0)
	watch := routes.Watch(life)

	refused := errors.New("connection refused")
	for _, answer := range []error{nil, refused, nil} { // as the server gives it
		trip := routes.Call(life)
		fmt.Println("asked", servers[trip.Server])
		outcome := route.Answered
		if answer != nil {
			outcome = route.Failed
		}
		trip.Done(outcome)
	}

	<-watch.Context.Done()
	fmt.Println("the watch moves:", errors.Is(context.Cause(watch.Context), route.ErrMoved))
	watch.Done(route.Ended)
	// Output:
	// asked store-0:7000
	// asked store-0:7000
	// asked store-1:7000
	// the watch moves: true
}
