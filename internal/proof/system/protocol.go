package system

import (
	"encoding/json"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/harness"
)

type memberConfig struct {
	Opener    string          `json:"opener"`
	Options   json.RawMessage `json:"options"`
	Node      string          `json:"node"`
	Process   string          `json:"process"` // the incarnation, such as "m1.2"
	Supersede bool            `json:"supersede"`
	Shards    []string        `json:"shards"`
	TTL       time.Duration   `json:"ttl"`
	Pace      time.Duration   `json:"pace"`
	Seed      uint64          `json:"seed"`
	Control   bool            `json:"control"`
	History   string          `json:"history"` // files to create
	Journal   string          `json:"journal"`
}

// An order is any line that a member reads after the first line.
type order struct {
	Do    orderKind        `json:"do"`
	Shard driver.ShardID   `json:"shard,omitempty"`
	Where harness.Point    `json:"where,omitempty"` // for doHold
	To    driver.SessionID `json:"to,omitempty"`    // for doHandOver
	For   time.Duration    `json:"for,omitempty"`   // time until it contends again
}

type orderKind string

const (
	doHold     orderKind = "hold"     // hold the shard's next write, at a point
	doSend     orderKind = "send"     // send the held write, and stop holding
	doWithdraw orderKind = "withdraw" // withdraw the shard
	doHandOver orderKind = "handover" // hand the shard over
	doCalm     orderKind = "calm"     // end the wire's faults
	doLeave    orderKind = "leave"
)

// event is a line that a member writes.
type event struct {
	Is    eventKind    `json:"is"`
	Token driver.Token `json:"token,omitempty"` // for isHeld
}

type eventKind string

const (
	isUp   eventKind = "up"   // the store is open, and the elector runs
	isHeld eventKind = "held" // a write waits
	isSent eventKind = "sent" // it was sent to the store, and was answered or abandoned
	isLeft eventKind = "left" // all shards were released
)
