package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/internal/route"
)

// Watch opens one etcd stream with a watch for each prefix. The stream ends when the connection
// ends or the member loses its leader. The caller then starts a new Watch at the last revision
// seen. While nothing changes, progress notifications advance that revision, so that etcd does not
// compact it. Revisions arrive in order within each prefix, and fn receives the revision that all
// prefixes have reached.
func (s *store) Watch(ctx context.Context, prefixes []string, after kv.Rev, fn func(kv.Rev, []kv.Change) error) error {
	t, m, err := s.begin(ctx, (*route.Routes).Watch)
	if err != nil {
		return fmt.Errorf("tenure: watching: %w", err)
	}
	err = finish(ctx, t, s.watch(t.Context, m, prefixes, after, fn))
	s.nudge(err)
	return err
}

func (s *store) watch(
	ctx context.Context, m *member, prefixes []string, after kv.Rev, fn func(kv.Rev, []kv.Change) error,
) error {
	stream, err := m.watch.Watch(ctx, s.opts...)
	if err != nil {
		return fmt.Errorf("tenure: watching: %w", err)
	}
	for i, prefix := range prefixes {
		err := stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
			CreateRequest: &etcdserverpb.WatchCreateRequest{
				Key: []byte(prefix), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(prefix)),
				StartRevision: int64(after) + 1, ProgressNotify: true, WatchId: int64(i) + 1,
				Fragment: true, // otherwise one answer would contain all changes since after, of any size
			},
		}})
		if err != nil {
			break // Recv returns the reason
		}
	}
	held := make([][]*mvccpb.Event, len(prefixes)) // of a revision that is not complete yet
	reached := slices.Repeat([]kv.Rev{after}, len(prefixes))
	for {
		resp, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("tenure: watching: %w", err)
		}
		if err := s.sameCluster(resp.Header); err != nil {
			return err
		}
		if err := s.checkWatch(ctx, resp, prefixes[0], after); err != nil {
			return err
		}
		if resp.Created {
			continue
		}
		i := int(resp.WatchId) - 1
		if i < 0 || i >= len(reached) {
			continue
		}
		// If an answer contains events, the revision in its header may be later than these events.
		rev := kv.Rev(resp.Header.GetRevision())
		events := append(held[i], resp.Events...)
		if n := len(events); resp.Fragment && n > 0 {
			n = slices.IndexFunc(events, func(e *mvccpb.Event) bool { return e.Kv.ModRevision == events[n-1].Kv.ModRevision })
			events, held[i] = events[:n], events[n:]
			rev = reached[i]
		} else {
			held[i] = nil
		}
		changes := make([]kv.Change, len(events))
		for n, e := range events {
			changes[n] = kv.Change{Key: string(e.Kv.Key), Value: e.Kv.Value, Rev: kv.Rev(e.Kv.ModRevision),
				Deleted: e.Type == mvccpb.Event_DELETE}
			rev = changes[n].Rev
		}
		reached[i] = max(reached[i], rev)
		if err := fn(slices.Min(reached), changes); err != nil {
			return err
		}
	}
}

// checkWatch returns the error of a watch that cannot continue, or that waits for a revision above
// the store's own. A lower revision in the store means that it was replaced or restored to an
// earlier state.
func (s *store) checkWatch(ctx context.Context, resp *etcdserverpb.WatchResponse, prefix string, after kv.Rev) error {
	switch {
	case resp.CompactRevision != 0:
		return kv.ErrCompacted
	case resp.Canceled:
		return fmt.Errorf("tenure: etcd ended a watch: %w", errors.New(resp.CancelReason))
	case resp.Created && kv.Rev(resp.Header.GetRevision()) < after:
		// A member that lags behind also returns no revision. The read below waits until the member
		// has caught up.
		page, err := s.scan(ctx, kv.Range{Prefix: prefix, Limit: 1, KeysOnly: true})
		if err != nil {
			return fmt.Errorf("tenure: watching: %w", err)
		}
		if page.Rev < after {
			return kv.ErrCompacted
		}
	}
	return nil
}
