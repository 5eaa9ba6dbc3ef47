package sidecar

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/lock"
)

const maxWait = time.Hour

type lockBody struct {
	contendBody
	Wait int64 `json:"wait_ms"`
}

func (s *Server) lock(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("lock")
	shard := driver.LockPrefix + name
	if core.CheckShard(shard) != nil {
		fail(w, refuse(http.StatusBadRequest, codeInvalid,
			`%.200q is no name of a lock: it has 1 to %d letters, digits, ".", "_" and "-"`, name, lock.MaxName))
		return
	}
	var body lockBody
	done, err := s.decode(w, r, optional(&body))
	if err != nil {
		fail(w, err)
		return
	}
	done()
	ttl, err := body.time(s)
	if most := maxWait.Milliseconds(); err == nil && (body.Wait < 0 || body.Wait > most) {
		err = refuse(http.StatusBadRequest, codeInvalid, "wait_ms %d is outside 0 to %d", body.Wait, most)
	}
	if err != nil {
		fail(w, err)
		return
	}
	c := newTenancy(s, shard, ttl)
	c.lock = true
	if err := s.admit(c); err != nil {
		fail(w, err)
		return
	}
	k, err := s.take(r.Context(), name, time.Duration(body.Wait)*time.Millisecond)
	if err != nil {
		s.leave(c)
		fail(w, err)
		return
	}
	out := newStream(w)
	s.followLock(r.Context(), c, k, out)
	_ = out.event("lease", c.state(), writeTime)
}

// If the time limit is 0, take waits only for the store's answer.
func (s *Server) take(ctx context.Context, name string, wait time.Duration) (*lock.Lock, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(s.asked, func() { cancel(context.Cause(s.asked)) })
	defer stop()
	call, most := s.locks.Lock, wait
	if wait == 0 {
		call, most = s.locks.TryLock, s.callTime
	}
	limited, end := context.WithTimeout(ctx, most)
	defer end()
	k, err := call(limited, name)
	if errors.Is(err, lock.ErrHeld) && ctx.Err() == nil {
		err = refuse(http.StatusConflict, codeHeld, "lock %q is held by somebody else: try again, or with a longer wait_ms", name)
	}
	return k, err
}

// followLock holds a lock while its client is alive, and then releases it.
func (s *Server) followLock(ctx context.Context, c *tenancy, k *lock.Lock, out *stream) {
	held, cancel := context.WithCancelCause(k.Context())
	defer cancel(nil)
	stop := context.AfterFunc(s.asked, func() { cancel(context.Cause(s.asked)) })
	defer stop()
	c.begin()
	c.grant(k.Lease, nil)
	left := make(chan struct{})
	go func() {
		defer close(left)
		c.hold(held, k.Lease)
	}()
	s.follow(ctx, c, out)
	<-left
	s.giveBack(c, func(ctx context.Context) error {
		if err := k.Unlock(ctx); !errors.Is(err, core.ErrLost) {
			return err
		}
		return nil
	})
}

// The client's TTL begins when the lock is granted.
func (c *tenancy) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = time.Now().Add(c.ttl)
}
