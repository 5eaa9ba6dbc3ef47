package etcd

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

// refusing is a server that answers every transaction with an error.
type refusing struct {
	etcdserverpb.UnimplementedKVServer
	err   atomic.Pointer[error]
	calls atomic.Int64
}

func (r *refusing) Txn(context.Context, *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	r.calls.Add(1)
	return nil, *r.err.Load()
}

// versioned answers the version query that opening sends.
type versioned struct {
	etcdserverpb.UnimplementedMaintenanceServer
}

func (versioned) Status(context.Context, *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	return &etcdserverpb.StatusResponse{Version: "3.7.3"}, nil
}

// newRefusing starts a refusing server, and connects a store to it.
func newRefusing(t *testing.T) (*refusing, *store) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, server := &refusing{}, grpc.NewServer()
	etcdserverpb.RegisterKVServer(server, r)
	etcdserverpb.RegisterMaintenanceServer(server, versioned{})
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	c := clientv3.Config{Endpoints: []string{listener.Addr().String()}, Logger: zap.NewNop()}
	st, err := connect(t.Context(), newClient(t, c), &Options{MaxTxnOps: 16, MaxRequestBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return r, st
}

// TestErrors: the server's error matches one of the closed set only if the server certainly applied
// nothing (rule E1), and a write is sent once (rule E2).
func TestErrors(t *testing.T) {
	t.Parallel()
	r, st := newRefusing(t)
	write := kv.Batch{Txns: []kv.Txn{{Ops: []kv.Op{{Key: "a", Value: []byte("b")}}}}}
	beat := write
	beat.Heartbeat = true
	for _, c := range []struct {
		err  error
		want error // nil: unknown
		beat error
	}{
		{rpctypes.ErrGRPCNoLeader, driver.ErrRetry, driver.ErrRetry},
		{rpctypes.ErrGRPCRequestTooManyRequests, driver.ErrRetry, driver.ErrRetry},
		{rpctypes.ErrGRPCPermissionDenied, driver.ErrRetry, driver.ErrRetry},
		{rpctypes.ErrGRPCInvalidAuthToken, driver.ErrRetry, driver.ErrRetry},
		{rpctypes.ErrGRPCAuthOldRevision, driver.ErrRetry, driver.ErrRetry},
		{rpctypes.ErrGRPCTooManyOps, driver.ErrTooLarge, driver.ErrTooLarge},
		{rpctypes.ErrGRPCRequestTooLarge, driver.ErrTooLarge, driver.ErrTooLarge},
		{rpctypes.ErrGRPCNoSpace, nil, driver.ErrRetry},
		{rpctypes.ErrGRPCTimeout, nil, nil},
		{rpctypes.ErrGRPCTimeoutDueToLeaderFail, nil, nil},
		{rpctypes.ErrGRPCTimeoutDueToConnectionLost, nil, nil},
		{rpctypes.ErrGRPCStopped, nil, nil},
		{rpctypes.ErrGRPCLeaderChanged, nil, nil},
		{rpctypes.ErrGRPCCorrupt, nil, nil},
		{rpctypes.ErrGRPCUnhealthy, nil, nil},
		{status.Error(codes.DeadlineExceeded, "the server's own"), nil, nil},
		{status.Error(codes.Canceled, "by something before the server"), nil, nil},
		{status.Error(codes.Unavailable, "an error of no version yet"), nil, nil},
		{errors.New("anything"), nil, nil},
	} {
		r.err.Store(&c.err)
		for batch, want := range map[*kv.Batch]error{&write: c.want, &beat: c.beat} {
			before := r.calls.Load()
			ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
			_, err := st.Apply(ctx, batch)
			cancel()
			if err == nil || want != nil && !errors.Is(err, want) || want == nil && driver.NotApplied(err) {
				t.Errorf("%v (heartbeat %v) became %v, want %v", c.err, batch.Heartbeat, err, want)
			}
			// A refused token may be sent again, a few times.
			if n := r.calls.Load() - before; n != 1 && (!denied(c.err) || n > maxRefusals) {
				t.Errorf("%v: sent %d times", c.err, n)
			}
		}
	}
}

// TestNothingSent: without a connection, a write was certainly not applied.
func TestNothingSent(t *testing.T) {
	t.Parallel()
	const addr = "127.0.0.1:1" // no process gets a port this low unless it asks for it
	opts, _ := (*Options)(nil).withDefaults()
	st, err := newStore(newClient(t, clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()}), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	batch := &kv.Batch{Txns: []kv.Txn{{Ops: []kv.Op{{Key: "a"}}}}}
	if _, err := st.Apply(bounded(t, ample.Time), batch); !errors.Is(err, driver.ErrRetry) {
		t.Errorf("got %v, want ErrRetry", err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Apply(t.Context(), batch); err == nil || driver.NotApplied(err) {
		t.Errorf("after Close: got %v, want an error outside the closed set", err)
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for version, ok := range map[string]bool{
		"3.5.28": true, "3.5.27": false, "3.5.100": true, "3.6.9": true, "3.6.8": false, "3.7.0": true, "3.7.3": true,
		"3.10.0": true, "4.0.0": true, "3.4.40": false, "2.3.8": false, "3.7.0-rc.1": true, "": false, "latest": false,
	} {
		if err := checkVersion(version); (err == nil) != ok {
			t.Errorf("version %q: %v, want it accepted: %v", version, err, ok)
		}
	}
}

// TestFit: a request never exceeds the server's limit.
func TestFit(t *testing.T) {
	t.Parallel()
	st := &store{maxOps: 128, maxBytes: 4096}
	txn := func(width, bytes int) kv.Txn {
		txn := kv.Txn{Ops: make([]kv.Op, width)}
		txn.Ops[0].Value = make([]byte, bytes)
		return txn
	}
	many := func(n int, t kv.Txn) (out []kv.Txn) {
		for range n {
			out = append(out, t)
		}
		return out
	}
	for _, c := range []struct {
		txns []kv.Txn
		want int
	}{
		{many(1, txn(127, 0)), 0}, // because of the transaction's bytes
		{many(3, txn(1, 1500)), 2},
		{many(300, txn(1, 0)), 42},
	} {
		if n, err := st.fit(nil, singles(c.txns)); n != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%d transactions: got %d, %v, want %d", len(c.txns), n, err, c.want)
		}
	}
	st.maxBytes = 1 << 20
	for width, want := range map[int]int{1: 127, 3: 125, 64: 64, 127: 1, 128: 0} {
		n, err := st.fit(nil, singles(many(300, txn(width, 0))))
		if n != want || errors.Is(err, driver.ErrTooLarge) != (want == 0) {
			t.Errorf("width %d: got %d, %v, want %d", width, n, err, want)
		}
	}
}

func singles(txns []kv.Txn) (units []unit) {
	for i := range txns {
		units = append(units, unit{i, txns[i : i+1]})
	}
	return units
}

// TestCause: a caller's reason for giving up says nothing about the outcome of the call (E1).
func TestCause(t *testing.T) {
	t.Parallel()
	s := &store{life: t.Context()}
	reason := errors.New("a reason")
	for _, cause := range []error{reason, nil, driver.ErrSessionLost, &driver.FencedError{}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		err := s.failed(ctx, status.Error(codes.Canceled, "canceled"), true, false)
		if !driver.Unknown(err) || !errors.Is(err, context.Canceled) || cause == reason && !errors.Is(err, reason) {
			t.Errorf("because of %v: %v", cause, err)
		}
	}
}
