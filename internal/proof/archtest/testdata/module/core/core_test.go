package core

import _ "example.com/synthetic/backends/etcd"

var state int

func init() { state++ }

func TestBombs() { _, _ = decodeTried(nil) }
