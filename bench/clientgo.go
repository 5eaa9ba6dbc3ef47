package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// Kubernetes components use these durations. The record contains whole seconds.
const (
	clientGoLease = 15 * time.Second
	clientGoRenew = 10 * time.Second
	clientGoRetry = 2 * time.Second
)

// joinClientGo creates an elector for each shard. Because the benchmark runs without Kubernetes,
// the elector's record is an etcd key. The place's TTL is ignored.
func joinClientGo(_ context.Context, at place) (member, error) {
	client, err := etcdClient(at.DSN)
	if err != nil {
		return nil, err
	}
	l := newLocks(at)
	l.leave = func() error {
		l.calls.Wait()
		var all sync.WaitGroup
		for _, unlock := range l.held {
			all.Go(func() { _ = unlock(context.Background()) })
		}
		all.Wait()
		return client.Close()
	}
	l.take = func(ctx context.Context, shard string) (write, unlock func(context.Context) error, err error) {
		record := &keyLock{client: client, key: at.Namespace + "/" + shard, identity: at.Node}
		started, ended := make(chan struct{}), make(chan struct{})
		e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: record, LeaseDuration: clientGoLease, RenewDeadline: clientGoRenew, RetryPeriod: clientGoRetry,
			ReleaseOnCancel: true, Name: shard,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { close(started) },
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			return nil, nil, err
		}
		run, stop := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.Discard()))
		go func() { defer close(ended); e.Run(run) }()
		unlock = func(context.Context) error {
			stop()
			<-ended
			return nil
		}
		select {
		case <-started:
		case <-ctx.Done():
			return nil, nil, errors.Join(context.Cause(ctx), unlock(ctx))
		}
		write = func(ctx context.Context) error { // it has no fence
			_, err := client.Put(ctx, at.Namespace+"-written/"+shard, string(body()))
			return err
		}
		return write, unlock, nil
	}
	return l, nil
}

// A keyLock is a resourcelock.Interface that uses one etcd key.
type keyLock struct {
	client        *clientv3.Client
	key, identity string

	mu       sync.Mutex
	revision int64 // revision of the record last read or written; 0: none
}

func (k *keyLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, err := k.client.Get(ctx, k.key)
	if err != nil {
		return nil, nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.revision = 0
	if len(r.Kvs) == 0 {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "keys"}, k.key)
	}
	k.revision = r.Kvs[0].ModRevision
	var record resourcelock.LeaderElectionRecord
	return &record, r.Kvs[0].Value, json.Unmarshal(r.Kvs[0].Value, &record)
}

func (k *keyLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return k.put(ctx, 0, record)
}

func (k *keyLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	k.mu.Lock()
	revision := k.revision
	k.mu.Unlock()
	return k.put(ctx, revision, record)
}

func (k *keyLock) put(ctx context.Context, revision int64, record resourcelock.LeaderElectionRecord) error {
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	r, err := k.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(k.key), "=", revision)).
		Then(clientv3.OpPut(k.key, string(text))).Commit()
	if err != nil {
		return err
	}
	if !r.Succeeded {
		return fmt.Errorf("%s has changed", k.key)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.revision = r.Header.Revision
	return nil
}

func (k *keyLock) RecordEvent(string) {}
func (k *keyLock) Identity() string   { return k.identity }
func (k *keyLock) Describe() string   { return k.key }
