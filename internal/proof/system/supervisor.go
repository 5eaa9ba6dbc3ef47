package system

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/history"
)

// supervisor plays one seed. It starts the members, injects faults into the members and the store
// according to a schedule, and leaves the histories in dir. Only one goroutine may use a
// supervisor, except for an episode's node and the fields that the mutex guards.
type supervisor struct {
	config   Config
	seed     uint64
	dir      string
	store    *Store
	options  json.RawMessage
	schedule *schedule
	shards   []driver.ShardID

	rec      *history.Recorder
	backend  driver.Backend // recorded
	poll     time.Duration  // its PollPeriod
	watch    *watcher
	launcher *launcher
	nodes    []*node

	episodes   sync.WaitGroup
	mu         sync.Mutex
	err        error        // of the first failed episode
	injections []*injection // in the order of their beginnings
	findings   []history.Finding
	paths      []string // of all histories
	journals   map[string]string
	logs       map[driver.ShardID][]driver.Entry // read at the end
}

// node is a member: its label, and its current process.
type node struct {
	label string
	count int      // processes so far
	proc  *process // nil before the first
	busy  bool     // an episode uses it; guarded by supervisor.mu
}

// injection is a fault that happened.
type injection struct {
	step    step
	process string // empty for the store
	at      history.Instant
	took    history.Instant // when a fault of the store took effect, perhaps after a wait for a lock; 0: immediately
	over    history.Instant // when the process was resumed or the store healed; 0 if never
	late    bool            // it held a write until another member was granted the shard, and then sent it
}

func (s *injection) String() string {
	name := s.process
	if name == "" {
		name = "store"
	}
	return fmt.Sprintf("%d %s: %s", s.at, name, s.step.Fault)
}

// These constants limit waits. Each limit is a number of TTLs plus slack.
const (
	slack       = 15 * time.Second // for a busy machine
	settleTTLs  = 20
	trafficTTLs = 40
)

func (s *supervisor) ttls(n float64) time.Duration {
	return time.Duration(n * float64(s.config.TTL))
}

// play runs the seed. If play cannot continue, it returns an error. Members' mistakes are not
// errors, but appear in the histories and findings.
func (s *supervisor) play(ctx context.Context) (err error) {
	if s.options, err = json.Marshal(s.store.Options); err != nil {
		return fmt.Errorf("tenure: system: Store.Options: %w", err)
	}
	s.journals = map[string]string{}
	if s.rec, err = s.record("supervisor"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.rec.Close()) }()
	opening, cancel := context.WithTimeout(ctx, openLimit)
	b, err := open(opening, s.config.Opener, s.options)
	cancel()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	s.backend = history.Wrap(b, s.rec)
	s.poll = b.Info().Limits.PollPeriod

	watching, stop := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	s.watch = &watcher{}
	watchers.Go(func() { s.watch.run(watching, b) })
	defer watchers.Wait()
	defer stop()

	s.launcher = newLauncher()
	defer s.launcher.close()
	defer func() { err = errors.Join(err, s.killAll()) }()
	for i := range s.members() {
		s.nodes = append(s.nodes, &node{label: fmt.Sprintf("m%d", i+1)})
	}
	for _, node := range s.nodes {
		if err := s.start(node, false); err != nil {
			return err
		}
	}
	if err := s.await(ctx, "the members to start", slack, func() bool { return s.allUp() }); err != nil {
		return err
	}
	if err := s.await(ctx, "every shard to have an owner", slack+s.ttls(settleTTLs), s.owned); err != nil {
		return err
	}
	if err := s.injectAll(ctx); err != nil {
		return err
	}
	return s.quiet(ctx)
}

func (s *supervisor) members() int {
	n := s.schedule.members()
	if s.config.Members > 0 {
		return s.config.Members
	}
	return n
}

func (s *supervisor) record(process string) (*history.Recorder, error) {
	return history.Create(s.historyOf(process), process)
}

func (s *supervisor) historyOf(process string) string {
	path := filepath.Join(s.dir, process+".history")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paths = append(s.paths, path)
	return path
}

func (s *supervisor) start(node *node, supersede bool) error {
	node.count++
	name := fmt.Sprintf("%s.%d", node.label, node.count)
	c := memberConfig{
		Opener: s.config.Opener.Name, Options: s.options, Node: node.label, Process: name, Supersede: supersede,
		TTL: s.config.TTL, Pace: s.config.Pace, Seed: seedOf(s.seed, name), Control: s.config.Control,
		History: s.historyOf(name), Journal: filepath.Join(s.dir, name+".journal"),
	}
	for _, shard := range s.shards {
		c.Shards = append(c.Shards, string(shard))
	}
	p, err := s.launcher.start(c)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journals[name] = c.Journal
	node.proc = p
	return nil
}

// seedOf returns the seed for one process. The seed is never 0.
func seedOf(seed uint64, process string) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %s", seed, process)
	return h.Sum64() | 1
}

func (s *supervisor) await(ctx context.Context, what string, limit time.Duration, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !ok() {
		if ctx.Err() != nil {
			return fmt.Errorf("tenure: system: waited %v for %s: %w", limit, what, context.Cause(ctx))
		}
		if err := s.ended(); err != nil {
			return err
		}
		pause(ctx, 4*time.Millisecond)
	}
	return nil
}

