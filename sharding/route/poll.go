package route

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/boundjson"
)

type poll struct {
	c       *Client
	at      int // index in Members
	failed  int // number of members that have failed in a row
	wait    bool
	hurry   time.Duration // minimum time between requests that Refresh causes
	hurried time.Time
}

// With this cause, Run ends a request that waits for a change.
var errHurried = errors.New("the map is asked for at once")

func (p *poll) once(ctx context.Context) {
	c := p.c
	asked := time.Now()
	changed, pause, err := p.ask(ctx)
	took := time.Since(asked)
	switch {
	case ctx.Err() != nil:
		return
	case errors.Is(err, errHurried):
		p.at, p.wait = (p.at+1)%len(c.o.Members), false
		p.hurried = time.Now()
		p.hurry = min(2*p.hurry, maxHurry)
		return
	case err != nil:
		p.at, p.wait = (p.at+1)%len(c.o.Members), false
		if p.failed++; p.failed%len(c.o.Members) == 0 {
			rounds := p.failed / len(c.o.Members)
			if rounds&(rounds-1) == 0 { // log the 1st, 2nd, 4th, 8th ... failure
				c.o.Logger.Warn("tenure: route: no member answers", slog.Int("members", len(c.o.Members)), slog.Any("error", err))
			}
			pause = min(minFailed<<min(rounds-1, 6), maxFailed)
			pause += rand.N(pause)
		}
	default:
		if changed && p.wait {
			p.hurry = minHurry
		}
		if changed {
			select { // the requested change has arrived
			case <-c.hurry:
			default:
			}
		}
		if !changed && p.wait && took < pollWait/2 {
			pause = max(pause, pollIdle)
		}
		p.failed, p.wait = 0, true
		pause = max(pause, pollEvery)
	}
	sleep(ctx, pause)
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// The member asks the Client to wait for the time pauses.
func (p *poll) ask(ctx context.Context) (changed bool, pauses time.Duration, err error) {
	c := p.c
	wait := time.Duration(0)
	if p.wait {
		wait = pollWait
	}
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(wait+pollPatience, func() { cancel(context.DeadlineExceeded) })
	watched := make(chan struct{})
	go func() { // ended and joined below
		defer close(watched)
		for {
			select {
			case <-c.hurry:
				if p.wait && time.Since(p.hurried) >= p.hurry {
					cancel(errHurried)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		late.Stop()
		cancel(nil)
		<-watched
	}()
	a, at, pauses, err := c.read(ctx, c.o.Members[p.at], wait)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if err != nil || a == nil {
		if err == nil {
			c.table.confirm(at)
		}
		return false, pauses, err
	}
	if err := c.table.apply(a, at); err != nil {
		c.table.forget() // the next request asks for the whole map
		return false, 0, err
	}
	return true, pauses, nil
}

// If there is no change, read returns nil. The time at is when the member last heard from the
// store.
func (c *Client) read(ctx context.Context, member string, wait time.Duration) (a *ownersJSON, at time.Time, pauses time.Duration,
	err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, member, nil)
	if err != nil {
		return nil, at, 0, err
	}
	r.Header = c.o.Header.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	after := c.table.asked()
	if after != "" {
		r.URL.RawQuery = url.Values{"after": {after}, "wait": {wait.String()}}.Encode()
	}
	resp, err := c.asks.RoundTrip(r) // redirects are not followed
	if err != nil {
		return nil, at, 0, err
	}
	defer resp.Body.Close()
	at = time.Now()
	if s, err := strconv.ParseFloat(resp.Header.Get(newsAge), 64); err == nil && s > 0 && s < maxNewsAge {
		at = at.Add(-time.Duration(s * float64(time.Second)))
	}
	if resp.Header.Get("Retry-After") != "" {
		pauses = pause(resp, c.o.Wait)
	}
	media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	switch {
	case resp.StatusCode == http.StatusNoContent && after != "":
		return nil, at, pauses, nil
	case resp.StatusCode != http.StatusOK || media != "application/json":
		return nil, at, 0, fmt.Errorf("tenure: the map of owners: a member answers %d with %.60q", resp.StatusCode, media)
	}
	a, err = decodeOwners(resp.Body)
	return a, at, pauses, err
}

func decodeOwners(from io.Reader) (*ownersJSON, error) {
	body, err := io.ReadAll(io.LimitReader(from, maxMap+1))
	if err != nil {
		return nil, err
	}
	a := new(ownersJSON)
	if err := boundjson.Unmarshal(body, maxMap, maxMapValues, a); err != nil {
		return nil, fmt.Errorf("tenure: the map of owners is not JSON as it should be: %.200q", err.Error())
	}
	return a, nil
}
