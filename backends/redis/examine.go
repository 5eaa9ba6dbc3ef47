package redis

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/examine"
)

var _ driver.Examiner = (*Backend)(nil)

// Examine implements driver.Examiner.
func (b *Backend) Examine(ctx context.Context) ([]driver.Finding, error) {
	before := time.Now()
	v, err := b.store.look(ctx)
	if err != nil {
		return nil, fmt.Errorf("tenure: reading the settings of Redis: %w", b.store.failed(ctx, err))
	}
	after := time.Now()
	user, err := b.store.user(ctx)
	if err != nil {
		return nil, fmt.Errorf("tenure: reading the rights of this user: %w", b.store.failed(ctx, err))
	}
	out := append(v.findings(b.store.opts, b.store.replaceable), user)
	if usec, err := strconv.ParseInt(v.info["server_time_usec"], 10, 64); err == nil {
		out = append(out, examine.Clock(before, time.UnixMicro(usec), after))
	}
	return out, nil
}

func (v *server) findings(o *Options, replaceable bool) []driver.Finding {
	const loses = "a crash can lose acknowledged grants and commits: "
	var out []driver.Finding
	add := func(name, value string, wrong bool, remedy string) {
		f := driver.Finding{Name: name, Value: value}
		if wrong {
			f.Remedy = remedy
		}
		out = append(out, f)
	}
	add("version", v.info["redis_version"], false, "")
	replicas, err := strconv.Atoi(v.info["connected_slaves"])
	wrong := fmt.Sprintf("writes wait for %d in vain, and have an unknown outcome: connect them, or lower Options.Replicas",
		o.Replicas)
	if replicas > o.Replicas {
		wrong = fmt.Sprintf("one that lacks acknowledged writes may take over: set Options.Replicas to %d", replicas)
	}
	add("role", fmt.Sprintf("%s with %d replicas", v.info["role"], replicas), err != nil || replicas < o.Replicas ||
		replicas > o.Replicas && (replaceable || o.Replicas > 0), wrong)
	on := "yes"
	if v.info["aof_enabled"] != "1" {
		on = "no"
	}
	add("appendonly", on, on == "no", loses+"set it to yes")
	if status, ok := v.info["aof_last_write_status"]; ok && on == "yes" {
		add("last write of the log", status, status != "ok", "writes are refused: see whether the disk is full")
	}
	policy := v.info["maxmemory_policy"]
	add("maxmemory-policy", policy, strings.HasPrefix(policy, "allkeys-"),
		"records can be evicted: set it to noeviction or volatile-lru")
	if v.settings == nil {
		value := "not read, since this user may not"
		if o.SettingsVerified {
			value = "not read: Options.SettingsVerified vouches for them"
		}
		add("settings", value, true, "run this as an administrator, without settings_verified, to have "+
			strings.Join(settingNames[:], ", ")+" checked")
		return out
	}
	fsync, skipped := v.settings["appendfsync"], v.settings["no-appendfsync-on-rewrite"]
	add("appendfsync", fsync, fsync != "always", loses+"set it to always")
	add("no-appendfsync-on-rewrite", skipped, skipped != "no", loses+"set it to no")
	least := v.settings["min-replicas-to-write"]
	n, err := strconv.Atoi(least)
	add("min-replicas-to-write", least, replaceable && (err != nil || n < max(o.Replicas, 1)),
		fmt.Sprintf("a master that is cut off goes on by itself: set it to %d", max(o.Replicas, 1)))
	lag, err := v.lag()
	add("min-replicas-max-lag", v.settings["min-replicas-max-lag"], replaceable && (err != nil || lag <= 0),
		"min-replicas-to-write is off: set it to a few seconds, below the TTL")
	return out
}

// user reports permissions that the user does not need. A user with only the documented permissions
// may not even query them.
func (s *store) user(ctx context.Context) (driver.Finding, error) {
	return during(ctx, s, func(ctx context.Context) (driver.Finding, error) {
		f := driver.Finding{Name: "user", Value: "may not ask for its rights, as with those of the documentation"}
		name, err := s.clients.calls.Do(ctx, "ACL", "WHOAMI").Text()
		if text, ok := reply(err); ok && (denied(err) || strings.HasPrefix(text, "ERR unknown")) {
			return f, nil
		}
		if err != nil {
			return f, err
		}
		f.Value = fmt.Sprintf("%q", name)
		rules, err := s.clients.calls.Do(ctx, "ACL", "LIST").StringSlice()
		if denied(err) {
			return f, nil
		}
		if err != nil {
			return f, err
		}
		f.Remedy = "it may change users: use one with the rights of docs/backends/redis.md"
		for _, rule := range rules {
			words := strings.Fields(rule)
			if len(words) > 1 && words[1] == name && slices.Contains(words, "+@all") {
				f.Remedy = "it may do anything: use one with the rights of docs/backends/redis.md"
			}
		}
		return f, nil
	})
}
