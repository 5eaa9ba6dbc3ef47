package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// licences lists the licenses of modules that may be built into any program, each with words of its
// text. MPL is first, because its text names other licenses.
var licences = []struct{ name, words string }{
	{"MPL-2.0", "mozilla public license, version 2.0"},
	{"MPL-2.0", "mozilla public license version 2.0"},
	{"", "general public license"},
	{"", "business source license"},
	{"", "server side public license"},
	{"", "commons clause"},
	{"Apache-2.0", "apache license version 2.0"},
	{"BSD", "redistribution and use in source and binary forms, with or without modification, are permitted"},
	{"MIT", "permission is hereby granted, free of charge, to any person obtaining a copy of this software"},
	{"public domain", "sqlite is public domain"},
	{"ISC", "permission to use, copy, modify, and distribute this software for any purpose with or without fee is hereby granted"},
	{"ISC", "permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted"},
}

// licenceOf returns the name of a text's license, or "" if the license is forbidden or unknown.
func licenceOf(text string) string {
	text = strings.ToLower(strings.Join(strings.Fields(text), " "))
	for _, l := range licences {
		if strings.Contains(text, l.words) {
			return l.name
		}
	}
	return ""
}

// TestLicences reads the license of every module that is built into a package of this module,
// except tests.
func TestLicences(t *testing.T) {
	t.Parallel()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
		"{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Dir}}{{end}}{{end}}", "./...")
	list.Dir = filepath.Join("..", "..", "..")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := slices.Compact(slices.Sorted(strings.Lines(string(out))))
	if len(modules) < 20 {
		t.Fatalf("go list names %d modules, want 20 at least", len(modules))
	}
	for _, line := range modules {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, e := range entries {
			name := strings.ToLower(e.Name())
			// The picture of a README, and the licence of a documentation.
			if e.IsDir() || name == "license-logo" || name == "license.docs" {
				continue
			}
			if !strings.HasPrefix(name, "licen") && !strings.HasPrefix(name, "copying") {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			found++
			got := licenceOf(string(text))
			if got == "" {
				t.Errorf("%s: %s is of no licence that is allowed: use another module, or add the licence here", path,
					e.Name())
			}
			t.Logf("%s: %s", path, got)
		}
		if found == 0 {
			t.Errorf("%s has no licence: use another module", path)
		}
	}
}

// TestLicenceOf: a forbidden license is not mistaken for an allowed one.
func TestLicenceOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "All rights reserved.": "",
		"GNU GENERAL PUBLIC LICENSE\nVersion 3": "",
		"GNU AFFERO GENERAL PUBLIC LICENSE":     "",
		"GNU LESSER GENERAL PUBLIC LICENSE":     "",
		"Business Source License 1.1":           "",
		"Permission is hereby granted, free of charge, to any person obtaining a copy of this software, under " +
			"the GNU General Public License": "",
		"Apache License\n  Version 2.0, with the Commons Clause": "",
		"Mozilla Public License Version 2.0 ... Secondary License means the GNU General Public " +
			"License": "MPL-2.0",
		"  Apache License\n     Version 2.0, January 2004": "Apache-2.0",
	} {
		if got := licenceOf(text); got != want {
			t.Errorf("%q is taken for %q, want %q", text, got, want)
		}
	}
}
