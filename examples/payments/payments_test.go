package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
)

func payments() []payment {
	var due []payment
	for i := range 60 {
		due = append(due, payment{fmt.Sprint("order-", i), 100, time.Now().Add(time.Duration(i) * time.Millisecond)})
	}
	return due
}

// TestRun checks that each payment is charged once, although answers are lost and the leader is
// stopped.
func TestRun(t *testing.T) {
	report, err := run(t.Context(), payments())
	if err != nil || !strings.HasSuffix(report, " 60 charges") || strings.Contains(report, " 0 answers") {
		t.Error(report, err)
	}
}

// TestCutOff cuts a leader off from the store while payments are in progress, and checks that no
// payment is charged twice.
func TestCutOff(t *testing.T) {
	due, store, link := payments(), memory.New(), &kvfault.Link{}
	bank := newProvider(due)
	server := httptest.NewServer(bank)
	defer server.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	first := make(chan error, 1)
	go func() { first <- member(ctx, store, &memory.Options{Wrap: link.Wrap}, "a", server.URL, due) }()
	<-bank.half
	link.Cut()
	if err := member(t.Context(), store, nil, "b", server.URL, due); err != nil {
		t.Error(err)
	}
	link.Heal()
	stop()
	<-first // it may have seen that all is done
	if report, err := bank.check(); err != nil {
		t.Error(report, err)
	}
}

// TestCheck checks that provider.check finds a payment that was charged twice or not at all.
func TestCheck(t *testing.T) {
	for _, n := range []int{0, 2} {
		bank := newProvider([]payment{{order: "o"}})
		bank.charged["o"] = n
		if _, err := bank.check(); err == nil {
			t.Errorf("charged %d times: no error", n)
		}
	}
}
