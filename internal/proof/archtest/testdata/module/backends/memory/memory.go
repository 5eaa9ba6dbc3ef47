package memory

import . "example.com/synthetic/core/driver" // want `dot import`

var version = "1"

var store = newStore() // want `package-level state store`

func newStore() Token { return 1 }
