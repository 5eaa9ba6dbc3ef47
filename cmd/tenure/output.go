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

// A table is a result as text for people.
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

// printable returns a cell without characters that a terminal obeys.
func printable(s string) string {
	if s == "" {
		return "-"
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// print writes v as JSON or YAML, or the table.
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

// counted returns a number with its noun, such as "1 shard" or "2 shards".
func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// line writes one result of many: a line of JSON, a document of YAML, or text.
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

// asJSON returns v as JSON that a terminal can show.
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

// escaped replaces each character that a terminal obeys with the output of escape. These are
// control characters, including U+007F to U+009F, and format characters, such as those of the
// writing direction. In JSON, and in YAML made from it, such characters occur only within
// quotes.
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

// plainWriter escapes the characters that a terminal obeys in everything written to w,
// including results, errors and log lines.
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

// asYAML returns v as YAML that a terminal can show, with the keys and the order of its JSON.
func asYAML(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	// Some of these characters end a line in YAML.
	text = escaped(text, func(out []byte, r rune) []byte {
		if r > 0xffff {
			return utf8.AppendRune(out, r) // JSON's escape has two parts, which YAML reads as two characters
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

// block writes mappings and lists over several lines. Strings stay quoted, so that no reader
// mistakes one for a number.
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

// payload is bytes from the store, as text if they are text, otherwise as base64.
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
