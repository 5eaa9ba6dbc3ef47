package redis

import (
	"os"
	"regexp"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/proof/servers"
)

// recipe returns the permissions from docs/backends/redis.md for the keys of namespaces that match
// a pattern.
func recipe(t testing.TB, namespaces string) []any {
	t.Helper()
	page, err := os.ReadFile("../../docs/backends/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ACL SETUSER tenure on >PASSWORD (.*)$`).FindSubmatch(page)
	if line == nil {
		t.Fatal("docs/backends/redis.md has no line ACL SETUSER tenure on >PASSWORD ...")
	}
	rights := strings.ReplaceAll(string(line[1]), "{orders}/*", "{"+namespaces)
	var args []any
	for _, f := range strings.Fields(rights) {
		args = append(args, f)
	}
	return args
}

// asUser returns the configuration of a user with the recipe's permissions.
func asUser(t testing.TB, s *servers.Server, namespaces string) *goredis.UniversalOptions {
	t.Helper()
	c := config(t, s)
	admin := newAdmin(t, c)
	args := append([]any{"ACL", "SETUSER", "tenure", "on", ">secret"}, recipe(t, namespaces)...)
	if err := admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	c.Username, c.Password = "tenure", "secret"
	return c
}
