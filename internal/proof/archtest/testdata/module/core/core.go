package core

import (
	"sync"

	"example.com/synthetic/core/driver"
	_ "example.com/synthetic/follower" // want `core may not import example.com/synthetic/follower` `runs up from core`
	"example.com/synthetic/internal/fsm"
)

var ErrFenced = driver.ErrFenced

var Default = fsm.New(1) // want `package-level state Default`

var mu sync.Mutex // want `package-level state mu`

var causes = map[string]string{"lost": "lost"}

var table = []int{1, 2, 3}

var pool = sync.Pool{} // want `package-level state pool`

var known = registry{}

type registry struct{ names []string }

func (r registry) len() int { return len(r.names) }

func (r *registry) add(name string) { r.names = append(r.names, name) }

func Register(name string) {
	known.add(name) // want `takes the address of the package-level variable known`
	_ = known.len()
	own := registry{}
	own.add(name)
}

type Clock interface {
	Now() int64 // want `interface for the clock`
}

func init() { // want `func init`
	driver.ErrHeld = nil // want `assigns to the package-level variable example.com/synthetic/core/driver.ErrHeld`
}

func forget(tx any, causesTx interface{}) { // want `transaction tx of type any` `transaction causesTx of type any`
	delete(causes, "lost") // want `changes the package-level variable causes`
	table[0]++             // want `assigns to the package-level variable table`
	p := &table            // want `takes the address of the package-level variable table`
	_ = p
	causes := map[string]string{}
	causes["a local of the same name"] = "is another variable"
}
