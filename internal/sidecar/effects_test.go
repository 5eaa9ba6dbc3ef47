package sidecar

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/effect"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
)

type fields map[string]any

// effect sends a request about an effect. Unless the request names a token, effect adds the token
// of the last state.
func (l *lead) effect(status int, code, what string, body fields) (out effectReply) {
	l.Helper()
	full := fields{"token": l.last.Token}
	maps.Copy(full, body)
	text, err := json.Marshal(full)
	if err != nil {
		l.Fatal(err)
	}
	l.call(status, code, "POST", l.path("effects/"+what), string(text), &out)
	return out
}

// begin begins an effect, and expects the given state.
func (l *lead) begin(key, state string) effectReply {
	l.Helper()
	out := l.effect(200, "", "begin", fields{"key": key})
	shard := l.last.Shard
	if out.State != state || out.Key != key || out.ID != effect.ID("test/"+shard, key) ||
		(out.Attempt != "") != (state == effectGo) || (out.Doubt != "") != (state == effectInDoubt) {
		l.Fatalf("begin %s: got %+v, want the state %s", key, out, state)
	}
	return out
}

// end ends an attempt, and expects the given state.
func (l *lead) end(attempt, state string, more fields) effectReply {
	l.Helper()
	body := fields{"attempt": attempt, "state": state}
	maps.Copy(body, more)
	out := l.effect(200, "", "end", body)
	if out.State != state || out.Attempt != "" {
		l.Errorf("end: got %+v, want the state %s", out, state)
	}
	return out
}

// doubts returns the listed keys with their states.
func (l *lead) doubts() string {
	l.Helper()
	var list effectsReply
	l.call(200, "", "GET", l.path("effects"), "", &list)
	text := list.Unread
	for _, e := range list.Effects {
		text += e.Key + " " + e.State + "\n"
	}
	return text
}

// live lets time pass while the client shows that it is alive.
func (l *lead) live(d time.Duration) {
	for stop := time.Now().Add(d); time.Now().Before(stop); time.Sleep(min(d, ttl/2)) {
		l.call(200, "", "POST", l.path("beat"), "", nil)
	}
}

// TestEffect: each effect has one attempt at a time. The client's report decides the outcome, which
// later leases keep.
func TestEffect(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a, b := w.start("a", Options{}), w.start("b", Options{})
		one := a.contend("pay", "")
		one.until(stateHeld)

		paid := one.begin("order/17", effectGo)
		one.begin("order/17", effectUnderWay)
		if got := one.doubts(); got != "" {
			w.Errorf("listed %q, which is under way", got)
		}
		if out := one.end(paid.Attempt, effectDone, fields{"text": "receipt 4711"}); *out.Text != "receipt 4711" {
			w.Errorf("done: got %+v", out)
		}
		one.end(one.begin("raw", effectGo).Attempt, effectDone, fields{"base64": []byte("\xff")})
		one.end(one.begin("declined", effectGo).Attempt, effectFailed, fields{"reason": "no\x1bmoney"})
		for range 2 { // certainly not done, so it is repeated
			one.end(one.begin("later", effectGo).Attempt, effectRepeat, fields{"reason": "refused to connect"})
		}
		for _, key := range []string{"lost/1", "lost/2", "lost/3", "lost/4"} {
			one.end(one.begin(key, effectGo).Attempt, effectInDoubt, fields{"reason": "no answer"})
		}
		one.begin("never", effectGo)
		one.cancel() // the client dies

		two := b.contend("pay", "")
		two.until(stateHeld)
		if out := two.begin("order/17", effectDone); *out.Text != "receipt 4711" {
			w.Errorf("done, of the next lease: got %+v", out)
		}
		if out := two.begin("raw", effectDone); string(*out.Base64) != "\xff" {
			w.Errorf("done with bytes: got %+v", out)
		}
		if out := two.begin("declined", effectFailed); out.Reason != "no?money" {
			w.Errorf("failed: got %+v", out)
		}
		want := "later repeat\nlost/1 in_doubt\nlost/2 in_doubt\nlost/3 in_doubt\nlost/4 in_doubt\nnever in_doubt\n"
		if got := two.doubts(); got != want {
			w.Errorf("listed %q, want %q", got, want)
		}
		two.end(two.begin("later", effectGo).Attempt, effectDone, nil)
		if out := two.begin("later", effectDone); out.Text == nil || *out.Text != "" {
			w.Errorf("done without a result: got %+v", out)
		}
		for key, found := range map[string]string{"lost/1": effectDone, "lost/2": effectFailed, "lost/3": effectRepeat} {
			doubt := two.begin(key, effectInDoubt).Doubt
			body := fields{"key": key, "doubt": doubt, "state": found}
			if found == effectDone {
				body["text"] = "found"
			}
			out := two.effect(200, "", "resolve", body)
			if found == effectRepeat {
				if out.State != effectGo {
					w.Fatalf("resolved to be repeated: got %+v", out)
				}
				two.end(out.Attempt, effectFailed, nil) // the client knows that neither attempt did it
				found = effectFailed
			} else if out.State != found {
				w.Errorf("resolved as %s: got %+v", found, out)
			}
			two.effect(412, codeConflict, "resolve", body) // the doubt is over
			two.begin(key, found)
		}
		if got, want := two.doubts(), "lost/4 in_doubt\nnever in_doubt\n"; got != want {
			w.Errorf("listed %q, want %q", got, want)
		}
	})
}

