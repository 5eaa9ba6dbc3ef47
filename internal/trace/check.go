package trace

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
)

// DefaultClockError is the default limit on the difference between members' wall clocks.
const DefaultClockError = 50 * time.Millisecond

// A Report lists only the first breaches, which are the most useful.
const maxBreaches = 100

// A Source is a trace file to check.
type Source struct {
	Name string
	Open func() (io.ReadCloser, error)
	// MayGo indicates that a member may still remove the file. A missing file is then treated as a
	// gap.
	MayGo bool
}

// A file is gone if it was removed as MayGo permits.
func (s *Source) gone(err error) bool { return s.MayGo && errors.Is(err, fs.ErrNotExist) }

// FilesIn returns the traces in a directory, sorted by name. Members may be writing to the
// directory.
func FilesIn(dir string) ([]Source, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []Source
	for _, e := range entries {
		if name := filepath.Join(dir, e.Name()); strings.HasSuffix(name, Suffix) {
			s := File(name)
			s.MayGo = true
			all = append(all, s)
		}
	}
	return all, nil
}

// File returns the Source for the named file.
func File(name string) Source {
	return Source{Name: name, Open: func() (io.ReadCloser, error) {
		if st, err := os.Stat(name); err != nil || !st.Mode().IsRegular() {
			return nil, errors.Join(err, fmt.Errorf("%.200q is no regular file", name))
		}
		return os.Open(name)
	}}
}

// A Breach describes a rule that was broken, according to the traces.
type Breach struct {
	Rule  string    `json:"rule"`
	Text  string    `json:"text"`
	Time  time.Time `json:"time"`
	Shard string    `json:"shard,omitempty"`
	Nodes []string  `json:"nodes"`
}

// Run is the result for one run of an Elector.
type Run struct {
	Node      string    `json:"node"`
	Namespace string    `json:"namespace"`
	Files     []string  `json:"files"`
	From      time.Time `json:"from"`
	To        time.Time `json:"to"`
	Steps     int64     `json:"steps"`
	Replayed  int64     `json:"replayed"` // number of steps compared with the rules
	Commits   int64     `json:"commits"`
	Leases    int       `json:"leases"`
	Notes     []string  `json:"notes,omitempty"` // the parts that were not checked, with the reasons
}

// Report is the result of a Check.
type Report struct {
	Runs      []*Run   `json:"runs"`
	Steps     int64    `json:"steps"`
	Replayed  int64    `json:"replayed"`
	Leases    int      `json:"leases"`
	Commits   int64    `json:"commits"`
	Evictions int      `json:"evictions"`
	Breaches  []Breach `json:"breaches"`
	More      int      `json:"more_breaches,omitempty"` // number of breaches that are not listed
	Unread    []string `json:"unread,omitempty"`        // files that were not read to their end, with the reasons

	leases map[driver.ShardID][]*grant
}

// Check reads the traces of a namespace's members. It compares each step with this version of the
// state machine, and compares the leases, tokens, evictions and commits of all members. The
// parameter clockError limits the difference between the members' wall clocks.
//
// Check returns an error if the files belong to different namespaces, if no file can be read, or if
// ctx ends. The Report lists the breaches, and the files that could not be read.
func Check(ctx context.Context, sources []Source, clockError time.Duration) (*Report, error) {
	c := newChecker(ctx, clockError)
	runs, err := c.byRun(sources)
	if err != nil {
		return nil, err
	}
	for _, files := range runs {
		if err := c.run(files); err != nil {
			return nil, err
		}
	}
	c.compare()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c.read == 0 && c.bad != nil && len(c.report.Breaches) == 0 {
		return nil, c.bad
	}
	c.report.leases = c.grants
	slices.SortStableFunc(c.report.Breaches, func(a, b Breach) int { return a.Time.Compare(b.Time) })
	return c.report, nil
}

func newChecker(ctx context.Context, clockError time.Duration) *checker {
	return &checker{
		ctx: ctx, clockError: clockError, report: &Report{Breaches: []Breach{}},
		sessions: make(map[driver.SessionID]*session), ended: make(map[driver.SessionID]bool), superseded: make(map[string]bool),
		grants: make(map[driver.ShardID][]*grant), acks: make(map[driver.ShardID][]ackedSpan),
		claimed: make(map[driver.ShardID]map[driver.Token]bool), shown: make(map[driver.ShardID]map[driver.Token]bool),
		holders: make(map[driver.ShardID]map[driver.Token]driver.SessionID), showed: make(map[said][]showed),
		saying: make(map[said][]*driver.MemberState), doubts: make(map[driver.ShardID][]ackedSpan),
		begins: make(map[driver.ShardID][]begin), joined: make(map[driver.Fence]bool),
		evicted: make(map[driver.SessionID]eviction), set: make(map[string]time.Duration),
	}
}

