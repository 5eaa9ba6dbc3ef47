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

// Watch is one stream of etcd with a watch for each prefix. It ends with the connection, or when
// the member loses its leader. The caller then begins a new one at the revision that it has seen.
// Progress notifications advance that revision while nothing changes, so that it is not compacted.
// Each prefix has its own order of revisions; rev is the revision that all have reached.
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
				Fragment: true, // otherwise one answer has all changes since after, of any size
			},
		}})
		if err != nil {
			break // Recv returns the reason
		}
	}
	held := make([][]*mvccpb.Event, len(prefixes)) // of a revision whose other changes have not arrived
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
		// The header of an answer with events may be ahead of events that have not arrived.
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

// checkWatch returns the error of a watch that cannot continue, or that waits for a revision
// above the store's. In the second case, the store was replaced, or went back.
func (s *store) checkWatch(ctx context.Context, resp *etcdserverpb.WatchResponse, prefix string, after kv.Rev) error {
	switch {
	case resp.CompactRevision != 0:
		return kv.ErrCompacted
	case resp.Canceled:
		return fmt.Errorf("tenure: etcd ended a watch: %w", errors.New(resp.CancelReason))
	case resp.Created && kv.Rev(resp.Header.GetRevision()) < after:
		// A member that lags returns no revision either, and a read waits for it.
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
