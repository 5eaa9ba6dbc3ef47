package manifests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
	"github.com/tenure-go/tenure/internal/sidecar"
)

const secret = "0123456789abcdef0123456789abcdef"

// described is a running sidecar, and the file that describes its API.
type described struct {
	*testing.T
	doc    *openapi3.T
	router routers.Router
	base   string
	// answered contains the operations, with the status of each answer that matched its
	// description.
	answered map[string]bool
}

func newDescribed(t *testing.T) *described {
	t.Helper()
	d := &described{T: t, answered: map[string]bool{}}
	return d.beside(listen(t), memory.New(), nil, &sidecar.Options{MaxLeases: 3})
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := sidecar.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func memoryBackend(t *testing.T, store *memory.Store, link *kvfault.Link) core.Backend {
	t.Helper()
	o := &memory.Options{}
	if link != nil {
		o.Wrap = link.Wrap
	}
	b, err := memory.Open(t.Context(), store, "test", o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// beside starts another sidecar, whose answers are recorded with the answers of d. The link to its
// store may be nil.
func (d *described) beside(ln net.Listener, store *memory.Store, link *kvfault.Link, o *sidecar.Options) *described {
	d.Helper()
	return d.besideOn(ln, memoryBackend(d.T, store, link), o)
}

func (d *described) besideOn(ln net.Listener, b core.Backend, o *sidecar.Options) *described {
	d.Helper()
	x := &described{T: d.T, answered: d.answered, base: "http://" + ln.Addr().String()}
	var err error
	if x.doc, err = openapi3.NewLoader().LoadFromFile("../../internal/sidecar/openapi.json"); err != nil {
		d.Fatal(err)
	}
	if err := x.doc.Validate(d.Context()); err != nil {
		d.Fatal(err)
	}
	x.doc.Servers = openapi3.Servers{{URL: x.base}}
	if x.router, err = gorillamux.NewRouter(x.doc); err != nil {
		d.Fatal(err)
	}
	o.Token = secret
	if o.Elector == nil {
		o.Elector = &core.Options{}
	}
	o.Elector.Logger = slog.New(slog.DiscardHandler)
	s, err := sidecar.New(b, o)
	if err != nil {
		d.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	d.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			d.Error(err)
		}
		if err := b.Close(); err != nil {
			d.Error(err)
		}
	})
	return x
}

// The connection is for a single request, so closing it ends a stream.
func (d *described) send(method, path, token, body string) (*http.Request, *http.Response) {
	d.Helper()
	r, err := http.NewRequest(method, d.base+path, strings.NewReader(body))
	if err != nil {
		d.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		d.Fatal(err)
	}
	r.Body = io.NopCloser(strings.NewReader(body))
	return r, resp
}

// input returns a request in the validator's form.
func (d *described) input(r *http.Request) *openapi3filter.RequestValidationInput {
	d.Helper()
	route, params, err := d.router.FindRoute(r)
	if err != nil {
		d.Fatalf("%s %s: %v", r.Method, r.URL.Path, err)
	}
	return &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route,
		Options: &openapi3filter.Options{IncludeResponseStatus: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}}
}

// call sends a request, and checks that the file describes the answer. The file must reject the
// request exactly when the answer reports a bad request.
func (d *described) call(status int, method, path, body string) string {
	d.Helper()
	return d.callAs(secret, status, method, path, body)
}

func (d *described) callAs(token string, status int, method, path, body string) string {
	d.Helper()
	r, resp := d.send(method, path, token, body)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		d.Errorf("%s %s %s: got %d %s (%v), want %d", method, path, body, resp.StatusCode, text, err, status)
	}
	in := d.input(r)
	if err := openapi3filter.ValidateRequest(d.Context(), in); (err != nil) != (status == http.StatusBadRequest) && status != http.StatusUnauthorized && status != http.StatusServiceUnavailable {
		d.Errorf("%s %s %s: the sidecar answers %d, and by the file the request has the error %v", method, path, body, status, err)
	}
	d.check(in, resp, text)
	return string(text)
}

func (d *described) check(in *openapi3filter.RequestValidationInput, resp *http.Response, text []byte) {
	d.Helper()
	op := in.Route.Operation
	err := openapi3filter.ValidateResponse(d.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: resp.StatusCode, Header: resp.Header, Body: io.NopCloser(bytes.NewReader(text)), Options: in.Options,
	})
	if err != nil {
		d.Errorf("%s: an answer with %d is not as described: %v", op.OperationID, resp.StatusCode, err)
		return
	}
	d.answered[fmt.Sprint(op.OperationID, " ", resp.StatusCode)] = true
}

