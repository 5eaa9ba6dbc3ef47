package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/errtext"
)

// These are the defaults for LoadOptions and for the keys that only this package uses.
const (
	DefaultKey         = "tenure"
	DefaultEnvPrefix   = "TENURE__"
	defaultStopTimeout = 15 * time.Second // the default of fx
	defaultOpenTimeout = 10 * time.Second
)

// LoadOptions specifies where Load finds the configuration. If the options are nil or zero, Load
// reads only the environment.
type LoadOptions struct {
	// Path is the path of the YAML file, which must exist. By default, Load reads no file.
	Path string
	// Data is the file's content, if the caller has already read it. If Data is set, Path only
	// identifies the file in messages.
	Data []byte
	// Key is the dot-separated path of the subtree. The default is "tenure".
	Key string
	// EnvPrefix is the prefix of environment variable names. The default is "TENURE__".
	EnvPrefix string
	// Environ lists the environment variables in the form NAME=value. The default is os.Environ().
	Environ []string
}

type settings struct {
	Backend  string         `yaml:"backend" doc:"which of backends is opened; may be left out if there is one"`
	Backends map[string]raw `yaml:"backends" doc:"a part for each backend that may be chosen"`
	Sharding raw            `yaml:"sharding" doc:"how shards are assigned to members"`
	Follower raw            `yaml:"follower" doc:"how decision logs are followed"`

	Node         string            `yaml:"node" doc:"label of the machine or replica; default: the host name"`
	Priority     int32             `yaml:"priority" doc:"members with a higher one claim first"`
	Weight       int32             `yaml:"weight" doc:"capacity relative to the others; default 1"`
	Meta         map[string]string `yaml:"meta" doc:"shown to the other members, such as an address"`
	Supersede    bool              `yaml:"supersede" doc:"end the session that joined last under this node; needs node"`
	LockDir      string            `yaml:"lock_dir" doc:"directory of the lock by which a process restarted on its host knows that the former one has ended; default: the temporary directory; none: no lock"`
	TTL          time.Duration     `yaml:"ttl" doc:"how long others wait in silence before they take over; default 10s"`
	Heartbeat    time.Duration     `yaml:"heartbeat" doc:"time between two heartbeats; default ttl/3"`
	Jitter       float64           `yaml:"jitter" doc:"share of heartbeat taken off at random; default 0.1"`
	Margin       time.Duration     `yaml:"margin" doc:"taken off ttl to give the trust window; default ttl/10"`
	DrainBudget  time.Duration     `yaml:"drain_budget" doc:"how long a handler may take to return; default 10s"`
	Failback     time.Duration     `yaml:"failback" doc:"how long a member with a higher priority has to live until it is given what is held; default never"`
	LameDuck     time.Duration     `yaml:"lame_duck" doc:"how long a planned stop is unready before handlers are asked to stop; default 0s"`
	AbandonAfter time.Duration     `yaml:"abandon_after" doc:"release a stuck lease after that; default never"`
	ReturnHalted bool              `yaml:"return_halted" doc:"end once the store is another one, or lost something, so that a supervisor restarts the process; default: stay, with /healthz 503"`
	Watchdog     time.Duration     `yaml:"watchdog" doc:"how often a handler must report progress; default never"`
	BackoffMin   time.Duration     `yaml:"backoff_min" doc:"default 100ms or ttl/20"`
	BackoffMax   time.Duration     `yaml:"backoff_max" doc:"default 30s"`
	Resync       time.Duration     `yaml:"resync" doc:"time between two full reads; default 10 ttl"`
	CallTimeout  time.Duration     `yaml:"call_timeout" doc:"bounds calls to the store; default ttl, at least 5s"`
	RankDelay    time.Duration     `yaml:"rank_delay" doc:"time that a candidate leaves to the one before it; default 10ms"`
	TraceDir     string            `yaml:"trace_dir" doc:"directory into which the member writes its trace, for tenure check; default: none is written"`
	TraceBytes   int64             `yaml:"trace_bytes" doc:"limits all trace files of the node label together; default 256 MiB"`

	Listen string `yaml:"listen" doc:"address at which package tenurefx/service serves the board, the probes and the metrics, such as 127.0.0.1:8080; they have no password; default: none"`

	OpenTimeout time.Duration `yaml:"open_timeout" doc:"bounds each attempt to open the backend; default 10s"`
	OpenWait    time.Duration `yaml:"open_wait" doc:"how long the opening is tried again while the store cannot be had; default 0s: not; at most 24h"`
	StopTimeout time.Duration `yaml:"stop_timeout" doc:"the time that the supervisor, or fx, gives the process to stop; default 15s"`
}

