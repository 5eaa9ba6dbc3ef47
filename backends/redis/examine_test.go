package redis

import (
	"slices"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// TestExamine: a finding names a user with all permissions. There are no problems with the recipe's
// user, or with the settings of a server that Open accepts.
func TestExamine(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Redis, nil)
	user := asUser(t, server, t.Name()+"}/*")
	for name, c := range map[string]*goredis.UniversalOptions{"default": config(t, server), "tenure": user} {
		found, err := openOn(t, c, Options{}).Examine(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if wrong := name == "default" && f.Name == "user"; wrong != (f.Remedy != "") || f.Value == "" {
				t.Errorf("as %s: %+v", name, f)
			}
		}
		for _, want := range []string{"version", "role", "appendonly", "last write of the log", "maxmemory-policy",
			"appendfsync", "no-appendfsync-on-rewrite", "min-replicas-to-write", "user", "clock"} {
			if !slices.ContainsFunc(found, func(f driver.Finding) bool { return f.Name == want }) {
				t.Errorf("as %s: nothing is said of %s", name, want)
			}
		}
		if clock := found[len(found)-1]; !strings.Contains(clock.Value, "this machine's, within") {
			t.Errorf("as %s: %+v", name, clock)
		}
	}
}

// TestExamined: each setting that loses writes has a remedy, and no other setting has one.
func TestExamined(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(v *server, o *Options){
		"":                          func(*server, *Options) {},
		"settings":                  func(v *server, _ *Options) { v.settings = nil },
		"min-replicas-max-lag":      func(v *server, _ *Options) { v.settings["min-replicas-max-lag"] = "0" },
		"role":                      func(_ *server, o *Options) { o.Replicas = 2 },
		"appendonly":                func(v *server, _ *Options) { v.info["aof_enabled"] = "0" },
		"last write of the log":     func(v *server, _ *Options) { v.info["aof_last_write_status"] = "err" },
		"maxmemory-policy":          func(v *server, _ *Options) { v.info["maxmemory_policy"] = "allkeys-lru" },
		"appendfsync":               func(v *server, _ *Options) { v.settings["appendfsync"] = "everysec" },
		"no-appendfsync-on-rewrite": func(v *server, _ *Options) { v.settings["no-appendfsync-on-rewrite"] = "yes" },
		"min-replicas-to-write":     func(v *server, _ *Options) { v.settings["min-replicas-to-write"] = "0" },
	} {
		v, o := durable(), &Options{Replicas: 1}
		v.settings["min-replicas-to-write"] = "2"
		change(v, o)
		var got []string
		for _, f := range v.findings(o, true) {
			if f.Remedy != "" {
				got = append(got, f.Name)
			}
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("remedies for %q; want %q", got, want)
		}
	}
}

// durable returns a server that loses nothing, with a replica.
func durable() *server {
	return &server{
		info: map[string]string{"redis_version": "7.0.15", "role": "master", "aof_enabled": "1", "connected_slaves": "1",
			"aof_last_write_status": "ok", "maxmemory_policy": "noeviction"},
		settings: map[string]string{"appendfsync": "always", "no-appendfsync-on-rewrite": "no", "min-replicas-to-write": "1",
			"min-replicas-max-lag": "1"},
	}
}