// stream begins a stream, and returns a function that reads the next event. Each event must match
// the file.
func (d *described) stream(method, path string) (next func() map[string]any) {
	d.Helper()
	r, resp := d.send(method, path, secret, "")
	d.Cleanup(func() { _ = resp.Body.Close() })
	in := d.input(r)
	op := in.Route.Operation
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || got != "text/event-stream" {
		d.Fatalf("%s: got %s %s", op.OperationID, resp.Status, got)
	}
	d.answered[op.OperationID+" 200"] = true
	schema := op.Responses.Status(http.StatusOK).Value.Content["text/event-stream"].Schema.Value
	lines := bufio.NewScanner(resp.Body)
	return func() map[string]any {
		d.Helper()
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			v, err := decode(data)
			if err == nil {
				err = schema.VisitJSON(v)
			}
			if err != nil {
				d.Fatalf("%s: the event %s is not as described: %v", op.OperationID, data, err)
			}
			return v.(map[string]any)
		}
		d.Fatalf("%s: the stream has ended: %v", op.OperationID, lines.Err())
		return nil
	}
}

// TestRoutes: the file describes exactly the served routes.
func TestRoutes(t *testing.T) {
	t.Parallel()
	d := newDescribed(t)
	var got []string
	for path, item := range d.doc.Paths.Map() {
		for method := range item.Operations() {
			got = append(got, method+" "+path)
		}
	}
	want := sidecar.Routes()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the file describes %q, and the sidecar serves %q", got, want)
	}
	text, err := os.ReadFile("../../internal/sidecar/openapi.json")
	if err != nil || d.call(http.StatusOK, "GET", "/v1/openapi.json", "") != string(text) {
		t.Errorf("the sidecar does not serve the file (%v)", err)
	}
}

// TestDescribed: every operation and its answers, with all states, match the file.
func TestDescribed(t *testing.T) {
	t.Parallel()
	d := newDescribed(t)
	lease, token, next := d.lead("jobs")
	body := func(format string) string { return `{"token":` + token + "," + format + "}" }
	post := func(status int, path, text string) { d.Helper(); d.call(status, "POST", path, text) }
	get := func(status int, path string) { d.Helper(); d.call(status, "GET", path, "") }

	post(200, lease+"/beat", "")
	post(410, "/v1/leases/none/beat", "")
	post(200, lease+"/append", body(`"text":"one"`))
	post(200, lease+"/append", body(`"base64":"/wA="`))
	post(400, lease+"/append", body(`"text":"one","base64":""`))
	post(400, lease+"/append", body(`"text":1`))
	post(400, lease+"/append", body(`"text":"one","more":1`))
	post(400, lease+"/append", `{"text":"one"}`)
	post(409, lease+"/append", `{"token":999,"text":"one"}`)
	post(410, "/v1/leases/none/append", body(`"text":"one"`))
	post(413, lease+"/append", body(`"text":"`+strings.Repeat("x", 5<<20)+`"`))
	post(200, lease+"/commit", body(`"ops":[{"op":"put","key":"k","text":"v","if_absent":true},{"op":"append","text":"x"}]`))
	post(412, lease+"/commit", body(`"ops":[{"op":"put","key":"k","text":"v","if_absent":true}]`))
	post(200, lease+"/commit", body(`"ops":[{"op":"delete","key":"none"},{"op":"put","key":"raw","base64":"/w=="}]`))
	post(400, lease+"/commit", body(`"ops":[]`))
	post(400, lease+"/commit", body(`"ops":[{"op":"put","key":"k"}]`))
	post(400, lease+"/commit", body(`"ops":[{"op":"delete","key":"k","text":"v"}]`))
	post(400, lease+"/commit", body(`"ops":[{"op":"append","key":"k","text":"v"}]`))
	post(400, lease+"/commit", body(`"ops":[{"op":"trim"}]`))
	post(400, lease+"/commit", body(`"ops":[{"op":"steal"}]`))
	post(409, lease+"/commit", `{"token":999,"ops":[{"op":"append","text":"one"}]}`)
	post(410, "/v1/leases/none/commit", body(`"ops":[{"op":"append","text":"one"}]`))
	post(413, lease+"/commit", body(`"ops":[{"op":"append","text":"`+strings.Repeat("x", 5<<20)+`"}]`))

	get(200, "/v1/shards/jobs")
	get(404, "/v1/shards/none")
	get(400, "/v1/shards/_control")
	get(200, "/v1/shards/jobs/item?key=k")
	get(200, "/v1/shards/jobs/item?key=raw")
	get(404, "/v1/shards/jobs/item?key=none")
	get(400, "/v1/shards/jobs/item")
	get(200, "/v1/shards/jobs/log")
	get(200, "/v1/shards/jobs/log?after=1&limit=1")
	get(400, "/v1/shards/jobs/log?after=-1")
	get(400, "/v1/shards/jobs/log?limit=1001")
	get(200, "/v1/openapi.json")

	d.effects(lease, body)
	d.locks()

	tail := d.stream("GET", "/v1/shards/jobs/log/tail?after=1")
	for seq := 2; seq <= 3; seq++ {
		if e := tail(); fmt.Sprint(e["seq"]) != fmt.Sprint(seq) {
			t.Errorf("tail: got entry %v, want %d", e["seq"], seq)
		}
	}
	get(400, "/v1/shards/jobs/log/tail?after=x")
	post(200, lease+"/commit", body(`"ops":[{"op":"trim","through":2}]`))
	get(410, "/v1/shards/jobs/log?after=0")

	post(409, "/v1/shards/jobs/lease", "")
	post(400, "/v1/shards/other/lease", `{"ttl_ms":99}`)
	post(400, "/v1/shards/other/lease", `{"ttl":99}`)
	d.stream("POST", "/v1/shards/other/lease")
	d.stream("POST", "/v1/locks/other")
	post(503, "/v1/shards/third/lease", "")
	post(503, "/v1/locks/x", "")
	post(413, "/v1/locks/x", `{"wait_ms":`+strings.Repeat(" ", 10<<20)+`1}`)
	post(413, "/v1/shards/other/lease", `{"ttl_ms":`+strings.Repeat(" ", 10<<20)+`1000}`)

	for _, r := range sidecar.Routes() {
		method, path, _ := strings.Cut(r, " ")
		path = strings.NewReplacer("{shard}", "jobs", "{lock}", "x", "{lease}", "none").Replace(path)
		d.callAs("wrong", http.StatusUnauthorized, method, path, "")
	}
	post(200, lease+"/release", "")
	post(410, lease+"/release", "")
	for next()["state"] != "over" {
	}
	// TestDescribedFaults covers the other answers.
	d.complete(func(status string) bool { return !slices.Contains([]string{"500", "503", "504"}, status) })
}