type file struct {
	Source
	head Header
	most int // number of lines that a checksum covers; 0 means all
}

func (c *checker) unread(err error) {
	c.bad = cmp.Or(c.bad, err)
	c.report.Unread = append(c.report.Unread, err.Error())
}

// byRun reads the headers and returns each run's files in order.
func (c *checker) byRun(sources []Source) ([][]file, error) {
	var files []file
	for _, s := range sources {
		f := file{Source: s}
		err := f.read(func(r *Reader) error {
			f.head = r.Header
			var err error
			for c.ctx.Err() == nil && err == nil { // only up to the checksum, because damaged lines after it prove nothing
				err = r.scan()
			}
			switch {
			case errors.Is(err, io.EOF) || errors.Is(err, bufio.ErrTooLong):
				return nil
			case errors.Is(err, io.ErrUnexpectedEOF):
				f.most = max(r.good, 1)
				return nil
			}
			return err
		})
		if c.ctx.Err() != nil {
			return nil, c.ctx.Err()
		}
		if s.gone(err) {
			c.bad = cmp.Or(c.bad, err)
			continue
		}
		if err != nil {
			c.unread(err)
			continue
		}
		if len(files) > 0 {
			first := &files[0].head
			if f.head.Namespace != first.Namespace || f.head.StoreID != first.StoreID {
				return nil, fmt.Errorf(
					"%s is of namespace %q with identity %.40q, and %s of %q with identity %.40q: check one namespace at a time",
					f.Name, f.head.Namespace, f.head.StoreID, files[0].Name, first.Namespace, first.StoreID)
			}
		}
		files = append(files, f)
	}
	slices.SortStableFunc(files, func(a, b file) int {
		return cmp.Or(cmp.Compare(a.head.Run, b.head.Run), cmp.Compare(a.head.Part, b.head.Part))
	})
	var runs [][]file
	for i := range files {
		if i == 0 || files[i].head.Run != files[i-1].head.Run {
			runs = append(runs, nil)
		} else if files[i].head.Part == files[i-1].head.Part {
			c.unread(fmt.Errorf("%s and %s are the same part of one trace: name each file once", files[i-1].Name, files[i].Name))
			continue
		}
		runs[len(runs)-1] = append(runs[len(runs)-1], files[i])
	}
	return runs, nil
}

