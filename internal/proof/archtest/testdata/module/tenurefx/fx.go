package tenurefx

import (
	_ "go.uber.org/fx"

	_ "example.com/synthetic/backends/etcd" // want `tenurefx may not import example.com/synthetic/backends/etcd`
	_ "example.com/synthetic/config"
	_ "example.com/synthetic/follower"
)
