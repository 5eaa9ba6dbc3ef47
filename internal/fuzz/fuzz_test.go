// Package fuzz has the fuzz targets of packages whose own tests link databases: the
// fuzzer would instrument those, too, which takes minutes.
package fuzz

import (
	"errors"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/fence"
)

func FuzzConfig(f *testing.F) {
	f.Add("tenure: {backend: a, backends: {a: {path: x}}, ttl: 5s, meta: {b: c}}", "TENURE__TTL=3s")
	f.Add("tenure: {meta: {a: !env X}}", "X=1")
	f.Add("tenure: &a {backends: *a}", "TENURE__BACKENDS__A=1")
	type settings struct {
		Path  string `yaml:"path"`
		Count *uint8 `yaml:"count"`
	}
	opener := core.Opener{Name: "a", Settings: settings{}}
	f.Fuzz(func(t *testing.T, text, env string) {
		if strings.Contains(text, "!file") {
			return // reads what the fuzzer makes up
		}
		c, err := config.Load(&config.LoadOptions{Path: "app.yaml", Data: []byte(text), Environ: []string{env}})
		if err != nil {
			if !errors.Is(err, core.ErrInvalid) {
				t.Errorf("%v", err)
			}
			return
		}
		_ = c.Validate(opener)
		_ = c.Redacted(opener)
	})
}

func FuzzFence(f *testing.F) {
	f.Add("ledger/S1/42")
	f.Add("a/b/9223372036854775807")
	f.Fuzz(func(t *testing.T, s string) {
		v, err := fence.Parse(s)
		if err != nil {
			return
		}
		if got := fence.Format(v); got != s {
			t.Errorf("%q became %q", s, got)
		}
	})
}