func (f *file) read(do func(*Reader) error) error {
	open, err := f.Open()
	if err != nil {
		return err
	}
	defer open.Close()
	r, err := NewReader(open)
	if err == nil {
		r.most = f.most
		err = do(r)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return nil
}

type checker struct {
	ctx        context.Context
	clockError time.Duration
	report     *Report
	sessions   map[driver.SessionID]*session
	grants     map[driver.ShardID][]*grant
	acks       map[driver.ShardID][]ackedSpan
	claimed    map[driver.ShardID]map[driver.Token]bool // tokens granted by answers to claims and transfers
	shown      map[driver.ShardID]map[driver.Token]bool // tokens with a holder in views and claims
	evictions  []eviction
	ended      map[driver.SessionID]bool // sessions that a traced member evicted
	superseded map[string]bool           // node labels under which a member joined to supersede another
	holders    map[driver.ShardID]map[driver.Token]driver.SessionID
	showed     map[said][]showed
	saying     map[said][]*driver.MemberState
	doubts     map[driver.ShardID][]ackedSpan
	begins     map[driver.ShardID][]begin
	joined     map[driver.Fence]bool // fences under which no further commit follows
	evicted    map[driver.SessionID]eviction
	gifts      []gift
	set        map[string]time.Duration // by how much the wall clock of a node label was set
	bad        error                    // the first error of an unread file
	read       int                      // files that were read to their end
}

type session struct {
	node   string
	ttl    time.Duration
	cut    bool        // part of the session's trace is missing
	until  time.Time   // the last end of trust
	beats  []time.Time // when the join and the answered heartbeats were sent
	claims []time.Time // when successful claims were sent
	open   map[driver.Fence]*grant
}

// A grant covers the time from the step that granted a lease until the member revoked it or trust
// ended.
type grant struct {
	fence    driver.Fence
	node     string
	from, to time.Time
	why      string // why it was revoked; empty if it was not revoked
}

type ackedSpan struct {
	Acks
	node string
	at   time.Time
}

type eviction struct {
	by     string
	of     driver.SessionID
	sent   time.Time
	done   time.Time // when the answer arrived
	isDead bool      // the member was dead by C14
	whole  bool      // isDead has a known value
	proof  []link    // the newest links before the eviction
}

// A link is an answered heartbeat or join. A chain of links proves that the store was serving calls
// (C5).
type link struct{ sent, done time.Time }

// This is the maximum number of links kept for a member. About 12 links occur within a TTL.
const maxLinks = 256

type asked struct {
	out   Effect
	at    time.Time
	proof []link // only for evictions, because a join before the answer may begin a new chain
}

// A tracer processes the records of one run.
type tracer struct {
	*checker
	run       *Run
	m         *fsm.Machine // nil if steps are not compared, or are no longer compared
	joinsAs   []driver.SessionID
	calls     map[fsm.CallID]asked
	dead      map[driver.SessionID]bool
	wall      int64 // reading of the wall clock minus the instant
	now       time.Time
	own       []*session
	links     []link     // links since the member's newest join, without a gap
	joining   fsm.CallID // the newest join
	runner    *runner
	seen      *seen
	offered   map[driver.Fence]time.Time      // when the transfer of each lease was first requested
	tried     map[driver.ShardID]driver.Owner // the newest claim or transfer: its target, and the previous token
	whole     bool                            // no record is missing so far
	pos       int64                           // the step that the next record follows
	exact     bool                            // pos is known
	open      bool                            // more records are expected
	low, high int64                           // the smallest and the largest value of wall
}

func (c *checker) breach(b Breach) {
	if len(c.report.Breaches) == maxBreaches {
		c.report.More++
		return
	}
	c.report.Breaches = append(c.report.Breaches, b)
}

func (c *checker) run(files []file) error {
	head := files[0].head
	whole := head.Part == 0 && head.Steps == 0
	t := &tracer{checker: c, calls: make(map[fsm.CallID]asked), dead: make(map[driver.SessionID]bool),
		runner: newRunner(head.Runner && whole), seen: newSeen(), offered: make(map[driver.Fence]time.Time),
		tried: make(map[driver.ShardID]driver.Owner), whole: whole, low: math.MaxInt64, high: math.MinInt64,
		run: &Run{Node: head.Config.Member.Node, Namespace: head.Namespace, From: time.Unix(0, head.Wall).UTC()}}
	c.report.Runs = append(c.report.Runs, t.run)
	t.now = t.run.From
	if whole {
		t.m = fsm.New(head.Config.Machine(t.session))
	} else {
		t.note("it begins with step %d, as the files before were removed: steps are not compared", head.Steps+1)
	}
	for i, f := range files {
		switch {
		case i > 0 && f.head.Part != files[i-1].head.Part+1:
			t.gap("files between %s and %s are missing", files[i-1].Name, f.Name)
		case t.exact && f.head.Steps != t.pos:
			t.gap("%s begins after step %d, and the file before ends with step %d", f.Name, f.head.Steps, t.pos)
		}
		t.pos, t.exact, t.open = f.head.Steps, true, head.Runner
		t.clock(f.head.Wall, f.head.At)
		err := f.read(t.records)
		switch {
		case t.ctx.Err() != nil:
			return t.ctx.Err()
		case f.gone(err):
			t.gap("%s was removed before it was read", f.Name)
		case err != nil:
			c.unread(err)
			t.gap("%v", err)
		default:
			c.read++
			t.run.Files = append(t.run.Files, f.Name)
		}
	}
	if t.open {
		t.gap("the trace goes on in a file that is missing")
	}
	// A smaller difference may arise from the time between the two clock readings.
	if by := time.Duration(min(uint64(t.high)-uint64(t.low), 1<<60)); by >= time.Millisecond {
		c.set[t.run.Node] = max(c.set[t.run.Node], by)
		t.note("the wall clock was set by %v: times of this member are compared that much less closely", by)
	}
	t.ends()
	t.endLeases() // the process may have ended here
	t.run.To = t.now
	c.report.Steps += t.run.Steps
	c.report.Replayed += t.run.Replayed
	c.report.Commits += t.run.Commits
	c.report.Leases += t.run.Leases
	return nil
}

func (t *tracer) note(format string, args ...any) {
	t.run.Notes = append(t.run.Notes, fmt.Sprintf(format, args...))
}

func (t *tracer) stop(format string, args ...any) {
	if t.m != nil {
		t.note("steps are not compared after step %d: %s", t.run.Steps, fmt.Sprintf(format, args...))
		t.m = nil
	}
}

// The records that should follow the last one are missing, so the fate of the leases is unknown.
func (t *tracer) gap(format string, args ...any) {
	if t.m == nil && t.exact {
		t.note(format, args...)
	}
	t.stop(format, args...)
	t.whole, t.exact, t.open = false, false, false
	t.runner, t.links, t.joining = newRunner(false), nil, 0
	t.cut()
	t.endLeases()
}

// Some states that the sessions published are unknown.
func (t *tracer) cut() {
	for _, s := range t.own {
		s.cut = true
	}
}

// Trust in all leases ends at the last record.
func (t *tracer) endLeases() {
	for _, s := range t.own {
		for f, g := range s.open {
			g.to = earlier(t.now, s.until)
			delete(s.open, f)
		}
	}
}

func (t *tracer) session() driver.SessionID {
	if len(t.joinsAs) == 0 {
		return "" // the comparison finds this mistake
	}
	s := t.joinsAs[0]
	t.joinsAs = t.joinsAs[1:]
	return s
}

func (t *tracer) records(r *Reader) error {
	for {
		if err := t.ctx.Err(); err != nil {
			return err
		}
		rec, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			t.gap("the file ends in the middle: the process still writes it, it or its machine died, its disk was full, or the file was copied while it was written")
			return nil
		case err != nil:
			return err
		}
		if rec.Lost != 0 {
			t.gap("%d records are missing, as the disk was slower than they came", rec.Lost)
			t.open = r.Header.Runner
		}
		if rec.Wall != 0 {
			t.clock(rec.Wall, rec.At)
		}
		t.open = t.open && !rec.End
		t.now = t.timeOf(rec.At)
		if rec.Acks != nil {
			t.acked(rec.Acks)
		}
		if rec.Call != nil {
			t.called(rec.Call)
		}
		if rec.Lease != nil {
			t.told(rec.Lease, rec.At)
		}
		if rec.In != nil {
			if err := t.step(rec); err != nil {
				return err
			}
		}
	}
}