// TestEffectResolvedOnce: a client can resolve neither an outdated doubt nor an effect that is in
// progress.
func TestEffectResolvedOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one := w.start("a", Options{}).contend("pay", "")
		one.until(stateHeld)
		doubt := one.end(one.begin("k", effectGo).Attempt, effectInDoubt, nil).Doubt
		again := one.effect(200, "", "resolve", fields{"key": "k", "doubt": doubt, "state": effectRepeat})
		one.effect(412, codeConflict, "resolve", fields{"key": "k", "doubt": doubt, "state": effectDone})
		second := one.end(again.Attempt, effectInDoubt, nil).Doubt
		if second == doubt {
			w.Errorf("the second doubt has the name %q of the first", doubt)
		}
		for _, name := range []string{doubt, "", "x"} {
			one.effect(412, codeConflict, "resolve", fields{"key": "k", "doubt": name, "state": effectFailed})
		}
		one.effect(412, codeConflict, "resolve", fields{"key": "unknown", "doubt": second, "state": effectFailed})
		one.begin("k", effectInDoubt)
	})
}

// TestEffectOfAnother: a client can end, see and resolve only the effects of its lease. An attempt
// ends once, by its name.
func TestEffectOfAnother(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a := w.start("a", Options{})
		one, other := a.contend("pay", ""), a.contend("mail", "")
		one.until(stateHeld)
		other.until(stateHeld)
		mine := one.begin("k", effectGo)
		doubt := one.end(one.begin("lost", effectGo).Attempt, effectInDoubt, nil).Doubt
		for _, attempt := range []string{mine.Attempt, "", "guessed", mine.ID, mine.Key} {
			other.effect(412, codeConflict, "end", fields{"attempt": attempt, "state": effectDone})
		}
		one.effect(412, codeConflict, "end", fields{"attempt": "guessed", "state": effectDone})
		other.effect(412, codeConflict, "resolve", fields{"key": "lost", "doubt": doubt, "state": effectDone})
		if got := other.doubts(); got != "" {
			w.Errorf("another lease lists %q", got)
		}
		theirs := other.begin("k", effectGo) // another effect
		other.end(theirs.Attempt, effectFailed, nil)
		one.end(mine.Attempt, effectDone, fields{"text": "mine"})
		for _, state := range []string{effectDone, effectFailed, effectInDoubt} {
			one.effect(412, codeConflict, "end", fields{"attempt": mine.Attempt, "state": state, "reason": "again"})
		}
		if out := one.begin("k", effectDone); *out.Text != "mine" {
			w.Errorf("ended twice: got %+v", out)
		}
		for _, path := range []string{"effects", "effects/begin", "effects/end", "effects/resolve"} {
			method := "POST"
			if path == "effects" {
				method = "GET"
			}
			a.call(410, codeOver, method, "/v1/leases/guessed/"+path, "", nil)
		}
	})
}