// A raw value is a section of the configuration that another package decodes later.
type raw struct{ n *node }

// Config is a loaded configuration. Load has checked everything that can be checked without a
// backend. Formatting a Config never prints a secret. A Config is safe for concurrent use.
type Config struct {
	name string // name of the subtree
	tree *node
	set  *settings
}

// Load reads the configuration. The error matches core.ErrInvalid. The error describes each problem
// on one line, with its place, key and value, and a correction.
func Load(o *LoadOptions) (*Config, error) {
	if o == nil {
		o = &LoadOptions{}
	}
	key, prefix, environ := o.Key, o.EnvPrefix, o.Environ
	if key == "" {
		key = DefaultKey
	}
	if prefix == "" {
		prefix = DefaultEnvPrefix
	}
	if environ == nil {
		environ = os.Environ()
	}
	data, file := o.Data, "configuration"
	if o.Path != "" {
		file = filepath.Base(o.Path)
		if data == nil {
			var err error
			if data, err = os.ReadFile(o.Path); err != nil {
				return nil, fmt.Errorf("tenure: %w configuration: %w", core.ErrInvalid, err)
			}
		}
	}
	r := &reader{file: file, left: maxNodes, secrets: maxFile, env: func(name string) (string, bool) {
		for _, kv := range environ {
			if n, v, _ := strings.Cut(kv, "="); n == name {
				return v, true
			}
		}
		return "", false
	}}
	tree, err := r.subtree(data, strings.Split(key, "."))
	if err == nil {
		err = tree.overlay(prefix, environ)
	}
	if err != nil {
		return nil, invalid(err)
	}
	c := &Config{name: key, tree: tree, set: &settings{}}
	var p problems
	p.settings(tree, key, c.set)
	if len(p.errs) == 0 {
		// Only Open knows the backend's limits. The checks here apply to every backend.
		c.relations(&p, core.Limits{})
	}
	if len(p.errs) > 0 {
		return nil, invalid(p.errs...)
	}
	return c, nil
}

func invalid(errs ...error) error {
	return fmt.Errorf("tenure: %w configuration: %w", core.ErrInvalid, errors.Join(errs...))
}

func (p *problems) settings(tree *node, path string, s *settings) {
	v := reflect.ValueOf(s).Elem()
	known := fields(v.Type())
	for _, key := range tree.keys {
		n := tree.fields[key]
		switch f, is := known[key]; {
		case key == "backends":
			if n.kind != mapping && n.kind != absent {
				p.add(n, path+".backends", "got %s: write the name of a backend below it, and its keys below that",
					n.kind)
				continue
			}
			s.Backends = make(map[string]raw, len(n.keys))
			for _, name := range n.keys {
				part := n.fields[name]
				if part.kind != mapping && part.kind != absent {
					p.add(part, path+".backends."+name, "got %s: write the backend's keys below it", part.kind)
				}
				s.Backends[name] = raw{part}
			}
		case key == "sharding":
			s.Sharding.n = n
		case key == "follower":
			s.Follower.n = n
		case !is:
			p.unknown(n, path+"."+key, key, slices.Collect(maps.Keys(known)))
		default:
			p.field(n, path+"."+key, v.FieldByIndex(f.Index))
		}
	}
}

