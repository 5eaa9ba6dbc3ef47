package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/ample"
)

var (
	swallowRequests = Faults{Requests: Flow{Swallow: true}}
	swallowReplies  = Faults{Replies: Flow{Swallow: true}}
	holdRequests    = Faults{Requests: Flow{Hold: true}}
	holdReplies     = Faults{Replies: Flow{Hold: true}}
)

func TestForwards(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	c := f.dial()
	c.send("a\n")
	c.want("re:a\n")
	c.send("b\nc")
	c.want("re:b\n")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err != nil || len(b) > 0 {
		t.Fatalf("after the end: %q, %v; want the end of the stream", b, err)
	}
	f.s.received(t, "a\nb\nc")
	f.wait("the end of the connection", func(s Stats) bool { return s.Open == 0 })
	want := Stats{Accepted: 1, Requests: FlowStats{Read: 5, Forwarded: 5}, Replies: FlowStats{Read: 10, Forwarded: 10}}
	if got := f.Stats(); got != want {
		t.Errorf("counts are %+v, want %+v", got, want)
	}
}

func TestSwallowRequests(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	c := f.dial()
	c.send("a\n")
	c.want("re:a\n")
	f.set(swallowRequests)
	c.send("b\n")
	f.wait("a lost request", func(s Stats) bool { return s.Requests.Swallowed == 2 })
	c.wantSilence()
	f.set(Faults{})
	c.wantReset()
	d := f.dial()
	d.send("c\n")
	d.want("re:c\n")
	f.s.received(t, "a\nc\n")
}

func TestSwallowReplies(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	c := f.dial()
	f.set(swallowReplies)
	c.send("a\n")
	f.s.received(t, "a\n")
	f.wait("a lost reply", func(s Stats) bool { return s.Replies.Swallowed == 5 })
	c.wantSilence()
	c.send("b\n") // the requests' direction still works
	f.s.received(t, "a\nb\n")
	f.set(Faults{})
	c.wantReset()
}

func TestUndamagedConnectionsSurviveAFault(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	c := f.dial()
	c.send("a\n")
	c.want("re:a\n")
	f.set(BlackHole())
	f.set(Faults{})
	c.send("b\n")
	c.want("re:b\n")
}

func TestHoldRequestsAndReleaseLater(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	c := f.dial()
	f.set(holdRequests)
	c.send("a\nb\n")
	f.wait("held requests", func(s Stats) bool { return s.Requests.Held == 4 })
	if got := f.s.gotNow(); got != "" {
		t.Fatalf("the server received %q while requests were held", got)
	}
	f.set(Faults{})
	c.want("re:a\nre:b\n")
	f.s.received(t, "a\nb\n")
}

// A client that gives up does not withdraw its request. The fence is for such late requests.
func TestHeldRequestOutlivesItsClient(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"closed", "reset"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f := setup(t, nil)
			c := f.dial()
			f.set(holdRequests)
			c.send("late\n")
			f.wait("a held request", func(s Stats) bool { return s.Requests.Held == 5 })
			if how == "reset" {
				if err := c.SetLinger(0); err != nil {
					t.Fatal(err)
				}
			}
			c.Close()
			if got := f.s.gotNow(); got != "" {
				t.Fatalf("the server received %q while requests were held", got)
			}
			f.set(Faults{})
			f.s.received(t, "late\n")
			f.wait("the end of the connection", func(s Stats) bool { return s.Open == 0 })
		})
	}
}

func TestHoldReplies(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	c := f.dial()
	f.set(holdReplies)
	c.send("a\n")
	f.s.received(t, "a\n")
	f.wait("a held reply", func(s Stats) bool { return s.Replies.Held == 5 })
	c.wantSilence()
	f.set(Faults{})
	c.want("re:a\n")
}

func TestSwallowLosesWhatIsHeld(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	c := f.dial()
	f.set(holdRequests)
	c.send("a\n")
	f.wait("a held request", func(s Stats) bool { return s.Requests.Held == 2 })
	f.set(swallowRequests)
	f.wait("a lost request", func(s Stats) bool { return s.Requests.Swallowed == 2 && s.Requests.Held == 0 })
	f.set(Faults{})
	c.wantReset()
	f.s.until(t, "a reset", func() bool { return f.s.resets == 1 })
	f.s.received(t, "")
}

func TestHeldBytesAreBounded(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	f := setup(t, &Options{MaxHeld: limit})
	c := f.dial()
	f.set(holdRequests)
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = c.Write(make([]byte, 32<<20)) }) // blocks, until the reset
	f.wait("a full queue", func(s Stats) bool { return s.Requests.Held >= limit })
	full := f.Stats().Requests
	f.Reset()
	wg.Wait()
	if full.Held >= limit+32<<10 || full.Read != full.Held {
		t.Errorf("%d bytes were read and %d held, want fewer than %d", full.Read, full.Held, limit+32<<10)
	}
}

