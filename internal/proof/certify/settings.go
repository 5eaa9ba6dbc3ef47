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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

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
		if list := s.list(name); len(list) > 0 {
			value = shownAddresses(list)
		}
		switch {
		case name == "address":
			value = shownAddresses([]string{value})
		case slices.Contains(hidden, name):
			value = "xxxxx"
		}
		out = append(out, Setting{Name: name, Value: value})
	}
	return out
}

// shownAddresses are addresses for people. One that does not parse may have a password.
func shownAddresses(list []string) string {
	shown := slices.Clone(list)
	for i, a := range shown {
		if !isAddress(a) {
			shown[i] = "xxxxx"
		}
	}
	return strings.Join(shown, ", ")
}

var plainAddress = regexp.MustCompile(`^(https?://)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?\])(:[0-9]{1,5})?/?$`)

// isAddress reports whether an address is a host, with a port at most, and nothing else.
func isAddress(a string) bool { return plainAddress.MatchString(a) }

// addresses are those of the store's servers.
func (s settings) addresses() []string {
	var out []string
	for name := range s {
		out = append(out, s.list(name)...)
	}
	return append(out, s.text("address", ""))
}

// guessed are what may be the password in an address that is not understood, or not as its author meant it: all before the last
// "@", and the parts that a character divides which had to be escaped.
func guessed(address string) []string {
	if _, after, ok := strings.Cut(address, "://"); ok {
		address = after
	}
	at := strings.LastIndex(address, "@")
	if at < 0 {
		return nil
	}
	_, password, _ := strings.Cut(address[:at], ":")
	return append(strings.FieldsFunc(password, func(r rune) bool { return strings.ContainsRune("/?#@:", r) }), address[:at], password)
}

// secrets are the words that no output may have.
func (s settings) secrets() []string {
	out := []string{s.passwordIn(), s.fileIn("token_file")}
	for _, a := range s.addresses() {
		if !isAddress(a) {
			out = append(out, a)
			out = append(out, guessed(a)...)
		}
	}
	out = append(out, guessed(s.text("dsn", ""))...)
	for _, name := range hidden {
		out = append(out, s.text(name, ""))
	}
	for _, name := range []string{"CONSUL_HTTP_TOKEN", "CONSUL_HTTP_AUTH", "PGPASSWORD"} {
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
			text = without(text, word)
		}
		return text
	}
}

// longEnough is from how many bytes on a secret is replaced wherever it stands. A shorter one is replaced as a whole word,
// because "e" stands in most.
const longEnough = 8

// without is text without a secret.
func without(text, secret string) string {
	if len(secret) >= longEnough || strings.ContainsFunc(secret, func(r rune) bool { return !inWord(r) }) {
		return strings.ReplaceAll(text, secret, "xxxxx")
	}
	var b strings.Builder
	for before := rune(-1); ; {
		i := strings.Index(text, secret)
		if i < 0 {
			b.WriteString(text)
			return b.String()
		}
		if i > 0 {
			before, _ = utf8.DecodeLastRuneInString(text[:i])
		}
		after, _ := utf8.DecodeRuneInString(text[i+len(secret):])
		word := secret
		if !inWord(before) && !inWord(after) {
			word = "xxxxx"
		}
		b.WriteString(text[:i] + word)
		before, _ = utf8.DecodeLastRuneInString(secret)
		text = text[i+len(secret):]
	}
}

func inWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

func within(quoted string) string { return quoted[1 : len(quoted)-1] }

func inJSON(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return s
	}
	return within(string(b))
}