// Options returns the configured Elector options. The caller can add options that a file cannot
// express, such as hooks and a logger.
func (c *Config) Options() *core.Options {
	s := c.set
	meta := make(map[string]string, len(s.Meta))
	for k, v := range s.Meta {
		meta[k] = v
	}
	return &core.Options{
		Node: s.Node, Priority: s.Priority, Weight: s.Weight, Meta: meta, Supersede: s.Supersede, LockDir: s.LockDir,
		TTL: s.TTL, Heartbeat: s.Heartbeat, Jitter: s.Jitter, Margin: s.Margin, DrainBudget: s.DrainBudget,
		Failback: s.Failback, LameDuck: s.LameDuck, AbandonAfter: s.AbandonAfter, ReturnHalted: s.ReturnHalted, Watchdog: s.Watchdog, BackoffMin: s.BackoffMin, BackoffMax: s.BackoffMax,
		Resync: s.Resync, CallTimeout: s.CallTimeout, RankDelay: s.RankDelay, TraceDir: s.TraceDir, TraceBytes: s.TraceBytes,
	}
}

// Listen returns the configured listen address, or "" if it is not set.
func (c *Config) Listen() string { return c.set.Listen }

func (c *Config) openTimeout() time.Duration {
	if c.set.OpenTimeout > 0 {
		return c.set.OpenTimeout
	}
	return defaultOpenTimeout
}

// StopTimeout returns the configured stop_timeout, or its default.
func (c *Config) StopTimeout() time.Duration {
	if c.set.StopTimeout > 0 {
		return c.set.StopTimeout
	}
	return defaultStopTimeout
}

// Warnings returns one line for each setting that is valid but probably a mistake.
func (c *Config) Warnings() []string {
	var w []string
	drain := c.set.DrainBudget
	if drain == 0 {
		drain = 10 * time.Second
	}
	if stop := c.StopTimeout(); drain+c.set.LameDuck > stop-stop/5 && c.set.LameDuck > 0 {
		w = append(w, fmt.Sprintf("%s: %s.lame_duck: after %v a handler may take %v to return, and the process has %v "+
			"to stop (stop_timeout): lower lame_duck or drain_budget, or give the process more and say so in "+
			"stop_timeout; else leases of slow handlers are left to be evicted",
			c.whereOf("lame_duck"), c.name, c.set.LameDuck, drain, stop))
	} else if drain > stop-stop/5 {
		w = append(w, fmt.Sprintf("%s: %s.drain_budget: a handler may take %v to return, and the process has %v to "+
			"stop (stop_timeout): lower drain_budget to %v, or give the process more and say so in stop_timeout; "+
			"else leases of slow handlers are left to be evicted",
			c.whereOf("drain_budget"), c.name, drain, stop, stop-stop/5))
	}
	return w
}

// Backends returns the sorted names of the configured backends. Open opens one of them.
func (c *Config) Backends() []string { return slices.Sorted(maps.Keys(c.set.Backends)) }

// Section decodes the "sharding" or "follower" section and stores it in the struct that into points
// to, such as a sharding.Options. A field whose key is missing stays unchanged. The error matches
// core.ErrInvalid and lists each unknown key with its line number.
func (c *Config) Section(name string, into any) error {
	part, ok := map[string]raw{"sharding": c.set.Sharding, "follower": c.set.Follower}[name]
	if !ok {
		return fmt.Errorf("tenure: %w: there is no section %q", core.ErrInvalid, name)
	}
	if part.n == nil {
		return nil
	}
	return c.part(part.n, c.name+"."+name, into)
}

func (c *Config) part(n *node, path string, into any) error {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return fmt.Errorf("tenure: %w: %s is decoded into %T, which is no pointer", core.ErrInvalid, path, into)
	}
	var p problems
	p.decode(n, path, v.Elem())
	if len(p.errs) > 0 {
		return invalid(p.errs...)
	}
	return nil
}

