package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/core"
)

// This hidden subcommand starts and ends the command given to run.
const guardName = "__guard"

// These are the values of --restart. Each comment lists the command's exits after which run ends.
const (
	restartOnFailure = "on-failure" // an exit with 0
	restartAlways    = "always"     // no exit
	restartNever     = "never"      // any exit
)

// A runner runs a command under a shard's leases.
type runner struct {
	a       *app
	shard   string
	command []string
	restart string
	setuid  bool          // the command may become another user
	grace   time.Duration // time between SIGTERM and SIGKILL
	margin  time.Duration // time from the end of trust until other members may have the shard
	trust   time.Duration // time from a heartbeat to the end of trust
	log     *slog.Logger

	ended chan error // buffered; nil means that the command exited with 0

	working sync.Mutex // held while the handler runs
	quit    bool       // the handler must not start another command; guarded by working

	spared map[int]bool // children that existed before the run; only the handler uses it
	left   occurrences  // occurrences of commands that left processes behind; only the handler uses it
}

// The number of log lines about a repeated event is limited.
type occurrences struct {
	n    int // number of occurrences since the last line
	said time.Time
}

const lineEvery = time.Minute

// The result is the number of occurrences to log, or 0 if the caller should log nothing.
func (o *occurrences) next() int {
	o.n++
	if now := time.Now(); o.said.IsZero() || now.Sub(o.said) >= lineEvery {
		n := o.n
		o.n, o.said = 0, now
		return n
	}
	return 0
}

func (a *app) runCommand() *cobra.Command {
	r := &runner{a: a, ended: make(chan error, 1)}
	c := &cobra.Command{
		Use:   "run --shard SHARD -- COMMAND [ARGUMENT...]",
		Short: "Run a command only while this process leads a shard",
		Long: `Run a command only while this process leads a shard.

The command gets TENURE_SHARD, TENURE_TOKEN and TENURE_FENCE, which has the form of the
header Tenure-Fence: SHARD/SESSION/TOKEN. When the lease is asked for or nears its end, the
command's process group gets SIGTERM, and all that it has started SIGKILL after --grace, and
in any case before the shard can pass to somebody else. A guard process does this where this
process was killed or stopped. While a process cannot be ended, the shard is kept. Linux only.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("there is no command to run: write it after --, as in tenure run --shard jobs -- ./worker")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r.command = args
			return r.run(cmd.Context())
		},
	}
	c.Flags().StringVar(&r.shard, "shard", "", "the shard to lead (required)")
	c.Flags().StringVar(&r.restart, "restart", restartOnFailure,
		"contend again when the command exits: on-failure, always or never")
	c.Flags().DurationVar(&r.grace, "grace", 0,
		"how long the command may take to end after SIGTERM; default half of drain_budget")
	c.Flags().BoolVar(&r.setuid, "allow-setuid", false,
		"let the command become another user, as by sudo; what cannot be ended then keeps the shard (root's command may always)")
	_ = c.RegisterFlagCompletionFunc("restart", cobra.FixedCompletions([]string{restartOnFailure, restartAlways,
		restartNever},
		cobra.ShellCompDirectiveNoFileComp))
	return c
}

// Supersede, the host lock, AbandonAfter and Watchdog are disabled, because they could hand over
// the shard before the command has ended.
func (r *runner) options() (*core.Options, error) {
	o := r.a.conf.Options()
	o.Supersede, o.LockDir, o.AbandonAfter, o.Watchdog = false, "none", 0, 0
	r.log = slog.New(slog.NewTextHandler(r.a.errs, nil))
	o.Logger = r.log
	if o.TTL == 0 {
		o.TTL = 10 * time.Second
	}
	if o.Margin == 0 {
		o.Margin = max(o.TTL/10, min(50*time.Millisecond, o.TTL/5))
	}
	if o.DrainBudget == 0 {
		o.DrainBudget = 10 * time.Second
	}
	if r.grace == 0 {
		r.grace = o.DrainBudget / 2
	}
	if r.grace < 0 || r.grace > o.DrainBudget*4/5 {
		return nil, usage(fmt.Sprintf("--grace %v is outside 0 to %v, four fifths of drain_budget: change one of them",
			r.grace, o.DrainBudget*4/5))
	}
	r.margin, r.trust = o.Margin, o.TTL-o.Margin
	return o, nil
}

func (r *runner) run(ctx context.Context) (err error) {
	if r.shard == "" {
		return usage("--shard is missing: name the shard to lead")
	}
	if _, err := shardArg(r.shard); err != nil {
		return err
	}
	if strings.HasPrefix(r.shard, "_") {
		return usage(fmt.Sprintf(`shard %q is Tenure's own, as its name begins with "_": choose another`, r.shard))
	}
	switch r.restart {
	case restartOnFailure, restartAlways, restartNever:
	default:
		return usage(fmt.Sprintf("--restart %s: use on-failure, always or never", quoted(r.restart)))
	}
	if _, err := exec.LookPath(r.command[0]); err != nil {
		return usage(fmt.Sprintf("the command %s cannot be run: %v", quoted(r.command[0]), errors.Unwrap(err)))
	}
	b, err := r.a.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	o, err := r.options()
	if err != nil {
		return err
	}
	e, err := core.NewElector(b, o)
	if err != nil {
		return err
	}
	if err := r.adopt(); err != nil {
		return err
	}
	if err := e.Contend(r.handle, r.shard); err != nil {
		return err
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	left := make(chan error, 1)
	go func() { left <- e.Run(work) }()
	select {
	case err = <-r.ended:
	case <-ctx.Done():
		r.leave(e)
	case err = <-left:
		left <- nil
	}
	stop()
	err = errors.Join(err, <-left)
	r.working.Lock() // waits until the handler has returned: a guard alone could not report anything
	defer r.working.Unlock()
	select {
	case ended := <-r.ended:
		return errors.Join(ended, err)
	default:
		return err // this process was asked to stop, and the command has ended
	}
}

// The handler is asked to end, and leave waits for it without a time limit. If one of the command's
// processes cannot be ended, this process continues its heartbeats and keeps the shard.
func (r *runner) leave(e *core.Elector) {
	time.Sleep(e.Leave())
	ctx, cancel := context.WithCancel(context.Background())
	withdrawn := make(chan struct{})
	go func() {
		defer close(withdrawn)
		_ = e.Withdraw(ctx, r.shard) // the end of Run reports the result
	}()
	r.working.Lock()
	r.quit = true
	r.working.Unlock()
	cancel()
	<-withdrawn
}

// A childExit describes how the command ended.
type childExit struct {
	code   int
	signal string // the signal that ended the command, or ""
}

func (c childExit) Error() string {
	if c.signal != "" {
		return fmt.Sprintf("the command was ended by %s", c.signal)
	}
	return fmt.Sprintf("the command exited with %d", c.code)
}

func (c childExit) status() int {
	if c.signal != "" {
		return 128 + c.code
	}
	return c.code
}

// After the command has exited on its own, decide determines whether run ends or restarts it.
func (r *runner) decide(c childExit) error {
	failed := c.code != 0 || c.signal != ""
	switch {
	case r.restart == restartNever && failed:
		r.end(&exitError{c.status(), c})
	case r.restart != restartAlways && !failed, r.restart == restartNever:
		r.end(nil)
	}
	if failed {
		return c
	}
	return nil
}

// After calling end, the handler starts no other command.
func (r *runner) end(err error) {
	r.quit = true
	select {
	case r.ended <- err:
	default:
	}
}

var errGuard = errors.New("the guard of the command ended first")
