package redis

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// refuses fails the test unless Open returns an error that matches want and contains text.
func refuses(t *testing.T, c *goredis.UniversalOptions, o Options, want error, text string) {
	t.Helper()
	o.Create = true
	b, err := Open(bounded(t, ample.Time), c, "refused", &o)
	if err == nil {
		b.Close()
		t.Errorf("it opens; want an error that says %q", text)
		return
	}
	if !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v; want %v, saying %q", err, want, text)
	}
}

// TestOpenRefusesLoss: Open refuses each setting that can lose an acknowledged grant, and names the
// setting. AllowLoss accepts such settings.
func TestOpenRefusesLoss(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Redis, nil)
	c := config(t, server)
	admin := newAdmin(t, c)
	set := func(name, value string) {
		t.Helper()
		if err := admin.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	openOn(t, c, Options{})
	for _, s := range []struct{ name, bad, good, text string }{
		{"appendfsync", "everysec", "always", "set appendfsync always"},
		{"appendfsync", "no", "always", "set appendfsync always"},
		{"no-appendfsync-on-rewrite", "yes", "no", "set it to no"},
		{"maxmemory-policy", "allkeys-lru", "volatile-lru", "set it to noeviction"},
		{"appendonly", "no", "yes", "set appendonly yes"},
	} {
		set(s.name, s.bad)
		refuses(t, c, Options{}, driver.ErrUnsupported, s.text)
		refuses(t, c, Options{}, driver.ErrUnsupported, "AllowLoss")
		b, err := Open(t.Context(), c, t.Name(), &Options{AllowLoss: true})
		if err != nil {
			t.Fatalf("%s %s, allowed: %v", s.name, s.bad, err)
		}
		b.Close()
		set(s.name, s.good)
	}
	openOn(t, c, Options{})
}

// TestCheckReplaceable: if replicas take over automatically, writes must wait for them.
func TestCheckReplaceable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		replicas   int
		connected  string
		least, lag string
		want       string
	}{
		{0, "1", "0", "10", "set Options.Replicas"},
		{1, "2", "1", "1", "2 replicas are connected"},
		{1, "1", "0", "10", "min-replicas-to-write is \"0\""},
		{2, "2", "1", "10", "set it to 2"},
		{1, "1", "1", "0", "min-replicas-max-lag is \"0\""},
		{1, "1", "1", "-1", "min-replicas-max-lag is \"-1\""},
		{1, "1", "1", "", "min-replicas-max-lag is \"\""},
		{1, "1", "1", "1", ""},
		{2, "1", "2", "1", ""},
	} {
		v := durable()
		v.info["connected_slaves"] = c.connected
		v.settings["min-replicas-to-write"], v.settings["min-replicas-max-lag"] = c.least, c.lag
		err := v.check(&Options{Replicas: c.replicas}, true)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestCheckUsable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		info map[string]string
		want error
		text string
	}{
		{map[string]string{"redis_version": "6.2.14", "role": "master"}, driver.ErrUnsupported, "upgrade it to 7.0"},
		{map[string]string{"redis_version": "", "role": "master"}, driver.ErrUnsupported, "upgrade it"},
		{map[string]string{"redis_version": "7.0.0", "role": "slave", "master_host": "db", "master_port": "6379"},
			driver.ErrRetry, "replica of db:6379"},
		{map[string]string{"redis_version": "8.0.0", "role": "master", "loading": "1"}, driver.ErrRetry, "still reading"},
	} {
		err := (&server{info: c.info}).usable()
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v: %v; want %v, saying %q", c.info, err, c.want, c.text)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.Redis, nil)
	c := config(t, server)
	refuses(t, &goredis.UniversalOptions{}, Options{}, driver.ErrInvalid, "no address")
	refuses(t, &goredis.UniversalOptions{Addrs: []string{"redis.example:6379"}}, Options{}, driver.ErrInvalid, "use TLS")
	refuses(t, &goredis.UniversalOptions{Addrs: []string{"redis.example:6379"},
		TLSConfig: &tls.Config{InsecureSkipVerify: true}}, Options{}, driver.ErrInvalid, "use TLS")
	for _, tls := range []*tls.Config{nil, {InsecureSkipVerify: true}} {
		refuses(t, &goredis.UniversalOptions{Addrs: []string{"127.0.0.1:26379"}, MasterName: "primary", TLSConfig: tls}, Options{},
			driver.ErrInvalid, "for a Sentinel")
	}
	refuses(t, c, Options{Replicas: -1}, driver.ErrInvalid, "replicas")
	refuses(t, c, Options{ReplicaTimeout: time.Hour}, driver.ErrInvalid, "1 min")

	refuses(t, &goredis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}}, Options{}, driver.ErrRetry, "refused")
	refuses(t, &goredis.UniversalOptions{Addrs: []string{"me:secret@127.0.0.1:1"}}, Options{}, driver.ErrInvalid,
		"address 1 of Redis is not understood")

	if _, err := Open(t.Context(), c, t.Name(), nil); !errors.Is(err, driver.ErrStoreChanged) ||
		!strings.Contains(err.Error(), "Create") {
		t.Errorf("a namespace that was never created: %v", err)
	}
}

