package doctest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/ample"
)

// session plays a block of a terminal: it runs the commands after a "$", with the
// program of the page's block, and compares the output with the lines in between.
//
//	$ go run .            runs it, until it ends or the page shows ^C
//	$ go build -o name .  so that ./name below is the program
//	$ ./name &            runs it as a job, beside the next lines
//	$ kill -9 %1          kills the first job
//	$ kill -INT %1        interrupts it, and waits for its end
//	$ anything else       is the shell's
//
// A line "..." matches any number of lines. The output of two concurrent programs may be in any
// order, as in a terminal.
type session struct {
	*testing.T
	dir    string
	binary string
	args   []string
	lines  chan printed
	early  []printed // not yet shown by the page
	all    []*job
	jobs   []*job
	read   sync.WaitGroup
}

type printed struct {
	by   *job
	line string
}

type job struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

func (s *session) start(name string, args ...string) *job {
	s.Helper()
	j := &job{cmd: exec.CommandContext(s.Context(), name, args...), done: make(chan struct{})}
	j.cmd.Dir = s.dir
	r, w, err := os.Pipe()
	if err != nil {
		s.Fatal(err)
	}
	j.cmd.Stdout, j.cmd.Stderr = w, w
	err = j.cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		s.Fatal(err)
	}
	s.all = append(s.all, j)
	s.read.Go(func() {
		defer r.Close()
		for lines := bufio.NewReader(r); ; {
			line, err := lines.ReadString('\n')
			if line != "" && !isLog(line) {
				s.lines <- printed{j, strings.TrimSuffix(line, "\n")}
			}
			if err != nil {
				if err != io.EOF {
					s.lines <- printed{j, "reading its output: " + err.Error()}
				}
				break
			}
		}
		j.err = j.cmd.Wait()
		close(j.done)
	})
	return j
}

// isLog reports whether a line is from Tenure's log. Programs without a Logger write it to standard
// error, and pages leave it out, because its times and sessions differ each time.
func isLog(line string) bool {
	const stamp = len("2006/01/02 15:04:05 ")
	return len(line) > stamp && (strings.HasPrefix(line[stamp:], "INFO tenure: ") || strings.HasPrefix(line[stamp:], "WARN tenure: "))
}

func (s *session) ended(j *job) {
	s.Helper()
	select {
	case <-j.done:
	case <-time.After(ample.Time):
		s.Fatalf("%s does not end", j.cmd)
	}
}

// play runs the session of a console's block.
func (s *session) play(console *block) {
	s.Helper()
	s.lines = make(chan printed, 10_000)
	defer s.end()
	var fore *job
	wild := false
	command := false
	for i, line := range strings.Split(strings.TrimSuffix(console.text, "\n"), "\n") {
		where := console.page + ":" + strconv.Itoa(console.line+1+i)
		cmd, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case isCommand:
			s.finish(where, fore, wild)
			fore, wild, command = s.command(where, cmd), false, true
		case !command:
			s.Fatalf("%s: the block begins without a command", where)
		case line == "^C":
			if fore == nil {
				s.Fatalf("%s: ^C with nothing that runs", where)
			}
			s.signal(fore, syscall.SIGINT)
		case line == "...":
			wild = true
		default:
			s.expect(where, line, wild)
			wild = false
		}
	}
	s.finish(console.String(), fore, wild)
	if len(s.early) > 0 && !wild {
		s.Fatalf("%s: it printed as well\n\t%s", console, s.early[0].line)
	}
}

func (s *session) command(where, cmd string) *job {
	s.Helper()
	words := strings.Fields(cmd)
	switch {
	case cmd == "go run .":
		return s.start(s.binary, s.args...)
	case strings.HasPrefix(cmd, "go build -o ") && len(words) == 5:
		if err := os.Symlink(s.binary, filepath.Join(s.dir, words[3])); err != nil {
			s.Fatal(err)
		}
	case strings.HasPrefix(cmd, "./") && len(words) == 2 && words[1] == "&":
		s.jobs = append(s.jobs, s.start(filepath.Join(s.dir, words[0])))
	case len(words) == 3 && words[0] == "kill":
		n, err := strconv.Atoi(strings.TrimPrefix(words[2], "%"))
		sig, ok := map[string]syscall.Signal{"-9": syscall.SIGKILL, "-INT": syscall.SIGINT}[words[1]]
		if err != nil || !ok || n < 1 || n > len(s.jobs) {
			s.Fatalf("%s: %q", where, cmd)
		}
		s.signal(s.jobs[n-1], sig)
		s.ended(s.jobs[n-1])
	default:
		return s.start("sh", "-c", cmd)
	}
	return nil
}

func (s *session) signal(j *job, sig syscall.Signal) {
	s.Helper()
	select {
	case <-j.done:
		s.Fatalf("%s has ended by itself: %v", j.cmd, j.err)
	default:
	}
	if err := j.cmd.Process.Signal(sig); err != nil {
		s.Fatal(err)
	}
}

// expect reads lines up to the expected line, which must be a program's next line unless wild is
// set.
func (s *session) expect(where, want string, wild bool) {
	s.Helper()
	deadline := time.After(ample.Time)
	for {
		blocked := make(map[*job]bool) // by a line that is not the expected one
		for i, got := range s.early {
			if matches(want, got.line) && !blocked[got.by] {
				s.early = slices.Delete(s.early, i, i+1)
				if wild {
					s.early = s.early[i:]
				}
				return
			}
			blocked[got.by] = !wild
		}
		if wild {
			s.early = nil
		}
		if len(blocked) == len(s.all) && !wild {
			s.Fatalf("%s: the page says\n\t%s\nand it printed\n\t%s", where, want, s.early[0].line)
		}
		select {
		case got := <-s.lines:
			s.early = append(s.early, got)
		case <-deadline:
			s.Fatalf("%s: nothing printed %q, but %v", where, want, s.early)
		}
	}
}

// finish waits for the program in the foreground, which prints nothing more.
func (s *session) finish(where string, fore *job, wild bool) {
	s.Helper()
	if fore == nil {
		return
	}
	s.ended(fore)
	var rest []string
	for more := true; more; {
		select {
		case got := <-s.lines:
			s.early = append(s.early, got)
		default:
			more = false
		}
	}
	s.early = slices.DeleteFunc(s.early, func(p printed) bool {
		if p.by == fore {
			rest = append(rest, p.line)
		}
		return p.by == fore
	})
	switch {
	case len(rest) > 0 && !wild:
		s.Fatalf("%s: it printed as well\n\t%s", where, rest[0])
	case fore.err != nil:
		s.Fatalf("%s: %s: %v\n%s", where, fore.cmd, fore.err, strings.Join(rest, "\n"))
	}
}

func (s *session) end() {
	for _, j := range s.all {
		_ = j.cmd.Process.Kill() // it may have ended
		<-j.done
	}
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		s.read.Wait()
	}()
	for {
		select {
		case <-s.lines:
		case <-stop:
			return
		}
	}
}
