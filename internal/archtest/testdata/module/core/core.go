package core

import (
	"sync"

	"example.com/synthetic/core/driver"
	"example.com/synthetic/core/fsm"
	_ "example.com/synthetic/follower" // want `core may not import example.com/synthetic/follower`
)

var ErrFenced = driver.ErrFenced

var Default = fsm.New(1) // want `package-level state Default`

var mu sync.Mutex // want `package-level state mu`

var causes = map[string]string{"lost": "lost"}

var table = []int{1, 2, 3}

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
