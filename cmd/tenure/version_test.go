//go:build unix

package main

import (
	"debug/buildinfo"
	"runtime/debug"
	"strings"
	"testing"
)

// TestVersion: the command shows the commit that the go command wrote into it, and needs no
// configuration.
func TestVersion(t *testing.T) {
	t.Parallel()
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, path: "/nonexistent"}
	var got versionOut
	if p.decode(&got, "version"); got != built(info, true) || got.Go == "" || got.Commit == "" {
		t.Errorf("got %+v, want %+v", got, built(info, true))
	}
	if out, _ := p.run(exitOK, "version"); !strings.Contains(out, got.Commit) {
		t.Errorf("got %q, want the commit %s", out, got.Commit)
	}
	of := &debug.BuildInfo{GoVersion: "go1.26", Main: debug.Module{Version: "v0.1.0"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-01-01T00:00:00Z"}, {Key: "vcs.modified", Value: "true"}}}
	if got, want := built(of, true), (versionOut{"v0.1.0", "abc", "2026-01-01T00:00:00Z", true, "go1.26"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := built(nil, false); got.Commit != "unknown" || got.Version != "unknown" {
		t.Errorf("got %+v without anything", got)
	}
}
