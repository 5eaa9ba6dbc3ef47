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

// settings contains a backend's settings by configuration key, including secrets. Settings with
// their default value are omitted.
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
			s[name] = value.String() // unmasked, because the type may be driver.Secret
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

// list returns a setting that is a list.
func (s settings) list(name string) []string {
	v, _ := s[name].([]string)
	return v
}

// passwordIn returns the password in the file of the option password_file.
func (s settings) passwordIn() string { return s.fileIn("password_file") }

// fileIn returns the secret in the file that an option specifies. If the file cannot be read, the
// error appears when the backend is opened.
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

// hidden lists the settings that no output shows. Outputs show the store's address instead of a
// data source name.
var hidden = []string{"dsn", "password", "sentinel_password", "token"}

// These are the settings to display, without secrets.
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

// shownAddresses returns addresses in a form that is safe to show. An address that does not parse
// may contain a password.
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

// isAddress reports whether an address is a host with an optional port, and nothing else.
func isAddress(a string) bool { return plainAddress.MatchString(a) }

// addresses returns the addresses of the store's servers.
func (s settings) addresses() []string {
	var out []string
	for name := range s {
		out = append(out, s.list(name)...)
	}
	return append(out, s.text("address", ""))
}

// The results are possible passwords from an address that does not parse, or that does not parse as
// its author intended. The candidates are everything before the last "@", and the parts between
// characters that should have been escaped.
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

// secrets returns the words that no output may contain.
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
		out = append(out, os.Getenv(name)) // the backends' clients read it
	}
	return out
}

// scrubber returns a function that replaces secrets in a message. The function recognizes every
// form in which a message may quote a secret.
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
	// The longest secret comes first, because one secret may be part of another.
	slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) })
	return func(text string) string {
		for _, word := range words {
			text = without(text, word)
		}
		return text
	}
}

// longEnough is the minimum length, in bytes, of a secret that is replaced at any position. Shorter
// secrets, such as "e", occur in most texts, so they are replaced only as whole words.
const longEnough = 8

// The result is the text with a secret replaced.
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