func (t *tracer) clock(wall int64, at fsm.Instant) {
	t.wall = wall - int64(at)
	t.low, t.high = min(t.low, t.wall), max(t.high, t.wall)
}

func (t *tracer) timeOf(at fsm.Instant) time.Time { return time.Unix(0, t.wall+int64(at)).UTC() }

func (t *tracer) acked(a *Acks) {
	t.outcome(a)
	if a.Doubt {
		t.doubts[a.Fence.Shard] = append(t.doubts[a.Fence.Shard], ackedSpan{*a, t.run.Node, t.now})
		return
	}
	t.run.Commits += int64(a.To - a.From + 1)
	t.acks[a.Fence.Shard] = append(t.acks[a.Fence.Shard], ackedSpan{*a, t.run.Node, t.now})
}

func (t *tracer) step(rec *Record) error {
	t.run.Steps++
	t.pos++
	t.given(rec.In, rec.At)
	t.answered(rec.In)
	if v := rec.In.View; v != nil {
		t.look(v)
		for _, s := range v.Shards {
			t.became(s.Shard, s.Owner)
			t.show(s.Shard, s.Owner)
		}
	}
	if t.m != nil {
		if err := t.replay(rec); err != nil {
			return err
		}
	}
	for i := range rec.Out {
		t.asks(&rec.Out[i], rec.At)
		t.effect(&rec.Out[i])
	}
	return nil
}

func (t *tracer) replay(rec *Record) error {
	for i := range rec.Out {
		if x := &rec.Out[i]; x.Kind == effects[fsm.EffJoin] && x.Member != nil {
			t.joinsAs = append(t.joinsAs, x.Member.Session)
		}
	}
	in, err := rec.In.input(t.shardsOf(rec.In.Call))
	if err != nil {
		return err
	}
	want, err := t.does(rec.At, in)
	if err != nil {
		return err
	}
	t.run.Replayed++
	for i := range max(len(want), len(rec.Out)) {
		did, does := "nothing more", "nothing more"
		if i < len(rec.Out) {
			did = plain(rec.Out[i])
		}
		if i < len(want) {
			does = plain(want[i])
		}
		if did == does {
			continue
		}
		t.breach(Breach{Rule: "step", Time: t.now, Nodes: []string{t.run.Node}, Shard: string(rec.In.Shard), Text: fmt.Sprintf(
			"step %d: after the input %q the member's effect %d was %s; by the rules it is %s", t.run.Steps, rec.In.Kind, i+1, did, does)})
		t.stop("it was not what the rules say")
		return nil
	}
	t.joinsAs = nil
	return nil
}

