package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/effect"
)

// A payload represents bytes in JSON. Valid UTF-8 is represented as text, and other bytes as
// base64.
type payload struct {
	Text   *string `json:"text,omitempty"`
	Base64 *[]byte `json:"base64,omitempty"`
}

func newPayload(b []byte) payload {
	if !utf8.Valid(b) {
		return payload{Base64: &b}
	}
	s := string(b)
	return payload{Text: &s}
}

func (p payload) bytes() ([]byte, error) {
	switch {
	case p.Text != nil && p.Base64 == nil:
		return []byte(*p.Text), nil
	case p.Base64 != nil && p.Text == nil:
		return *p.Base64, nil
	}
	return nil, errors.New("give its value either as text or as base64")
}

type appendBody struct {
	Token core.Token `json:"token"`
	payload
}

type operation struct {
	Op string `json:"op"`
	payload
	Key       string        `json:"key,omitempty"`
	IfVersion *core.Version `json:"if_version,omitempty"`
	IfAbsent  bool          `json:"if_absent,omitempty"`
	Through   *core.Seq     `json:"through,omitempty"`
}

// An operation must have exactly the fields that it needs.
func (o *operation) op() (core.Op, error) {
	version := driver.AnyVersion
	switch {
	case o.IfVersion != nil && o.IfAbsent:
		return core.Op{}, errors.New("give if_version or if_absent, not both")
	case o.IfVersion != nil && *o.IfVersion < 1:
		return core.Op{}, fmt.Errorf("if_version %d is no version of an item: use if_absent for none", *o.IfVersion)
	case o.IfVersion != nil:
		version = *o.IfVersion
	case o.IfAbsent:
		version = core.Absent
	}
	if strings.HasPrefix(o.Key, effect.Prefix) {
		return core.Op{}, fmt.Errorf("keys with %q are records of effects: use the routes of effects, or another key", effect.Prefix)
	}
	valued, keyed := o.Text != nil || o.Base64 != nil, o.Key != ""
	conditional, trims := version != driver.AnyVersion, o.Through != nil
	switch {
	case o.Op == "put" && keyed && !trims:
		v, err := o.bytes()
		return core.PutIf(o.Key, v, version), err
	case o.Op == "delete" && keyed && !valued && !trims && !o.IfAbsent:
		return core.DeleteIf(o.Key, version), nil
	case o.Op == "append" && !keyed && !conditional && !trims:
		v, err := o.bytes()
		return core.Append(v), err
	case o.Op == "trim" && trims && !keyed && !valued && !conditional:
		return core.Trim(*o.Through), nil
	}
	return core.Op{}, fmt.Errorf("the fields do not fit op %.20q: put has key, a value, and if_version or if_absent; "+
		"delete has key and if_version; append has a value; trim has through", o.Op)
}

type commitReply struct {
	Number int64 `json:"number"`
	// First and Last are the numbers of the first and last entries that the commit appended.
	First    core.Seq       `json:"first,omitempty"`
	Last     core.Seq       `json:"last,omitempty"`
	Versions []core.Version `json:"versions,omitempty"`
}

func (s *Server) commit(w http.ResponseWriter, r *http.Request) {
	s.write(w, r, s.decodeCommit, func(c core.Committed) any {
		return commitReply{int64(c.Number), c.First, c.Last, c.Versions}
	})
}

func (s *Server) append(w http.ResponseWriter, r *http.Request) {
	s.write(w, r, decodeAppend, func(c core.Committed) any {
		return struct {
			Seq core.Seq `json:"seq"`
		}{c.Last}
	})
}

func decodeAppend(d *json.Decoder) (core.Token, []core.Op, error) {
	var body appendBody
	if err := d.Decode(&body); err != nil {
		return 0, nil, err
	}
	v, err := body.bytes()
	if err != nil {
		return 0, nil, fmt.Errorf("the entry: %w", err)
	}
	return body.Token, []core.Op{core.Append(v)}, nil
}

