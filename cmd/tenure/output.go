package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// A table is how a result is shown to people.
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

// printable is a cell without anything that a terminal acts on.
func printable(s string) string {
	if s == "" {
		return "-"
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// print shows a result: v in JSON or YAML, else the table.
func (a *app) print(v any, t *table) error {
	switch a.format {
	case "json":
		e := json.NewEncoder(a.out)
		e.SetIndent("", "  ")
		return e.Encode(v)
	case "yaml":
		text, err := asYAML(v)
		if err != nil {
			return err
		}
		_, err = a.out.Write(text)
		return err
	}
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	if len(t.head) > 0 {
		fmt.Fprintln(w, strings.Join(t.head, "\t"))
	}
	for _, r := range t.rows {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	return w.Flush()
}

// line shows one result of many: a line of JSON, a document of YAML, or text.
func (a *app) line(v any, text string) error {
	switch a.format {
	case "json":
		return json.NewEncoder(a.out).Encode(v)
	case "yaml":
		doc, err := asYAML(v)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.out, "---\n%s", doc)
		return err
	}
	_, err := fmt.Fprintln(a.out, text)
	return err
}

// asYAML is v with the keys that it has in JSON, in their order.
func asYAML(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var n yaml.Node
	if err := yaml.Unmarshal(text, &n); err != nil {
		return nil, err
	}
	block(&n)
	return yaml.Marshal(&n)
}

// block writes mappings and lists over several lines. Values that are strings stay
// quoted, so that no reader takes one for a number.
func block(n *yaml.Node) {
	if n.Kind != yaml.ScalarNode && len(n.Content) > 0 {
		n.Style = 0
	}
	for i, c := range n.Content {
		if block(c); n.Kind == yaml.MappingNode && i%2 == 0 {
			c.Style = 0
		}
	}
}

// payload is bytes from the store: text where they are, else base64.
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