func TestBlackHole(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	c := f.dial()
	c.send("a\n")
	c.want("re:a\n")
	f.set(BlackHole())
	c.send("b\n")
	f.wait("a lost request", func(s Stats) bool { return s.Requests.Swallowed == 2 })
	c.wantSilence()
	c.Close() // the server does not notice it
	d := f.dial()
	d.send("c\n")
	f.wait("two lost requests", func(s Stats) bool { return s.Requests.Swallowed == 4 })
	f.s.mu.Lock()
	ends := f.s.ends + f.s.resets
	f.s.mu.Unlock()
	if ends != 0 {
		t.Errorf("the server saw %d connections end through a black hole", ends)
	}
	f.set(Faults{})
	d.wantReset()
	f.s.until(t, "two resets", func() bool { return f.s.resets == 2 })
	f.s.received(t, "a\n")
}

func TestResetCutsBothSides(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	c := f.dial()
	c.send("a\n")
	c.want("re:a\n")
	f.Reset()
	c.wantReset()
	f.s.until(t, "a reset", func() bool { return f.s.resets == 1 })
	f.wait("a counted reset", func(s Stats) bool { return s.Resets == 1 && s.Open == 0 })
}

func TestResetOfAPeerIsPassedOn(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	c := f.dial()
	c.send("a\n")
	c.want("re:a\n")
	if err := c.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	c.Close()
	f.s.until(t, "a reset", func() bool { return f.s.resets == 1 })
}

func TestMute(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	before := f.dial()
	before.send("a\n")
	before.want("re:a\n")
	f.set(Faults{Mute: true})
	before.send("b\n") // only new connections are muted
	before.want("re:b\n")
	c := f.dial()
	c.send("c\n")
	f.wait("a lost request", func(s Stats) bool { return s.Accepted == 2 && s.Requests.Swallowed == 2 })
	c.wantSilence()
	gone := f.dial()
	f.wait("a third connection", func(s Stats) bool { return s.Open == 3 })
	gone.Close()
	f.wait("its end", func(s Stats) bool { return s.Open == 2 })
	f.set(Faults{})
	c.wantReset()
	before.send("d\n")
	before.want("re:d\n")
	f.s.received(t, "a\nb\nd\n")
}

