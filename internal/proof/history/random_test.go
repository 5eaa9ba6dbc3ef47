package history_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	. "github.com/tenure-go/tenure/internal/proof/history"
	"github.com/tenure-go/tenure/internal/proof/history/linearizable"
)

// world generates random histories by running clients against a tiny sequential store. It shares no
// code with the models, so they check each other. Unlike the models, world knows every effect.
type world struct {
	rng     *rand.Rand
	now     Instant
	token   driver.Token
	nonce   driver.Nonce
	ids     int64
	dead    map[driver.SessionID]bool
	shards  map[driver.ShardID]*tiny
	clients []*player
	ops     []Operation
	trust   map[driver.Fence]Operation
}

// tiny is a shard of the store.
type tiny struct {
	owner, from driver.Owner
	head        driver.Head
	log         []Entry
}

// player is a client: it has one operation in flight, and believes the last answer.
type player struct {
	name    string
	life    int
	session driver.SessionID
	owner   map[driver.ShardID]driver.Owner
	head    map[driver.ShardID]driver.Head
	flight  *flight
}

// flight is an operation between its call and its end.
type flight struct {
	at      int // in world.ops
	by      *player
	done    Operation // the store's answer
	applied bool
}

func generate(seed uint64, players, shards, steps int) *History {
	w := &world{token: 10, rng: rand.New(rand.NewPCG(seed, 1)), dead: map[driver.SessionID]bool{},
		shards: map[driver.ShardID]*tiny{}, trust: map[driver.Fence]Operation{}}
	for i := range shards {
		w.shards[driver.ShardID(fmt.Sprint("s", i))] = &tiny{}
	}
	for i := range players {
		p := &player{name: fmt.Sprint("p", i)}
		w.join(p)
		w.clients = append(w.clients, p)
	}
	var lost []*flight // abandoned by their client, and perhaps applied later
	for range steps {
		w.now += Instant(1 + w.rng.IntN(3))
		p := w.clients[w.rng.IntN(players)]
		switch f := p.flight; {
		case len(lost) > 0 && w.rng.IntN(20) == 0:
			i := w.rng.IntN(len(lost))
			if w.rng.IntN(2) == 0 {
				w.apply(lost[i])
			}
			lost = slices.Delete(lost, i, i+1)
		case f == nil:
			w.call(p)
		case w.rng.IntN(40) == 0:
			w.ops[f.at].Outcome, w.ops[f.at].Return = Unknown, w.now
			if !f.applied {
				lost = append(lost, f)
			}
			p.flight = nil
		case !f.applied:
			w.apply(f)
		default:
			w.answer(p, f)
		}
	}
	for f := range w.trust {
		w.distrust(f)
	}
	return Merge(&History{Operations: w.ops})
}

func (w *world) add(op Operation) int {
	w.ids++
	op.ID = w.ids
	w.ops = append(w.ops, op)
	return len(w.ops) - 1
}

// join gives a player a new session, without memory.
func (w *world) join(p *player) {
	p.life++
	p.session = driver.SessionID(fmt.Sprintf("%s-%d", p.name, p.life))
	p.owner, p.head = map[driver.ShardID]driver.Owner{}, map[driver.ShardID]driver.Head{}
	w.now++
	w.add(Operation{Process: p.name, Kind: Join, Call: w.now, Return: w.now, Outcome: OK, Session: p.session,
		Node: p.name})
}

// distrust ends the trust in a lease now, for any holder.
func (w *world) distrust(f driver.Fence) {
	if op, ok := w.trust[f]; ok {
		op.Until = w.now
		w.add(op)
		delete(w.trust, f)
	}
}

func (w *world) call(p *player) {
	if w.dead[p.session] && w.rng.IntN(3) == 0 {
		w.join(p)
	}
	shard := driver.ShardID(fmt.Sprint("s", w.rng.IntN(len(w.shards))))
	op := Operation{Process: p.name, Shard: shard, Session: p.session, Call: w.now}
	believed := p.owner[shard]
	mine := driver.Fence{Shard: shard, Session: believed.Session, Token: believed.Token}
	switch n := w.rng.IntN(20); {
	case n == 0:
		other := w.clients[w.rng.IntN(len(w.clients))]
		op.Kind, op.Shard, op.Target = Evict, "", other.session
	case n < 3:
		op.Kind, op.After = Read, driver.Seq(w.rng.IntN(int(p.head[shard].Seq)+1))
	case believed.Session != p.session:
		op.Kind, op.Seen, op.Preempt = Acquire, believed, w.rng.IntN(3) == 0
	case n < 4:
		op.Kind, op.Fence = Release, mine
		w.distrust(mine)
	case n < 6:
		op.Kind, op.Fence = Transfer, mine
		op.Target = w.clients[w.rng.IntN(len(w.clients))].session
		w.distrust(mine)
	default:
		w.nonce++
		op.Kind, op.Fence, op.Number, op.Nonce = Commit, mine, p.head[shard].Number+1, w.nonce
		if op.Number > 1 && w.rng.IntN(10) == 0 {
			op.Number-- // like a late one
		}
		for i := range w.rng.IntN(3) {
			op.Entries = append(op.Entries, Entry{Token: mine.Token, Number: op.Number,
				Digest: fmt.Sprint(w.nonce, ".", i)})
		}
	}
	p.flight = &flight{at: w.add(op), by: p, done: w.ops[len(w.ops)-1]}
}

