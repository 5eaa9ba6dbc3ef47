package main

import "time"

// The director and its members exchange lines of JSON. A member reads a memberConfig and then
// orders on its standard input, and writes events to its standard output. The end of its input ends
// a member.

// memberEnv marks a child process of the director.
const memberEnv = "TENURE_DEMO_MEMBER"

// memberConfig is the first line that a member reads.
type memberConfig struct {
	Node      string        `json:"node"`
	Backend   string        `json:"backend"`
	DSN       string        `json:"dsn"`
	Namespace string        `json:"namespace"`
	Flights   string        `json:"flights,omitempty"` // path; empty is the embedded file
	TTL       time.Duration `json:"ttl"`
	Unfenced  bool          `json:"unfenced,omitempty"`
	Process   string        `json:"process"`            // this incarnation, such as "member-1.5"
	Measured  bool          `json:"measured,omitempty"` // report heartbeats and metrics
	Calls     string        `json:"calls"`              // file to create, for its calls and their answers
}

// The kinds of orders.
const (
	doRelease = "release" // departures before position Upto may be decided
	doHold    = "hold"    // hold the next write of Airport at the gate
	doSend    = "send"    // send the held writes
	doDrain   = "drain"   // hand everything over and continue without
	doShow    = "show"    // report the board
	doLeave   = "leave"   // hand everything over and exit
)

// An order goes from the director to a member.
type order struct {
	Do      string `json:"do"`
	Upto    int    `json:"upto,omitempty"`
	Airport string `json:"airport,omitempty"`
}

// The kinds of events.
const (
	isUp       = "up"       // the member has opened the store and takes part
	isGranted  = "granted"  // Airport is owned under Token
	isResumed  = "resumed"  // the new owner read the log, and wrote the waiting departures, if any
	isWrote    = "wrote"    // a write was accepted; the airport has Count decisions
	isEnded    = "ended"    // the lease of Airport under Token ended; Planned or not, for Cause
	isHeld     = "held"     // Writes have passed every check of the process and wait at the gate
	isAnswered = "answered" // Writes were sent late, with their outcomes
	isPlanned  = "planned"  // a plan that moves Count airports was written, for Cause
	isEmptied  = "emptied"  // the member was drained and no longer owns anything
	isShown    = "shown"    // the board has Count entries, with the digest Board, each after one of Lags
	isLeft     = "left"     // everything is given back
	isBeat     = "beat"     // the store took a heartbeat
	isMeasured = "measured" // Metrics are the member's, in Prometheus' format
	isTrouble  = "trouble"  // the store refused, or did not answer, because of Cause; the member continues
	isFailed   = "failed"   // the member cannot continue, because of Cause
)

// An event goes from a member to the director. At is the host's monotonic clock in nanoseconds, the
// same in all processes.
type event struct {
	Is      string  `json:"is"`
	At      int64   `json:"at"`
	Airport string  `json:"airport,omitempty"`
	Token   int64   `json:"token,omitempty"`
	Count   int     `json:"count,omitempty"`
	Planned bool    `json:"planned,omitempty"`
	Cause   string  `json:"cause,omitempty"`
	Writes  []write `json:"writes,omitempty"`
	Board   string  `json:"board,omitempty"`
	Lags    []int64 `json:"lags,omitempty"` // microseconds
	Metrics string  `json:"metrics,omitempty"`
}

// The outcomes of a late write.
const (
	wasRefused  = "refused"  // by the fence
	wasAccepted = "accepted" // the store took it
	wasFailed   = "failed"   // anything else
)

// A write is one fenced write of an airport's decisions, seen at the gate.
type write struct {
	Airport   string `json:"airport"`
	Token     int64  `json:"token"`
	Departure int    `json:"departure"` // the first that it decides
	Count     int    `json:"count"`     // of its last decision
	Outcome   string `json:"outcome,omitempty"`
	Current   int64  `json:"current,omitempty"` // the token that refused it
	Cause     string `json:"cause,omitempty"`
}
