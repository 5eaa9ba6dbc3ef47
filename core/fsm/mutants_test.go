package fsm

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var mutantsFlag = flag.Bool("mutants", false, "take each rule out of the machine, and see the simulation fail")

// An edit replaces a text that occurs exactly once in a file.
type edit struct{ file, old, new string }

// A mutant is the machine, or the store, with one rule taken out. The simulation
// has to find it by one of the rules named. Rules in ignore are not checked: they
// look into the machine and would find the mutant too easily, so that the harm
// itself has to show.
type mutant struct {
	name   string
	ignore string
	breaks string
	edits  []edit
}

var mutants = []mutant{
	{"C1: a token given away is granted again", "", "S6", []edit{
		{"shards.go", "{ s.burnt = s.burnt || t >= s.owner.Token }", "{}"}}},
	{"C1: the same, by its harm", "S6,S2,S15", "S1", []edit{
		{"shards.go", "{ s.burnt = s.burnt || t >= s.owner.Token }", "{}"}}},
	{"C2: a record that names this session is not reconciled", "", "C2 W1", []edit{
		{"shards.go", "if s.want || s.own != nil || m.mine(s) {\n\t\tm.schedule(i, m.now)\n\t}", "if s.want || s.own != nil {\n\t\tm.schedule(i, m.now)\n\t}"}}},
	{"C2: an unanswered release is taken for done", "", "C2 W1 S1 C1", []edit{
		{"shards.go", "\t\tif in.Err != nil {\n\t\t\tm.retryLater(i)\n\t\t\tcontinue\n\t\t}\n", ""}}},
	{"C3: a join that finds its own record is a success", "C3,S8", "S1 S2", []edit{
		{"session.go", "m.sess = m.cfg.NewSession() // fresh for each attempt: C3", "if m.sess == \"\" {\n\t\tm.sess = m.cfg.NewSession()\n\t}"},
		{"session.go", "m.phase, m.sess = waiting, \"\"", "m.phase = waiting"},
		{"session.go", "m.former = m.sess\n", "m.former, m.sess = m.sess, \"\"\n"},
		{"session.go", "\tif err != nil {\n\t\tif errors.Is(err, driver.ErrStoreChanged) {", "\tif err != nil && !errors.Is(err, driver.ErrConflict) {\n\t\tif errors.Is(err, driver.ErrStoreChanged) {"}}},
	{"C5: silence during an outage counts", "C5", "outage", []edit{
		{"peers.go", "if m.okSentAt < 0 || m.minTTL > 0 && m.now-m.okSentAt > m.minTTL/2 {", "if false {"}}},
	{"C5: late replies bridge an outage", "C5", "outage", []edit{
		{"peers.go", "m.okSentAt = max(m.okSentAt, sentAt)", "m.okSentAt = m.now"}}},
	{"C5: evict without a heartbeat since", "", "C5", []edit{
		{"peers.go", "case m.okSentAt < p.silentAt():", "case false:"}}},
	{"C6: a deaf member keeps beating", "", "C6", []edit{
		{"session.go", "return !m.lapsed || m.now >= m.quietTo && m.heardAt >= m.lapsedAt && m.now < m.heardAt.Add(m.cfg.Member.TTL/2)", "return true"}}},
	{"C7: the same token after a lapse", "", "S6", []edit{
		{"shards.go", "\ts.burn(s.own.granted)\n", "\tif cause != CauseLapsed {\n\t\ts.burn(s.own.granted)\n\t}\n"},
		{"shards.go", "\t\tif m.mine(s) {\n\t\t\ts.burn(s.owner.Token)\n", "\t\tif m.mine(s) && cause != CauseLapsed {\n\t\t\ts.burn(s.owner.Token)\n"}}},
	{"C8: a reply after a stall revives", "", "C8", []edit{
		{"machine.go", "\tm.lapse() // before the input is looked at: C8\n\tm.apply(&in)\n", "\tm.apply(&in)\n\tm.lapse()\n"}}},
	{"C11: a preempted holder does not notice", "", "C11 S2 C2", []edit{
		{"shards.go", "if s.own != nil && s.own.lease != none && (o.Token != s.own.granted || o.Session != m.sess) {", "if false {"}}},
	{"S8: trust from the arrival of the reply", "S8", "S1", []edit{
		{"session.go", "until := sentAt.Add(m.cfg.Member.TTL - m.cfg.Margin)", "until := m.now.Add(m.cfg.Member.TTL - m.cfg.Margin)"}}},
	{"S8: the same, in a join", "", "S8", []edit{
		{"session.go", "m.until = m.joinSent.Add(m.cfg.Member.TTL - m.cfg.Margin)", "m.until = m.now.Add(m.cfg.Member.TTL - m.cfg.Margin)"}}},
	{"S11: a grant while the former handler runs", "", "S11", []edit{
		{"shards.go", "\t\t\tif !running {\n\t\t\t\tm.grant(i)\n\t\t\t}\n", "\t\t\tm.grant(i)\n"}}},
	{"S12: release before the work was joined", "", "S12", []edit{
		{"shards.go", "case running: // not before the work was joined: S12", "case false:"}}},
	{"S14: the store's change is not fatal", "", "S14 M1", []edit{
		{"machine.go", "\tcase errors.Is(err, driver.ErrStoreChanged):\n\t\tm.halt(err)\n", "\tcase errors.Is(err, driver.ErrStoreChanged):\n"}}},
	{"M2: the store evicts whatever the version", "", "M2 S1", []edit{
		{"store_test.go", "case m.version != x.Version:\n\t\t\tout", "case false:\n\t\t\tout"}}},
	{"F1: the store ignores the number of a write", "", "S15", []edit{
		{"store_test.go", "if w.Number != sh.head.Number+1 {", "if false {"}}},
	{"A1: the store grants what a live member holds", "", "S1", []edit{
		{"store_test.go", "!c.Preempt && sh.owner.Session != \"\" && s.member(sh.owner.Session) != nil:", "false:"},
		{"shards.go", "return id == \"\" || id != m.sess && m.alive[id] == nil", "return id != m.sess"}}},
	{"F1: the store does not look at the fence", "", "S3", []edit{
		{"store_test.go", "if sh.owner != (driver.Owner{Session: w.Fence.Session, Token: w.Fence.Token}) {\n\t\ts.stats", "if false {\n\t\ts.stats"}}},
}

