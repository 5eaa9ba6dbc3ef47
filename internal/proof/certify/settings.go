package certify

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

// settings are those of a backend by their names in configuration, with its secrets, and
// without those that have their default.
type settings map[string]any

// settingsOf reads an opener's struct of settings.
func settingsOf(v any) settings {
	s := settings{}
	s.take(reflect.ValueOf(v))
	return s
}

func (s settings) take(v reflect.Value) {
	v = reflect.Indirect(v)
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch value := reflect.Indirect(v.Field(i)); {
		case name == "-" || !field.IsExported() || !value.IsValid() || v.Field(i).IsZero():
		case field.Anonymous && name == "":
			s.take(value)
		case value.Kind() == reflect.String:
			s[name] = value.String() // as it is, where the type is driver.Secret
		default:
			s[name] = value.Interface()
		}
	}
}

func (s settings) text(name, otherwise string) string {
	if v, ok := s[name].(string); ok && v != "" {
		return v
	}
	return otherwise
}

// list is a setting that is a list.
func (s settings) list(name string) []string {
	v, _ := s[name].([]string)
	return v
}

// passwordIn is the password in the option password_file.
func (s settings) passwordIn() string { return s.fileIn("password_file") }

// fileIn is the secret in the file that an option names; opening the backend
// reports a file that cannot be read.
func (s settings) fileIn(option string) string {
	path := s.text(option, "")
	if path == "" {
		return ""
	}
	text, err := driver.ReadSecret(path)
	if err != nil {
		return ""
	}
	return text
}

// in are the settings for a namespace.
func (s settings) in(namespace string, create bool) settings {
	all := maps.Clone(s)
	all["namespace"], all["create"] = namespace, create
	return all
}

// open opens a namespace with an opener, as an application does.
func (s settings) open(ctx context.Context, o driver.Opener) (driver.Backend, error) {
	return o.Open(ctx, func(into any) error {
		text, err := json.Marshal(s)
		if err != nil {
			return err
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		return d.Decode(into)
	})
}

// hidden are settings that no output shows. Those of a data source name are shown as where
// the store is.
var hidden = []string{"dsn", "password", "sentinel_password", "token"}

// shown are the settings for people, without secrets.
func (s settings) shown() []Setting {
	var out []Setting
	for _, name := range slices.Sorted(maps.Keys(s)) {
		value := fmt.Sprint(s[name])
		if list, ok := s[name].([]string); ok {
			value = strings.Join(list, ", ")
		}
		if slices.Contains(hidden, name) {
			value = "xxxxx"
		}
		out = append(out, Setting{Name: name, Value: value})
	}
	return out
}

// secrets are the words that no output may have.
func (s settings) secrets() []string {
	out := []string{s.passwordIn(), s.fileIn("token_file")}
	for _, name := range hidden {
		out = append(out, s.text(name, ""))
	}
	for _, name := range []string{"CONSUL_HTTP_TOKEN", "PGPASSWORD"} {
		out = append(out, os.Getenv(name)) // which the backends' clients read
	}
	return out
}

// scrubber replaces secrets, in each form in which a message may quote them.
func scrubber(secrets []string) func(string) string {
	var words []string
	for _, secret := range secrets {
		for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret), url.UserPassword("", secret).String()[1:],
			within(strconv.Quote(secret)), within(strconv.QuoteToASCII(secret)), inJSON(secret)} {
			if form = strings.TrimSuffix(form, "@"); form != "" && !slices.Contains(words, form) {
				words = append(words, form)
			}
		}
	}
	// The longest first: one may be a part of another.
	slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) })
	return func(text string) string {
		for _, word := range words {
			text = strings.ReplaceAll(text, word, "xxxxx")
		}
		return text
	}
}

func within(quoted string) string { return quoted[1 : len(quoted)-1] }

func inJSON(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return s
	}
	return within(string(b))
}