// Validate checks that the chosen backend has an opener, and checks the settings of every backend
// that has one. Validate opens no backend.
func (c *Config) Validate(openers ...core.Opener) error {
	var p problems
	if _, _, err := c.choose(openers); err != nil {
		p.errs = append(p.errs, err)
	}
	for name, part := range c.set.Backends {
		path := c.name + ".backends." + name
		i := slices.IndexFunc(openers, func(o core.Opener) bool { return o.Name == name })
		if i < 0 {
			if name != c.set.Backend { // choose has already reported errors of the chosen backend
				p.unknown(part.n, path, name, names(openers))
			}
			continue
		}
		if openers[i].Settings != nil {
			p.decode(part.n, path, reflect.New(reflect.TypeOf(openers[i].Settings)).Elem())
		}
	}
	if len(p.errs) > 0 {
		slices.SortFunc(p.errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return invalid(p.errs...)
	}
	return nil
}

func names(openers []core.Opener) []string {
	list := make([]string, len(openers))
	for i, o := range openers {
		list[i] = o.Name
	}
	slices.Sort(list)
	return list
}

func (c *Config) choose(openers []core.Opener) (core.Opener, *node, error) {
	var none core.Opener
	for i, o := range openers {
		if slices.ContainsFunc(openers[:i], func(p core.Opener) bool { return p.Name == o.Name }) {
			return none, nil, fmt.Errorf("tenure: %w: two openers have the name %q", core.ErrInvalid, o.Name)
		}
	}
	there := strings.Join(names(openers), ", ")
	if there == "" {
		there = "none: pass openers"
	}
	name, where := c.set.Backend, c.whereOf("backend")
	if name == "" {
		parts := c.Backends()
		switch len(parts) {
		case 0:
			return none, nil, fmt.Errorf("%s: %s.backend: no backend is configured: set it to one of %s, and its keys "+
				"below %s.backends", where, c.name, there, c.name)
		case 1:
			name, where = parts[0], c.set.Backends[parts[0]].n.where
		default:
			return none, nil, fmt.Errorf("%s: %s.backend: it is not set, and there are several backends: set it to "+
				"one of %s", where, c.name, strings.Join(parts, ", "))
		}
	}
	i := slices.IndexFunc(openers, func(o core.Opener) bool { return o.Name == name })
	if i < 0 {
		shown, hint := show(&node{value: name}, nil), ""
		if n := c.tree.field("backend"); n != nil && n.secret {
			shown = hidden
		}
		for _, o := range openers {
			if near(name, o.Name) {
				hint = fmt.Sprintf(" (did you mean %q?)", o.Name)
			}
		}
		return none, nil, fmt.Errorf("%s: %s.backend: %s is not a backend of this program%s: use one of %s", where,
			c.name, shown, hint, there)
	}
	part := c.set.Backends[name].n
	if part == nil {
		part = newMapping(where)
	}
	return openers[i], part, nil
}

// Open validates the configuration and opens the chosen backend with its opener. The caller must
// close the backend. The context ctx limits the whole call, and open_timeout limits each attempt.
//
// If open_wait is set, Open retries until it succeeds or open_wait has passed. After an error that
// matches core.ErrInvalid, Open does not retry. Open logs the first error at level Warn to
// slog.Default, and returns the last error.
func (c *Config) Open(ctx context.Context, openers ...core.Opener) (core.Backend, error) {
	if err := c.Validate(openers...); err != nil {
		return nil, err
	}
	opener, part, err := c.choose(openers)
	if err != nil {
		return nil, invalid(err)
	}
	path := c.name + ".backends." + opener.Name
	b, err := c.await(ctx, func(ctx context.Context) (core.Backend, error) {
		return opener.Open(ctx, func(into any) error { return c.part(part, path, into) })
	})
	if err != nil {
		if opener.Settings != nil {
			err = errtext.InKeys(err, opener.Settings)
		}
		return nil, errtext.Errorf("tenure: %s: %s: %w", part.where, path, err)
	}
	var p problems
	if c.relations(&p, b.Info().Limits); len(p.errs) > 0 {
		return nil, errors.Join(invalid(p.errs...), b.Close())
	}
	return b, nil
}

// These constants limit open_wait and the pauses between attempts to open the backend.
const (
	firstPause  = 100 * time.Millisecond
	longPause   = 5 * time.Second
	maxOpenWait = 24 * time.Hour
)

// await calls open until it succeeds, for at most open_wait.
func (c *Config) await(
	ctx context.Context, open func(context.Context) (core.Backend, error),
) (core.Backend, error) {
	began := time.Now()
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		attempt, cancel := context.WithTimeout(ctx, c.openTimeout())
		b, err := open(attempt)
		if err != nil && attempt.Err() != nil && ctx.Err() == nil {
			err = errtext.Errorf("not open after %v, which is open_timeout: check that the store can be reached, or raise it: %w",
				c.openTimeout(), err)
		}
		cancel()
		left := c.set.OpenWait - time.Since(began)
		switch {
		case err == nil:
			return b, nil
		case errors.Is(err, core.ErrInvalid) || ctx.Err() != nil || c.set.OpenWait == 0:
			return nil, err
		case left <= 0:
			return nil, errtext.Errorf("the store could not be had within open_wait (%v): %w", c.set.OpenWait, err)
		case pause == firstPause:
			slog.WarnContext(ctx, "tenure: the store cannot be had: trying again", slog.Duration("open_wait", c.set.OpenWait),
				slog.Any("error", err))
		}
		t := time.NewTimer(min(pause, left))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, err
		}
	}
}

