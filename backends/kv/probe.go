package kv

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvkeys"
)

// probe checks on a scratch key that the store honors conditions (rule P1). The store must apply
// only one of two conflicting writes. Writes must fail if they require a stale revision or the
// absence of an existing record, or if the guard is false. Revisions must increase, and a read must
// see the last write.
func probe(ctx context.Context, s Store, keys kvkeys.Keys) (err error) {
	key := keys.Probe(rand.Text())
	guarded := key + "/guarded"
	created, err := probeWrite(ctx, s, key, Absent, "1")
	if err != nil {
		return err
	}
	defer func() {
		_, cerr := s.Apply(ctx, &Batch{Txns: []Txn{{Ops: []Op{{Key: key, Delete: true}, {Key: guarded, Delete: true}}}}})
		if cerr != nil && err == nil {
			err = fmt.Errorf("tenure: removing the scratch key %q: %w", key, cerr)
		}
	}()
	if !created.OK || created.Rev <= 0 {
		return lying("it refused to create a key that does not exist")
	}
	rivals := [2]Result{}
	errs := [2]error{}
	var both sync.WaitGroup
	for i := range rivals {
		both.Go(func() {
			rivals[i], errs[i] = probeWrite(ctx, s, key, created.Rev, fmt.Sprintf("2 %d", i))
		})
	}
	both.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if rivals[0].OK == rivals[1].OK {
		return lying("of two conflicting conditional writes not exactly one was applied")
	}
	winner := rivals[0]
	if rivals[1].OK {
		winner = rivals[1]
	}
	if winner.Rev <= created.Rev {
		return lying("a later write has no greater revision")
	}
	for _, stale := range [...]Rev{created.Rev, Absent} {
		r, err := probeWrite(ctx, s, key, stale, "3")
		if err != nil {
			return err
		}
		if r.OK {
			return lying("it applied a write whose compare was stale")
		}
	}
	out, err := s.Apply(ctx, &Batch{
		Guard: []Compare{{Key: key, Rev: created.Rev}},
		Txns:  []Txn{{Ops: []Op{{Key: guarded, Value: []byte("4")}}}},
	})
	if err != nil {
		return fmt.Errorf("tenure: probing the store: %w", err)
	}
	if !out.Refused {
		return lying("it applied a write whose guard was stale")
	}
	page, err := s.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("tenure: probing the store: %w", err)
	}
	if len(page.Pairs) != 1 || page.Pairs[0].Rev != winner.Rev {
		return lying("a read does not see the last write")
	}
	return nil
}

func probeWrite(ctx context.Context, s Store, key string, rev Rev, value string) (Result, error) {
	out, err := s.Apply(ctx, &Batch{Txns: []Txn{{
		If:  []Compare{{Key: key, Rev: rev}},
		Ops: []Op{{Key: key, Value: []byte(value)}},
	}}})
	if err != nil {
		return Result{}, fmt.Errorf("tenure: probing the store: %w", err)
	}
	if out.Refused || len(out.Results) != 1 {
		return Result{}, lying("it did not answer one transaction with one result")
	}
	if err := out.Results[0].Err; err != nil {
		return Result{}, fmt.Errorf("tenure: probing the store: %w", err)
	}
	return out.Results[0], nil
}

func lying(what string) error {
	return fmt.Errorf("tenure: %w: the store does not honour conditional writes: %s", driver.ErrUnsupported, what)
}
