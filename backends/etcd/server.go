package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-go/tenure/core/driver"
)

// discover finds out how many operations the server accepts, by reading one key that many times in
// a transaction. Numbers above the default or the configured number are never tried. This is also
// the first call on a connection, so its error shows why there is no connection.
func (s *store) discover(ctx context.Context, key string, configured int) error {
	try := func(n int) error {
		s.maxOps = n
		_, err := s.Get(ctx, slices.Repeat([]string{key}, n)...)
		return err
	}
	want := configured
	if want == 0 {
		want = defaultTxnOps
	}
	err := try(want)
	for n := want / 2; tooMany(err) && configured == 0 && n >= minTxnOps; n /= 2 {
		err = try(n)
	}
	switch {
	case tooMany(err) && configured != 0:
		return fmt.Errorf("tenure: %w: the server takes fewer than Options.MaxTxnOps = %d operations in a "+
			"transaction: lower it, or raise max-txn-ops of all members", driver.ErrInvalid, configured)
	case tooMany(err):
		return fmt.Errorf("tenure: %w: the server takes fewer than %d operations in a transaction: raise max-txn-ops "+
			"of all members", driver.ErrUnsupported, minTxnOps)
	}
	return err
}

func tooMany(err error) bool {
	return err != nil && errors.Is(rpctypes.Error(native(err)), rpctypes.ErrTooManyOps)
}

// After the first member has reported its version, opening waits this long for the others, because
// some members may be down.
const patience = 500 * time.Millisecond

// checkVersions refuses a cluster if any member that answers is too old. To spread processes across
// the members, the result is a random member that answered.
func (c *cluster) checkVersions(ctx context.Context) (first int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	type answer struct {
		member int
		resp   *etcdserverpb.StatusResponse
		err    error
	}
	left := len(c.endpoints)
	answers := make(chan answer, left)
	for i := range left {
		go func() {
			resp, err := etcdserverpb.NewMaintenanceClient(c.members[i].conn).Status(ctx, &etcdserverpb.StatusRequest{})
			answers <- answer{i, resp, err}
		}()
	}
	defer func() {
		cancel()
		for range left {
			<-answers
		}
	}()
	var enough <-chan time.Time
	var served []int
	for left > 0 {
		select {
		case a := <-answers:
			left--
			if a.err != nil {
				err = a.err
				continue
			}
			if err := checkVersion(a.resp.Version); err != nil {
				return 0, fmt.Errorf("%w: %s %w", driver.ErrUnsupported, c.endpoints[a.member], err)
			}
			if served = append(served, a.member); enough == nil {
				enough = time.After(patience)
			}
		case <-enough:
			return served[rand.IntN(len(served))], nil
		}
	}
	if served == nil {
		return 0, fmt.Errorf("no member answers with its version: %w", err)
	}
	return served[rand.IntN(len(served))], nil
}

// checkVersion refuses versions in which reads may be stale after a member was paused.
func checkVersion(version string) error {
	var major, minor, patch int
	if n, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n != 3 {
		return fmt.Errorf("has version %.40q, which cannot be parsed: %w", version, err)
	}
	at := [3]int{major, minor, patch}
	for _, floor := range [][3]int{{3, 5, 28}, {3, 6, 9}} {
		if at[0] == floor[0] && at[1] == floor[1] && at[2] >= floor[2] {
			return nil
		}
	}
	if slices.Compare(at[:], []int{3, 7, 0}) >= 0 {
		return nil
	}
	return fmt.Errorf("is version %.40s, whose reads may be stale after a pause: upgrade it to 3.5.28, 3.6.9, 3.7 "+
		"or later", version)
}

// reach makes one call without credentials, which fails with the reason if there is no connection.
// With a password, clientv3.New would instead wait for a connection.
func reach(ctx context.Context, c clientv3.Config) error {
	c.Username, c.Password, c.Token = "", "", ""
	client, err := clientv3.New(c)
	if err != nil {
		return err
	}
	_, err = etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Status(ctx, &etcdserverpb.StatusRequest{})
	if denied(err) {
		err = nil // an answer suffices
	}
	return errors.Join(err, closed(client))
}

// closed closes a client, and drops the context.Canceled error that Close always returns.
func closed(client *clientv3.Client) error {
	if err := client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
