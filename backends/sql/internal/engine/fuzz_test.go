package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/tenure-go/tenure/core/driver"
)

// values is a row with any columns.
type values []any

func (v values) Scan(dest ...any) error {
	for i, d := range dest {
		switch d := d.(type) {
		case *string:
			*d = v[i].(string)
		case *driver.SessionID:
			*d = driver.SessionID(v[i].(string))
		case *driver.UpdateNo:
			*d = driver.UpdateNo(v[i].(int64))
		case *int64:
			*d = v[i].(int64)
		case *int32:
			*d = v[i].(int32)
		case *bool:
			*d = v[i].(bool)
		case *[]byte:
			*d = v[i].([]byte)
		default:
			return fmt.Errorf("no value for %T", d)
		}
	}
	return nil
}

// answer is a Runner that answers every statement with the same rows.
type answer []values

func (a answer) Exec(context.Context, Statement, []any) (int64, error) { return 0, nil }
func (a answer) Flush(context.Context) error                           { return nil }
func (a answer) Query(_ context.Context, _ Statement, _ []any, each func(Row) error) error {
	for _, row := range a {
		if err := each(row); err != nil {
			return err
		}
	}
	return nil
}
func (a answer) Queue(ctx context.Context, s Statement, args []any, each func(Row) error) error {
	return a.Query(ctx, s, args, each)
}

// fit reports whether a text is suitable for a log line: of limited length, and without characters
// that move a terminal's cursor.
func fit(text string) bool {
	return len(text) < 2000 && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// FuzzMember reads any member's row. The result is a member that could have joined, or a reason
// that is suitable for a log line.
func FuzzMember(f *testing.F) {
	f.Add("S", "n1", int64(time.Second), int32(0), int32(1), []byte("{}"), int64(0), false)
	f.Add("S", "n1", int64(time.Second), int32(0), int32(1), []byte(`{"addr":"10.0.0.1"}`), int64(3), true)
	f.Add("S", "n1", int64(1), int32(0), int32(-1), []byte(`{"a":1}`), int64(-1), true)
	f.Add("\x1b[2J", "\n", int64(math.MinInt64), int32(math.MaxInt32), int32(math.MinInt32), []byte(`{"a":"\u0000"}`), int64(math.MaxInt64), true)
	f.Add("S", "n1", int64(time.Second), int32(0), int32(1), []byte("null"), int64(0), false)
	f.Fuzz(func(t *testing.T, session, node string, ttl int64, priority, weight int32, meta []byte, updates int64, flags bool) {
		m, why, err := scanMember(values{session, node, ttl, priority, weight, meta, flags, updates, flags})
		if err != nil {
			t.Fatal(err)
		}
		invalid := driver.CheckMember(m, driver.Limits{})
		switch {
		case !fit(why):
			t.Errorf("the reason is %q", why)
		case why == "" && invalid != nil:
			t.Errorf("%+v passes: %v", m, invalid)
		case why != "" && m.Meta != nil:
			t.Errorf("%+v, which is damaged (%s), keeps its metadata", m, why)
		case why == "" && (string(m.Session) != session || m.Node != node || int64(m.TTL) != ttl || m.Supersede != flags ||
			m.Draining != flags || int64(m.Update) != updates):
			t.Errorf("%+v is not what was read", m)
		}
	})
}

// FuzzIdentity reads any rows of a namespace and of its roster. Only rows that belong to the opened
// store and are not older than known rows pass.
func FuzzIdentity(f *testing.F) {
	f.Add("ID", int64(0), int64(7), "1/2", "1/2", int64(7))
	f.Add("OTHER", int64(0), int64(7), "1/2", "1/2", int64(7))
	f.Add("ID", int64(0), int64(6), "", "", int64(7))
	f.Add("ID", int64(0), int64(7), "1/1", "1/2", int64(7))
	f.Add("\x1b]0;title\a", int64(math.MaxInt64), int64(math.MaxInt64), "\n", "\r", int64(0))
	f.Fuzz(func(t *testing.T, id string, base, revision int64, recorded, current string, seen int64) {
		if seen < 0 { // never by this package
			return
		}
		b := &Backend{id: "ID", name: "app"}
		forked := current != "" && recorded != current
		row := answer{{id, base, revision, int64(0), recorded, current}}
		ns, err := b.checkData(t.Context(), RunOn(row, new(Statements)), namespaceRead, seen)
		check := func(what string, err error, passes bool) {
			if (err == nil) != passes {
				t.Errorf("%s: %v", what, err)
			}
			if err != nil && (!fit(err.Error()) || !errors.Is(err, driver.ErrStoreChanged) && !(forked && errors.Is(err, driver.ErrRetry))) {
				t.Errorf("%s: the error is %q", what, err)
			}
		}
		check("the data", err, id == "ID" && !forked && base+revision >= seen)
		if err == nil && ns.floor() < 0 {
			t.Errorf("floor %d", ns.floor())
		}
		at, err := b.checkRoster(t.Context(), RunOn(answer{{id, revision, recorded, current}}, new(Statements)), rosterRead, seen)
		check("the roster", err, id == "ID" && !forked && revision >= seen)
		if err == nil && at != revision {
			t.Errorf("revision %d of %d", at, revision)
		}
		_, err = b.checkData(t.Context(), RunOn(answer{}, new(Statements)), namespaceRead, seen)
		check("no row of data", err, false)
		_, err = b.checkRoster(t.Context(), RunOn(answer{}, new(Statements)), rosterRead, seen)
		check("no row of the roster", err, false)
	})
}
