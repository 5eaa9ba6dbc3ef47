package bucket

import (
	"context"
	"time"
)

// save writes a checkpoint in a goroutine, unless one is being written. The caller holds store.mu.
func (s *store) save(c *checkpoint) {
	if s.saving || s.closed {
		return
	}
	s.saving = true
	s.running.Go(func() {
		err := s.writeAndCollect(s.life, c)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.saving = false
		switch {
		case err == nil:
			s.failures = 0
		case s.life.Err() == nil:
			if s.failures++; s.failures&(s.failures-1) == 0 {
				s.logger.Warn("tenure: a checkpoint or the deletion of old objects failed; the log grows until one succeeds",
					"namespace", s.namespace, "number", c.number, "failures", s.failures, "err", err)
			}
		}
	})
}

// writeAndCollect writes a checkpoint, reads it again, and deletes what is no longer needed.
func (s *store) writeAndCollect(ctx context.Context, c *checkpoint) error {
	if err := s.writeCheckpoint(ctx, c); err != nil {
		return err
	}
	if _, err := s.readCheckpoint(ctx, c.number); err != nil {
		return err
	}
	return s.collect(ctx, c.number)
}

// collect deletes the objects before the last checkpoint but one, in ascending order. It ends with
// the first deletion that is not acknowledged. Of the last entries, keep stay.
func (s *store) collect(ctx context.Context, last int64) error {
	numbers, err := s.checkpoints(ctx)
	if err != nil || len(numbers) < 2 {
		return err
	}
	former := numbers[len(numbers)-2]
	for floor := min(former, last-s.keep); ; {
		entries, err := s.list(ctx, "!log/")
		if err != nil {
			return err
		}
		for _, n := range entries {
			if n >= floor {
				entries = nil
				break
			}
			if err := s.remove(ctx, s.logName(n)); err != nil {
				return err
			}
		}
		if len(entries) == 0 {
			break
		}
		wait(ctx, 10*time.Millisecond)
	}
	for _, n := range numbers {
		if n >= former {
			break
		}
		if err := s.remove(ctx, s.checkpointName(n)); err != nil {
			return err
		}
	}
	return nil
}
