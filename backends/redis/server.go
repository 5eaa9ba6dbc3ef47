package redis

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

// server contains the information that a server reports about itself.
type server struct {
	info     map[string]string // from INFO
	settings map[string]string // from CONFIG GET; nil if the user may not read it
	recorded string            // the namespace's record of its history; empty if there is no record
	rev      kv.Rev            // the namespace's revision; 0 without one
}

// look reads the state and the settings of the server that has the namespace, on one connection. In
// a cluster, a command is answered by the node that has its key.
func (s *store) look(ctx context.Context) (*server, error) {
	return during(ctx, s, func(ctx context.Context) (*server, error) {
		return redirected(s.clients.dialer, func() (*server, error) {
			pipe := s.clients.calls.Pipeline()
			found := pipe.HMGet(ctx, s.names.key("records"), "history", "rev")
			info := pipe.InfoMap(ctx, "server", "memory", "persistence", "replication", "stats")
			var settings []*goredis.MapStringStringCmd
			if !s.opts.SettingsVerified {
				for _, name := range settingNames {
					settings = append(settings, pipe.ConfigGet(ctx, name))
				}
			}
			_, failed := pipe.Exec(ctx)
			if err := found.Err(); err != nil && !errors.Is(err, goredis.Nil) {
				return nil, err
			}
			text, err := info.Result()
			if err == nil && len(text) == 0 { // nothing was sent, because there is no connection
				err = failed
			}
			if err != nil {
				return nil, err
			}
			v := &server{info: make(map[string]string)}
			if v.recorded, v.rev, err = onRecord(found.Val()); err != nil {
				return nil, err
			}
			for _, section := range text {
				maps.Copy(v.info, section)
			}
			if len(settings) > 0 {
				v.settings, err = collect(settings)
			}
			return v, err
		})
	})
}

// onRecord returns a namespace's history and revision.
func onRecord(fields []any) (history string, rev kv.Rev, err error) {
	if len(fields) != 2 {
		return "", 0, errShape
	}
	history, _ = fields[0].(string)
	if text, ok := fields[1].(string); ok {
		n, err := strconv.ParseInt(text, 10, 64)
		return history, kv.Rev(n), err
	}
	return history, 0, nil
}

// settingNames are the settings that INFO does not report.
var settingNames = [...]string{
	"appendfsync", "no-appendfsync-on-rewrite", "min-replicas-to-write", "min-replicas-max-lag",
}

// collect joins the settings from several answers. The result is nil if the user may not read the
// settings, or if a hosted service lacks the command.
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

// check refuses a server that cannot store a namespace, or that can lose acknowledged writes.
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
	case replaceable && o.Replicas == 0:
		return loses("a replica that takes over may lack them: set Options.Replicas to the number of replicas")
	}
	if n, err := strconv.Atoi(v.info["connected_slaves"]); o.Replicas > 0 && (err != nil || n > o.Replicas) {
		return loses("%s replicas are connected, and one that lacks them may take over: set Options.Replicas to their number",
			v.info["connected_slaves"])
	}
	switch fsync, skipped := v.settings["appendfsync"], v.settings["no-appendfsync-on-rewrite"]; {
	case o.SettingsVerified:
		return nil
	case v.settings == nil:
		return loses("appendfsync is unknown, because this user may not read settings: grant it +config|get, or set "+
			"Options.SettingsVerified once an administrator has verified %s", strings.Join(settingNames[:], ", "))
	case fsync != "always":
		return loses("appendfsync is %s, so that a crash loses the last ones: set appendfsync always", fsync)
	case skipped != "no":
		return loses("no-appendfsync-on-rewrite is %s, so that a crash while the log is rewritten loses the last ones: set "+
			"it to no", skipped)
	case o.Replicas == 0:
		return nil
	}
	least := v.settings["min-replicas-to-write"]
	if n, err := strconv.Atoi(least); err != nil || n < o.Replicas {
		return loses("min-replicas-to-write is %q, so that a master that is cut off goes on by itself: set it to %d",
			least, o.Replicas)
	}
	if lag, err := v.lag(); err != nil || lag <= 0 {
		return loses("min-replicas-max-lag is %q, which switches min-replicas-to-write off: set it to a few seconds, below the TTL",
			v.settings["min-replicas-max-lag"])
	}
	return nil
}