// A file that no member wrote may contain an input that no runner passes to the machine, and that
// may make the machine panic.
func (t *tracer) does(at fsm.Instant, in fsm.Input) (want []Effect, err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("step %d: the state machine cannot take the input %q: %v: no member of this version wrote it",
				t.run.Steps, inputs[in.Kind], why)
		}
	}()
	for _, e := range t.m.Step(at, in) {
		want = append(want, effectOf(&e))
	}
	return want, nil
}

// The result omits the texts of errors.
func plain(e Effect) string {
	if e.Err != nil {
		e.Err = &Fault{Is: e.Err.Is, Owner: e.Err.Owner}
	}
	var b bytes.Buffer
	_ = json.NewEncoder(&b).Encode(e) // cannot fail, because the types are plain
	return string(bytes.TrimSpace(b.Bytes()))
}

// shardsOf returns a call's shards in the order of the call's results.
func (t *tracer) shardsOf(id fsm.CallID) []driver.ShardID {
	var shards []driver.ShardID
	c := t.calls[id]
	for _, x := range c.out.Claims {
		shards = append(shards, x.Shard)
	}
	for _, x := range c.out.Transfers {
		shards = append(shards, x.Fence.Shard)
	}
	return shards
}

// The call is kept for comparison with a later answer.
func (t *tracer) answered(in *Input) {
	c, ok := t.calls[in.Call]
	if !ok || in.Call == 0 {
		return
	}
	for _, x := range in.Results {
		if x.Err == nil && x.Fence != nil {
			note(t.claimed, x.Fence.Shard, x.Fence.Token)
			t.holder(x.Fence.Shard, driver.Owner{Session: x.Fence.Session, Token: x.Fence.Token})
		}
	}
	switch s := t.sessions[c.out.Session]; {
	case in.Kind == inputs[fsm.InBeaten] && in.Err == nil && s != nil:
		s.beats = append(s.beats, c.at)
		if len(t.links) > 0 {
			t.links = append(t.links, link{c.at, t.now})
		}
	case in.Kind == inputs[fsm.InJoined] && in.Err == nil && c.out.Member != nil:
		t.noteJoin(c, in)
	case in.Kind == inputs[fsm.InEvicted]:
		t.noteEvictions(c, in)
	case in.Kind == inputs[fsm.InTransferred]:
		for i, x := range in.Results {
			if x.Err == nil && x.Fence != nil && x.Fence.Session != c.out.Session && i < len(c.out.Transfers) {
				t.gifts = append(t.gifts, gift{*x.Fence, t.offered[c.out.Transfers[i].Fence], t.run.Node})
			}
		}
	case in.Kind == inputs[fsm.InAcquired]:
		for i, x := range in.Results {
			if x.Err == nil && x.Fence != nil && i < len(c.out.Claims) {
				t.granted(&c.out.Claims[i], x.Fence, c.out.Session)
				if s != nil {
					s.claims = append(s.claims, c.at)
				}
			}
		}
	}
}

func (t *tracer) noteJoin(c asked, in *Input) {
	if in.Call == t.joining { // otherwise, the join was given up, and its answer is late
		t.links, t.joining = []link{{c.at, t.now}}, 0 // a new chain begins
	}
	if s := t.sessions[c.out.Member.Session]; s != nil {
		s.beats = append(s.beats, c.at)
	}
}

func (t *tracer) noteEvictions(c asked, in *Input) {
	for i, x := range c.out.Suspects {
		if in.Err == nil && i < len(in.Evictions) && in.Evictions[i].Evicted {
			e := eviction{by: t.run.Node, of: x.Session, sent: c.at, done: t.now, isDead: t.dead[x.Session], whole: t.whole, proof: c.proof}
			t.evictions = append(t.evictions, e)
			t.ended[x.Session] = true
			t.evicted[x.Session] = e
			t.report.Evictions++
		}
	}
}

