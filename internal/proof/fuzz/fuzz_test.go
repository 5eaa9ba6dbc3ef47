// Package fuzz contains fuzz targets for packages whose tests link databases. In those packages,
// the fuzzer would spend minutes instrumenting the databases.
package fuzz

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/fencegrpc"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

func FuzzConfig(f *testing.F) {
	f.Add("tenure: {backend: a, backends: {a: {path: x}}, ttl: 5s, meta: {b: c}}", "TENURE__TTL=3s")
	f.Add("tenure: {meta: {a: !env X}}", "X=1")
	f.Add("tenure: &a {backends: *a}", "TENURE__BACKENDS__A=1")
	f.Add("x: &x {y: [*x, *x]}\ntenure: {meta: &m {a: &b [*m, *b]}, node: *x}", "A=1")
	f.Add("a: &a {x: y}\nb: &b [*a, *a]\nc: &c [*b, *b]\ntenure: {meta: {x: *c}, ttl: *a}", "TENURE__META__B=1")
	f.Add("tenure:\n  node: !env planted\n  ttl: !!int planted\n  meta: {<<: *planted}", "B=planted")
	type settings struct {
		Path  string `yaml:"path"`
		Count *uint8 `yaml:"count"`
	}
	opener := core.Opener{Name: "a", Settings: settings{}}
	f.Fuzz(func(t *testing.T, text, env string) {
		if strings.Contains(text, "!file") {
			return // it reads the fuzzer's input
		}
		// A panic saves the input.
		late := time.AfterFunc(ample.Time, func() { panic("loading goes on and on") })
		defer late.Stop()
		c, err := config.Load(&config.LoadOptions{Path: "app.yaml", Data: []byte(text), Environ: []string{env}})
		if err != nil {
			if !errors.Is(err, core.ErrInvalid) {
				t.Errorf("%v", err)
			}
			if got := len(err.Error()); got > 1<<20+100*len(text) {
				t.Errorf("an error of %d bytes for %d", got, len(text))
			}
			return
		}
		_ = c.Validate(opener)
		_ = c.Redacted(opener)
	})
}

// checkText fails for an error that is long, or that contains characters that affect a terminal or
// a log.
func checkText(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	text := err.Error()
	if len(text) > 8<<10 || strings.ContainsFunc(text, unicode.IsControl) {
		t.Errorf("an error of %d bytes: %.300q", len(text), text)
	}
}

// checkRefused fails for a refusal with invalid names.
func checkRefused(t *testing.T, err error) {
	t.Helper()
	checkText(t, err)
	var resource string
	var fences []driver.Fence
	if e, ok := errors.AsType[*fence.RefusedError](err); ok {
		resource, fences = e.Resource, []driver.Fence{e.Fence, e.Current}
	}
	if e, ok := errors.AsType[*fence.ForeignError](err); ok {
		resource, fences = e.Resource, []driver.Fence{e.Fence}
	}
	if resource != "" && fence.CheckResource(resource) != nil {
		t.Errorf("resource %q", resource)
	}
	for _, f := range fences {
		if f != (driver.Fence{}) && driver.CheckFence(f) != nil {
			t.Errorf("fence %+v", f)
		}
	}
}

func FuzzResponse(f *testing.F) {
	const problem = "application/problem+json"
	for _, kind := range []string{"urn:tenure:fence:refused", "urn:tenure:fence:foreign", "urn:tenure:fence:invalid",
		"urn:tenure:fence:missing", "urn:tenure:fence:mark"} {
		f.Add(412, problem, `{"type":"`+kind+
			`","detail":"a\u001bb","resource":"ledger/7","shard":"ledger","holder":"a","token":4,"current_shard":"ledger","current_holder":"b","current_token":5}`)
	}
	f.Add(403, problem, `{"type":"urn:tenure:fence:foreign","token":`+strings.Repeat("1", 50_000)+`}`)
	f.Add(400, problem+"; charset=utf-8", `{"type":"urn:tenure:fence:invalid","detail":"`+strings.Repeat("x", 50_000)+
		`"}`)
	f.Fuzz(func(t *testing.T, status int, kind, body string) {
		r := &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body))}
		checkRefused(t, fence.ResponseError(r))
	})
}

