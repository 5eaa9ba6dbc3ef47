package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/backends/consul"
	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/backends/redis"
	"github.com/tenure-go/tenure/backends/sql/mysql"
	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/backends/zookeeper"
	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

// All commands share the state in app.
type app struct {
	in   io.Reader
	out  io.Writer
	errs io.Writer

	path    string
	key     string
	prefix  string // prefix of environment variables
	format  string
	timeout time.Duration

	conf  *config.Config // set by open
	hasty bool           // ignores open_wait, which is meant for members
}

// Without --config, this environment variable contains the path of the configuration file.
const configVariable = "TENURE_CONFIG"

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "tenure",
		Short: "Show, check and operate a namespace of leases, on every store",
		Long: "Show, check and operate a namespace of leases, on every store.\n\n" +
			"The store is configured as that of the members: by a YAML file (--config, or " + configVariable +
			")\nand by variables such as " + config.DefaultEnvPrefix + "BACKEND\n(--env-prefix, if the members chose another).",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			hint := ""
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				hint = fmt.Sprintf(" (did you mean %q?)", near[0])
			}
			return usage(fmt.Sprintf("there is no command %s%s: tenure --help lists them", quoted(args[0]), hint))
		},
		PersistentPreRunE: func(*cobra.Command, []string) error { return a.check() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		text, why, _ := strings.Cut(err.Error(), " flag: ")
		switch {
		case strings.HasPrefix(why, "strconv.ParseBool"):
			text += ": give true or false"
		case strings.HasPrefix(why, "strconv."):
			text += ": give a whole number of at most 18 digits"
		case strings.HasPrefix(why, "time: "):
			text += ": give a number and its unit, such as 90s"
		default:
			text = err.Error()
		}
		return usage(fmt.Sprintf("%s: see %s --help", text, cmd.CommandPath()))
	})
	f := root.PersistentFlags()
	f.StringVarP(&a.path, "config", "c", "", "YAML file of the configuration (default $"+configVariable+")")
	f.StringVar(&a.key, "key", config.DefaultKey, "key of the configuration in the file, with dots between its parts")
	f.StringVar(&a.prefix, "env-prefix", config.DefaultEnvPrefix, "begins the names of the configuration's variables")
	f.StringVarP(&a.format, "output", "o", "table", "table, json or yaml")
	f.DurationVar(&a.timeout, "timeout", 10*time.Second, "bounds each call to the store")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	root.AddCommand(a.readCommands()...)
	root.AddCommand(a.checkCommands()...)
	root.AddCommand(a.ruleCommands()...)
	root.AddCommand(a.repairCommands()...)
	root.AddCommand(a.traceCommand())
	root.AddCommand(a.certifyCommand())
	root.AddCommand(a.runCommand())
	root.AddCommand(a.serveCommand())
	root.AddCommand(a.versionCommand())
	return root
}

var formats = []string{"table", "json", "yaml"}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (a *app) check() error {
	if !slices.Contains(formats, a.format) {
		return usage(fmt.Sprintf("--output %s: use one of %s", quoted(a.format), strings.Join(formats, ", ")))
	}
	if !variableName.MatchString(a.prefix) {
		return usage(fmt.Sprintf("--env-prefix %s begins no variable's name: use letters, digits and underscores, such as %s",
			quoted(a.prefix), config.DefaultEnvPrefix))
	}
	if a.timeout < time.Millisecond || a.timeout > time.Hour {
		return usage(fmt.Sprintf("--timeout %v is outside 1ms to 1h", a.timeout))
	}
	return nil
}

// Untrusted text is limited to 60 bytes.
func quoted(s string) string {
	if len(s) > 60 {
		return fmt.Sprintf("%q...", s[:60])
	}
	return fmt.Sprintf("%q", s)
}

func args(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		if len(names) == 0 {
			return usage(fmt.Sprintf("%s takes no argument, got %s", cmd.CommandPath(), quoted(args[0])))
		}
		return usage(fmt.Sprintf("%s takes %s, got %s: see %s --help", cmd.CommandPath(),
			strings.Join(names, " "), counted(len(args), "argument"), cmd.CommandPath()))
	}
}

func shardArg(s string) (core.ShardID, error) {
	if err := core.CheckShard(s); err != nil {
		return "", err
	}
	return core.ShardID(s), nil
}

func (a *app) load() error {
	path := a.path
	if path == "" {
		path = os.Getenv(configVariable)
	}
	environ := os.Environ()
	if a.hasty {
		wait := a.prefix + "OPEN_WAIT="
		environ = append(slices.DeleteFunc(environ, func(v string) bool { return strings.HasPrefix(v, wait) }), wait+"0s")
	}
	c, err := config.Load(&config.LoadOptions{Path: path, Key: a.key, EnvPrefix: a.prefix, Environ: environ})
	if err != nil {
		if path == "" {
			return fmt.Errorf("%w (no file was named: use --config or %s)", err, configVariable)
		}
		return err
	}
	a.conf = c
	return nil
}

// The namespace must exist, and the caller must close the backend.
func (a *app) open(ctx context.Context) (core.Backend, error) { return a.openAs(ctx, false) }