var brokenBy = regexp.MustCompile(`seed (\d+) breaks (\w+): (.*)`)

// TestMutants takes one rule out at a time, by an overlay of the build, and
// expects the simulation to break within 2,000 seeds, and to break again when
// that seed is replayed.
func TestMutants(t *testing.T) {
	if !*mutantsFlag {
		t.Skip("needs -mutants: it builds the package once for each mutant")
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			binary := buildMutant(t, m)
			rule, seed, text := simulate(t, binary, m.ignore, "-seeds", "2000")
			if rule == "" {
				t.Fatalf("survived 2,000 seeds")
			}
			if !slices.Contains(strings.Fields(m.breaks), rule) {
				t.Errorf("broke %s, want %s", rule, m.breaks)
			}
			if again, _, _ := simulate(t, binary, m.ignore, "-seed", seed); again != rule {
				t.Errorf("the replay of seed %s broke %q, want %s", seed, again, rule)
			}
			t.Logf("seed %s breaks %s: %s", seed, rule, text)
		})
	}
}

// simulate runs the simulation of a binary and returns what it broke, if
// anything.
func simulate(t *testing.T, binary, ignore string, args ...string) (rule, seed, text string) {
	t.Helper()
	args = append([]string{"-test.run", "^TestSimulation$", "-ignore", ignore}, args...)
	out, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput()
	if err == nil {
		return "", "", ""
	}
	found := brokenBy.FindStringSubmatch(string(out))
	if found == nil {
		t.Fatalf("%v:\n%s", err, out[max(0, len(out)-2000):])
	}
	return found[2], found[1], found[3]
}

func buildMutant(t *testing.T, m mutant) string {
	t.Helper()
	dir := t.TempDir()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	text := map[string]string{}
	replace := map[string]string{}
	for _, e := range m.edits {
		if text[e.file] == "" {
			b, err := os.ReadFile(e.file)
			if err != nil {
				t.Fatal(err)
			}
			text[e.file] = string(b)
		}
		if n := strings.Count(text[e.file], e.old); n != 1 {
			t.Fatalf("%s has the text %d times, want once: %q", e.file, n, e.old)
		}
		text[e.file] = strings.Replace(text[e.file], e.old, e.new, 1)
		replace[filepath.Join(here, e.file)] = filepath.Join(dir, e.file)
	}
	for name, s := range text {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "mutant.test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", file, "-o", binary, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	return binary
}
