package fsm

import (
	"math/rand/v2"
	"sync" // want `internal/fsm may not import sync`
	"time"

	"example.com/synthetic/core/driver"
)

type Instant = time.Duration

type Machine struct {
	mu   sync.Mutex
	rand *rand.Rand
	held map[string]driver.Token
	wake chan Instant // want `channel in the pure machine`
}

func New(seed uint64) *Machine {
	return &Machine{rand: rand.New(rand.NewPCG(seed, 0))}
}

func (m *Machine) Step() time.Duration {
	go m.Step()       // want `goroutine in the pure machine`
	_ = time.Now()    // want `time.Now in the pure machine`
	_ = rand.IntN(10) // want `math/rand/v2.IntN in the pure machine`
	select {}         // want `select in the pure machine`
}

// A method of the caller's source is not the top-level function of its name.
func (m *Machine) jitter() time.Duration { return time.Duration(m.rand.IntN(10)) * time.Millisecond }

// A local that shadows an import is not the import.
func shadow(time struct{ Now func() int }) int { return time.Now() }