// decodeCommit reads one operation at a time, and no more operations than the store accepts.
func (s *Server) decodeCommit(d *json.Decoder) (token core.Token, ops []core.Op, err error) {
	size := 0
	next := func() error {
		if len(ops) >= s.limits.WriteOps {
			return refuse(http.StatusRequestEntityTooLarge, codeTooLarge, "the commit has more than %d operations: split it", s.limits.WriteOps)
		}
		var o operation
		if err := d.Decode(&o); err != nil {
			return err
		}
		op, err := o.op()
		if err != nil {
			return fmt.Errorf("ops[%d]: %w", len(ops), err)
		}
		if size += len(op.Key) + len(op.Value); size > s.limits.WriteBytes {
			return refuse(http.StatusRequestEntityTooLarge, codeTooLarge, "the commit has more than %d bytes of keys and values: split it",
				s.limits.WriteBytes)
		}
		ops = append(ops, op)
		return nil
	}
	err = object(d, func(name string) error {
		switch name {
		case "token":
			return d.Decode(&token)
		case "ops":
			return array(d, next)
		}
		return fmt.Errorf("unknown field %.40q", name)
	})
	return token, ops, err
}

// Each write is committed under the token that the client believes it has.
func (s *Server) write(w http.ResponseWriter, r *http.Request, decode func(*json.Decoder) (core.Token, []core.Op, error),
	reply func(core.Committed) any) {
	var ops []core.Op
	lease, _, done, err := s.under(w, r, func(d *json.Decoder) (token core.Token, err error) {
		token, ops, err = decode(d)
		return token, err
	})
	if err != nil {
		fail(w, err)
		return
	}
	defer done()
	ctx, cancel := context.WithTimeout(r.Context(), s.callTime)
	defer cancel()
	committed, err := lease.Commit(ctx, ops...)
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, reply(committed))
}

// The client must hold the lease with the token in the body. If there is no error, the caller must
// call done when it no longer needs the body's values.
func (s *Server) under(w http.ResponseWriter, r *http.Request, decode func(*json.Decoder) (core.Token, error)) (
	lease *core.Lease, x *effects, done func(), err error) {
	if _, err := s.tenancyOf(r); err != nil { // before anything is read
		return nil, nil, nil, err
	}
	var token core.Token
	done, err = s.decode(w, r, func(d *json.Decoder) (err error) {
		token, err = decode(d)
		return err
	})
	if err != nil {
		return nil, nil, nil, err
	}
	if token < 1 {
		done()
		return nil, nil, nil, refuse(http.StatusBadRequest, codeInvalid, "token %d is not positive: send the token of the state %q",
			token, stateHeld)
	}
	c, err := s.tenancyOf(r) // checked again, because the body may have arrived slowly
	if err == nil {
		lease, x, err = c.held(token)
	}
	if err != nil {
		done()
		return nil, nil, nil, err
	}
	return lease, x, done, nil
}

type itemReply struct {
	Key     string       `json:"key"`
	Version core.Version `json:"version"`
	payload
}

func (s *Server) item(w http.ResponseWriter, r *http.Request) {
	shard, err := shardOf(r)
	key := r.URL.Query().Get("key")
	if err == nil {
		err = driver.CheckKey(key)
	}
	if err != nil {
		fail(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.callTime)
	defer cancel()
	leave, err := s.answers.take(ctx, pageBytes)
	if err != nil {
		fail(w, err)
		return
	}
	defer leave()
	item, err := s.b.Get(ctx, core.ShardID(shard), key)
	switch {
	case err != nil:
		fail(w, err)
	case item == nil:
		fail(w, refuse(http.StatusNotFound, codeNotFound, "shard %q has no item %q", shard, key))
	default:
		answer(w, http.StatusOK, itemReply{item.Key, item.Version, newPayload(item.Value)})
	}
}

type entry struct {
	Seq   core.Seq   `json:"seq"`
	Token core.Token `json:"token"`
	payload
}

type logReply struct {
	Entries []entry   `json:"entries"`
	Head    headState `json:"head"`
}

const (
	defaultEntries = 100
	maxEntries     = 1000
	pageEntries    = 32      // number of entries in one read; fewer if entries are long
	pageBytes      = 1 << 20 // number of bytes after which no more entries are read
)

func number(r *http.Request, name string, otherwise, least, most int64) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, refuse(http.StatusBadRequest, codeInvalid, "%s %.40q is no number from %d to %d", name, text, least, most)
	}
	return n, nil
}