// TestRights: Open finds a missing permission, so that no script fails in the middle. The
// documented recipe has every permission.
func TestRights(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Redis, nil)
	user := asUser(t, server, t.Name()+"}/*")
	openOn(t, user, Options{})
	if _, err := Open(t.Context(), user, "other", &Options{Create: true}); err == nil ||
		!strings.Contains(err.Error(), "docs/backends/redis.md") {
		t.Errorf("another namespace: %v", err)
	}
	admin := newAdmin(t, config(t, server))
	for _, right := range recipe(t, t.Name()+"}/*") {
		name, is := strings.CutPrefix(right.(string), "+")
		if !is || name == "wait" || name == "select" { // for Options.Replicas, and a database other than 0
			continue
		}
		if name == "eval" { // needed only after SCRIPT FLUSH
			if err := admin.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := admin.Do(t.Context(), "ACL", "SETUSER", "tenure", "-"+name).Err(); err != nil {
			t.Fatal(err)
		}
		b, err := Open(t.Context(), user, t.Name(), nil)
		if err == nil {
			b.Close()
			t.Errorf("without the right to %s it opens", name)
		} else if !strings.Contains(err.Error(), "docs/backends/redis.md") && name != "config|get" {
			t.Errorf("without the right to %s: %v", name, err)
		}
		if err := admin.Do(t.Context(), "ACL", "SETUSER", "tenure", "+"+name).Err(); err != nil {
			t.Fatal(err)
		}
	}
	openOn(t, user, Options{})
}

// TestSettingsVerified: if an administrator has verified the settings, no permission to read them
// is needed. Everything else is still checked.
func TestSettingsVerified(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Redis, nil)
	user := asUser(t, server, "*")
	admin := newAdmin(t, config(t, server))
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "tenure", "-config|get").Err(); err != nil {
		t.Fatal(err)
	}
	refuses(t, user, Options{}, driver.ErrUnsupported, "Options.SettingsVerified")
	b := openOn(t, user, Options{SettingsVerified: true})
	if calls, err := admin.Info(t.Context(), "commandstats").Result(); err != nil || strings.Count(calls, "cmdstat_config|get:calls=") != 1 ||
		!strings.Contains(calls, "cmdstat_config|get:calls=0,") {
		t.Errorf("settings were read: %v\n%s", err, calls)
	}
	found, err := b.Examine(t.Context())
	if err != nil || !slices.ContainsFunc(found, func(f driver.Finding) bool {
		return f.Name == "settings" && strings.Contains(f.Value, "vouches") && f.Remedy != ""
	}) {
		t.Errorf("an examination: %+v, %v; want a warning of settings that were not read", found, err)
	}
	if err := admin.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	refuses(t, user, Options{SettingsVerified: true}, driver.ErrUnsupported, "maxmemory-policy")
	for _, o := range []Options{{}, {Replicas: 1}} {
		o.SettingsVerified = true
		v := durable()
		v.settings = nil
		v.info["connected_slaves"] = "2"
		if err := v.check(&o, true); err == nil {
			t.Errorf("%+v with two replicas that may take over: it is accepted", o)
		}
	}
}

