package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/core/driver"
)

// server is what a server says of itself.
type server struct {
	info     map[string]string // of INFO
	settings map[string]string // of CONFIG GET; nil if the user may not read it
	recorded string            // the namespace's record of its history; empty if it has none
}

// look reads the state and the settings of the server that has the namespace, on one
// connection: in a cluster a command with a key is answered by the node that has it.
func (s *store) look(ctx context.Context) (*server, error) {
	return during(ctx, s, func(ctx context.Context) (*server, error) {
		return redirected(s.clients.dialer, func() (*server, error) {
			pipe := s.clients.calls.Pipeline()
			found := pipe.HGet(ctx, s.names.key("records"), "history")
			info := pipe.InfoMap(ctx, "server", "memory", "persistence", "replication")
			var settings []*goredis.MapStringStringCmd
			for _, name := range settingNames {
				settings = append(settings, pipe.ConfigGet(ctx, name))
			}
			_, failed := pipe.Exec(ctx)
			if err := found.Err(); err != nil && !errors.Is(err, goredis.Nil) {
				return nil, err
			}
			text, err := info.Result()
			if err == nil && len(text) == 0 { // nothing was sent: there is no connection
				err = failed
			}
			if err != nil {
				return nil, err
			}
			v := &server{info: make(map[string]string), recorded: found.Val()}
			for _, section := range text {
				maps.Copy(v.info, section)
			}
			v.settings, err = collect(settings)
			return v, err
		})
	})
}

// settingNames are the settings that INFO does not tell.
var settingNames = [...]string{"appendfsync", "no-appendfsync-on-rewrite", "min-replicas-to-write"}

// collect joins settings. They are nil where a user may not read them, and where a hosted
// service has no such command.
func collect(answers []*goredis.MapStringStringCmd) (map[string]string, error) {
	all := make(map[string]string)
	for _, a := range answers {
		got, err := a.Result()
		if text, ok := reply(err); ok && (denied(err) || strings.HasPrefix(text, "ERR unknown")) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		maps.Copy(all, got)
	}
	return all, nil
}

// check refuses a server that cannot carry a namespace, or can lose what it acknowledged.
func (v *server) check(o *Options, replaceable bool) error {
	if err := v.usable(); err != nil {
		return err
	}
	loses := func(format string, args ...any) error {
		return fmt.Errorf("%w: acknowledged grants and commits can be lost: %s; or set Options.AllowLoss, if the team "+
			"accepts that", driver.ErrUnsupported, fmt.Sprintf(format, args...))
	}
	policy := v.info["maxmemory_policy"]
	switch {
	case o.AllowLoss:
		return nil
	case strings.HasPrefix(policy, "allkeys-"):
		return loses("maxmemory-policy is %s, which evicts any key: set it to noeviction or volatile-lru", policy)
	case v.info["aof_enabled"] != "1":
		return loses("appendonly is off, so that a restart loses them: set appendonly yes and appendfsync always")
	case v.settings == nil:
		return loses("appendfsync is unknown, because this user may not read settings: grant it +config|get")
	case v.settings["appendfsync"] != "always":
		return loses("appendfsync is %s, so that a crash loses the last ones: set appendfsync always",
			v.settings["appendfsync"])
	case v.settings["no-appendfsync-on-rewrite"] != "no":
		return loses("no-appendfsync-on-rewrite is %s, so that a crash while the log is rewritten loses the last ones: set "+
			"it to no", v.settings["no-appendfsync-on-rewrite"])
	case replaceable && o.Replicas == 0:
		return loses("a replica that takes over may lack them: set Options.Replicas to the number of replicas")
	}
	if n, err := strconv.Atoi(v.settings["min-replicas-to-write"]); replaceable && (err != nil || n < o.Replicas) {
		return loses("min-replicas-to-write is %q, so that a master that is cut off goes on by itself: set it to %d",
			v.settings["min-replicas-to-write"], o.Replicas)
	}
	return nil
}

