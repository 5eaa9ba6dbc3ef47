package doctest

import (
	"regexp"
	"strings"
	"testing"
)

var (
	goWord   = regexp.MustCompile(`\b(?:core\.)?(?:Options\.)?([A-Z][A-Za-z]*)\b`)
	ifUnset  = regexp.MustCompile(`Default \((?:0|""|nil)\)`)
	inGoOnly = regexp.MustCompile(`\b(?:Open[A-Z]\w*|new\(|Default[A-Z]\w*|\w+Options)\b`)
)

// inFile converts comments for programmers to text for authors of configuration files: it replaces
// field names with keys.
func inFile(t *testing.T, dir string, keys []key) {
	t.Helper()
	names := map[string]string{"Watchdog": "`watchdog`", "Meta": "`meta`"} // fields of core.Options
	for _, k := range keys {
		names[k.field] = "`" + k.name + "`"
	}
	for i, k := range keys {
		text := goWord.ReplaceAllStringFunc(ifUnset.ReplaceAllString(k.says, "Default"), func(word string) string {
			m := goWord.FindStringSubmatch(word)
			if is := names[m[1]]; is != "" && (is != "`"+strings.ToLower(m[1])+"`" || word != m[1] || !plain[m[1]]) {
				return is
			}
			return word
		})
		if found := inGoOnly.FindString(text); found != "" {
			t.Errorf("%s: the comment of %s, which docs/configuration.md shows, has %s: say it without Go", dir, k.field, found)
		}
		keys[i].says = text
	}
}

// plain are fields whose names are also words, or names of other things.
var plain = map[string]bool{"TLS": true, "Name": true, "Schema": true, "Shards": true, "For": true}