// The answer to the claim or transfer may have been lost.
func (t *tracer) became(shard driver.ShardID, o driver.Owner) {
	if was, ok := t.tried[shard]; ok && o.Token > was.Token {
		if o.Session == was.Session {
			note(t.claimed, shard, o.Token)
		}
		delete(t.tried, shard)
	}
}

func (c *checker) show(shard driver.ShardID, o driver.Owner) {
	if o.Session == "" {
		return
	}
	note(c.shown, shard, o.Token)
}

func note(tokens map[driver.ShardID]map[driver.Token]bool, shard driver.ShardID, token driver.Token) {
	if tokens[shard] == nil {
		tokens[shard] = make(map[driver.Token]bool)
	}
	tokens[shard][token] = true
}

// The store's answer must match the claim (A2).
func (t *tracer) granted(c *driver.Claim, f *driver.Fence, as driver.SessionID) {
	if f.Token > c.Seen.Token && f.Shard == c.Shard && f.Session == as {
		return
	}
	t.breach(Breach{Rule: "A2", Time: t.now, Shard: string(c.Shard), Nodes: []string{t.run.Node}, Text: fmt.Sprintf(
		"the store granted session %q token %d of shard %q to a claim by session %q of shard %q that saw token %d",
		f.Session, f.Token, f.Shard, as, c.Shard, c.Seen.Token)})
}

// A call is kept until its answer arrives, with the chain of links on which an eviction relies.
func (t *tracer) noteCall(e *Effect) {
	c := asked{out: *e, at: t.now}
	if len(e.Suspects) > 0 {
		t.links = t.links[max(0, len(t.links)-maxLinks):]
		c.proof = slices.Clone(t.links)
	}
	if e.Member != nil {
		t.joining = e.Call
	}
	t.calls[e.Call] = c
	if keep := e.Call - 1000; e.Call > 1000 {
		delete(t.calls, keep)
	}
}

func (t *tracer) effect(e *Effect) {
	if e.Call != 0 {
		t.noteCall(e)
	}
	s := t.sessions[e.Session]
	for _, c := range e.Claims {
		t.show(c.Shard, c.Seen)
		t.tried[c.Shard] = driver.Owner{Session: e.Session, Token: c.Seen.Token}
	}
	for _, x := range e.Transfers {
		t.tried[x.Fence.Shard] = driver.Owner{Session: x.To, Token: x.Fence.Token}
		// A repeated transfer may find that the first one succeeded, and a gap may hide the first
		// one.
		if _, again := t.offered[x.Fence]; !again && (t.whole || t.runner.leases[x.Fence] != nil) {
			t.offered[x.Fence] = t.now
		}
	}
	switch e.Kind {
	case effects[fsm.EffJoin]:
		if e.Member != nil {
			t.says(e.Member.Session, &e.Member.MemberState)
		}
		if e.Member != nil && e.Member.Supersede {
			t.superseded[e.Member.Node] = true
		}
		if e.Member != nil && t.sessions[e.Member.Session] == nil {
			s = &session{node: t.run.Node, ttl: e.Member.TTL, open: make(map[driver.Fence]*grant)}
			t.sessions[e.Member.Session] = s
			t.own = append(t.own, s)
		} else if e.Member != nil {
			t.breach(Breach{Rule: "C3", Time: t.now, Nodes: []string{t.sessions[e.Member.Session].node, t.run.Node},
				Text: fmt.Sprintf("session %q joins a second time", e.Member.Session)})
		}
	case effects[fsm.EffGrant]:
		if e.Fence == nil {
			return
		}
		if s == nil {
			s = t.sessions[e.Fence.Session]
		}
		t.run.Leases++
		t.became(e.Fence.Shard, driver.Owner{Session: e.Fence.Session, Token: e.Fence.Token})
		g := &grant{fence: *e.Fence, node: t.run.Node, from: t.now}
		t.grants[e.Fence.Shard] = append(t.grants[e.Fence.Shard], g)
		if s == nil { // the beginning of the session's trace is missing
			s = &session{node: t.run.Node, open: make(map[driver.Fence]*grant)}
			t.sessions[e.Fence.Session] = s
			t.own = append(t.own, s)
		}
		s.extend(t.timeOf(e.Until))
		s.open[g.fence] = g
	case effects[fsm.EffExtend]:
		if s != nil {
			s.extend(t.timeOf(e.Until))
		}
	case effects[fsm.EffUpdate]:
		if e.State != nil {
			t.says(e.Session, e.State)
		}
	case effects[fsm.EffRevoke]:
		t.revoked(e)
	case effects[fsm.EffEvent]:
		if e.Event == fsm.EventPeerDead.String() && e.Peer != nil {
			t.dead[e.Peer.Session] = true
		}
	}
}

