//go:build ignore

package main

import _ "example.com/synthetic/surprise"

func init() {}
