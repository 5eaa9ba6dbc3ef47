package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/internal/operator"
	"github.com/tenure-go/tenure/internal/proof/certify"
	"github.com/tenure-go/tenure/sharding"
)

func (a *app) repairCommands() []*cobra.Command {
	evicts, raises, repairs := &order{a: a}, &order{a: a}, &order{a: a}
	var version int64
	evict := &cobra.Command{Use: "evict SESSION",
		Short: "End the session of a member that does not act, as it was seen",
		Args:  args("SESSION"), RunE: func(cmd *cobra.Command, args []string) error {
			id := core.SessionID(args[0])
			if err := driver.CheckSession(id); err != nil {
				return err
			}
			if version < 0 {
				return usage(fmt.Sprintf("--version %d is negative: give the one that tenure members shows", version))
			}
			return a.with(cmd, func(ctx context.Context, b core.Backend) error {
				return evicts.evict(ctx, b, id, core.Version(version))
			})
		}}
	evict.Flags().Int64Var(&version, "version", 0,
		"only if this is still the version of its last heartbeat; default: the one seen now")
	raise := &cobra.Command{Use: "raise-floor TOKEN",
		Short: "Make every token granted from now on greater than TOKEN, after a restore (SQL)",
		Args:  args("TOKEN"), RunE: func(cmd *cobra.Command, args []string) error {
			to, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || to <= 0 {
				return usage(fmt.Sprintf("the token %s is no positive number: give the highest that was ever granted",
					quoted(args[0])))
			}
			return a.with(cmd, func(ctx context.Context, b core.Backend) error {
				return raises.raise(ctx, b,
					core.Token(to))
			})
		}}
	var k sharding.Keyspace
	repair := &cobra.Command{Use: "repair KEYSPACE --shards N",
		Short: "Rebuild the map of a keyspace's ranges from the notes of its shards, where the plans cannot be read",
		Args:  args("KEYSPACE"), RunE: func(cmd *cobra.Command, args []string) error {
			if k.Name = args[0]; k.Validate() != nil {
				return usage(k.Validate().Error())
			}
			return a.with(cmd, func(ctx context.Context, b core.Backend) error { return repairs.repair(ctx, b, k) })
		}}
	repair.Flags().IntVar(&k.Shards, "shards", 0, "sharding.Keyspace.Shards of the members: with how many ranges it began")
	repair.Flags().StringVar(&k.Hash, "hash", keyspace.HashMixed, "sharding.Keyspace.Hash of the members")
	repair.Flags().IntVar(&k.Digits, "digits", 4, "sharding.Keyspace.Digits of the members")
	removes := &order{a: a}
	var confirm string
	remove := &cobra.Command{Use: "remove-namespace", Short: "Remove the namespace with all its records, for ever", Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return removes.removeNamespace(cmd.Context(), confirm) }}
	remove.Flags().StringVar(&confirm, "confirm", "", "the namespace's name; without it the command asks")
	remove.Flags().BoolVar(&removes.force, "force", false,
		"also while members live, or if it cannot be opened since a removal was interrupted")
	remove.Flags().BoolVar(&removes.dryRun, "dry-run", false, "only show what would be removed")
	for c, o := range map[*cobra.Command]*order{evict: evicts, raise: raises, repair: repairs} {
		o.asking(c)
	}
	return []*cobra.Command{evict, raise, repair, remove}
}

// repair computes a map from the notes of a keyspace's shards and shows it to the operator. If the
// operator agrees, the map replaces the plans.
func (o *order) repair(ctx context.Context, b core.Backend, k sharding.Keyspace) error {
	m, err := sharding.Repair(ctx, b, k, nil)
	if err != nil {
		return unread(err)
	}
	if err := o.a.printRanges(ctx, b, m); err != nil || o.dryRun {
		return err
	}
	if err := o.confirm(); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	own := o.a.conf.Options()
	own.Node, own.LockDir, own.Supersede, own.Logger = operator.Label(host), "none", false, slog.New(slog.DiscardHandler)
	limited, cancel := context.WithTimeout(ctx, o.a.timeout+2*cmp.Or(own.TTL, 10*time.Second)) // the same limit as in operator.Writer
	defer cancel()
	if _, err = sharding.Repair(limited, b, k, own); err != nil && limited.Err() != nil && ctx.Err() == nil {
		return exit(exitRefused, fmt.Sprintf("whether the plans were replaced, tenure ranges tells: %v: a member may be planning", err))
	}
	return unread(err)
}

// A session is ended only if it has sent no heartbeat since the given version.
func (o *order) evict(ctx context.Context, b core.Backend, id core.SessionID, version core.Version) error {
	v, err := o.a.state(ctx, b)
	if err != nil {
		return err
	}
	m := sessions(v)[id]
	if m == nil {
		return notFound(fmt.Sprintf("no member has the session %s: tenure members lists them", id))
	}
	versions, err := o.a.versions(ctx, b, v)
	if err != nil {
		return err
	}
	switch seen := versions[id]; {
	case version == 0 && seen == 0:
		return notFound(fmt.Sprintf("session %s has ended", id))
	case version == 0:
		version = seen
	}
	n := 0
	for _, s := range v.Shards {
		if s.Owner.Session == id {
			n++
		}
	}
	_, _ = fmt.Fprintf(o.a.errs, "session %s of node %s ends if its version is still %d; "+
		"it owns %s, which others then claim\n", id, printable(m.Node), version, counted(n, "shard"))
	if o.dryRun {
		return nil
	}
	if err := o.confirm(); err != nil {
		return err
	}
	return o.a.evictAs(ctx, b, driver.Suspect{Session: id, Version: version})
}

