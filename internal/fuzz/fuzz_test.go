// Package fuzz has the fuzz targets of packages whose own tests link databases: the
// fuzzer would instrument those, too, which takes minutes.
package fuzz

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/fence"
)

func FuzzConfig(f *testing.F) {
	f.Add("tenure: {backend: a, backends: {a: {path: x}}, ttl: 5s, meta: {b: c}}", "TENURE__TTL=3s")
	f.Add("tenure: {meta: {a: !env X}}", "X=1")
	f.Add("tenure: &a {backends: *a}", "TENURE__BACKENDS__A=1")
	f.Add("x: &x {y: [*x, *x]}\ntenure: {meta: &m {a: &b [*m, *b]}, node: *x}", "A=1")
	f.Add("a: &a {x: y}\nb: &b [*a, *a]\nc: &c [*b, *b]\ntenure: {meta: {x: *c}, ttl: *a}", "TENURE__META__B=1")
	f.Add("tenure:\n  node: !env planted\n  ttl: !!int planted\n  meta: {<<: *planted}", "B=planted")
	type settings struct {
		Path  string `yaml:"path"`
		Count *uint8 `yaml:"count"`
	}
	opener := core.Opener{Name: "a", Settings: settings{}}
	f.Fuzz(func(t *testing.T, text, env string) {
		if strings.Contains(text, "!file") {
			return // reads what the fuzzer makes up
		}
		began := time.Now()
		c, err := config.Load(&config.LoadOptions{Path: "app.yaml", Data: []byte(text), Environ: []string{env}})
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("loading took %v", took)
		}
		if err != nil {
			if !errors.Is(err, core.ErrInvalid) {
				t.Errorf("%v", err)
			}
			if got := len(err.Error()); got > 1<<20+100*len(text) {
				t.Errorf("an error of %d bytes for %d", got, len(text))
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