// TestEffectAfterLease: if the lease of an attempt is lost, the attempt ends in doubt, even if the
// client reports an outcome afterwards.
func TestEffectAfterLease(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a := w.start("a", Options{})
		one := a.contend("pay", "")
		first := one.until(stateHeld)
		attempt := one.begin("k", effectGo).Attempt
		held := one.begin("held", effectGo).Attempt
		a.link.Set(kvfault.Write, kvfault.DropRequest)
		alive := make(chan struct{})
		go func() {
			defer close(alive)
			one.live(3 * ttl)
		}()
		one.effect(504, codeUnknown, "end", fields{"attempt": held, "state": effectDone})
		one.effect(412, codeConflict, "end", fields{"attempt": held, "state": effectFailed}) // while the first end is written
		a.link.Cut()
		<-alive
		one.until(stateWaiting)
		one.effect(409, codeNotHeld, "end", fields{"attempt": attempt, "state": effectDone, "token": first.Token})
		one.effect(409, codeNotHeld, "begin", fields{"key": "new", "token": first.Token})
		a.call(409, codeNotHeld, "GET", one.path("effects"), "", nil)
		a.link.Heal()
		for one.last.State != stateHeld {
			one.live(ttl / 3)
			one.until(stateHeld)
		}
		one.effect(409, codeFenced, "begin", fields{"key": "new", "token": first.Token})
		one.effect(409, codeFenced, "end", fields{"attempt": attempt, "state": effectDone, "token": first.Token})
		one.effect(412, codeConflict, "end", fields{"attempt": attempt, "state": effectDone})
		if got, want := one.doubts(), "held in_doubt\nk in_doubt\n"; got != want {
			w.Errorf("listed %q, want %q", got, want)
		}
		one.begin("k", effectInDoubt)
		one.begin("held", effectInDoubt)
	})
}

// TestEffectClientGone: effects of a client that is gone, silent or stopping end in doubt, and do
// not delay the release.
func TestEffectClientGone(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(l *lead){
		"stream":  func(l *lead) { l.cancel() },
		"release": func(l *lead) { l.call(200, "", "POST", l.path("release"), "", nil) },
		"silent":  func(*lead) { time.Sleep(ttl) },
		"stop": func(l *lead) {
			l.stop()
			l.until(stateStopping)
			l.end(l.begin("last", effectGo).Attempt, effectDone, nil)
			l.call(200, "", "POST", l.path("release"), "", nil)
		},
	} {
		inWorld(t, func(w *world) {
			a, b := w.start("a", Options{}), w.start("b", Options{})
			one := a.contend("pay", "")
			one.until(stateHeld)
			attempt := one.begin("k", effectGo).Attempt
			leave(one)
			begun := time.Now()
			two := b.contend("pay", "")
			two.until(stateHeld)
			if took := time.Since(begun); took > ttl/100 {
				w.Errorf("%s: the lease passed on after %v", name, took)
			}
			if name != "stop" {
				one.effect(410, codeOver, "end", fields{"attempt": attempt, "state": effectDone})
			}
			two.begin("k", effectInDoubt)
			two.effect(412, codeConflict, "end", fields{"attempt": attempt, "state": effectDone})
		})
	}
}

// TestEffectEndRefused: if the store refuses the end of an attempt, the client does not learn that
// the outcome is written. A later begin writes the outcome and returns it.
func TestEffectEndRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a := w.start("a", Options{})
		one := a.contend("pay", "")
		one.until(stateHeld)
		for said, then := range map[string]string{effectDone: effectDone, effectFailed: effectFailed, effectRepeat: effectGo} {
			attempt := one.begin(said, effectGo).Attempt
			a.link.SetError(kvfault.Write, core.ErrDamaged)
			one.effect(504, codeUnknown, "end", fields{"attempt": attempt, "state": said})
			if got := one.doubts(); !strings.Contains(got, said+" "+effectInDoubt) {
				w.Errorf("listed %q", got)
			}
			a.link.Heal()
			one.begin(said, then)
		}
	})
}

// TestEffectNotTold: a client that does not wait for the answer to its begin performs no effect, so
// a later attempt performs the effect.
func TestEffectNotTold(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a := w.start("a", Options{})
		one := a.contend("pay", "")
		one.until(stateHeld)
		one.begin("first", effectGo)
		a.link.Set(kvfault.Write, kvfault.HoldRequest)
		ctx, cancel := context.WithTimeout(w.Context(), time.Second/2)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, "POST", "http://sidecar"+one.path("effects/begin"),
			strings.NewReader(fmt.Sprintf(`{"token":%d,"key":"k"}`, one.last.Token)))
		if err != nil {
			w.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+secret)
		if resp, err := a.client.Do(r); err == nil {
			_ = resp.Body.Close()
			w.Fatalf("the store does not answer: got %s", resp.Status)
		}
		one.begin("k", effectUnderWay)
		a.link.Heal()
		a.link.Deliver()
		one.live(ttl)
		one.end(one.begin("k", effectGo).Attempt, effectDone, nil)
	})
}

