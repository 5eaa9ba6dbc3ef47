package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v4"

	"github.com/tenure-go/tenure/core/driver"
)

type node struct {
	kind   kind
	value  string // the text of a scalar
	secret bool   // the value comes from !file or !env
	where  string // such as "app.yaml:12" or "TENURE__TTL"
	keys   []string
	fields map[string]*node
	items  []*node
}

type kind uint8

const (
	absent kind = iota // a key without a value
	scalar
	mapping
	list
)

func (k kind) String() string {
	return [...]string{"nothing", "a value", "a group of keys", "a list"}[k]
}

func newMapping(where string) *node {
	return &node{kind: mapping, where: where, fields: make(map[string]*node)}
}

func (n *node) set(key string, v *node) {
	if _, ok := n.fields[key]; !ok {
		n.keys = append(n.keys, key)
	}
	n.fields[key] = v
}

// field returns nil if n is not a mapping or lacks the key.
func (n *node) field(key string) *node {
	if n == nil {
		return nil
	}
	return n.fields[key]
}

// These limits are large enough for any configuration written by hand.
const (
	maxFile  = 1 << 20
	maxNodes = 10_000
	maxDepth = 32
	maxKey   = 256 // maximum length of a key, in bytes
)

// reader turns YAML into nodes. Its limits apply to the whole document, because aliases can repeat
// any part of it.
type reader struct {
	file    string
	env     func(string) (string, bool)
	left    int // number of nodes that may still be created
	secrets int // number of bytes that may still be read from files
	depth   int
}

// subtree reads the mapping at path. If the mapping is missing, subtree returns an empty mapping.
func (r *reader) subtree(data []byte, path []string) (*node, error) {
	top := newMapping(r.file)
	if len(data) > maxFile {
		return nil, fmt.Errorf("tenure: configuration %s has %d bytes: the limit is %d", r.file, len(data), maxFile)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return top, nil
	} else if err != nil && strings.Contains(err.Error(), "unknown anchor") {
		// The text of the alias may be a password that was written without quotes.
		return nil, fmt.Errorf("tenure: configuration %s is not YAML: an alias has no anchor: %s", r.file, quoteAdvice)
	} else if err != nil {
		return nil, fmt.Errorf("tenure: configuration %s is not YAML: %w", r.file, err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("tenure: configuration %s has more than one YAML document: keep one", r.file)
	}
	at := doc.Content[0]
	for i, key := range path {
		if at.Kind != yaml.MappingNode {
			return nil, fmt.Errorf("%s: %s: got %s where keys are expected", r.at(at), strings.Join(path[:i], "."),
				describe(at))
		}
		next := -1
		for k := 0; k < len(at.Content); k += 2 {
			if at.Content[k].Value == key {
				if next >= 0 {
					return nil, fmt.Errorf("%s: key %s occurs twice: remove one", r.at(at.Content[k]),
						strings.Join(path[:i+1], "."))
				}
				next = k + 1
			}
		}
		if next < 0 {
			return top, nil
		}
		at = at.Content[next]
	}
	n, err := r.convert(at, strings.Join(path, "."))
	if err != nil || n.kind == absent {
		return top, err
	}
	if n.kind != mapping {
		return nil, fmt.Errorf("%s: %s: got %s where keys are expected", n.where, strings.Join(path, "."), n.kind)
	}
	return n, nil
}

func (r *reader) at(y *yaml.Node) string { return fmt.Sprintf("%s:%d", r.file, y.Line) }

func describe(y *yaml.Node) string {
	switch y.Kind {
	case yaml.SequenceNode:
		return list.String()
	case yaml.MappingNode:
		return mapping.String()
	}
	return scalar.String()
}

func (r *reader) convert(y *yaml.Node, path string) (*node, error) {
	where := r.at(y)
	if r.left--; r.left < 0 {
		return nil, fmt.Errorf("%s: %s: more than %d values: remove aliases that repeat each other", where, path,
			maxNodes)
	}
	if y.Kind == yaml.AliasNode {
		return r.convert(y.Alias, path)
	}
	if r.depth++; r.depth > maxDepth {
		return nil, fmt.Errorf("%s: %s: more than %d levels: remove an alias that contains itself, or groups", where,
			path, maxDepth)
	}
	defer func() { r.depth-- }()
	switch y.Kind {
	case yaml.SequenceNode:
		n := &node{kind: list, where: where}
		for i, item := range y.Content {
			v, err := r.convert(item, fmt.Sprintf("%s[%d]", path, i))
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, v)
		}
		return n, nil
	case yaml.MappingNode:
		n := newMapping(where)
		for i := 0; i < len(y.Content); i += 2 {
			key := y.Content[i].Value
			if y.Content[i].Kind != yaml.ScalarNode || key == "<<" {
				return nil, fmt.Errorf("%s: %s: a key is a plain word here: write it out", r.at(y.Content[i]), path)
			}
			if len(key) > maxKey {
				return nil, fmt.Errorf("%s: %s: a key has %d bytes: the limit is %d", r.at(y.Content[i]), path,
					len(key), maxKey)
			}
			if _, twice := n.fields[key]; twice {
				return nil, fmt.Errorf("%s: key %s.%s occurs twice: remove one", r.at(y.Content[i]), path, key)
			}
			v, err := r.convert(y.Content[i+1], path+"."+key)
			if err != nil {
				return nil, err
			}
			n.set(key, v)
		}
		return n, nil
	}
	return r.scalar(y, path)
}