// TestDatabase: a database other than 0 needs the permission to select it, which the recipe has.
func TestDatabase(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Redis, nil)
	user := asUser(t, server, t.Name()+"}/*")
	user.DB = 1
	openOn(t, user, Options{})
	if err := newAdmin(t, config(t, server)).Do(t.Context(), "ACL", "SETUSER", "tenure", "-select").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(bounded(t, ample.Time), user, t.Name(), nil); err == nil || !strings.Contains(err.Error(), "docs/backends/redis.md") {
		t.Errorf("without the right to select: %v", err)
	}
}

// TestRaiseFloor: later tokens are above the floor, and running processes must open the namespace
// again.
func TestRaiseFloor(t *testing.T) {
	t.Parallel()
	c := config(t, servers.New(t, servers.Redis, nil))
	b := openOn(t, c, Options{})
	former := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, former, []driver.Claim{{Shard: "s"}})
	above := granted[0].Fence.Token + 1<<45
	if err := RaiseFloor(t.Context(), c, t.Name(), above, nil); err != nil {
		t.Fatal(err)
	}
	if err := former.Beat(t.Context()); !errors.Is(err, driver.ErrStoreChanged) {
		t.Error("a heartbeat after the floor was raised:", err)
	}
	next, _ := sqlfault.Acquire(t, sqlfault.Join(t, openOn(t, c, Options{}), "n2"), []driver.Claim{{Shard: "other"}})
	if got := next[0].Fence.Token; got <= above {
		t.Errorf("token %d; want one above %d", got, above)
	}
	if err := RaiseFloor(t.Context(), c, "no namespace", above, nil); err == nil {
		t.Error("a floor was raised in a namespace that is none")
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	for _, level := range []servers.TLS{servers.TLSServer, servers.TLSMutual} {
		server := servers.New(t, servers.Redis, &servers.Options{TLS: level})
		cert, key := server.ClientFiles()
		s := Settings{Addrs: []string{server.Addr()}, CAFile: server.CAFile(), CertFile: cert, KeyFile: key,
			Namespace: "secured", Options: Options{Create: true}}
		b, err := openSettings(t.Context(), &s)
		if err != nil {
			t.Fatal(err)
		}
		b.Close()
		s.CAFile, s.TLS = "", true
		if b, err := openSettings(bounded(t, ample.Time), &s); err == nil {
			b.Close()
			t.Error("a certificate of an unknown CA is accepted")
		}
	}
}

// TestSettingsHideThePassword: neither the formatted settings nor any error shows a password.
func TestSettingsHideThePassword(t *testing.T) {
	t.Parallel()
	const password = "correct horse"
	server := pool.Get(t, servers.Redis, nil)
	s := Settings{Addrs: []string{server.Addr()}, Username: "nobody", Password: password, SentinelPassword: password,
		Namespace: "hidden"}
	texts := []string{fmt.Sprintf("%v %+v %#v", s, s, s)}
	_, err := openSettings(t.Context(), &s)
	if err == nil {
		t.Fatal("a wrong password is accepted")
	}
	if !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("a wrong password: %v", err)
	}
	for _, text := range append(texts, err.Error()) {
		if strings.Contains(text, password) {
			t.Errorf("it shows the password: %s", text)
		}
	}
}

// TestRenamedCommand: an error names the command that the server does not know, and the remedy.
func TestRenamedCommand(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"EVALSHA", "HGET", "INFO"} {
		c := config(t, servers.New(t, servers.Redis, &servers.Options{NoSync: true, Config: []string{"rename-command " + name + " hidden"}}))
		b, err := Open(bounded(t, ample.Time), c, t.Name(), &Options{Create: true})
		if err == nil {
			b.Close()
		}
		if err == nil || strings.Count(err.Error(), "rename-command") != 1 {
			t.Errorf("without %s: %v", name, err)
		}
	}
}