func (s *Server) readLog(w http.ResponseWriter, r *http.Request) {
	shard, err := shardOf(r)
	after, err1 := number(r, "after", -1, 0, driver.MaxCount)
	limit, err2 := number(r, "limit", defaultEntries, 1, maxEntries)
	if err := errors.Join(err, err1, err2); err != nil {
		fail(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.callTime)
	defer cancel()
	leave, err := s.answers.take(ctx, 2*pageBytes) // the first two entries may have the maximum length
	if err != nil {
		fail(w, err)
		return
	}
	defer leave()
	page, _, err := s.page(ctx, shard, core.Seq(after), int(limit), pageBytes)
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, page)
}

// A page begins after the entry with the given number, or with the oldest entry if the number is
// -1. Both the number of entries and their size are limited.
func (s *Server) page(ctx context.Context, shard string, after core.Seq, limit, most int) (out *logReply, size int, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.callTime)
	defer cancel()
	if after < 0 {
		p, err := s.b.ReadLog(ctx, core.ShardID(shard), 0, 0)
		if err != nil {
			return nil, 0, err
		}
		after = max(p.Head.Oldest, 1) - 1
	}
	out = &logReply{Entries: []entry{}}
	for count := 1; ; {
		p, err := s.b.ReadLog(ctx, core.ShardID(shard), after, min(limit-len(out.Entries), count))
		if err != nil {
			return nil, 0, err
		}
		out.Head = newHeadState(p.Head)
		longest := 1
		for _, e := range p.Entries {
			out.Entries = append(out.Entries, entry{e.Seq, e.Token, newPayload(e.Payload)})
			size += len(e.Payload) + 5*controls(e.Payload) // number of bytes in JSON
			longest = max(longest, len(e.Payload))
			after = e.Seq
		}
		// The next entries may be as long as the longest so far.
		count = min(max(most/longest, 1), 4*count, pageEntries)
		if len(p.Entries) == 0 || after >= p.Head.Seq || len(out.Entries) >= limit || size >= most {
			return out, size, nil
		}
	}
}

// The count includes the bytes, such as control characters, that take six bytes each in JSON.
func controls(b []byte) (n int) {
	for _, c := range b {
		if c < ' ' || c == '<' || c == '>' || c == '&' {
			n++
		}
	}
	return n
}

type stream struct {
	w http.ResponseWriter
	c *http.ResponseController
}

func newStream(w http.ResponseWriter) *stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	return &stream{w, http.NewResponseController(w)}
}

// The client must receive an event within the time limit.
func (o *stream) event(name string, v any, limit time.Duration) error {
	if err := o.c.SetWriteDeadline(time.Now().Add(min(limit, writeTime))); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(o.w, "event: %s\ndata: ", name); err != nil {
		return err
	}
	if err := json.NewEncoder(o.w).Encode(v); err != nil { // makes no copy, and adds a final new line
		return err
	}
	return o.send("\n", limit)
}

func (o *stream) send(text string, limit time.Duration) error {
	if err := o.c.SetWriteDeadline(time.Now().Add(min(limit, writeTime))); err != nil {
		return err
	}
	if _, err := io.WriteString(o.w, text); err != nil {
		return err
	}
	return o.c.Flush()
}

const (
	quietTime = 15 * time.Second // after this time, a comment shows that the stream is alive
	retryTime = 500 * time.Millisecond
	takeTime  = 5 * time.Second // how long a client may take to receive entries while others wait for room
)

