package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// A table is the human-readable form of a result.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = printable(fmt.Sprint(c))
	}
	t.rows = append(t.rows, row)
}

// printable quotes a cell with control characters, because a terminal would interpret them.
func printable(s string) string {
	if s == "" {
		return "-"
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// The table is printed unless the output format is JSON or YAML.
func (a *app) print(v any, t *table) error {
	switch a.format {
	case "json":
		text, err := asJSON(v, "  ")
		return errors.Join(err, a.write(text))
	case "yaml":
		text, err := asYAML(v)
		return errors.Join(err, a.write(text))
	}
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	if len(t.head) > 0 {
		_, _ = fmt.Fprintln(w, strings.Join(t.head, "\t"))
	}
	for _, r := range t.rows {
		_, _ = fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	return w.Flush()
}

// counted combines a number and a noun, as in "1 shard" or "2 shards".
func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// A stream consists of lines of JSON, YAML documents, or lines of text.
func (a *app) line(v any, text string) error {
	switch a.format {
	case "json":
		text, err := asJSON(v, "")
		return errors.Join(err, a.write(text))
	case "yaml":
		doc, err := asYAML(v)
		return errors.Join(err, a.write(append([]byte("---\n"), doc...)))
	}
	_, err := fmt.Fprintln(a.out, text)
	return err
}

func (a *app) write(text []byte) error {
	_, err := a.out.Write(text)
	return err
}

// asJSON returns JSON that is safe to show on a terminal.
func asJSON(v any, indent string) ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", indent)
	err := e.Encode(v)
	return escaped(text.Bytes(), func(out []byte, r rune) []byte {
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
		return out
	}), err
}

// escaped uses the given function to escape each character that a terminal interprets. Terminals
// interpret control characters, including U+007F to U+009F, and format characters, such as
// direction marks. In JSON, and in YAML made from JSON, such characters occur only within quotes.
func escaped(text []byte, escape func(out []byte, r rune) []byte) []byte {
	acts := func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
	if utf8.Valid(text) && !bytes.ContainsFunc(text, acts) {
		return text
	}
	var out []byte
	for _, r := range string(text) {
		if acts(r) {
			out = escape(out, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

// A plainWriter escapes the characters that a terminal interprets. All results, errors and log
// lines pass through a plainWriter.
type plainWriter struct{ w io.Writer }

func (p plainWriter) Write(text []byte) (int, error) {
	_, err := p.w.Write(escaped(text, func(out []byte, r rune) []byte {
		quoted := strconv.QuoteRuneToASCII(r)
		return append(out, quoted[1:len(quoted)-1]...)
	}))
	if err != nil {
		return 0, err
	}
	return len(text), nil
}

// asYAML returns YAML that is safe to show on a terminal. The keys are in the same order as in
// JSON.
func asYAML(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	// In YAML, some control characters end a line.
	text = escaped(text, func(out []byte, r rune) []byte {
		if r > 0xffff {
			return utf8.AppendRune(out, r) // YAML would read the two parts of JSON's escape as two characters
		}
		return fmt.Appendf(out, `\u%04x`, r)
	})
	var n yaml.Node
	if err := yaml.Unmarshal(text, &n); err != nil {
		return nil, err
	}
	block(&n)
	out, err := yaml.Marshal(&n)
	return escaped(out, func(out []byte, r rune) []byte { return fmt.Appendf(out, `\U%08x`, r) }), err
}

// In block style, mappings and lists take several lines. Strings stay quoted, so no reader mistakes
// a string for a number.
func block(n *yaml.Node) {
	if n.Kind != yaml.ScalarNode && len(n.Content) > 0 {
		n.Style = 0
	}
	for i, c := range n.Content {
		if block(c); n.Kind == yaml.MappingNode && i%2 == 0 && printable(c.Value) == c.Value {
			c.Style = 0
		}
	}
}

// A payload contains bytes from the store. Valid UTF-8 is shown as text, and other bytes as base64.
type payload struct {
	Text   *string `json:"text,omitempty"`
	Base64 []byte  `json:"base64,omitempty"`
}

func newPayload(b []byte) payload {
	if !utf8.Valid(b) {
		return payload{Base64: b}
	}
	s := string(b)
	return payload{Text: &s}
}

func (p payload) String() string {
	if p.Text != nil {
		return *p.Text
	}
	return string(p.Base64)
}
