package manifests

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/effect"
	"github.com/tenure-go/tenure/internal/kvkeys"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
	"github.com/tenure-go/tenure/internal/sidecar"
)

// everyOperation sends a request to each operation that has a limit, and expects an answer that
// does not depend on the limit.
func (d *described) everyOperation(status int) {
	d.Helper()
	for _, r := range sidecar.Routes() {
		if status == http.StatusServiceUnavailable && strings.HasSuffix(r, "/beat") {
			continue // it answers from memory
		}
		method, path, _ := strings.Cut(r, " ")
		d.call(status, method, strings.NewReplacer("{shard}", "jobs", "{lock}", "x", "{lease}", "none").Replace(path), "")
	}
}

// damagedItems is a store with items that cannot be read.
type damagedItems struct{ core.Backend }

func (damagedItems) Get(_ context.Context, s core.ShardID, key string) (*core.Item, error) {
	return nil, &core.DamagedError{Key: key, Shard: s, Why: "its value is too many bytes"}
}

func (b damagedItems) List(ctx context.Context, s core.ShardID, prefix string, limit, largest int) ([]core.Item, error) {
	if strings.HasPrefix(prefix, effect.Prefix) {
		return nil, &core.DamagedError{Key: prefix, Shard: s, Why: "its value is too many bytes"}
	}
	return b.Backend.List(ctx, s, prefix, limit, largest)
}

// TestDescribedFaults causes the answers that need a failing store, or more concurrent requests
// than are allowed.
func TestDescribedFaults(t *testing.T) {
	t.Parallel()
	d := newDescribed(t)

	// This sidecar allows one request at a time, one lease and one tail. A second of each is too
	// many.
	busy := d.beside(listen(t), memory.New(), nil, &sidecar.Options{MaxRequests: 1, MaxLeases: 1, MaxTails: 1})
	lease, token, _ := busy.lead("taken")
	busy.call(http.StatusOK, "POST", lease+"/append", `{"token":`+token+`,"text":"for the tail"}`)
	busy.stream("GET", "/v1/shards/taken/log/tail")
	body, writer := io.Pipe()
	defer writer.Close()
	r, err := http.NewRequestWithContext(t.Context(), "POST", busy.base+lease+"/append", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+secret)
	answered := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(r)
		if err == nil {
			err = resp.Body.Close()
		}
		answered <- err
	}()
	ample.Wait(t, "a request whose body does not come takes no place", func() bool {
		_, resp := busy.send("GET", "/v1/openapi.json", secret, "")
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusServiceUnavailable
	})
	busy.everyOperation(http.StatusServiceUnavailable)
	_ = writer.Close()
	if err := <-answered; err != nil {
		t.Error(err)
	}

	// These answers need records that cannot be read, and a reply that is lost.
	store, link := memory.New(), &kvfault.Link{}
	defer link.Heal()
	failing := d.beside(listen(t), store, link, &sidecar.Options{
		Elector: &core.Options{TTL: 10 * time.Second, CallTimeout: 2 * time.Second, DrainBudget: time.Second}})
	lease, token, _ = failing.lead("jobs")
	post := func(status int, op, rest string) {
		failing.call(status, "POST", lease+"/"+op, `{"token":`+token+","+rest+"}")
	}
	const entry, ops = `"text":"one"`, `"ops":[{"op":"put","key":"k","text":"v"}]`
	post(http.StatusOK, "append", entry)
	post(http.StatusOK, "commit", ops)
	keys := kvkeys.Keys("test")
	for key, answers := range map[string]func(){
		keys.Chunk("jobs", 1): func() { failing.call(http.StatusInternalServerError, "GET", "/v1/shards/jobs/log", "") },
		keys.Head("jobs"): func() {
			post(http.StatusInternalServerError, "append", entry)
			post(http.StatusInternalServerError, "commit", ops)
		},
	} {
		record, ok := store.Record(key)
		if !ok {
			t.Fatalf("there is no record %s among %q", key, store.Keys(""))
		}
		store.Tamper(key, []byte("\xff{{{"))
		answers()
		store.Tamper(key, record)
	}
	post(http.StatusOK, "append", entry)
	begun := failing.call(http.StatusOK, "POST", lease+"/effects/begin", `{"token":`+token+`,"key":"k"}`)
	_, attempt, _ := strings.Cut(begun, `"attempt":"`)
	attempt, _, _ = strings.Cut(attempt, `"`)
	other, otherToken, _ := failing.lead("more") // a second write of one lease waits for the first
	link.Set(kvfault.Write, kvfault.DropReply)
	post(http.StatusGatewayTimeout, "append", entry)
	post(http.StatusGatewayTimeout, "effects/end", `"attempt":"`+attempt+`","state":"done"`)
	lease, token = other, otherToken
	post(http.StatusGatewayTimeout, "commit", ops)
	link.Heal()

	// A value of the memory store cannot be damaged, but a value of an SQL store can.
	ill := d.besideOn(listen(t), damagedItems{memoryBackend(t, memory.New(), nil)}, &sidecar.Options{})
	ill.call(http.StatusInternalServerError, "GET", "/v1/shards/jobs/item?key=k", "")
	lease, token, _ = ill.lead("jobs")
	illPost := func(op, rest string) {
		ill.call(http.StatusInternalServerError, "POST", lease+"/effects/"+op, `{"token":`+token+`,"key":"k"`+rest+`}`)
	}
	illPost("begin", "")
	illPost("resolve", `,"doubt":"x","state":"done"`)
	ill.call(http.StatusInternalServerError, "GET", lease+"/effects", "")
	d.complete(func(status string) bool {
		return slices.Contains([]string{"500", "503", "504"}, status)
	})
}
