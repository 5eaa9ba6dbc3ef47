package main

import (
	"cmp"
	"runtime/debug"

	"github.com/spf13/cobra"
)

type versionOut struct {
	Version string `json:"version"` // version of the module; "(devel)" if built from a working tree
	Commit  string `json:"commit"`  // commit of the working tree; "unknown" if the build recorded no commit
	Time    string `json:"time"`    // time of the commit
	// Modified reports whether the working tree differed from the commit.
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Say which version this is, and of which commit it was built", Args: args(),
		RunE: func(*cobra.Command, []string) error {
			o := built(debug.ReadBuildInfo())
			t := &table{}
			t.add("version", o.Version)
			commit := o.Commit
			if o.Modified {
				commit += ", with changes"
			}
			t.add("commit", commit)
			t.add("time", o.Time)
			t.add("go", o.Go)
			return a.print(o, t)
		}}
}

// built returns the version data that the go command recorded in the binary.
func built(info *debug.BuildInfo, ok bool) versionOut {
	o := versionOut{Version: "unknown", Commit: "unknown"}
	if !ok {
		return o
	}
	o.Version, o.Go = cmp.Or(info.Main.Version, o.Version), info.GoVersion
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			o.Commit = s.Value
		case "vcs.time":
			o.Time = s.Value
		case "vcs.modified":
			o.Modified = s.Value == "true"
		}
	}
	return o
}