// relations checks the Elector's options against each other and against the backend's limits.
func (c *Config) relations(p *problems, l core.Limits) {
	for _, key := range []string{"open_timeout", "open_wait", "stop_timeout"} {
		if d := map[string]time.Duration{"open_timeout": c.set.OpenTimeout, "open_wait": c.set.OpenWait,
			"stop_timeout": c.set.StopTimeout}[key]; d < 0 {
			p.add(c.tree.fields[key], c.name+"."+key, "%v is negative: leave it out for its default", d)
		}
	}
	if d := c.set.OpenWait; d > maxOpenWait {
		p.add(c.tree.fields["open_wait"], c.name+".open_wait", "%v is above %v: lower it", d, maxOpenWait)
	}
	if at := c.set.Listen; at != "" {
		if _, _, err := net.SplitHostPort(at); err != nil {
			p.add(c.tree.fields["listen"], c.name+".listen", "%.60q is not an address with a port: write one such as 127.0.0.1:8080", at)
		}
	}
	err := c.Options().Validate(l)
	if err == nil {
		return
	}
	// In the message, replace the names of struct fields with configuration keys.
	text := err.Error()
	first := ""
	text = optionNames.ReplaceAllStringFunc(text, func(name string) string {
		key := keyOf(name)
		if first == "" && c.tree.field(key) != nil {
			first = key
		}
		return key
	})
	if first == "" {
		for _, key := range []string{"node", "meta", "weight"} {
			if strings.Contains(text, key) && c.tree.field(key) != nil {
				first = key
			}
		}
	}
	text = strings.TrimPrefix(strings.TrimPrefix(text, "tenure: "), core.ErrInvalid.Error())
	text = strings.TrimLeft(strings.TrimPrefix(text, " options"), ": ")
	if first == "" {
		p.errs = append(p.errs, fmt.Errorf("%s: %s: %s", c.tree.where, c.name, text))
		return
	}
	p.add(c.tree.fields[first], c.name+"."+first, "%s", text)
}

