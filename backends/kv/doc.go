// Package kv is a driver.Backend on anything that can do the few things which
// [Store] asks for.
package kv