// scalar reads a value. Its errors do not quote the text after !file or !env, which may be a
// misplaced password.
func (r *reader) scalar(y *yaml.Node, path string) (*node, error) {
	where := r.at(y)
	n := &node{kind: scalar, value: y.Value, where: where}
	switch tag := y.ShortTag(); {
	case tag == "!!null":
		n.kind = absent
	case tag == "!file":
		n.secret = true
		var err error
		if n.value, err = driver.ReadSecret(y.Value); err != nil {
			return nil, fmt.Errorf("%s: %s: the file after !file: %w: create the file, or correct the path", where,
				path, err)
		}
		if r.secrets -= len(n.value); r.secrets < 0 {
			return nil, fmt.Errorf("%s: %s: the files after !file have more than %d bytes: remove aliases that "+
				"repeat them", where, path, maxFile)
		}
	case tag == "!env":
		n.secret = true
		var ok bool
		if n.value, ok = r.env(y.Value); !ok {
			return nil, fmt.Errorf("%s: %s: the environment has no variable of the name after !env: set it, or "+
				"correct the name", where, path)
		}
	case !slices.Contains(yamlTags, tag): // the tag itself may be a password
		return nil, fmt.Errorf("%s: %s: an unknown tag: use !file or !env, and %s", where, path, quoteAdvice)
	}
	return n, nil
}

const quoteAdvice = "quote a value that begins with ! or *"

// yamlTags are the tags that YAML gives to scalars. Other tags that begin with two exclamation
// marks may be passwords.
var yamlTags = []string{"!!str", "!!bool", "!!int", "!!float", "!!timestamp", "!!binary", "!!merge"}

// overlay applies environment variables, sorted by name.
func (n *node) overlay(prefix string, environ []string) error {
	environ = slices.Sorted(slices.Values(environ))
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		path := strings.Split(strings.ToLower(rest), "__")
		at := n
		for i, key := range path {
			if key == "" {
				return fmt.Errorf("%s: a part of the name is empty: write %sKEY or %sGROUP__KEY", name, prefix, prefix)
			}
			if i == len(path)-1 {
				at.set(key, &node{kind: scalar, value: value, where: name})
				break
			}
			next := at.fields[key]
			switch {
			case next == nil || next.kind == absent:
				next = newMapping(name)
				at.set(key, next)
			case next.kind != mapping:
				return fmt.Errorf("%s: %s is %s in %s, so nothing can be set below it: correct the name",
					name, strings.Join(path[:i+1], "."), next.kind, next.where)
			}
			at = next
		}
	}
	return nil
}