var optionNames = regexp.MustCompile(`\b(TTL|Heartbeat|Jitter|Margin|DrainBudget|Failback|LameDuck|AbandonAfter|ReturnHalted|Watchdog|BackoffMin|BackoffMax|Resync|CallTimeout|RankDelay|Supersede|LockDir|TraceDir|TraceBytes|Node|Weight|Priority|Meta)\b`)

// keyOf converts the name of an option to its key, such as DrainBudget to drain_budget.
func keyOf(option string) string {
	if option == "TTL" {
		return "ttl"
	}
	var b strings.Builder
	for i, r := range option {
		if r >= 'A' && r <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

func (c *Config) whereOf(key string) string {
	if n := c.tree.field(key); n != nil {
		return n.where
	}
	return c.tree.where
}

// Format prints the result of Redacted for every verb.
func (c Config) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, c.Redacted()) }

// MarshalText returns the result of Redacted, for JSON and structured logs.
func (c Config) MarshalText() ([]byte, error) { return []byte(c.Redacted()), nil }

// LogValue returns the result of Redacted as a string value.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.Redacted()) }

// Redacted returns the configuration with the source of each value. Redacted replaces each secret
// with xxxxx. A value is secret if it comes from !file or !env, looks like a secret, or has a
// secret type in the opener's settings. If a backend has no opener in openers, Redacted hides every
// string in its section.
func (c Config) Redacted(openers ...core.Opener) string {
	if c.tree == nil {
		return "{}"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s:\n", c.name)
	for _, key := range c.tree.keys {
		n := c.tree.fields[key]
		if key != "backends" || n.kind != mapping {
			redact(&b, 1, key, n, known)
			continue
		}
		fmt.Fprintf(&b, "  backends:\n")
		for _, name := range n.keys {
			i := slices.IndexFunc(openers, func(o core.Opener) bool { return o.Name == name })
			trust := func(string) trusted { return unknown }
			if i >= 0 && openers[i].Settings != nil {
				trust = typed(reflect.TypeOf(openers[i].Settings))
			}
			redact(&b, 2, name, n.fields[name], trust)
		}
	}
	return b.String()
}

// A trusted value determines whether Redacted shows the value of a key.
type trusted uint8

const (
	unknown trusted = iota // shown only if the value is a number, a boolean or a duration
	plain                  // shown unless the value looks like a secret
	secret                 // never shown
)

func known(string) trusted { return plain }

func typed(t reflect.Type) func(string) trusted {
	known := fields(t)
	return func(key string) trusted {
		switch f, is := known[key]; {
		case !is:
			return unknown
		case isSecret(f.Type):
			return secret
		}
		return plain
	}
}

func redact(b *strings.Builder, depth int, key string, n *node, trust func(string) trusted) {
	indent := strings.Repeat("  ", depth)
	switch n.kind {
	case mapping:
		fmt.Fprintf(b, "%s%s:\n", indent, key)
		for _, k := range n.keys {
			redact(b, depth+1, k, n.fields[k], trust)
		}
	case list:
		fmt.Fprintf(b, "%s%s: # %s\n", indent, key, n.where)
		for _, item := range n.items {
			if item.kind == scalar {
				fmt.Fprintf(b, "%s  - %s\n", indent, shown(key, item, trust(key)))
				continue
			}
			redact(b, depth+1, "-", item, trust)
		}
	case scalar:
		fmt.Fprintf(b, "%s%s: %s # %s\n", indent, key, shown(key, n, trust(key)), n.where)
	case absent:
		fmt.Fprintf(b, "%s%s: # %s\n", indent, key, n.where)
	}
}

var harmless = regexp.MustCompile(`^(true|false|-?[0-9]{1,6}|([0-9.]+(h|m|s|ms))+)$`)

func shown(key string, n *node, t trusted) string {
	if n.secret || t == secret || suspicious(key, n.value) || t == unknown && !harmless.MatchString(n.value) {
		return hidden
	}
	if strings.ContainsAny(n.value, "\n#:'\"") || n.value == "" {
		return fmt.Sprintf("%q", n.value)
	}
	return n.value
}
