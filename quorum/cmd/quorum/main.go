// Command quorum manages the members of a cluster that the processes of an application are (package
// quorum). It lists and removes members, writes snapshots, and prints what the application must
// call to replace a member or to restore a snapshot, because only the application can start a
// member.
//
//	quorum [flags] members         lists the members and their states
//	quorum [flags] remove NAME     permanently removes a member
//	quorum [flags] replace NAME    prints how to replace a member whose disk is lost
//	quorum [flags] snapshot FILE   writes a snapshot
//	quorum [flags] restore FILE    checks a snapshot, and prints how to restore it
//
// The flag -config names a JSON file with fields of quorum.Config. Clients need these:
//
//	{"Cluster": "orders", "Members": [{"Name": "a", "Peer": "a.internal:2380", "Client": "a.internal:2379"}],
//	 "ClientTLS": {"CAFile": "ca.pem", "CertFile": "operator.pem", "KeyFile": "operator-key.pem"}}
//
// Domain and Size may replace Members. Exit codes are those of the command tenure:
//
//	0 done                                   4 no answer in time
//	1 any other error                        5 refused
//	2 wrong arguments or configuration       6 a damaged snapshot
//	3 no such member or file                 7 a member is silent or learning
//	130 interrupted
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/quorum"
)

const (
	exitOK          = 0
	exitOther       = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitUnreachable = 4
	exitRefused     = 5
	exitDamaged     = 6
	exitSilent      = 7
	exitInterrupted = 130

	maxFile = 64 << 10 // bytes of the configuration
	maxPath = 4096     // bytes of an argument
	maxText = 1000     // characters of an error
	maxName = 64       // characters of a name or an address from the cluster
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// exitError is an error with an exit code.
type exitError struct {
	code int
	error
}

func (e *exitError) Unwrap() error { return e.error }

func exit(code int, format string, args ...any) error {
	return &exitError{code, fmt.Errorf(format, args...)}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := command(ctx, args, stdout)
	if err == nil {
		return exitOK
	}
	text := strings.ReplaceAll(plain(strings.ReplaceAll(err.Error(), "\n", "; "), maxText), "tenure: ", "")
	_, _ = fmt.Fprintln(stderr, "quorum: "+strings.TrimPrefix(text, "quorum: "))
	return codeOf(ctx, err)
}

func codeOf(ctx context.Context, err error) int {
	var coded *exitError
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.As(err, &coded):
		return coded.code
	case errors.Is(err, core.ErrInvalid):
		return exitUsage
	case errors.Is(err, fs.ErrPermission):
		return exitRefused
	case errors.As(err, &path), errors.As(err, &link):
		return exitOther
	}
	return exitUnreachable
}

