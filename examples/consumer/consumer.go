package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/tenurefx"
)

const (
	streamName = "DEPOSITS"
	subjects   = "deposits.>"

	lastItem    = "last" // the item with the number of the last message booked
	balanceItem = "balance/"
)

// The number of shards never changes, because the subjects of published messages contain the
// shards' names.
const shards = 8

func shard(account string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(account)) // never fails
	return fmt.Sprintf("accounts-%04d", h.Sum64()%shards)
}

// The message books an amount in cents to an account.
func deposit(account string, cents int64) (subject string, payload []byte) {
	return "deposits." + shard(account), []byte(account + " " + strconv.FormatInt(cents, 10))
}

// The handler books the deposits of one shard while this process owns it.
func handler(stream jetstream.Stream) tenurefx.ShardHandler {
	return func(ctx context.Context, lease *core.Lease) error {
		last, err := number(ctx, lease, lastItem)
		if err != nil {
			return err
		}
		consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
			FilterSubjects: []string{"deposits." + lease.Shard()},
			DeliverPolicy:  jetstream.DeliverByStartSequencePolicy, OptStartSeq: uint64(last) + 1,
		})
		if err != nil {
			return err
		}
		for ctx.Err() == nil {
			wait, cancel := context.WithTimeout(ctx, time.Second)
			msg, err := consumer.Next(jetstream.FetchContext(wait))
			cancel()
			switch {
			case ctx.Err() != nil:
				return nil // the handler was asked to stop
			case errors.Is(err, jetstream.ErrNoMessages), errors.Is(err, nats.ErrTimeout),
				errors.Is(err, context.DeadlineExceeded):
				continue
			case err != nil:
				return err
			}
			if err := book(lease, msg); err != nil {
				return err
			}
		}
		return nil
	}
}

// The balance and the message's number are written in one step, under the fence.
func book(lease *core.Lease, msg jetstream.Msg) error {
	meta, err := msg.Metadata()
	if err != nil {
		return err
	}
	account, text, _ := strings.Cut(string(msg.Data()), " ")
	cents, err := strconv.ParseInt(text, 10, 64)
	if err != nil || account == "" {
		return fmt.Errorf("message %d is no deposit", meta.Sequence.Stream)
	}
	ctx := lease.Context() // the handler finishes a message that it has begun
	balance, err := number(ctx, lease, balanceItem+account)
	if err != nil {
		return err
	}
	_, err = lease.Commit(ctx,
		core.Put(balanceItem+account, strconv.AppendInt(nil, balance+cents, 10)),
		core.Put(lastItem, strconv.AppendUint(nil, meta.Sequence.Stream, 10)))
	return err
}

// The number is 0 if the item is missing.
func number(ctx context.Context, lease *core.Lease, key string) (int64, error) {
	item, err := lease.Get(ctx, key)
	if err != nil || item == nil {
		return 0, err
	}
	return strconv.ParseInt(string(item.Value), 10, 64)
}
