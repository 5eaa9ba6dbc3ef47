package grants

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// TestParse: Parse returns the last leases of a text. If the text is damaged, it returns only the
// leases that are newer than the damage.
func TestParse(t *testing.T) {
	t.Parallel()
	long := "host-" + strings.Repeat("0123456789", 3)
	cut := strings.Repeat("zzzzzz+1+/zzzzzz+4+12345678901234567890123/", 5)[:MaxBytes]
	for _, c := range []struct {
		text, want string
		damaged    bool
	}{
		{"", "", false},
		{"a+0+n1/", "n1 10", false},
		{"c+1+/a+0+n1/", "n1 10 released 12", false},
		{"d+4+n2/c+1+/a+0+n1/", "n1 10 released 12; n2 13", false},
		{"d+5+n2/a+0+n1/", "n1 10 preempted 13; n2 13", false},
		{"d+2+/a+0+n1/", "n1 10 passed 13;  13", false}, // to a session that the writer did not know
		{"d+4+n2/", " - gone 13; n2 13", false},         // nobody wrote how the lease before began
		{"e+3+n/d+3+n/c+3+n/b+3+n/a+0+n/", "n 11 renewed 12; n 12 renewed 13; n 13 renewed 14; n 14", false},
		{Event(time.Unix(9, 0), "", long), "~8901234567890123456789 9", false},
		{Event(time.Unix(9, 0), "", "a\x1b[31m"), " 9", false},
		{cut, strings.TrimPrefix(strings.Repeat("; 12345678901234567890123 2176782335 released 2176782335", 4), "; "), false},
		{"!", "", true},
		{"d+4+n2/a+0+n1", " - gone 13; n2 13", true}, // cut before MaxBytes
		{"d+0+n2/x\x1b/a+0+n1/", "n2 13", true},
		{"d+6+n2/", "", true},
		{"d+0+n 2/", "", true},
		{"zzzzzzzz+0+n/", "", true},
		{strings.Repeat("a+3+n/", 40), "n 10 renewed 10; n 10 renewed 10; n 10 renewed 10; n 10", true},
	} {
		all, why := Parse(c.text)
		var got []string
		for _, g := range all {
			s := g.Node + " " + seconds(g.Since)
			if g.End != "" {
				s += fmt.Sprint(" ", g.End, " ", seconds(g.Until))
			}
			got = append(got, s)
		}
		if strings.Join(got, "; ") != c.want || (why != "") != c.damaged {
			t.Errorf("%q: %q, %q; want %q", c.text, strings.Join(got, "; "), why, c.want)
		}
	}
}

func seconds(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return fmt.Sprint(at.Unix())
}

// TestBound: a text holds the last four leases within MaxBytes, with any labels and ends.
func TestBound(t *testing.T) {
	t.Parallel()
	text, label := "", strings.Repeat("n", driver.MaxNameLen)
	for i := range 20 {
		text = Add(Event(time.Now(), driver.EndGone, label), text)
		if i > 3 {
			if all, why := Parse(text); len(all) != Keep || why != "" || all[0].Node != Node(label) {
				t.Fatalf("after %d leases: %+v, %q", i, all, why)
			}
		}
		if text = Add(Event(time.Now(), driver.EndReleased, ""), text); len(text) > MaxBytes {
			t.Fatalf("%d bytes", len(text))
		}
	}
	if got := Add("a+0+n/", "\x1b"+text[1:]); got != "a+0+n/" {
		t.Errorf("damage stays: %q", got)
	}
}

// FuzzParse: the leases parsed from any text have limited length, and contain no control
// characters. More events can be added to any text.
func FuzzParse(f *testing.F) {
	f.Add("d+4+n2/c+1+/a+0+n1/")
	f.Fuzz(func(t *testing.T, text string) {
		all, _ := Parse(text)
		if len(all) > Keep {
			t.Errorf("%d leases", len(all))
		}
		for _, g := range all {
			if g.Node != "" && len(g.Node) > maxNode || strings.ContainsFunc(g.Node, func(r rune) bool { return r <= ' ' || r > '~' }) {
				t.Errorf("the label %q", g.Node)
			}
		}
		text = Add("a+0+n/", text)
		if next, _ := Parse(text); len(text) > MaxBytes || len(next) == 0 || next[len(next)-1].Node != "n" {
			t.Errorf("after one more %q is %+v", text, next)
		}
	})
}
