package config

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

const hidden = "xxxxx"

// isSecret reports whether t is a string type whose Format method hides the value. Backends'
// settings use such types for credentials.
func isSecret(t reflect.Type) bool {
	return t.Kind() == reflect.String && t.Implements(reflect.TypeFor[fmt.Formatter]())
}

// suspicious reports whether a value of an ordinary type may be a credential: its key suggests one,
// it is a URL with a user, or it contains a password.
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

// show quotes a value for a message unless it may be a secret. A nil t means that the type is
// unknown.
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