func (v *server) usable() error {
	major, _, _ := strings.Cut(v.info["redis_version"], ".")
	if n, err := strconv.Atoi(major); err != nil || n < 7 {
		return fmt.Errorf("%w: Redis is version %.40q: upgrade it to 7.0 or later, or to Valkey", driver.ErrUnsupported,
			v.info["redis_version"])
	}
	if role := v.info["role"]; role != "master" {
		return fmt.Errorf("%w: the server is a replica of %.80s:%.10s: name its master, or let Sentinel name it with "+
			"MasterName", driver.ErrRetry, v.info["master_host"], v.info["master_port"])
	}
	if v.info["loading"] == "1" {
		return fmt.Errorf("%w: Redis is still reading its data", driver.ErrRetry)
	}
	return nil
}

// history is what distinguishes one past of a server's data from another.
type history struct {
	replication string // its replication id, which changes with a restart and a promotion
	lineage     string // of the namespace: goes on while nothing acknowledged can be lost
}

// record is the namespace's record of its history: the replication id, the id of the
// server's process, and the lineage.
type record struct{ replication, process, lineage string }

func (r record) String() string { return r.replication + " " + r.process + " " + r.lineage }

func parseRecord(text string) (r record, ok bool) {
	f := strings.Fields(text)
	if len(f) != 3 {
		return r, false
	}
	return record{f[0], f[1], f[2]}, true
}

// attachTries is how often attach looks again after another process wrote the record.
const attachTries = 5

// attach finds out under which history the server goes on, and records it. It returns
// driver.ErrStoreChanged if that is another one than this store had (rule I1): then
// tokens are raised when the namespace is opened again (rule I2).
func (s *store) attach(ctx context.Context) error {
	select {
	case s.attaching <- struct{}{}:
		defer func() { <-s.attaching }()
	case <-ctx.Done():
		return driver.Ended(ctx)
	}
	v, err := s.look(ctx)
	if err != nil {
		return classified(err)
	}
	if err := v.check(s.opts, s.replaceable); err != nil {
		return err
	}
	found := v.recorded
	for range attachTries {
		want, err := s.follows(v, found)
		if err != nil {
			return err
		}
		// This is told also by a server that takes no write for want of replicas.
		if was := s.history.Load().lineage; was != "" && was != want.lineage {
			return fmt.Errorf("tenure: namespace %q: %w: the server was restarted or replaced, and may have lost what it "+
				"acknowledged: start this process again", s.names.keys, driver.ErrStoreChanged)
		}
		keys := append(s.names.fixed(), s.names.key("free"))
		reply, err := s.run(ctx, false, s.scripts.attach, keys, []any{want.replication, found, want.String(),
			1 + mathrand.Int64N(1<<40)}, 0)
		if err != nil {
			return classified(err)
		}
		a, word, err := newAnswer(reply, answerRecorded, answerMoved)
		if err != nil {
			return classified(err)
		}
		if found = a.text(); word == answerMoved {
			continue
		}
		s.history.Store(&history{want.replication, want.lineage})
		return nil
	}
	return fmt.Errorf("%w: other processes keep recording the server's history", driver.ErrRetry)
}

// follows is the record under which a server goes on. The lineage stays where nothing
// can be lost between the two: the process is the same and was not promoted, or it was
// started again from a log that has every acknowledged write. A promoted replica names
// the replication id that it had before.
func (s *store) follows(v *server, found string) (record, error) {
	now := record{replication: v.info["master_replid"], process: v.info["run_id"]}
	if len(now.replication) != 40 || now.process == "" {
		return now, fmt.Errorf("%w: the server does not tell its replication id", driver.ErrUnsupported)
	}
	promoted := v.info["second_repl_offset"] != "-1"
	last, ok := parseRecord(found)
	switch {
	case found == "":
	case !ok:
		return now, fmt.Errorf("%w: the namespace's record of its history is damaged: %.120q", driver.ErrDamaged, found)
	case last.replication == now.replication,
		last.process == now.process && !promoted,
		!s.replaceable && !promoted && !s.opts.AllowLoss:
		now.lineage = last.lineage
		return now, nil
	}
	now.lineage = rand.Text()
	return now, nil
}