func (d *described) effects(lease string, body func(string) string) {
	d.Helper()
	post := func(status int, what, text string) (out struct{ Attempt, Doubt string }) {
		d.Helper()
		if err := json.Unmarshal([]byte(d.call(status, "POST", lease+"/effects/"+what, text)), &out); err != nil {
			d.Fatal(err)
		}
		return out
	}
	begin := func(key string) string { return post(200, "begin", body(`"key":"`+key+`"`)).Attempt }
	end := func(attempt, rest string) string {
		return post(200, "end", body(`"attempt":"`+attempt+`","state":`+rest)).Doubt
	}
	large := strings.Repeat("x", 5<<20)
	attempt := begin("pay/1")
	begin("pay/1")
	end(attempt, `"done","text":"receipt"`)
	begin("pay/1")
	end(begin("pay/2"), `"done","base64":"/wA="`)
	end(begin("pay/3"), `"done","text":"`+large[:1<<20]+`"`)
	end(begin("pay/4"), `"failed","reason":"declined"`)
	doubt := end(begin("pay/5"), `"repeat"`)
	end(begin("pay/6"), `"in_doubt","reason":"no answer"`)
	d.call(200, "GET", lease+"/effects", "")
	post(400, "begin", body(`"key":"a b"`))
	post(400, "begin", body(`"key":"`+strings.Repeat("k", 257)+`"`))
	post(400, "begin", body(`"key":"a","more":1`))
	post(409, "begin", `{"token":999,"key":"a"}`)
	post(413, "begin", body(`"key":"a"`+strings.Repeat(" ", len(large))))
	post(400, "end", body(`"attempt":"x","state":"go"`))
	post(400, "end", body(`"attempt":"x","state":"done","text":"a","base64":""`))
	post(409, "end", `{"token":999,"attempt":"x","state":"done"}`)
	post(412, "end", body(`"attempt":"x","state":"done"`))
	post(413, "end", body(`"attempt":"x","state":"done","text":"`+large+`"`))
	post(400, "resolve", body(`"key":"pay/5","doubt":"x","state":"in_doubt"`))
	post(409, "resolve", `{"token":999,"key":"pay/5","doubt":"x","state":"done"}`)
	post(412, "resolve", body(`"key":"pay/5","doubt":"x","state":"done"`))
	post(413, "resolve", body(`"key":"pay/5","doubt":"x","state":"done","text":"`+large+`"`))
	post(200, "resolve", body(`"key":"pay/5","doubt":"`+doubt+`","state":"repeat"`))
	d.call(410, "POST", "/v1/leases/none/effects/begin", body(`"key":"a"`))
	d.call(410, "POST", "/v1/leases/none/effects/end", body(`"attempt":"x","state":"done"`))
	d.call(410, "POST", "/v1/leases/none/effects/resolve", body(`"key":"a","doubt":"x","state":"done"`))
	d.call(410, "GET", "/v1/leases/none/effects", "")

	store := memory.New()
	d.beside(listen(d.T), store, nil, &sidecar.Options{}).lead("taken")
	waits := d.beside(listen(d.T), store, nil, &sidecar.Options{Elector: &core.Options{Node: "second"}})
	waiting := waits.stream("POST", "/v1/shards/taken/lease")()
	waits.call(409, "GET", fmt.Sprint("/v1/leases/", waiting["lease"], "/effects"), "")
}

