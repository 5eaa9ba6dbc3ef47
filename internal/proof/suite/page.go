package suite

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
)

// Page is a report in Markdown.
type Page struct{ bytes.Buffer }

// Printf writes Markdown. String arguments may be untrusted, so Printf applies Plain to them.
// Arguments of other types are trusted.
func (p *Page) Printf(format string, args ...any) {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = Plain(s)
		}
	}
	fmt.Fprintf(&p.Buffer, format, args...)
}

// maxText is the maximum number of characters in a Markdown value. The JSON report contains the
// whole value.
const maxText = 1000

// Plain makes untrusted text safe for Markdown. The result is one line, without characters that
// have a special meaning in Markdown, HTML or a terminal.
func Plain(s string) string {
	var b strings.Builder
	n := 0
	for _, c := range s {
		if n++; n > maxText {
			b.WriteString("...")
			break
		}
		switch {
		case unicode.IsSpace(c):
			b.WriteByte(' ')
		case !unicode.IsPrint(c):
			fmt.Fprintf(&b, "\\\\u%04x", c)
		case strings.ContainsRune("\\`*_{}[]<>&|#~$", c):
			b.WriteByte('\\')
			b.WriteRune(c)
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}