// evictAs joins as a separate member to evict a session. This member is draining, so it gets no
// shards.
func (a *app) evictAs(ctx context.Context, b core.Backend, suspect driver.Suspect) (err error) {
	var random [16]byte
	rand.Read(random[:])
	m := core.Member{Session: core.SessionID(hex.EncodeToString(random[:])), Node: operator.Label(writer()),
		TTL: max(10*time.Second, b.Info().Limits.MinTTL), MemberState: core.MemberState{Draining: true}}
	s, err := call(ctx, a, func(ctx context.Context) (driver.Session, error) { return b.Join(ctx, m) })
	if err != nil {
		return fmt.Errorf("nothing was evicted: join the namespace: %w", err)
	}
	defer func() {
		_, closing := call(context.WithoutCancel(ctx), a, func(ctx context.Context) (any, error) {
			return nil,
				s.Close(ctx)
		})
		err = errors.Join(err, closing)
	}()
	results, err := call(ctx, a, func(ctx context.Context) ([]driver.EvictResult, error) {
		return s.Evict(ctx, []driver.Suspect{suspect})
	})
	if err == nil {
		err = results[0].Err
	}
	switch {
	case err != nil:
		return fmt.Errorf("evict session %s: whether it ended, tenure members tells: %w", suspect.Session, err)
	case results[0].Evicted:
		return nil
	case results[0].Current == 0:
		return notFound(fmt.Sprintf("session %s has ended before", suspect.Session))
	}
	return exit(exitRefused, fmt.Sprintf("nothing was evicted: session %s is alive, its version is %d now",
		suspect.Session,
		results[0].Current))
}

// removeNamespace shows the namespace's contents, asks the operator to type its name, and removes
// all of its records.
func (o *order) removeNamespace(ctx context.Context, confirm string) error {
	o.a.hasty = true
	opener, settings, err := o.a.chosen(ctx)
	if err != nil {
		return err
	}
	name := reflect.ValueOf(settings).FieldByName("Namespace").String()
	refuse := func(format string, args ...any) error {
		return exit(exitRefused, "nothing was removed: "+fmt.Sprintf(format, args...))
	}
	if confirm != "" && confirm != name {
		return refuse("--confirm is %s, and the configuration names %s", quoted(confirm), quoted(name))
	}
	v := &driver.View{}
	b, err := o.a.open(ctx)
	if err == nil {
		v, err = o.a.state(ctx, b)
		err = errors.Join(err, b.Close())
	}
	switch code := codeOf(ctx, err); {
	case err != nil && (!o.force || code != exitNotFound && code != exitDamaged):
		return advised(err, opener.Name)
	case len(v.Members) > 0 && !o.force:
		return refuse("%s alive, the first on node %s: stop all (see: tenure members), or add --force",
			counted(len(v.Members), "member"), printable(v.Members[0].Node))
	}
	_, _ = fmt.Fprintf(o.a.errs, "namespace %s on %s goes with its %s, %s, items, logs and rules; members that live halt, "+
		"and tokens of a new namespace of this name may repeat\n", quoted(name), opener.Name,
		counted(len(v.Shards), "shard"), counted(len(v.Members), "member"))
	if o.dryRun {
		return nil
	}
	if confirm == "" {
		if f, ok := o.a.in.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
			return refuse("add --confirm with the namespace's name, or --dry-run to only look")
		}
		_, _ = fmt.Fprint(o.a.errs, "type the name of the namespace: ")
		if line, _ := bufio.NewReader(o.a.in).ReadString('\n'); strings.TrimSpace(line) != name {
			return refuse("that is another name")
		}
	}
	what, err := call(ctx, o.a, func(ctx context.Context) (string, error) { return certify.Remove(ctx, opener.Name, settings, name) })
	if what != "" {
		_, _ = fmt.Fprintln(o.a.errs, "removed:", what)
	}
	if err != nil {
		return advised(fmt.Errorf("records may be left: run the command again with --force: %w", err), opener.Name)
	}
	return nil
}

func (o *order) raise(ctx context.Context, b core.Backend, to core.Token) error {
	f, ok := b.(interface {
		Floor(ctx context.Context) (core.Token, error)
		RaiseFloor(ctx context.Context, from, to core.Token) error
	})
	if !ok {
		return exit(exitRefused,
			fmt.Sprintf("the backend %s has no floor to raise: docs/backends says what to do after a restore",
				b.Info().Backend))
	}
	from, err := call(ctx, o.a, f.Floor)
	if err != nil {
		return fmt.Errorf("read the floor: %w", err)
	}
	if to <= from {
		return exit(exitRefused, fmt.Sprintf("nothing was changed: the floor is %d, which is not below %d", from, to))
	}
	_, _ = fmt.Fprintf(o.a.errs, "the highest token so far is at most %d; all from now on will be above %d, for ever\n",
		from, to)
	if o.dryRun {
		return nil
	}
	if err := o.confirm(); err != nil {
		return err
	}
	_, err = call(ctx, o.a, func(ctx context.Context) (any, error) { return nil, f.RaiseFloor(ctx, from, to) })
	return err
}
