//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"go.yaml.in/yaml/v4"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/internal/operator"
)

// hostile is text that a terminal obeys: control characters of each kind, direction marks,
// characters without a width, a tag beyond 16 bits, and a delete.
const hostile = "a\x1b[31mb\x7fc\u0085d\u009b2Je\u061cf\u200bg\u200fh\u202ei\u2066j\u2028k\ufeffl\U000e0041m\ad"

// raw returns the characters of an output that a terminal obeys.
func raw(text string) string {
	i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) })
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("%q", text[max(0, i-20):min(len(text), i+20)])
}

// TestHostileRecords: hostile text that others wrote into the namespace does not reach a terminal
// in any form of output, and is complete in JSON and YAML.
func TestHostileRecords(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	p.run(exitOK, "init")
	ready := make(chan error, 16)
	write := func(ops ...core.Op) core.Handler {
		return func(ctx context.Context, l *core.Lease) error {
			_, err := l.Commit(ctx, ops...)
			ready <- err
			<-ctx.Done()
			return nil
		}
	}
	rule := func(r control.Rule) []byte {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	change, err := json.Marshal(operator.Change{By: hostile, Rule: control.Rule{Kind: hostile, Node: hostile, Shards: "s", Token: 1,
		Author: hostile, Writer: hostile, Reason: hostile}})
	if err != nil {
		t.Fatal(err)
	}
	for shard, h := range map[string]core.Handler{
		"s": write(core.Put("k", []byte(hostile)), core.Append([]byte(hostile))),
		control.Shard: write(core.Put("rule/freeze", rule(control.Rule{Kind: "freeze", Author: hostile})),
			core.Put("rule/drain/leader", rule(control.Rule{Kind: "drain", Node: "leader", Author: "me", Reason: "mine"})),
			core.Put("rule/pin/shard/x", []byte(hostile)), core.Append(change)),
	} {
		stop := p.member("leader", shard, h)
		if err := <-ready; err != nil {
			t.Fatal(err)
		}
		if shard == control.Shard {
			stop()
		}
	}
	_, b := p.open()
	_, err = b.Join(t.Context(), core.Member{Session: "evil", Node: "evil", TTL: time.Hour, MemberState: core.MemberState{
		Meta: map[string]string{"zone": hostile}}})
	if err != nil {
		t.Fatal(err)
	}
	check := func(args ...string) {
		_, out, errs := p.exec(args...)
		if left := raw(out) + raw(errs); left != "" {
			t.Errorf("tenure %q: writes %s", args, left)
		}
	}
	for _, args := range [][]string{{"members"}, {"items", "s"}, {"items", control.Shard}, {"log", "s"}, {"log", control.Shard},
		{"history", "s"}, {"rules"}} {
		for _, form := range formats {
			check(append(args, "-o", form)...)
		}
	}
	for _, args := range [][]string{{"verify"}, {"export"}, {"watch", "--for", "100ms"}, {"who", hostile}, {hostile},
		{"status", "--" + hostile}, {"status", "-o", hostile}, {"freeze", "-y", "--reason", hostile}, {"undrain", "leader", "--dry-run"},
		{"evict", "evil", "--dry-run"}, {"status", "--config", "/" + hostile}, {"raise-floor", hostile},
		{"may-stop", hostile}, {"may-stop", "leader", "--reason", hostile}, {"may-stop", "leader"}} {
		check(args...)
	}
	var members, same []memberOut
	p.decode(&members, "members")
	out, _ := p.run(exitOK, "members", "-o", "yaml")
	readYAML(t, out, &same)
	for _, list := range [][]memberOut{members, same} {
		if i := slices.IndexFunc(list, func(m memberOut) bool { return m.Node == "evil" }); i < 0 ||
			list[i].Meta["zone"] != hostile {
			t.Errorf("members: got %+v, want the metadata as it was written", list)
		}
	}
	var items, again []itemOut
	p.decode(&items, "items", "s")
	out, _ = p.run(exitOK, "items", "s", "-o", "yaml")
	readYAML(t, out, &again)
	for _, list := range [][]itemOut{items, again} {
		if len(list) != 1 || *list[0].Value.Text != hostile {
			t.Errorf("items: got %+v, want the value as it was written", list)
		}
	}
}

// readYAML reads YAML into a value with JSON keys.
func readYAML(t *testing.T, text string, into any) {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatal(err)
	}
}

// TestHostileKeys: YAML quotes a key if the key needs quotes.
func TestHostileKeys(t *testing.T) {
	t.Parallel()
	text, err := asYAML(map[string]string{hostile: hostile, "": "empty"})
	var back map[string]string
	if readYAML(t, string(text), &back); err != nil || raw(string(text)) != "" || back[hostile] != hostile || back[""] != "empty" {
		t.Errorf("got %v, %v from %s: %s", back, err, text, raw(string(text)))
	}
}

// TestPlainWriter writes log lines, and bytes that are not UTF-8, one of which some terminals treat
// as a control character.
func TestPlainWriter(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := plainWriter{&out}
	slog.New(slog.NewTextHandler(w, nil)).Info(hostile, hostile, hostile, "delete", "a\x7fb")
	for _, text := range []string{hostile, "\x9b31m", "a\r\nb\n", "\x00"} {
		if n, err := w.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("got %d, %v", n, err)
		}
	}
	if left := raw(out.String()); left != "" || strings.Contains(out.String(), "\x9b") || strings.Count(out.String(), "\n") != 3 {
		t.Errorf("wrote %q: %s", out.String(), left)
	}
}
