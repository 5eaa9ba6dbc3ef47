package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/effect"
)

// A proxy calls tools while its member is the leader.
type proxy struct {
	tools  map[string]string             // URLs of the tools
	ledger atomic.Pointer[effect.Ledger] // nil while another member leads
}

func (p *proxy) lead(ctx context.Context, lease *core.Lease) error {
	ledger, err := effect.Open(ctx, lease, &effect.Options{MaxResult: effect.MaxMaxResult, Attempts: 2})
	if err != nil {
		return err
	}
	p.ledger.Store(ledger)
	<-ctx.Done()
	p.ledger.Store(nil)
	ledger.Close()
	return nil
}

func (p *proxy) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tools/{tool}", p.serve)
	return mux
}

func (p *proxy) serve(w http.ResponseWriter, r *http.Request) {
	tool, key, ledger := r.PathValue("tool"), r.Header.Get("Idempotency-Key"), p.ledger.Load()
	arguments, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	switch {
	case err != nil || key == "" || p.tools[tool] == "":
		http.Error(w, "want a known tool, an Idempotency-Key, and a body of a MiB at most", http.StatusBadRequest)
		return
	case ledger == nil:
		http.Error(w, "another member leads", http.StatusServiceUnavailable)
		return
	}
	// The proxy hashes the key, because an agent's key may contain any characters.
	answer, err := ledger.Do(r.Context(), fmt.Sprintf("%s/%x", tool, sha256.Sum256([]byte(key))),
		func(ctx context.Context, id string) ([]byte, error) { return use(ctx, p.tools[tool], id, arguments) })
	switch {
	case errors.Is(err, effect.ErrInDoubt):
		http.Error(w, "in doubt: the call may have been made, and is not made again: "+err.Error(), http.StatusConflict)
	case errors.Is(err, effect.ErrNotKept):
		http.Error(w, "the call was made, and its answer was too long to keep", http.StatusGone)
	case errors.Is(err, effect.ErrFailed):
		http.Error(w, "the call was not made: "+err.Error(), http.StatusBadGateway)
	case err != nil: // the agent may make the call later
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		_, _ = w.Write(answer)
	}
}

// Redirects are not followed, because they would repeat a call at another address.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// The error describes what is known about the effect.
func use(ctx context.Context, url, id string, arguments []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(arguments))
	if err != nil {
		return nil, effect.Refused(err)
	}
	r.Header.Set("Tenure-Effect", id) // with an Idempotency-Key, the transport would retry
	resp, err := client.Do(r)
	if err != nil {
		return nil, effect.NotSent(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, effect.MaxMaxResult+1))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode >= 400 && resp.StatusCode < 500:
		return nil, effect.Refused(fmt.Errorf("the tool refused it: %s: %.200s", resp.Status, answer))
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the tool answered %s", resp.Status)
	}
	return answer, nil
}
