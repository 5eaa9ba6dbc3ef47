package driver

import (
	"log" // want `log where nothing is logged`

	_ "example.com/synthetic/core"             // want `may not import example.com/synthetic/core` `runs up from core/driver`
	_ "github.com/prometheus/client_golang/v1" // want `core/driver may not import`
)

var Registry = map[string]Opener{} // want `package-level state Registry`

func Register(o Opener) {
	Registry[o.Name] = o // want `assigns to the package-level variable Registry`
	log.Print("registered")
	println("registered") // want `println where nothing is printed`
}
