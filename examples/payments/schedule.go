package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/effect"
)

type payment struct {
	order string
	cents int
	at    time.Time
}

// The leader's handler makes each payment when it is due. It skips payments that a former leader
// made, and finishes payments that a former leader began, with the same keys.
func schedule(ctx context.Context, lease *core.Lease, bank string, due []payment) error {
	ledger, err := effect.Open(ctx, lease, &effect.Options{Repeatable: true, // the provider's idempotency keys make calls repeatable
		Attempts: 20, BackoffMin: 10 * time.Millisecond})
	if err != nil {
		return err
	}
	defer ledger.Close()
	errs := make([]error, len(due))
	var all sync.WaitGroup
	for i, p := range due {
		select {
		case <-time.After(time.Until(p.at)):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		all.Go(func() {
			_, errs[i] = ledger.Do(ctx, "pay/"+p.order, func(ctx context.Context, id string) ([]byte, error) {
				return charge(ctx, bank, id, p)
			})
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Even after an error, the provider may have charged the payment.
func charge(ctx context.Context, bank, id string, p payment) (receipt []byte, err error) {
	form := url.Values{"order": {p.order}, "cents": {strconv.Itoa(p.cents)}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, bank+"/charges?"+form.Encode(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Idempotency-Key", id)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the provider answered %s", resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, 1000))
}