func TestRefuseAndAdmit(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	open := f.dial()
	open.send("a\n")
	open.want("re:a\n")
	for range 2 {
		if err := f.Refuse(); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := net.Dial("tcp", f.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("dialling: connection %v, error %v; want it refused", c, err)
	}
	open.send("b\n")
	open.want("re:b\n")
	addr := f.Addr()
	for range 2 {
		if err := f.Admit(); err != nil {
			t.Fatal(err)
		}
	}
	if f.Addr() != addr {
		t.Errorf("the address is %s, want %s as before", f.Addr(), addr)
	}
	c := f.dial()
	c.send("c\n")
	c.want("re:c\n")
}

func TestLatency(t *testing.T) {
	t.Parallel()
	const delay = 50 * time.Millisecond
	f := setup(t, nil)
	c := f.dial()
	c.send("a\n")
	c.want("re:a\n")
	for _, x := range []Faults{
		{Requests: Flow{Latency: delay}},
		{Replies: Flow{Latency: delay}},
	} {
		f.set(x)
		start := time.Now()
		c.send("b\n")
		c.want("re:b\n")
		ample.AtLeast(t, fmt.Sprintf("with %+v an answer", x), time.Since(start), delay)
	}
}

func TestLatencyEndsWhenLifted(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	c := f.dial()
	f.set(Faults{Requests: Flow{Latency: time.Hour}})
	c.send("a\n")
	f.wait("a delayed request", func(s Stats) bool { return s.Requests.Held == 2 })
	f.set(Faults{})
	c.want("re:a\n")
}

func TestDrip(t *testing.T) {
	t.Parallel()
	const pause = 10 * time.Millisecond
	f := setup(t, nil)
	c := f.dial()
	f.set(Faults{Requests: Flow{Drip: pause}})
	start := time.Now()
	c.send("abcdef\n")
	c.want("re:abcdef\n")
	ample.AtLeast(t, "7 bytes, with a pause between two,", time.Since(start), 6*pause)
	f.set(Faults{Requests: Flow{Drip: time.Hour}})
	c.send("xy\n")
	f.wait("the rest of a drip", func(s Stats) bool { return s.Requests.Read == 10 && s.Requests.Held > 0 })
	f.set(Faults{})
	c.want("re:xy\n")
}

func TestFramesAreCounted(t *testing.T) {
	t.Parallel()
	f := setup(t, &Options{RequestFramer: lines, ReplyFramer: lines})
	c := f.dial()
	for _, part := range []string{"a", "\n", "b\nc\nd"} {
		c.send(part)
	}
	c.want("re:a\nre:b\nre:c\n")
	if s := f.Stats(); s.Requests.Frames != 3 || s.Replies.Frames != 3 {
		t.Errorf("%d requests and %d replies, want 3 of each", s.Requests.Frames, s.Replies.Frames)
	}
	if err := c.CloseWrite(); err != nil { // the incomplete frame passes at the end
		t.Fatal(err)
	}
	f.s.received(t, "a\nb\nc\nd")
}

// decide gives a verdict to the frames that contain a word.
func decide(word string, v Verdict) func([]byte) Verdict {
	return func(frame []byte) Verdict {
		if strings.Contains(string(frame), word) {
			return v
		}
		return Pass
	}
}

func TestDropOneRequest(t *testing.T) {
	t.Parallel()
	f := setup(t, &Options{RequestFramer: lines})
	c := f.dial()
	f.set(Faults{Requests: Flow{Decide: decide("b", Drop)}})
	c.send("a\nb\nc\n")
	c.want("re:a\nre:c\n")
	f.set(Faults{}) // the connection continues, because the stream lost only whole frames
	c.send("b\n")
	c.want("re:b\n")
	f.s.received(t, "a\nc\nb\n")
	if s := f.Stats().Requests; s.Dropped != 1 || s.Swallowed != 2 {
		t.Errorf("%d frames dropped with %d bytes, want 1 with 2", s.Dropped, s.Swallowed)
	}
}

func TestDuplicate(t *testing.T) {
	t.Parallel()
	f := setup(t, &Options{RequestFramer: lines, ReplyFramer: lines})
	c := f.dial()
	f.set(Faults{Requests: Flow{Decide: decide("b", Duplicate)}})
	c.send("a\nb\nc\n")
	c.want("re:a\nre:b\nre:b\nre:c\n")
	f.s.received(t, "a\nb\nb\nc\n")
	f.set(Faults{Replies: Flow{Decide: decide("d", Duplicate)}})
	c.send("d\n")
	c.want("re:d\nre:d\n")
	f.s.received(t, "a\nb\nb\nc\nd\n")
}

func TestLoseAnswer(t *testing.T) {
	t.Parallel()
	f := setup(t, &Options{RequestFramer: lines})
	c, d := f.dial(), f.dial()
	f.set(Faults{Requests: Flow{Decide: decide("commit", LoseAnswer)}})
	c.send("get\n")
	c.want("re:get\n")
	c.send("commit\n")
	f.s.received(t, "get\ncommit\n")
	f.wait("a lost reply", func(s Stats) bool { return s.Replies.Swallowed == 10 })
	c.wantSilence()
	d.send("get\n")
	d.want("re:get\n")
	f.set(Faults{})
	c.wantReset()
	d.send("get\n")
	d.want("re:get\n")
}

func TestUnframedRestAndOversizedFrames(t *testing.T) {
	t.Parallel()
	f := setup(t, &Options{MaxFrame: 8, RequestFramer: func(b []byte) int {
		if b[0] == '!' {
			return -1
		}
		return lines(b)
	}})
	c := f.dial()
	c.send("a\n!no frames, and longer than one may be\nb\n")
	c.want("re:a\nre:!no frames, and longer than one may be\nre:b\n")
	if n := f.Stats().Requests.Frames; n != 1 {
		t.Errorf("%d frames, want the 1 before the stream was unframed", n)
	}
	d := f.dial()
	d.send("longer than one may be\n")
	d.wantReset()
	if n := f.Stats().BadFrames; n != 1 {
		t.Errorf("%d oversized frames, want 1", n)
	}
}

func TestNewConnectionsOnly(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	before := f.dial()
	before.send("a\n")
	before.want("re:a\n")
	if err := f.SetNew(holdReplies); err != nil {
		t.Fatal(err)
	}
	after := f.dial()
	after.send("b\n")
	f.wait("a held reply", func(s Stats) bool { return s.Replies.Held == 5 })
	before.send("c\n")
	before.want("re:c\n")
	after.wantSilence()
	f.set(Faults{})
	after.want("re:b\n")
}

func TestOneConnectionOnly(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	a, b := f.dial(), f.dial()
	f.wait("two connections", func(s Stats) bool { return s.Open == 2 })
	conns := f.Conns()
	if len(conns) != 2 || conns[0].Client().String() != a.LocalAddr().String() {
		t.Fatalf("%d connections, the first of client %v; want 2, the first of %v", len(conns), conns[0].Client(),
			a.LocalAddr())
	}
	if err := conns[0].Set(swallowReplies); err != nil {
		t.Fatal(err)
	}
	a.send("a\n")
	b.send("b\n")
	b.want("re:b\n")
	f.wait("a lost reply", func(s Stats) bool { return s.Replies.Swallowed == 5 })
	a.wantSilence()
	conns[1].Reset()
	b.wantReset()
	a.wantSilence()
}

func TestMaxConns(t *testing.T) {
	t.Parallel()
	f := setup(t, &Options{MaxConns: 1})
	a := f.dial()
	a.send("a\n")
	a.want("re:a\n")
	f.dialReset()
	a.Close()
	f.wait("room", func(s Stats) bool { return s.Open == 0 && s.Surplus == 1 })
	b := f.dial()
	b.send("b\n")
	b.want("re:b\n")
}

func TestUnreachableServer(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	f.s.l.Close()
	f.dialReset()
	f.wait("a failed dial", func(s Stats) bool { return s.DialErrors == 1 && s.Open == 0 })
}

func TestInvalid(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		server string
		o      *Options
		want   string
	}{
		{"127.0.0.1", nil, "host:port"},
		{"127.0.0.1:1", &Options{MaxHeld: -1}, "negative"},
		{"127.0.0.1:1", &Options{Listen: "nowhere"}, "missing port"},
	} {
		p, err := New(c.server, c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New(%q, %+v) = %v, %v; want an error with %q", c.server, c.o, p, err, c.want)
		}
	}
	f := setup(t, nil)
	for _, c := range []struct {
		faults Faults
		want   string
	}{
		{Faults{Replies: Flow{Latency: -1}}, "negative"},
		{Faults{Requests: Flow{Decide: decide("", Drop)}}, "framer"},
	} {
		if err := f.Set(c.faults); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Set(%+v) = %v, want an error with %q", c.faults, err, c.want)
		}
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	c := f.dial()
	f.set(holdRequests)
	c.send("a\n")
	f.wait("a held request", func(s Stats) bool { return s.Requests.Held == 2 })
	waited := make(chan error, 1)
	go func() { waited <- f.Wait(context.Background(), func(Stats) bool { return false }) }()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	c.wantReset()
	if err := <-waited; !errors.Is(err, ErrClosed) {
		t.Errorf("Wait = %v, want ErrClosed", err)
	}
	for name, err := range map[string]error{"Set": f.Set(Faults{}), "SetNew": f.SetNew(Faults{}), "Refuse": f.Refuse(),
		"Admit": f.Admit()} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s = %v, want ErrClosed", name, err)
		}
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	g := setup(t, nil)
	if err := g.Wait(ctx, func(Stats) bool { return false }); !errors.Is(err, cause) {
		t.Errorf("Wait = %v, want the context's cause", err)
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	f := setup(t, &Options{RequestFramer: lines})
	stop := make(chan struct{})
	var clients, faults sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			if !ample.Soon(t.Context(), func() bool {
				c, err := net.Dial("tcp", f.Addr())
				if err != nil {
					return false // just refused or reset
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(5 * time.Millisecond))
				_, _ = c.Write([]byte("x\n"))
				_, _ = io.Copy(io.Discard, c)
				return f.Stats().Accepted >= 50
			}) {
				t.Errorf("%d connections were accepted in %v, want 50", f.Stats().Accepted, ample.Time)
			}
		})
	}
	faults.Go(func() {
		all := []Faults{{}, BlackHole(), holdRequests, holdReplies, {Mute: true},
			{Requests: Flow{Decide: decide("x", Duplicate)}},
			{Replies: Flow{Drip: time.Millisecond}}, {Requests: Flow{Latency: time.Millisecond}}}
		pace := time.NewTicker(200 * time.Microsecond) // leaves the processors to the clients
		defer pace.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-pace.C:
			}
			if err := f.Set(all[i%len(all)]); err != nil {
				t.Errorf("Set: %v", err)
			}
			switch i % 50 {
			case 10:
				if err := f.Refuse(); err != nil {
					t.Errorf("Refuse: %v", err)
				}
			case 11:
				if err := f.Admit(); err != nil {
					t.Errorf("Admit: %v", err)
				}
			case 30:
				f.Reset()
			}
			f.Stats()
		}
	})
	clients.Wait()
	close(stop)
	faults.Wait()
	f.set(Faults{})
	if err := f.Admit(); err != nil {
		t.Fatal(err)
	}
	c := f.dial()
	c.send("y\n")
	c.want("re:y\n")
}