func (s *session) extend(until time.Time) {
	if until.After(s.until) {
		s.until = until
	}
}

func (t *tracer) revoked(e *Effect) {
	if e.Fence == nil {
		return
	}
	s := t.sessions[e.Fence.Session]
	if s == nil {
		return
	}
	if g := s.open[*e.Fence]; g != nil {
		g.to, g.why = earlier(t.now, s.until), e.Cause
		delete(s.open, *e.Fence)
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Before each expensive part, compare stops if ctx has ended.
func (c *checker) compare() {
	for shard, grants := range c.grants {
		c.compareGrants(shard, grants)
	}
	for shard, acks := range c.acks {
		c.compareAcks(shard, acks)
	}
	for shard, begins := range c.begins {
		c.compareBegins(shard, begins)
	}
	for _, e := range c.evictions {
		if c.ctx.Err() != nil {
			return
		}
		c.compareEviction(&e)
		c.compareEnded(&e)
	}
	for i := range c.gifts {
		c.compareGift(&c.gifts[i])
	}
	c.compareShown()
}

// The result is the maximum permitted difference between two nodes' wall clocks.
func (c *checker) apart(a, b string) time.Duration { return c.clockError + c.set[a] + c.set[b] }

// compareGrants looks for overlapping leases (S1), and for tokens that do not increase (S2, S6).
func (c *checker) compareGrants(shard driver.ShardID, grants []*grant) {
	slices.SortStableFunc(grants, func(a, b *grant) int { return a.from.Compare(b.from) })
	byToken := make(map[driver.Token]*grant, len(grants))
	var longest, greatest *grant // among earlier leases: the one trusted longest, and the one with the largest token
	for _, g := range grants {
		if c.ctx.Err() != nil {
			return
		}
		at := Breach{Time: g.from, Shard: string(shard)}
		if was := byToken[g.fence.Token]; was != nil {
			at.Rule, at.Nodes = "S2", []string{was.node, g.node}
			if was.fence == g.fence {
				at.Rule = "S6"
			}
			at.Text = fmt.Sprintf("token %d of shard %q was granted twice: to session %q at %s and to session %q", g.fence.Token, shard,
				was.fence.Session, was.from.Format(time.RFC3339Nano), g.fence.Session)
			c.breach(at)
		}
		byToken[g.fence.Token] = g
		if greatest != nil && g.fence.Token < greatest.fence.Token && g.from.Sub(greatest.from) > c.apart(greatest.node, g.node) {
			at.Rule, at.Nodes = "S2", []string{greatest.node, g.node}
			at.Text = fmt.Sprintf("token %d of shard %q was granted to session %q after token %d to session %q at %s", g.fence.Token, shard,
				g.fence.Session, greatest.fence.Token, greatest.fence.Session, greatest.from.Format(time.RFC3339Nano))
			c.breach(at)
		}
		if over := longest; over != nil && over.fence.Session != g.fence.Session && over.to.Sub(g.from) > c.apart(over.node, g.node) &&
			c.byMembers(shard, over, g) {
			at.Rule, at.Nodes = "S1", []string{over.node, g.node}
			at.Text = fmt.Sprintf("two members trusted a lease of shard %q for %v: session %q of node %q under token %d from %s to "+
				"%s (%s), and session %q of node %q under token %d",
				shard, over.to.Sub(g.from), over.fence.Session, over.node, over.fence.Token, over.from.Format(time.RFC3339Nano),
				over.to.Format(time.RFC3339Nano), cmp.Or(over.why, "not revoked"), g.fence.Session, g.node, g.fence.Token)
			if c.superseded[over.node] && over.node == g.node {
				at.Text += "; it superseded a process that still ran: give each process a node label of its own (M3)"
			}
			c.breach(at)
		}
		if longest == nil || g.to.Add(-c.set[g.node]).After(longest.to.Add(-c.set[longest.node])) {
			longest = g
		}
		if greatest == nil || g.fence.Token > greatest.fence.Token {
			greatest = g
		}
	}
}

// byMembers reports whether answers show that traced members caused one lease to follow another. If
// the answers do not show this, another program may be the cause. That program may have preempted
// the lease with a claim for a member, directly or through a third party. The previous holder
// learns of the claim later (C11). The program may also have ended the previous holder's session.
// If that session's heartbeats succeed afterwards, the session has not ended, and the store has
// granted a shard that a living session held.
func (c *checker) byMembers(shard driver.ShardID, former, g *grant) bool {
	claimed := c.claimed[shard]
	if !claimed[g.fence.Token] {
		return false
	}
	for token := range c.shown[shard] {
		if token > former.fence.Token && token < g.fence.Token && !claimed[token] {
			return false
		}
	}
	s := c.sessions[former.fence.Session]
	return s == nil || c.ended[former.fence.Session] || c.superseded[s.node] ||
		slices.ContainsFunc(s.beats, func(sent time.Time) bool { return sent.After(g.from) })
}

// compareAcks looks for commits that were acknowledged twice, or under an old token (S3). Because a
// shard's commits are numbered, the comparison needs no clock.
func (c *checker) compareAcks(shard driver.ShardID, acks []ackedSpan) {
	slices.SortStableFunc(acks, func(a, b ackedSpan) int { return cmp.Compare(a.From, b.From) })
	for i := 1; i < len(acks); i++ {
		a, b := &acks[i-1], &acks[i]
		at := Breach{Rule: "S3", Time: b.at, Shard: string(shard), Nodes: []string{a.node, b.node}}
		switch {
		case b.From <= a.To:
			at.Text = fmt.Sprintf("commit %d of shard %q was acknowledged twice: under token %d and under token %d", b.From, shard,
				a.Fence.Token, b.Fence.Token)
		case b.Fence.Token < a.Fence.Token:
			at.Text = fmt.Sprintf("commit %d of shard %q was accepted under token %d, after commit %d under token %d", b.From, shard,
				b.Fence.Token, a.To, a.Fence.Token)
		case b.From == a.To+1 && a.Seq != 0 && b.Seq != 0 && b.Seq != a.Seq+b.Entries:
			at.Rule = "L1"
			at.Text = fmt.Sprintf("commits %d to %d of shard %q, under token %d, appended %d entries to a log of %d, which has %d then",
				b.From, b.To, shard, b.Fence.Token, b.Entries, a.Seq, b.Seq)
		default:
			continue
		}
		c.breach(at)
	}
}

// compareEviction looks for an evicted member that was not silent for its TTL (M2, C5). The
// answered heartbeats are in the evicted member's trace.
func (c *checker) compareEviction(e *eviction) {
	s := c.sessions[e.of]
	if s == nil || s.ttl == 0 || e.isDead || !e.whole && e.by == s.node {
		return
	}
	var last time.Time
	for _, b := range s.beats {
		if b.After(last) && !b.After(e.sent) {
			last = b
		}
	}
	silent := e.sent.Sub(last)
	if last.IsZero() || silent >= s.ttl-s.ttl/100-c.apart(e.by, s.node) {
		c.compareProof(e, s)
		return
	}
	c.breach(Breach{Rule: "C5", Time: e.sent, Nodes: []string{e.by, s.node}, Text: fmt.Sprintf(
		"node %q evicted session %q of node %q, which had sent a heartbeat %v before that was answered; its TTL is %v",
		e.by, e.of, s.node, silent, s.ttl)})
}

// compareProof looks for an eviction by a member that cannot have proven the silence (C5). Answered
// calls must cover the TTL before the eviction. Each call must be answered at most half a TTL after
// the previous call was sent. Evictions of sessions on the evictor's own node are skipped, because
// they have other reasons.
func (c *checker) compareProof(e *eviction, s *session) {
	if len(e.proof) == 0 || s.node == e.by {
		return
	}
	var since, newest time.Time
	set := c.set[e.by]
	for _, l := range e.proof {
		if since.IsZero() || l.done.Sub(newest) > s.ttl/2+set {
			since = l.done
		}
		if l.sent.After(newest) {
			newest = l.sent
		}
	}
	if e.sent.Sub(since) >= s.ttl-s.ttl/100-set && e.sent.Sub(newest) <= s.ttl/2+s.ttl/100+set {
		return
	}
	c.breach(Breach{Rule: "C5", Time: e.sent, Nodes: []string{e.by, s.node}, Text: fmt.Sprintf(
		"node %q evicted session %q of node %q, which it can have watched for %v at most; its newest answered call was sent %v before; its TTL is %v",
		e.by, e.of, s.node, e.sent.Sub(since), e.sent.Sub(newest), s.ttl)})
}