// apply makes the store run an operation now.
func (w *world) apply(f *flight) {
	f.applied = true
	op := &f.done
	op.Outcome = OK
	s := w.shards[op.Shard]
	refuse := func(reason string) { op.Outcome, op.Reason = Refused, reason }
	switch op.Kind {
	case Evict:
		if op.Target == op.Session || w.dead[op.Target] || w.dead[op.Session] {
			refuse("gone")
			return
		}
		w.dead[op.Target] = true
		for fence := range w.trust {
			if fence.Session == op.Target {
				w.distrust(fence)
			}
		}
	case Read:
		op.Head = s.head
		op.Entries = append(op.Entries, s.log[min(int(op.After), len(s.log)):]...)
	case Acquire:
		repeated := s.owner.Session == op.Session && s.from == op.Seen && s.owner.Token > 0 && s.from != s.owner
		switch {
		case w.dead[op.Session]:
			refuse("lost")
			return
		case repeated:
		case s.owner != op.Seen, s.owner.Session != "" && !w.dead[s.owner.Session] && !op.Preempt:
			refuse(ReasonHeld)
			op.Current = s.owner
			return
		default:
			w.grant(op.Shard, op.Session)
		}
		op.Granted = driver.Fence{Shard: op.Shard, Session: op.Session, Token: s.owner.Token}
		op.Head = s.head
	case Transfer:
		switch from := (driver.Owner{Session: op.Fence.Session, Token: op.Fence.Token}); {
		case w.dead[op.Session] || w.dead[op.Target]:
			refuse("no target")
			return
		case s.owner.Session == op.Target && s.from == from:
		case s.owner != from:
			refuse(ReasonFenced)
			op.Current = s.owner
			return
		default:
			w.grant(op.Shard, op.Target)
		}
		op.Granted = driver.Fence{Shard: op.Shard, Session: op.Target, Token: s.owner.Token}
		op.Head = s.head
	case Release:
		if s.owner == (driver.Owner{Session: op.Fence.Session, Token: op.Fence.Token}) {
			s.owner.Session, s.from = "", driver.Owner{}
		}
	case Commit:
		switch {
		case s.owner != driver.Owner{Session: op.Fence.Session, Token: op.Fence.Token}:
			refuse(ReasonFenced)
			op.Current = s.owner
		case op.Number != s.head.Number+1:
			refuse(ReasonNumber)
		default:
			entries := slices.Clone(op.Entries)
			for i := range entries {
				entries[i].Seq = s.head.Seq + driver.Seq(i+1)
			}
			s.log = append(s.log, entries...)
			s.head = driver.Head{Number: op.Number, Nonce: op.Nonce, Token: op.Fence.Token, Seq: driver.Seq(len(s.log))}
			op.Entries, op.Head = entries, s.head
		}
	}
}

func (w *world) grant(shard driver.ShardID, to driver.SessionID) {
	s := w.shards[shard]
	w.distrust(driver.Fence{Shard: shard, Session: s.owner.Session, Token: s.owner.Token})
	w.token += driver.Token(1 + w.rng.IntN(3))
	s.from, s.owner = s.owner, driver.Owner{Session: to, Token: w.token}
}

// answer gives the client the store's answer.
func (w *world) answer(p *player, f *flight) {
	p.flight = nil
	op := f.done
	op.Return = w.now
	w.ops[f.at] = op
	if op.Session != p.session || op.Shard == "" {
		return
	}
	s := w.shards[op.Shard]
	switch {
	case op.Kind == Read:
		p.head[op.Shard] = op.Head
	case op.Outcome == OK && op.Granted.Token > 0:
		p.owner[op.Shard] = driver.Owner{Session: op.Granted.Session, Token: op.Granted.Token}
		p.head[op.Shard] = op.Head
		if s.owner == p.owner[op.Shard] && op.Granted.Session == p.session && !w.dead[p.session] && w.rng.IntN(2) == 0 {
			if _, already := w.trust[op.Granted]; !already {
				w.trust[op.Granted] = Operation{Process: p.name, Kind: Trust, Shard: op.Shard, Call: w.now,
					Return: w.now, Outcome: OK, Fence: op.Granted}
			}
		}
	case op.Outcome == OK && op.Kind == Release:
		p.owner[op.Shard] = driver.Owner{Token: op.Fence.Token}
	case op.Outcome == OK:
		p.head[op.Shard] = op.Head
	case op.Current != (driver.Owner{}) && w.rng.IntN(4) > 0: // otherwise it continues as a zombie
		p.owner[op.Shard] = op.Current
	}
}