// locks takes a lock for which other clients wait.
func (d *described) locks() {
	d.Helper()
	next := d.stream("POST", "/v1/locks/order-17")
	state := next()
	lease := fmt.Sprint("/v1/leases/", state["lease"])
	if state["state"] != "held" {
		d.Errorf("the first state of a lock is %v", state)
	}
	token := fmt.Sprintf(`{"token":%v,`, state["token"])
	d.call(409, "POST", "/v1/locks/order-17", "")
	d.call(409, "POST", "/v1/locks/order-17", `{"wait_ms":10,"ttl_ms":1000}`)
	d.call(400, "POST", "/v1/locks/order-17", `{"wait_ms":-1}`)
	d.call(400, "POST", "/v1/locks/order-17", `{"wait_ms":3600001}`)
	d.call(400, "POST", "/v1/locks/a%20b", "")
	d.call(400, "POST", "/v1/locks/"+strings.Repeat("x", 123), "")
	d.call(400, "POST", "/v1/shards/_lock.order-17/lease", "")
	d.call(200, "POST", lease+"/append", token+`"text":"paid"}`)
	d.call(200, "GET", "/v1/shards/_lock.order-17/log", "")
	d.call(409, "POST", lease+"/effects/begin", token+`"key":"k"}`)
	d.call(200, "POST", lease+"/release", "")
	for next()["state"] != "over" {
	}
}

// lead contends for a shard until the client holds it.
func (d *described) lead(shard string) (lease, token string, next func() map[string]any) {
	d.Helper()
	next = d.stream("POST", "/v1/shards/"+shard+"/lease")
	state := next()
	for state["state"] != "held" {
		state = next()
	}
	return fmt.Sprint("/v1/leases/", state["lease"]), fmt.Sprint(state["token"]), next
}

// complete checks that each status that the file describes was answered.
func (d *described) complete(which func(status string) bool) {
	d.Helper()
	for _, item := range d.doc.Paths.Map() {
		for _, op := range item.Operations() {
			for status := range op.Responses.Map() {
				if which(status) && !d.answered[op.OperationID+" "+status] {
					d.Errorf("%s never answered with %s, which the file describes", op.OperationID, status)
				}
			}
		}
	}
}

// TestControl: the test finds an answer that the file does not describe.
func TestControl(t *testing.T) {
	t.Parallel()
	d := newDescribed(t)
	r, resp := d.send("GET", "/v1/shards/none", secret, "")
	_ = resp.Body.Close()
	in := d.input(r)
	for _, c := range []struct {
		status int
		body   string
	}{
		{200, `{"shard":"a","owner":"x"}`}, {200, `{}`}, {200, `{"shard":"a","token":0}`}, {418, `{"shard":"a"}`},
		{404, `{"error":{"code":"strange","message":"x","applied":"no"}}`},
	} {
		err := openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
			RequestValidationInput: in, Status: c.status, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(c.body)), Options: in.Options,
		})
		if err == nil {
			t.Errorf("%d %s passes", c.status, c.body)
		}
	}
}
