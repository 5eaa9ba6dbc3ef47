package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/follower"
)

const (
	streamName = "DECISIONS"
	subjects   = "decisions.>"

	headerStore    = "Tenure-Store"
	headerPosition = "Tenure-Position" // the value is shard:seq:token
)

// A subject has "~" in place of each dot in the shard's name, which never contains "~". Dots
// separate a subject's tokens, and a subject must not end with a dot.
func subject(shard string) string {
	return "decisions." + strings.ReplaceAll(shard, ".", "~")
}

// A relay is a follower.Applier that publishes decisions and keeps its positions in the broker. A
// relay is safe for concurrent use.
type relay struct {
	js     jetstream.JetStream
	stream jetstream.Stream

	mu   sync.Mutex
	last map[string]message // the last message of each shard
}

// A message has a number in the stream and a position in the log.
type message struct {
	number uint64
	at     follower.Position
}

var _ follower.Applier = (*relay)(nil)

// newRelay creates the stream if it is missing.
func newRelay(ctx context.Context, nc *nats.Conn) (*relay, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	stream, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: streamName, Subjects: []string{subjects}})
	if err != nil {
		return nil, err
	}
	return &relay{js: js, stream: stream, last: make(map[string]message)}, nil
}

// Load returns the positions from the last message on each subject in the broker.
func (r *relay) Load(ctx context.Context) (follower.Checkpoint, error) {
	info, err := r.stream.Info(ctx, jetstream.WithSubjectFilter(subjects))
	if err != nil {
		return follower.Checkpoint{}, err
	}
	var cp follower.Checkpoint
	last := make(map[string]message)
	for name := range info.State.Subjects {
		msg, err := r.stream.GetLastMsgForSubject(ctx, name)
		if err != nil {
			return follower.Checkpoint{}, err
		}
		p, err := follower.ParsePosition(msg.Header.Get(headerPosition))
		if err != nil {
			return follower.Checkpoint{}, fmt.Errorf("message %d of the stream: %w", msg.Sequence, err)
		}
		store := msg.Header.Get(headerStore)
		if cp.Store != "" && cp.Store != store {
			return follower.Checkpoint{}, fmt.Errorf("%w: the stream has decisions of %q and of %q",
				core.ErrStoreChanged, cp.Store, store)
		}
		cp.Store = store
		cp.Positions = append(cp.Positions, p)
		last[p.Shard] = message{msg.Sequence, p}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for shard, m := range last {
		if m.number > r.last[shard].number { // otherwise, Apply has already recorded a newer message
			r.last[shard] = m
		}
	}
	return cp, nil
}

// Apply publishes the entries in order, on the condition that each entry follows the previous one.
// If a reply was lost or another relay was faster, the stream does not end where the batch begins.
// Apply then returns ErrMoved, and the Tailer calls Load.
func (r *relay) Apply(ctx context.Context, b follower.Batch) error {
	shard := b.Shard()
	r.mu.Lock()
	last := r.last[shard]
	r.mu.Unlock()
	if last.at != b.From && last.number > 0 {
		return fmt.Errorf("%w: the stream is at %v", follower.ErrMoved, last.at)
	}
	for _, e := range b.Entries {
		msg := nats.NewMsg(subject(shard))
		msg.Header.Set(headerStore, b.Store)
		at := follower.Position{Shard: shard, Seq: e.Seq, Token: e.Token}
		msg.Header.Set(headerPosition, at.String())
		msg.Header.Set("Tenure-Token", strconv.FormatInt(int64(e.Token), 10))
		msg.Data = e.Payload
		ack, err := r.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(last.number))
		if conflict(err) {
			return fmt.Errorf("%w: the stream has messages after %v: %w", follower.ErrMoved, last.at, err)
		}
		if err != nil {
			return err
		}
		last = message{ack.Sequence, at}
		r.mu.Lock()
		r.last[shard] = last
		r.mu.Unlock()
	}
	return nil
}

func conflict(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}
