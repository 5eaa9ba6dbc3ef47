package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core"
)

const (
	exitOK           = 0
	exitDamage       = 1   // a check failed
	exitInput        = 2   // the input was bad, or the run could not finish
	exitInconclusive = 3   // a control found no damage
	exitInterrupted  = 130 // the code that shells use for SIGINT
)

type options struct {
	backend   string
	dsn       string
	namespace string // prefix of the run's namespace
	flights   string
	members   int
	ttl       time.Duration
	seed      uint64
	duration  time.Duration
	unfenced  bool
	json      bool
	keep      bool
	stay      bool
	verbose   bool
	board     string // address of the board; if empty, nothing listens
}

// The store determines the smallest TTL.
const (
	minMembers, maxMembers   = 2, 9
	minDuration, maxDuration = 4 * time.Second, time.Hour
	maxTTL                   = time.Minute
)

const usage = `The flight board shares real airports among processes, which come and go, injects
faults, and checks that no departure was lost, doubled or decided by a zombie.

	go run ./cmd/demo [flags]

SQLite needs no set-up. With -backend postgres, mysql, zookeeper, consul or redis a server
of the run's own is started, and killed and restarted once, if its programs are
installed (make servers); with etcd three members, of which one is killed and
restarted; or name yours with -dsn. A password in -dsn shows in the list of
processes: the variables TENURE_POSTGRES_DSN and TENURE_MYSQL_DSN name a server,
too, on which the run creates a database and drops it.

Exit code 0: all holds. 1: it does not (with -unfenced: damage was found, as it
must be). 2: bad input, or the run could not be finished. 3: -unfenced, and no
damage was found. 130: interrupted.

Flags:
`

// parseOptions makes every check that needs no store, and returns single-line errors. Before
// returning flag.ErrHelp, parseOptions writes a usage message to help.
func parseOptions(args []string, stores []store, help io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("demo", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.backend, "backend", stores[0].opener.Name, "the store: "+strings.Join(names(stores), ", "))
	f.StringVar(&o.dsn, "dsn", "", `where the store is: the path of a database,
postgres://user:password@host:port/database,
user:password@tcp(host:port)/database,
for etcd and zookeeper host:port,host:port, or for consul and redis host:port
(default: a temporary database, or a server of the run's own).
Missing tables are made; each run uses a new namespace, which stays`)
	f.StringVar(&o.namespace, "namespace", "flightboard", "the run's namespace is this, a slash and a random name")
	f.StringVar(&o.flights, "flights", "", "another flights file, with columns "+flightsHeader)
	f.IntVar(&o.members, "members", 3, fmt.Sprintf("member processes at first, %d to %d; one more joins", minMembers,
		maxMembers))
	f.DurationVar(&o.ttl, "ttl", time.Second, "how long a member may be silent before others take over")
	f.Uint64Var(&o.seed, "seed", 1, "chooses the members that get faults, and when")
	f.DurationVar(&o.duration, "duration", 20*time.Second, "how long the departures take; the faults may add to it")
	f.BoolVar(&o.unfenced, "unfenced", false, "the control: writes check neither fence nor order; must end with damage")
	f.BoolVar(&o.json, "json", false, "write the report as JSON to standard output, and the progress to standard error")
	f.BoolVar(&o.keep, "keep", false, "keep the temporary database of sqlite, and say how to look at it")
	f.StringVar(&o.board, "board", "", `serve a board for browsers, with a map of the airports, and /metrics for
Prometheus, at this address, such as 127.0.0.1:8080, until the run ends;
port 0 is any that is free`)
	f.BoolVar(&o.stay, "stay", false, "after the last departure go on until interrupted, so that the board stays")
	f.BoolVar(&o.verbose, "v", false, "show every lease as it is granted and ends")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		f.SetOutput(help)
		_, _ = fmt.Fprint(help, usage)
		f.PrintDefaults()
		return nil, err
	} else if err != nil && slices.ContainsFunc(args, mayHoldPassword) {
		return nil, errors.New("the flags are not understood, and not repeated here because they may hold a " +
			"password: see -h")
	} else if err != nil {
		return nil, fmt.Errorf("%w: see -h", err)
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %s: use flags only, see -h", quote(f.Arg(0)))
	}
	return o, o.validate(stores)
}

func (o *options) validate(stores []store) error {
	s, ok := storeNamed(stores, o.backend)
	switch {
	case !ok:
		return fmt.Errorf("unknown backend %s: use one of %s with -backend", quote(o.backend),
			strings.Join(names(stores), ", "))
	case o.keep && o.dsn != "":
		return errors.New("-keep is for the temporary database: the run's logs in one named with -dsn always stay; " +
			"leave -keep out")
	case o.keep && s.temporary == nil:
		return errors.New("-keep is for the temporary database of sqlite: name a server of yours with -dsn, " +
			"where the run's logs stay")
	case o.members < minMembers || o.members > maxMembers:
		return fmt.Errorf("%d members: use %d to %d with -members", o.members, minMembers, maxMembers)
	case o.duration < minDuration || o.duration > maxDuration:
		return fmt.Errorf("duration %v: use %v to %v with -duration", o.duration, minDuration, maxDuration)
	case o.ttl > maxTTL:
		return fmt.Errorf("TTL %v: a run takes some ten of them, so use at most %v with -ttl", o.ttl, maxTTL)
	}
	if o.board != "" {
		if _, _, err := net.SplitHostPort(o.board); err != nil {
			return fmt.Errorf("-board %.40q is not an address such as 127.0.0.1:8080", o.board)
		}
	}
	if s.check != nil && o.dsn != "" {
		if err := s.check(o.dsn); err != nil {
			return err
		}
	}
	if err := o.validateTTL(core.Limits{MinTTL: s.minTTL}); err != nil {
		return err
	}
	if err := core.CheckNamespace(o.namespace + "/" + runName()); err != nil {
		return fmt.Errorf("-namespace: %w", err)
	}
	return nil
}

// A message must not repeat an argument that may contain a password.
func quote(arg string) string {
	if mayHoldPassword(arg) {
		return "(not repeated here, as it may hold a password)"
	}
	return fmt.Sprintf("%.40q", arg)
}

// mayHoldPassword reports whether an argument looks like a server address with credentials.
func mayHoldPassword(arg string) bool {
	return strings.Contains(arg, "://") || strings.Contains(arg, "@") || strings.Contains(arg, "password")
}

func (o *options) validateTTL(l core.Limits) error {
	if o.ttl <= 0 {
		return fmt.Errorf("TTL %v: use a positive one with -ttl, such as 1s", o.ttl)
	}
	if err := (&core.Options{Node: nodeName(1), TTL: o.ttl}).Validate(l); err != nil {
		return fmt.Errorf("-ttl: %w", err)
	}
	return nil
}

func (o *options) nodes() []string {
	out := make([]string, o.members)
	for i := range out {
		out[i] = nodeName(i + 1)
	}
	return out
}

func nodeName(i int) string { return fmt.Sprintf("member-%d", i) }

func names(stores []store) []string {
	var out []string
	for _, s := range stores {
		out = append(out, s.opener.Name)
	}
	return out
}

func storeNamed(stores []store, name string) (store, bool) {
	i := slices.IndexFunc(stores, func(s store) bool { return s.opener.Name == name })
	if i < 0 {
		return store{}, false
	}
	return stores[i], true
}
