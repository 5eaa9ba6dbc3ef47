package config

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

const hidden = "xxxxx"

// isSecret reports whether a type hides its value when printed. Such a type is a string with its
// own Format method; the Settings of backends use it for credentials.
func isSecret(t reflect.Type) bool {
	return t.Kind() == reflect.String && t.Implements(reflect.TypeFor[fmt.Formatter]())
}

// suspicious reports whether a value may be a credential although its type does not say so. The key
// may suggest it, or the value may be a URL with a user or contain a password.
func suspicious(key, value string) bool {
	key = strings.ToLower(key)
	for _, word := range []string{"password", "passwd", "secret", "token", "credential", "dsn", "private", "apikey",
		"api_key"} {
		if strings.Contains(key, word) && !strings.HasSuffix(key, "_file") {
			return true
		}
	}
	return strings.Contains(value, "@") && strings.ContainsAny(value, ":/") || password.MatchString(value)
}

// password matches a URL or data source name with a password.
var password = regexp.MustCompile(`(?i)(://[^/@]*:.*@|^[^/:@]{2,}:.*@|\b(password|passwd|pwd)\s*=)`)

func (n *node) holdsPassword() bool { return n.kind == scalar && password.MatchString(n.value) }

// show quotes a value for a message, unless it may be a secret. t is nil if the type is unknown.
func show(n *node, t reflect.Type) string {
	if n.secret || t != nil && isSecret(t) || suspicious("", n.value) {
		return hidden
	}
	const most = 60
	if v := n.value; len(v) > most {
		return fmt.Sprintf("%q...", v[:most])
	}
	return fmt.Sprintf("%q", n.value)
}