func FuzzMessage(f *testing.F) {
	f.Add("ledger/S1/42", "7")
	f.Add("ledger/S1/42", "")
	f.Add("a\x1b/b/1", strings.Repeat("9", 10_000))
	f.Fuzz(func(t *testing.T, text, seq string) {
		m, err := fence.ReadMessage(func(key string) string {
			return map[string]string{"tenure-fence": text, "tenure-seq": seq}[key]
		})
		checkText(t, err)
		if err != nil {
			if !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%v", err)
			}
			return
		}
		again := make(map[string]string)
		m.Set(func(key, value string) { again[key] = value })
		if got, err := fence.ReadMessage(func(key string) string { return again[key] }); err != nil || got != m {
			t.Errorf("%+v became %+v, %v", m, got, err)
		}
	})
}

// FuzzMarks opens a file of marks with any two lines after their checksums, and any text after
// them.
func FuzzMarks(f *testing.F) {
	f.Add(`{"resource":"ledger","fence":{"shard":"ledger","session":"a","token":5}}`, `{"resource":"ledger","fence":{"shard":"ledger","session":"b","token":4}}`, "cut sho")
	f.Add(`{"resource":"a\u001b","fence":{"shard":"ledger","session":"a","token":5}}`, "null", "\n")
	path := filepath.Join(f.TempDir(), "marks")
	f.Fuzz(func(t *testing.T, one, two, rest string) {
		var text []byte
		for _, line := range []string{one, two} {
			text = fmt.Appendf(text, "%08x %s\n", crc32.ChecksumIEEE([]byte(line)), line)
		}
		if err := os.WriteFile(path, append(text, rest...), 0o600); err != nil {
			t.Fatal(err)
		}
		marks, err := fence.OpenFile(path)
		checkText(t, err)
		if err != nil {
			return
		}
		defer marks.Close()
		for _, resource := range []string{"ledger", one, two} {
			h, err := marks.Raise(t.Context(), resource, driver.Fence{Shard: "ledger", Session: "z", Token: 1})
			if fence.CheckResource(resource) == nil && (err != nil || driver.CheckFence(h) != nil) {
				t.Errorf("the mark of %q is %+v, %v", resource, h, err)
			}
		}
	})
}

func FuzzGRPC(f *testing.F) {
	seed := func(code codes.Code, reason string, metadata map[string]string) {
		st, err := status.New(code, "refused").WithDetails(&errdetails.ErrorInfo{Domain: "tenure.fence", Reason: reason, Metadata: metadata})
		if err != nil {
			f.Fatal(err)
		}
		text, err := proto.Marshal(st.Proto())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	seed(codes.FailedPrecondition, "FENCE_REFUSED", map[string]string{"resource": "ledger", "fence": "ledger/a/4",
		"current_shard": "ledger", "current_holder": "b", "current_token": "5"})
	seed(codes.FailedPrecondition, "FENCE_REFUSED", map[string]string{"resource": "a\x1b", "fence": "ledger/a/4",
		"current_shard": "a/b", "current_holder": "\n", "current_token": "-5"})
	seed(codes.PermissionDenied, "FENCE_FOREIGN", map[string]string{"resource": strings.Repeat("r", 10_000), "fence": "ledger/a/4"})
	f.Fuzz(func(t *testing.T, text []byte) {
		st := status.New(codes.OK, "").Proto()
		if proto.Unmarshal(text, st) != nil {
			return
		}
		given := status.ErrorProto(st)
		if err := fencegrpc.Error(given); err != given { // otherwise it is the server's
			checkRefused(t, err)
		}
	})
}

func FuzzFence(f *testing.F) {
	f.Add("ledger/S1/42")
	f.Add("a/b/9223372036854775807")
	f.Fuzz(func(t *testing.T, s string) {
		v, err := fence.Parse(s)
		if err != nil {
			return
		}
		if got := fence.Format(v); got != s {
			t.Errorf("%q became %q", s, got)
		}
	})
}