// If create is set, openAs creates a missing namespace and its tables.
func (a *app) openAs(ctx context.Context, create bool) (core.Backend, error) {
	if err := a.load(); err != nil {
		return nil, err
	}
	list := openers()
	for i := range list {
		list[i] = creating(list[i], create)
	}
	b, err := a.conf.Open(ctx, append(list, foreign(a.conf, list)...)...)
	if err == nil {
		return b, nil
	}
	return nil, explain(err, create)
}

func openers() []core.Opener {
	return []core.Opener{sqlite.Opener(), postgres.Opener(), mysql.Opener(), etcd.Opener(), zookeeper.Opener(),
		consul.Opener(), redis.Opener()}
}

// foreign returns openers for configured backends that this command lacks, such as the memory
// backend or an application's backend. These openers always return an error. Because the command
// opens only the chosen backend, the others cause no error.
func foreign(c *config.Config, list []core.Opener) []core.Opener {
	var out []core.Opener
	for _, name := range c.Backends() {
		if slices.ContainsFunc(list, func(o core.Opener) bool { return o.Name == name }) {
			continue
		}
		out = append(out, core.Opener{Name: name, Open: func(context.Context, func(any) error) (core.Backend, error) {
			return nil, fmt.Errorf("tenure: %w backend: only the program that brings %s along can open it: this command has %s",
				core.ErrInvalid, quoted(name), strings.Join(names(list), ", "))
		}})
	}
	return out
}

func names(list []core.Opener) []string {
	out := make([]string, len(list))
	for i, o := range list {
		out[i] = o.Name
	}
	slices.Sort(out)
	return out
}

// explain adds advice to the error for a missing namespace or missing tables.
func explain(err error, create bool) error {
	missing, ok := errors.AsType[*driver.MissingError](err)
	if create || !ok {
		return err
	}
	if missing.Err != nil && !errors.Is(missing.Err, core.ErrUnsupported) {
		return &exitError{exitNotFound, fmt.Errorf("%s: make it with: tenure init; if it was in use before: %w",
			missing.What, missing.Err)}
	}
	return &exitError{exitNotFound, fmt.Errorf("%s: check the configuration, or make it with: tenure init", missing.What)}
}

// creating returns an opener that creates a missing namespace only if create is set. The opener
// ignores the setting in the configuration.
func creating(o core.Opener, create bool) core.Opener {
	open := o.Open
	o.Open = func(ctx context.Context, decode func(any) error) (core.Backend, error) {
		b, err := open(ctx, func(into any) error {
			if err := decode(into); err != nil {
				return err
			}
			switch f := reflect.ValueOf(into).Elem().FieldByName("Create"); {
			case f.Kind() == reflect.Bool:
				f.SetBool(create)
			case f.IsValid() && f.Type() == reflect.TypeFor[*bool]():
				f.Set(reflect.ValueOf(&create))
			}
			if !create {
				return nil
			}
			return migrate(ctx, into)
		})
		return b, advised(err, o.Name)
	}
	return o
}

// Some stores need tables, which migrate creates.
func migrate(ctx context.Context, settings any) error {
	password := func(file string, old func(context.Context) (string, error)) func(context.Context) (string, error) {
		if file == "" {
			return old
		}
		return func(context.Context) (string, error) { return driver.ReadSecret(file) }
	}
	switch s := settings.(type) {
	case *postgres.Settings:
		o := s.Options
		o.Password = password(s.PasswordFile, o.Password)
		return postgres.Migrate(ctx, string(s.DSN), &o)
	case *mysql.Settings:
		o := s.Options
		o.Password = password(s.PasswordFile, o.Password)
		return mysql.Migrate(ctx, string(s.DSN), &o)
	}
	return nil
}

func (a *app) with(cmd *cobra.Command, do func(ctx context.Context, b core.Backend) error) (err error) {
	ctx := cmd.Context()
	a.hasty = true
	b, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return advised(do(ctx, b), b.Info().Backend)
}

// call applies the timeout to one store call.
func call[T any](ctx context.Context, a *app, do func(context.Context) (T, error)) (T, error) {
	limited, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	v, err := do(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		err = fmt.Errorf("the store did not answer within %v: check that it runs and can be reached, or raise --timeout: %w",
			a.timeout, err)
	}
	return v, err
}

func (a *app) state(ctx context.Context, b core.Backend) (*driver.View, error) {
	v, err := call(ctx, a, func(ctx context.Context) (*driver.View, error) {
		return b.Observe(ctx,
			driver.ObserveQuery{})
	})
	if err != nil {
		return nil, fmt.Errorf("read the namespace: %w", err)
	}
	slices.SortFunc(v.Members, func(x, y core.Member) int {
		return strings.Compare(x.Node+"\x00"+string(x.Session), y.Node+"\x00"+string(y.Session))
	})
	slices.SortFunc(v.Shards, func(x, y driver.ShardState) int {
		return strings.Compare(string(x.Shard),
			string(y.Shard))
	})
	return v, nil
}
