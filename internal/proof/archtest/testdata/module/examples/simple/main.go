package main

import _ "example.com/synthetic/core/driver" // want `examples/simple may not import example.com/synthetic/core/driver`

func main() {}