func (s *Server) tail(w http.ResponseWriter, r *http.Request) {
	shard, err := shardOf(r)
	after, err1 := number(r, "after", -1, 0, driver.MaxCount)
	if err := errors.Join(err, err1); err != nil {
		fail(w, err)
		return
	}
	s.mu.Lock()
	full := s.tails >= s.maxTails
	if !full {
		s.tails++
	}
	s.mu.Unlock()
	if full {
		fail(w, refuse(http.StatusServiceUnavailable, codeBusy, "%d logs are followed, which is the most: try again", s.maxTails))
		return
	}
	defer func() {
		s.mu.Lock()
		s.tails--
		s.mu.Unlock()
	}()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stop := context.AfterFunc(s.ended, cancel)
	defer stop()
	t := &tailer{s: s, shard: shard, after: core.Seq(after), out: newStream(w)}
	if err := t.run(ctx); err != nil && ctx.Err() == nil {
		_ = t.out.event("error", problemOf(err), writeTime)
	}
}

type tailer struct {
	s      *Server
	shard  string
	after  core.Seq
	out    *stream
	cursor driver.Cursor
	hints  int // number of hints that wait has taken from the channel
}

func (t *tailer) run(ctx context.Context) error {
	for ctx.Err() == nil {
		page, late, leave, err := t.page(ctx)
		switch {
		case err != nil && lasting(err):
			return err
		case err != nil:
			if err := t.pause(ctx); err != nil {
				return err
			}
			continue
		}
		for _, e := range page.Entries {
			if err = t.out.event("entry", e, time.Until(late)); err != nil {
				break
			}
			t.after = e.Seq
		}
		leave()
		if t.after < 0 {
			t.after = page.Head.Oldest - 1
		}
		if err == nil && t.after >= page.Head.Seq {
			err = t.wait(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Unless the next entries have only a few bytes, they take up room until leave is called. All
// streams share the room. The client must receive the entries before the returned time.
func (t *tailer) page(ctx context.Context) (page *logReply, late time.Time, leave func(), err error) {
	waits, cancel := context.WithTimeout(ctx, quietTime)
	defer cancel()
	if leave, err = t.s.followed.take(waits, pageBytes); err != nil {
		return nil, late, nil, err
	}
	page, size, err := t.s.page(ctx, t.shard, t.after, maxEntries, roomUnit)
	if err == nil && size > smallBody {
		return page, time.Now().Add(takeTime), leave, nil
	}
	leave()
	return page, time.Now().Add(maxEntries * writeTime), func() {}, err
}

// lasting reports whether a failed read would fail again if retried.
func lasting(err error) bool {
	return errors.Is(err, core.ErrTrimmed) || core.NotApplied(err) && !errors.Is(err, core.ErrRetry)
}

// Because a hint that the log has new entries may be lost, wait also returns after some time.
func (t *tailer) wait(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, quietTime)
	defer cancel()
	for {
		p, err := t.s.b.TailLog(limited, t.cursor, max(t.hints, 1))
		switch {
		case ctx.Err() != nil:
			return nil
		case limited.Err() != nil:
			return t.out.send(": quiet\n\n", writeTime)
		case err != nil && lasting(err):
			return err
		case err != nil:
			return t.pause(ctx)
		}
		longest := 1
		for _, e := range p.Entries {
			longest = max(longest, len(e.Payload))
		}
		t.cursor, t.hints = p.Cursor, min(max(roomUnit/longest, 1), 4*max(t.hints, 1), pageEntries)
		if p.Reset || slices.ContainsFunc(p.Entries, func(e core.Entry) bool { return string(e.Shard) == t.shard }) {
			return nil
		}
	}
}

// After a failed store call, the stream waits before a retry and shows the client that it is alive.
func (t *tailer) pause(ctx context.Context) error {
	timer := time.NewTimer(retryTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return t.out.send(": the store does not answer, or other streams are served\n\n", writeTime)
}