// lag returns the approximate time for which a cut-off master accepts writes.
func (v *server) lag() (time.Duration, error) {
	n, err := strconv.Atoi(v.settings["min-replicas-max-lag"])
	return time.Duration(n) * time.Second, err
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

// history identifies the history under which a server runs.
type history struct {
	replication string    // its replication id, which changes with a restart and a promotion
	lineage     string    // of the namespace; stays the same while no acknowledged write can be lost
	attached    time.Time // by the server's clock

	replicated atomic.Int64 // revision up to which Options.Replicas replicas have all writes
}

// record is the namespace's record of the server's history.
type record struct {
	replication string // replication id of the server
	process     string // id of the server's process
	received    string // number of bytes that the process had received as a replica
	lineage     string
	past        string // previous replication ids, the last first, each with the last revision under that id
}

// String returns the record without its past, which the script adds.
func (r record) String() string {
	return r.replication + " " + r.process + " " + r.received + " " + r.lineage
}

func parseRecord(text string) (r record, ok bool) {
	f := strings.Fields(text)
	if len(f) != 5 {
		return r, false
	}
	return record{f[0], f[1], f[2], f[3], f[4]}, true
}

// shares returns the last revision that a server with this record shares with the history of a
// previous replication id.
func (r record) shares(replication string, rev kv.Rev) (kv.Rev, bool) {
	if replication == r.replication { // nothing else was written here
		return rev, true
	}
	for one := range strings.SplitSeq(r.past, ",") {
		if id, at, ok := strings.Cut(one, ":"); ok && id == replication {
			n, err := strconv.ParseInt(at, 10, 64)
			return kv.Rev(n), err == nil
		}
	}
	return 0, false
}

const (
	// attachTries limits the attempts to record the history while other processes write the record.
	attachTries = 5
	// revisionLift exceeds a cut-off master's number of unacknowledged writes. After a failover
	// that lost grants, tokens are derived from the time in microseconds, and the lift is small
	// compared to the number of microseconds between two failovers. The range of revisions allows
	// more than a hundred million lifts.
	revisionLift = 1 << 26
	// maxPast is the maximum number of previous replication ids in a record.
	maxPast = 8
)

// attach determines and records the history under which the server continues. If that history
// differs from this store's, or lacks data that this store has returned, attach returns
// driver.ErrStoreChanged (rule I1). Reopening the namespace then raises the base of later tokens
// (rule I2).
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
	micros, err := strconv.ParseInt(v.info["server_time_usec"], 10, 64)
	if err != nil {
		return fmt.Errorf("%w: the server does not tell its time: server_time_usec is %.40q", driver.ErrUnsupported,
			v.info["server_time_usec"])
	}
	now, found, rev := time.UnixMicro(micros), v.recorded, v.rev
	for range attachTries {
		want, err := s.follows(v, found)
		if err != nil {
			return err
		}
		// A server without enough replicas accepts no writes, but still reports its history.
		if err := s.goesOn(want, found, rev); err != nil {
			return err
		}
		keys := append(s.names.fixed(), s.names.key("free"))
		lift := 0
		if s.opts.Replicas > 0 {
			lift = revisionLift
		}
		reply, err := s.run(ctx, false, s.scripts.attach, keys, []any{want.replication, found, want.String(),
			1 + mathrand.Int64N(1<<40), lift, maxPast}, true)
		if err != nil {
			return classified(err)
		}
		a, word, err := newAnswer(reply.value, answerRecorded, answerMoved)
		if err != nil {
			return classified(err)
		}
		was, had := found, rev
		found, rev = a.text(), a.rev()
		if err := a.end(); err != nil {
			return err
		}
		if word == answerMoved {
			continue
		}
		if reply.unproven != nil {
			return fmt.Errorf("%w: recording the server's history: %w", driver.ErrRetry, reply.unproven)
		}
		if last, ok := parseRecord(was); ok && last.lineage != want.lineage && s.history.Load().lineage == "" {
			s.rollback = fmt.Sprintf("the server was restarted or replaced, and has what was written up to revision %d: what the "+
				"former one acknowledged after that is lost: compare with the last tokens and commits of members that halted", had)
		}
		s.history.Store(&history{replication: want.replication, lineage: want.lineage, attached: now})
		if lag, err := v.lag(); err == nil {
			s.lag.Store(int64(lag))
		}
		return nil
	}
	return fmt.Errorf("%w: other processes keep recording the server's history", driver.ErrRetry)
}

// goesOn returns an error if this process cannot continue on the server.
func (s *store) goesOn(want record, found string, rev kv.Rev) error {
	was := s.history.Load()
	if was.lineage == "" {
		return nil
	}
	changed := func(why string) error {
		return fmt.Errorf("tenure: namespace %q: %w: the server was restarted or replaced, and %s: start this process again",
			s.names.keys, driver.ErrStoreChanged, why)
	}
	last, _ := parseRecord(found)
	seen := s.seen.Load()
	shared, ok := last.shares(was.replication, rev)
	switch {
	case was.lineage != want.lineage && ok:
		return changed(fmt.Sprintf("may have lost what it acknowledged: it has what was written up to revision %d, and this "+
			"process was answered up to %d", shared, seen))
	case was.lineage != want.lineage:
		return changed("may have lost what it acknowledged")
	case was.replication == want.replication: // another call attached, and rev may be out of date
		return nil
	case !ok:
		return changed("does not say up to where it has what was written before")
	case seen > int64(shared):
		return changed(fmt.Sprintf("lost what was written after revision %d, of which this process was answered up to %d",
			shared, seen))
	}
	return nil
}

// follows returns the record under which a server continues, without its past. The lineage stays
// the same if nothing can have been lost since the previous record. No loss is possible if the same
// server process has not been a replica since then. The same is true if all replicas have the
// acknowledged writes, or if the server restarted from a log with every acknowledged write. A
// promoted replica shows its previous replication id, and the number of bytes that it received as a
// replica. The server forgets the previous id after it has had no replicas for repl-backlog-ttl.
func (s *store) follows(v *server, found string) (record, error) {
	now := record{
		replication: v.info["master_replid"], process: v.info["run_id"],
		received: cmp.Or(v.info["total_net_repl_input_bytes"], "0"),
	}
	if len(now.replication) != 40 || now.process == "" {
		return now, fmt.Errorf("%w: the server does not tell its replication id", driver.ErrUnsupported)
	}
	promoted := v.info["second_repl_offset"] != "-1" || now.received != "0"
	last, ok := parseRecord(found)
	switch {
	case found == "":
	case !ok:
		return now, fmt.Errorf("%w: the namespace's record of its history is damaged: %.120q", driver.ErrDamaged, found)
	case last.replication == now.replication,
		last.process == now.process && last.received == now.received,
		s.opts.Replicas > 0 && !s.opts.AllowLoss,
		!s.replaceable && !promoted && !s.opts.AllowLoss:
		now.lineage = last.lineage
		return now, nil
	}
	now.lineage = rand.Text()
	return now, nil
}