// TestEffectHuge: a result above the limit is dropped, but the effect is done. A body above the
// limit does not end an attempt.
func TestEffectHuge(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		one := w.start("a", Options{}).contend("pay", "")
		one.until(stateHeld)
		kept, huge := one.begin("kept", effectGo).Attempt, one.begin("huge", effectGo).Attempt
		one.effect(413, codeTooLarge, "end", fields{"attempt": kept, "state": effectDone, "text": strings.Repeat("x", 5<<20)})
		result := strings.Repeat("x", effect.MaxMaxResult)
		if out := one.end(kept, effectDone, fields{"text": result}); *out.Text != result {
			w.Errorf("a result of the greatest size: got %d bytes back", len(*out.Text))
		}
		one.end(huge, effectDone, fields{"text": result + "x"})
		if out := one.begin("huge", effectDone); !out.NotKept || out.Text != nil {
			w.Errorf("a result above the bound: got %+v", out)
		}
		doubt := one.end(one.begin("reason", effectGo).Attempt, effectInDoubt, fields{"reason": strings.Repeat("y", 1<<20)})
		if len(doubt.Reason) > maxReason {
			w.Errorf("a reason of %d bytes was kept", len(doubt.Reason))
		}
		one.effect(200, "", "resolve", fields{"key": "reason", "doubt": doubt.Doubt, "state": effectDone, "text": result + "x"})
		if out := one.begin("reason", effectDone); !out.NotKept {
			w.Errorf("a result above the bound that was found: got %+v", out)
		}
	})
}

// TestEffectRefused: hostile keys, fields and records neither begin nor end an effect.
func TestEffectRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a := w.start("a", Options{})
		one := a.contend("pay", "")
		one.until(stateHeld)
		for _, key := range []any{"", "/", "a/", "..", "../k", "a//b", "a b", "a\x00b", "ä", "%2e", "_x/\n", 7, nil,
			strings.Repeat("k", 257), strings.Repeat("k/", 1<<19)} {
			one.effect(400, codeInvalid, "begin", fields{"key": key})
			one.effect(400, codeInvalid, "resolve", fields{"key": key, "doubt": "x", "state": effectDone})
		}
		attempt := one.begin("k", effectGo).Attempt
		for _, body := range []fields{
			{}, {"state": "begun"}, {"state": effectGo}, {"state": effectUnderWay}, {"state": effectFailed, "text": "x"},
			{"state": effectDone, "text": "x", "base64": "eA=="}, {"state": effectDone, "base64": "?"}, {"state": effectDone, "key": "k"},
			{"state": effectDone, "text": 1}, {"state": effectDone, "token": 0}, {"state": effectDone, "token": -1},
		} {
			body["attempt"] = attempt
			one.effect(400, codeInvalid, "end", body)
		}
		one.effect(400, codeInvalid, "resolve", fields{"key": "k", "doubt": "x", "state": effectInDoubt})
		one.effect(400, codeInvalid, "begin", fields{"key": "k", "attempt": attempt})
		if got := one.doubts(); got != "" {
			w.Errorf("listed %q", got)
		}
		one.end(attempt, effectDone, nil)

		for _, op := range []string{`"put","key":"effect/e/k","text":"{}"`, `"delete","key":"effect/o/k"`} {
			a.call(400, codeInvalid, "POST", one.path("commit"), fmt.Sprintf(`{"token":%d,"ops":[{"op":%s}]}`, one.last.Token, op), nil)
		}
		var ops []core.Op // another member may have written anything
		for _, index := range []string{"e", "o"} {
			ops = append(ops, core.Put("effect/"+index+"/bad", []byte("{{")), core.Put("effect/"+index+"/odd", []byte(`{"state":"odd"}`)))
		}
		ops = append(ops, core.Put("effect/o/good", []byte(`{"state":"begun","token":1}`)))
		if _, err := a.server.leases[one.last.Lease].lease.Commit(w.Context(), ops...); err != nil {
			w.Fatal(err)
		}
		for _, key := range []string{"bad", "odd"} {
			one.effect(500, codeDamaged, "begin", fields{"key": key})
			one.effect(500, codeDamaged, "resolve", fields{"key": key, "doubt": "x", "state": effectDone})
		}
		if got := one.doubts(); !strings.HasSuffix(got, "good in_doubt\n") || !strings.Contains(got, `"effect/o/odd"`) {
			w.Errorf("listed %q", got)
		}
	})
}