// ended returns an error if a member has ended without being asked.
func (s *supervisor) ended() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	for _, node := range s.nodes {
		if p := node.proc; p != nil && !node.busy && p.Ended() {
			return fmt.Errorf("tenure: system: %s ended by itself: %w", p.Name, p.Err())
		}
	}
	return nil
}

func (s *supervisor) allUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, node := range s.nodes {
		if node.proc == nil || !node.proc.isUp() {
			return false
		}
	}
	return true
}

// owned reports whether every shard has an owner whose process is running.
func (s *supervisor) owned() bool {
	for _, shard := range s.shards {
		if _, process := s.watch.owner(shard); process == "" || !s.runs(process) {
			return false
		}
	}
	return true
}

func (s *supervisor) runs(process string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, node := range s.nodes {
		if p := node.proc; p != nil && p.Name == process && !p.Ended() {
			return true
		}
	}
	return false
}

func (s *supervisor) find(rule, check string, shard driver.ShardID, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.findings = append(s.findings, newFinding(rule, check, shard, format, args...))
}

// quiet lets all members contend without faults. Each shard must accept writes (W1), and there must
// be enough traffic. Finally, all members must leave.
func (s *supervisor) quiet(ctx context.Context) error {
	for _, node := range s.nodes {
		if err := node.proc.Order(order{Do: doCalm}); err != nil {
			return err
		}
	}
	var before, now map[driver.ShardID]driver.Head
	var err error
	reached := func() bool { // the store may have just come back
		before, err = s.heads(ctx)
		return err == nil
	}
	if waited := s.await(ctx, "the store", slack, reached); waited != nil {
		return errors.Join(waited, err)
	}
	written := func() bool {
		if now, err = s.heads(ctx); err != nil {
			return false
		}
		for _, shard := range s.shards {
			o, process := s.watch.owner(shard)
			if now[shard].Number <= before[shard].Number || now[shard].Token != o.Token || process == "" ||
				!s.runs(process) {
				return false
			}
		}
		return true
	}
	if err := s.await(ctx, "every shard to be written to", slack+s.ttls(settleTTLs), written); err != nil {
		if ended := s.ended(); ended != nil {
			return ended
		}
		for _, shard := range s.shards {
			if o, process := s.watch.owner(shard); now[shard].Number <= before[shard].Number ||
				now[shard].Token != o.Token {
				s.find("W1", checkForgotten, shard,
					"in a quiet namespace nobody wrote to it: its record names session %q (process %q) with token %d, "+
						"its head was number %d and is number %d with token %d",
					o.Session, process, o.Token, before[shard].Number, now[shard].Number, now[shard].Token)
			}
		}
	}
	enough := func() bool {
		heads, err := s.heads(ctx)
		total := 0
		for _, h := range heads {
			total += int(h.Number)
		}
		return err == nil && total >= s.config.MinWrites+s.config.MinWrites/20
	}
	// If there is too little traffic, the checks report it.
	if err := s.await(ctx, "enough traffic", slack+s.ttls(trafficTTLs), enough); err != nil && s.ended() != nil {
		return err
	}
	if err := s.leaveAll(ctx); err != nil {
		return err
	}
	return s.readLogs(ctx)
}

// pageSize is the number of entries in one read of a log.
const pageSize = 500

// readLogs reads every log from its first entry.
func (s *supervisor) readLogs(ctx context.Context) error {
	s.logs = map[driver.ShardID][]driver.Entry{}
	for _, shard := range s.shards {
		for after := driver.Seq(0); ; {
			page, err := s.backend.ReadLog(ctx, shard, after, pageSize)
			if err != nil {
				return fmt.Errorf("tenure: system: read the log of %s: %w", shard, err)
			}
			if len(page.Entries) == 0 {
				break
			}
			s.logs[shard] = append(s.logs[shard], page.Entries...)
			after = page.Entries[len(page.Entries)-1].Seq
		}
	}
	return nil
}

func (s *supervisor) heads(ctx context.Context) (map[driver.ShardID]driver.Head, error) {
	out := map[driver.ShardID]driver.Head{}
	for _, shard := range s.shards {
		page, err := s.backend.ReadLog(ctx, shard, 0, 0)
		if err != nil {
			return nil, err
		}
		out[shard] = page.Head
	}
	return out, nil
}

// leaveAll makes every member release its shards and end.
func (s *supervisor) leaveAll(ctx context.Context) error {
	var all sync.WaitGroup
	errs := make([]error, len(s.nodes))
	for i, node := range s.nodes {
		s.mu.Lock()
		node.busy = true
		s.mu.Unlock()
		all.Go(func() { errs[i] = s.leave(ctx, node) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// leave makes a member release its shards and end.
func (s *supervisor) leave(ctx context.Context, node *node) error {
	p := node.proc
	if err := p.Order(order{Do: doLeave}); err != nil {
		return err
	}
	err := s.await(ctx, p.Name+" to leave", slack+s.ttls(settleTTLs), p.Ended)
	if !p.Ended() {
		return err
	}
	s.rec.Exited(p.Name)
	if p.Err() != nil || !p.hasLeft() {
		s.find("V6", checkShutdown, "", "%s was asked to leave and did not end well: %v", p.Name, p.Err())
	}
	return nil
}

func (s *supervisor) killAll() error {
	s.episodes.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, node := range s.nodes {
		if p := node.proc; p != nil && !p.Ended() {
			errs = append(errs, p.Kill())
		}
	}
	return errors.Join(errs...)
}
