package certify

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/suite"
	"github.com/tenure-go/tenure/internal/proof/system"
)

const unprivileged = "it would need rights over the server's process"

// system runs the system suite, or its control.
func (r *run) system(ctx context.Context, control bool) {
	phase, seeds := System, r.Seeds
	if control {
		phase, seeds = Control, r.ControlSeeds
	}
	through, cut, heal := r.proxies(phase)
	defer heal()
	r.report.skip(string(phase)+": the store restarts, or pauses", unprivileged)
	var mu sync.Mutex
	played := 0
	t := suite.NewRunner(1, func(string) {
		mu.Lock()
		defer mu.Unlock()
		played++
		r.say("%s: %d of %d runs", phase, played, seeds)
	}, r.scrub)
	r.say("%s: %d runs with a TTL of %v", phase, seeds, r.TTL)
	c := system.Config{
		Opener: r.Opener, Seeds: seeds, First: r.First, Steps: r.Steps, TTL: r.TTL, Control: control,
		Store: func(_ conformance.T, seed uint64) *system.Store {
			return &system.Store{Options: through.in(r.name(fmt.Sprintf("/%s-seed%d", phase, seed)), true), Cut: cut}
		},
	}
	by := &system.Caller{Again: func(seed uint64) string {
		return fmt.Sprintf("tenure certify --only %s --first-seed %d --seeds 1 --control-seeds 1 --ttl %v --steps %d",
			phase, seed, r.TTL, r.Steps)
	}}
	if r.Folder != nil {
		by.Keep = r.Folder.path
	}
	var report *system.Report
	errs := t.Do(ctx, string(phase), func(t conformance.T) { report = system.Play(t, c, by) })
	r.report.played(phase, seeds, report, errs)
}

// proxies puts a proxy in front of each server, if possible. It returns the settings with which
// members reach the store.
func (r *run) proxies(phase Phase) (through settings, cut system.Fault, end func()) {
	skip := func(why string) { r.report.skip(string(phase)+": the store is cut off", why) }
	if r.through == nil {
		skip(r.uncut)
		return r.settings, nil, func() {}
	}
	var all []*faultproxy.Proxy
	end = func() {
		for _, p := range all {
			_ = p.Close() // a cut connection may fail to close
		}
	}
	var addrs []string
	var cuts []system.Fault
	for _, addr := range r.addrs {
		p, err := faultproxy.New(addr, nil)
		if err != nil {
			end()
			skip(r.scrub(strings.TrimPrefix(err.Error(), "tenure: ")))
			return r.settings, nil, func() {}
		}
		all, addrs, cuts = append(all, p), append(addrs, p.Addr()), append(cuts, system.Cutting(p))
	}
	return r.target.through(addrs), system.Together(cuts), end
}