// TestEffectsNeverEnded: effects that never end occupy a limited number of places for a limited
// time, and are then in doubt. If too many effects are in doubt, no new effect begins.
func TestEffectsNeverEnded(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a := w.start("a", Options{})
		one := a.contend("pay", "")
		one.until(stateHeld)
		go func() {
			for range one.states {
			}
		}()
		n := 0
		for range 20 {
			for range leaseAttempts {
				out := one.effect(200, "", "begin", fields{"key": fmt.Sprintf("k/%04d", n)})
				if n++; out.State != effectGo {
					w.Fatalf("begin %d: got %+v", n, out)
				}
			}
			one.effect(503, codeBusy, "begin", fields{"key": "more"})
			one.live(attemptTime)
			if n >= 1000 {
				break
			}
		}
		one.effect(409, codeFull, "begin", fields{"key": "more"})
		out := one.begin("k/0000", effectInDoubt)
		if !strings.Contains(out.Reason, "did not end it in 5m0s") {
			w.Errorf("in doubt: got %+v", out)
		}
		if got := strings.Count(one.doubts(), " in_doubt\n"); got != listedEffects {
			w.Errorf("%d effects are listed, want %d of %d", got, listedEffects, n)
		}
		for i := range n - 999 { // a person, or the client, decides
			key := fmt.Sprintf("k/%04d", i)
			one.effect(200, "", "resolve", fields{"key": key, "doubt": one.begin(key, effectInDoubt).Doubt, "state": effectFailed})
		}
		one.begin("more", effectGo)
	})
}

// TestEffectsOfAllLeases: the number of attempts of all leases together is limited, and an attempt
// that ends makes room.
func TestEffectsOfAllLeases(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a := w.start("a", Options{})
		one, other := a.contend("pay", ""), a.contend("mail", "")
		one.until(stateHeld)
		other.until(stateHeld)
		for range mostAttempts - 1 {
			a.server.attempts <- struct{}{}
		}
		attempt := one.begin("k", effectGo).Attempt
		other.effect(503, codeBusy, "begin", fields{"key": "k"})
		one.end(attempt, effectDone, nil)
		other.begin("k", effectGo)
	})
}

// TestEffectRules: an operator's decision takes precedence over a client's report.
func TestEffectRules(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a := w.start("a", Options{})
		one := a.contend("pay", "")
		one.until(stateHeld)
		for _, key := range []string{"by/person", "by/client"} {
			one.end(one.begin(key, effectGo).Attempt, effectInDoubt, nil)
		}
		b, err := memory.Open(w.Context(), w.store, "test", nil)
		if err != nil {
			w.Fatal(err)
		}
		defer b.Close()
		e, err := effect.Read(w.Context(), b, "pay", "by/person")
		if err != nil {
			w.Fatal(err)
		}
		op, err := control.Put(&control.Rule{Kind: control.Resolve, Shards: "pay", Effect: e.Key, Outcome: control.OutcomeDone,
			Result: "seen", Began: e.Began, Author: "me", Reason: "it is on the statement", At: time.Now()})
		if err != nil {
			w.Fatal(err)
		}
		err = core.RunSingleton(w.Context(), b, control.Shard, func(ctx context.Context, l *core.Lease) error {
			_, err := l.Commit(ctx, op)
			return err
		}, &core.Options{Node: "operator", LockDir: "none", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			w.Fatal(err)
		}
		for len(a.server.e.View().Rules) == 0 { // the ledger looks at rules once a second
			one.live(time.Millisecond)
		}
		said := fields{"key": "by/person", "doubt": doubtName(e), "state": effectFailed}
		if out := one.effect(200, "", "resolve", said); out.State != effectDone {
			w.Errorf("resolved against the operator: got %+v", out)
		}
		if out := one.begin("by/person", effectDone); *out.Text != "seen" {
			w.Errorf("got %+v, want what the operator decided", out)
		}
		one.effect(412, codeConflict, "resolve", said)
		one.begin("by/client", effectInDoubt)
	})
}