// plain escapes the characters that a terminal interprets, and limits the text.
func plain(text string, limit int) string {
	var b strings.Builder
	n := 0
	for _, r := range text {
		if n++; n > limit {
			b.WriteString("...")
			break
		}
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}

const usage = "use: quorum [-config FILE] [-timeout TIME] [-yes] members | remove NAME | replace NAME | " +
	"snapshot FILE | restore FILE"

// call is one call of the command.
type call struct {
	out    io.Writer
	config quorum.Config
	arg    string
	yes    bool
	*quorum.Operator
}

func command(ctx context.Context, args []string, stdout io.Writer) error {
	c := call{out: stdout}
	flags := flag.NewFlagSet("quorum", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	path := flags.String("config", "quorum.json", "")
	timeout := flags.Duration("timeout", 30*time.Second, "")
	flags.BoolVar(&c.yes, "yes", false, "")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return c.print("%s\n", usage)
	} else if err != nil {
		return exit(exitUsage, "%w: %s", err, usage)
	}
	does := map[string]func(*call, context.Context) error{"members": (*call).members, "remove": (*call).remove,
		"replace": (*call).replace, "snapshot": (*call).snapshot, "restore": (*call).restore}[flags.Arg(0)]
	c.arg = flags.Arg(1)
	switch {
	case does == nil,
		flags.NArg() > 2 || (flags.Arg(0) == "members") == (flags.NArg() == 2) || c.arg == "" && flags.NArg() == 2:
		return exit(exitUsage, "%s", usage)
	case len(c.arg) > maxPath || strings.ContainsRune(c.arg, 0):
		return exit(exitUsage, "the argument has %d bytes, or a zero byte: use a name or a path", len(c.arg))
	case *timeout < time.Second || *timeout > time.Hour:
		return exit(exitUsage, "-timeout %v: use 1s to 1h", *timeout)
	}
	if err := c.read(*path); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	var err error
	if c.Operator, err = quorum.Operate(ctx, c.config); err != nil {
		return err
	}
	defer c.Close()
	return does(&c, ctx)
}

// read reads the configuration.
func (c *call) read(path string) error {
	from, err := os.Open(path)
	if err != nil {
		return exit(exitUsage, "%w: name the configuration with -config", err)
	}
	decoder := json.NewDecoder(io.LimitReader(from, maxFile))
	decoder.DisallowUnknownFields()
	err = decoder.Decode(&c.config)
	c.config.Logger = slog.New(slog.DiscardHandler)
	if err = errors.Join(err, from.Close()); err != nil {
		return exit(exitUsage, "the configuration %.200q: %w: use JSON of at most %d bytes, as in the command's "+
			"documentation", path, err, maxFile)
	}
	return nil
}

func (c *call) print(format string, args ...any) error {
	_, err := fmt.Fprintf(c.out, format, args...)
	return err
}

func (c *call) members(ctx context.Context) error {
	all, err := c.Members(ctx)
	if err != nil {
		return err
	}
	var bad []string
	for _, m := range all {
		name, state := plain(m.Name, maxName), "voter"
		switch {
		case m.Silent: // or it has never started
			state = "silent"
		case m.Learner:
			state = "learner"
		case m.Leader:
			state = "leader"
		}
		if m.Silent || m.Learner {
			bad = append(bad, strconv.Quote(name)+" is "+state)
		}
		if err := c.print("%-16s %016x  %-7s %10d bytes  peer %s  client %s\n", name, m.ID, state, m.Size,
			plain(m.Peer, maxName), plain(m.Client, maxName)); err != nil {
			return err
		}
	}
	if bad != nil {
		return exit(exitSilent, "%s", strings.Join(bad, ", "))
	}
	return nil
}

// named returns the member that the argument names.
func (c *call) named(ctx context.Context) (m quorum.MemberInfo, found bool, err error) {
	all, err := c.Members(ctx)
	if i := slices.IndexFunc(all, func(m quorum.MemberInfo) bool { return m.Name == c.arg }); i >= 0 {
		return all[i], true, err
	}
	return m, false, err
}

func (c *call) remove(ctx context.Context) error {
	_, found, err := c.named(ctx)
	switch {
	case err != nil:
		return err
	case !found:
		return exit(exitNotFound, "cluster %q has no member %.80q: use a name that members prints", c.config.Cluster, c.arg)
	case !c.yes:
		return exit(exitRefused, "member %q would lose its vote permanently: if that is right, add -yes", c.arg)
	}
	if err = c.Remove(ctx, c.arg); err != nil && ctx.Err() == nil {
		return exit(exitRefused, "%w", err)
	}
	if err != nil {
		return err
	}
	return c.print("removed member %q\n", c.arg)
}

func (c *call) replace(ctx context.Context) error {
	m, found, err := c.named(ctx)
	listed := slices.ContainsFunc(c.config.Members, func(a quorum.Address) bool { return a.Name == c.arg })
	switch {
	case err != nil:
		return err
	case found && !m.Silent:
		return exit(exitRefused, "member %q runs at %s: stop it first", c.arg, plain(m.Client, maxName))
	case !found && !listed && c.config.Domain == "":
		return exit(exitNotFound, "neither cluster %q nor -config has a member %.80q: correct the name, or add the member "+
			"to Members everywhere", c.config.Cluster, c.arg)
	}
	return c.print(`A majority of cluster %q answers, and member %q does not.
1. Make sure that its former process has ended, and that its data folder is empty.
2. On its machine, call this instead of Start, with its Config:
	m, err := quorum.Replace(ctx, quorum.Config{Cluster: %q, Name: %q, ...})
3. After that, call Start again.
`, c.config.Cluster, c.arg, c.config.Cluster, c.arg)
}

func (c *call) snapshot(ctx context.Context) error {
	if err := c.Snapshot(ctx, c.arg); err != nil {
		return err
	}
	return c.print("wrote %q\n", c.arg)
}

func (c *call) restore(context.Context) error {
	if _, err := os.Stat(c.arg); errors.Is(err, fs.ErrNotExist) {
		return exit(exitNotFound, "%w", err)
	}
	if err := quorum.CheckSnapshot(c.arg); err != nil {
		return exit(exitDamaged, "%w", err)
	}
	now := time.Now().UTC()
	return c.print(`The snapshot %q is complete.
1. Stop all members of cluster %q, and move their data folders away.
2. Copy the snapshot to each member's machine. For each member, call this with its Config and the same time:
	err := quorum.Restore(ctx, config, path, time.Unix(%d, %d))
3. Start the members, and restart all processes that are only clients.
`, c.arg, c.config.Cluster, now.Unix(), now.Nanosecond())
}