// spoil damages one operation of a history, chosen by rng, or reports that none is suitable. It
// returns the check that must find the damage.
type spoil struct {
	name, check string
	do          func(h *History, rng *rand.Rand) bool
}

// pick returns a suitable operation.
func pick(h *History, rng *rand.Rand, will func(*Operation) bool) *Operation {
	var out []*Operation
	for i := range h.Operations {
		if will(&h.Operations[i]) {
			out = append(out, &h.Operations[i])
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out[rng.IntN(len(out))]
}

func accepted(o *Operation) bool { return o.Kind == Commit && o.Outcome == OK }

var spoils = []spoil{
	{"a token lowered", CheckTokens, func(h *History, rng *rand.Rand) bool {
		late := Later(h)
		if len(late) == 0 {
			return false
		}
		late[rng.IntN(len(late))].Granted.Token = 1
		return true
	}},
	{"trust prolonged", CheckOverlap, func(h *History, rng *rand.Rand) bool {
		op := pick(h, rng, func(o *Operation) bool {
			return o.Kind == Trust && slices.ContainsFunc(h.Operations, func(p Operation) bool {
				return p.Kind == Trust && p.Shard == o.Shard && p.Process != o.Process && p.Call >= o.Until &&
					p.Until > p.Call
			})
		})
		if op != nil {
			op.Until = h.Operations[len(h.Operations)-1].Call + 10
		}
		return op != nil
	}},
	{"an entry changed", CheckPrefix, func(h *History, rng *rand.Rand) bool {
		seen := map[Entry]int{}
		for _, op := range h.Operations {
			if op.Outcome == OK {
				for _, e := range op.Entries {
					seen[e]++
				}
			}
		}
		op := pick(h, rng, func(o *Operation) bool {
			return o.Kind == Read && len(o.Entries) > 0 && seen[o.Entries[0]] > 1
		})
		if op != nil {
			op.Entries = slices.Clone(op.Entries)
			op.Entries[0].Digest = "changed"
		}
		return op != nil
	}},
	{"an entry skipped", CheckPrefix, func(h *History, rng *rand.Rand) bool {
		op := pick(h, rng, func(o *Operation) bool { return o.Kind == Read && len(o.Entries) > 1 })
		if op != nil {
			op.Entries = slices.Clone(op.Entries[1:])
		}
		return op != nil
	}},
	{"a zombie's write accepted", CheckSuperseded, func(h *History, rng *rand.Rand) bool {
		op := pick(h, rng, func(o *Operation) bool {
			return o.Kind == Commit && o.Reason == ReasonFenced &&
				slices.ContainsFunc(h.Operations, func(g Operation) bool {
					return g.Shard == o.Shard && g.Outcome == OK && g.Granted.Token > o.Fence.Token && g.By(o.Call)
				})
		})
		if op != nil {
			op.Outcome, op.Reason, op.Current = OK, "", driver.Owner{}
		}
		return op != nil
	}},
	{"a number used twice", CheckNumbers, func(h *History, rng *rand.Rand) bool {
		op := pick(h, rng, func(o *Operation) bool {
			return o.Reason == ReasonNumber && slices.ContainsFunc(h.Operations, func(p Operation) bool {
				return accepted(&p) && p.Shard == o.Shard && p.Number == o.Number
			})
		})
		if op != nil {
			op.Outcome, op.Reason = OK, ""
			op.Head = driver.Head{Number: op.Number, Nonce: op.Nonce, Token: op.Fence.Token}
		}
		return op != nil
	}},
	{"a zombie's write in the order", CheckTokenOrder, func(h *History, rng *rand.Rand) bool {
		op := pick(h, rng, func(o *Operation) bool {
			return accepted(o) && o.Number > 1 && o.Fence.Token > 1 &&
				slices.ContainsFunc(h.Operations, func(p Operation) bool {
					return accepted(&p) && p.Shard == o.Shard && p.Number < o.Number && p.Fence.Token > 1
				})
		})
		if op != nil {
			op.Fence.Token = 1
		}
		return op != nil
	}},
	{"an accepted write called fenced", linearizable.Log, func(h *History, rng *rand.Rand) bool {
		op := pick(h, rng, accepted)
		if op != nil {
			op.Outcome, op.Reason = Refused, ReasonFenced
		}
		// Its effect must have been seen, because the head moved.
		return op != nil && slices.ContainsFunc(h.Operations, func(o Operation) bool {
			return accepted(&o) && o.Shard == op.Shard && o.Number == op.Number+1
		})
	}},
	{"a lease granted twice", linearizable.Lease, func(h *History, rng *rand.Rand) bool {
		op := pick(h, rng, func(o *Operation) bool {
			return o.Reason == ReasonHeld && o.Current.Session != o.Session && o.Current != o.Seen
		})
		if op != nil {
			op.Outcome, op.Reason = OK, ""
			op.Granted = driver.Fence{Shard: op.Shard, Session: op.Session, Token: op.Current.Token}
		}
		return op != nil
	}},
	{"a read of the past", linearizable.Log, func(h *History, rng *rand.Rand) bool {
		op := pick(h, rng, func(o *Operation) bool {
			return o.Kind == Read && o.Outcome == OK && slices.ContainsFunc(h.Operations, func(p Operation) bool {
				return accepted(&p) && p.Shard == o.Shard && p.Number > 1 && p.By(o.Call)
			})
		})
		if op != nil {
			op.Head, op.Entries = driver.Head{}, nil
		}
		return op != nil
	}},
	{"a claim by the evicted", CheckLife, func(h *History, rng *rand.Rand) bool {
		op := pick(h, rng, func(o *Operation) bool {
			return o.Kind == Acquire && o.Reason == "lost" && slices.ContainsFunc(h.Operations, func(e Operation) bool {
				return e.Kind == Evict && e.Outcome == OK && e.Target == o.Session && e.By(o.Call)
			}) && !slices.ContainsFunc(h.Operations, func(p Operation) bool {
				return (p.Kind == Acquire || p.Kind == Transfer) && p.Outcome != Refused && p.SameAttempt(o)
			})
		})
		if op != nil {
			op.Outcome, op.Reason = OK, ""
			op.Granted = driver.Fence{Shard: op.Shard, Session: op.Session, Token: 1 << 40}
		}
		return op != nil
	}},
	{"an eviction twice", CheckLife, func(h *History, rng *rand.Rand) bool {
		op := pick(h, rng, func(o *Operation) bool { return o.Kind == Evict && o.Outcome == OK })
		if op != nil {
			again := *op
			again.ID += 1 << 20
			h.Operations = append(h.Operations, again)
		}
		return op != nil
	}},
	{"a takeover from the living", CheckTakeover, func(h *History, rng *rand.Rand) bool {
		unforced := Unforced(h)
		if len(unforced) == 0 {
			return false
		}
		op := unforced[rng.IntN(len(unforced))]
		h.Operations = slices.DeleteFunc(slices.Clone(h.Operations),
			func(o Operation) bool { return o.Kind == Evict && o.Target == op.Seen.Session })
		return true
	}},
}

// TestRandomHistories: the history of a sequential store is good, and each damaged copy fails its
// check.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	seeds := uint64(40)
	if testing.Short() {
		seeds = 10
	}
	caught := map[string]int{}
	total := map[Outcome]int{}
	for seed := range seeds {
		h := generate(seed, 3+int(seed%3), 2, 400)
		for _, op := range h.Operations {
			total[op.Outcome]++
		}
		if found := both(h, nil); len(found) > 0 {
			t.Fatalf("seed %d: got %v, want nothing found", seed, found[0])
		}
		for i, s := range spoils {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			bad := &History{Operations: slices.Clone(h.Operations)}
			if !s.do(bad, rng) {
				continue
			}
			found := both(bad, nil)
			if !slices.ContainsFunc(found, func(f Finding) bool {
				return f.Check == s.check && f.Rule != linearizable.RuleUndecided
			}) {
				t.Errorf("seed %d, %s: got %v, want a finding of %s", seed, s.name, found, s.check)
			}
			caught[s.name]++
		}
	}
	for _, s := range spoils {
		if caught[s.name] < int(seeds)/5 {
			t.Errorf("%s was possible in %d of %d histories: too few to prove anything", s.name, caught[s.name], seeds)
		}
	}
	if total[Unknown] < int(seeds)*5 || total[Refused] < int(seeds)*5 {
		t.Errorf("outcomes are %v: too few unknown or refused", total)
	}
	t.Logf("outcomes %v; damage caught %v", total, caught)
}
