package main

import "time"

// The director and its members exchange lines of JSON. A member reads a memberConfig and then
// orders from standard input, and exits at the end of its input. Members write events to standard
// output.

const memberEnv = "TENURE_DEMO_MEMBER"

type memberConfig struct {
	Node      string        `json:"node"`
	Backend   string        `json:"backend"`
	DSN       string        `json:"dsn"`
	Namespace string        `json:"namespace"`
	Flights   string        `json:"flights,omitempty"` // path of the flights file; if empty, the embedded file
	TTL       time.Duration `json:"ttl"`
	Unfenced  bool          `json:"unfenced,omitempty"`
	Process   string        `json:"process"`            // name of this process of the member, such as "member-1.5"
	Measured  bool          `json:"measured,omitempty"` // the member reports heartbeats and metrics
	Calls     string        `json:"calls"`              // file that the member creates for its calls and their answers
}

const (
	doRelease = "release" // departures before position Upto may be decided
	doHold    = "hold"    // hold the next write of Airport at the gate
	doSend    = "send"    // send the held writes
	doDrain   = "drain"   // hand everything over, and continue without airports
	doShow    = "show"    // report the board
	doLeave   = "leave"   // hand everything over and exit
)

type order struct {
	Do      string `json:"do"`
	Upto    int    `json:"upto,omitempty"`
	Airport string `json:"airport,omitempty"`
}

const (
	isUp       = "up"       // the member has opened the store and takes part
	isGranted  = "granted"  // the member owns Airport under Token
	isResumed  = "resumed"  // the new owner has read the log and decided what was waiting
	isWrote    = "wrote"    // a write was accepted; the airport has Count decisions
	isEnded    = "ended"    // the lease of Airport under Token ended because of Cause; Planned reports whether the end was planned
	isHeld     = "held"     // Writes have passed every check of the process, and are waiting at the gate
	isAnswered = "answered" // Writes were sent late, with their outcomes
	isPlanned  = "planned"  // a plan that moves Count airports was written because of Cause
	isEmptied  = "emptied"  // the member was drained and no longer owns anything
	isShown    = "shown"    // the board has Count entries and the digest Board; Lags are the delays of entries
	isLeft     = "left"     // the member has released everything
	isBeat     = "beat"     // the store accepted a heartbeat
	isMeasured = "measured" // Metrics are the member's metrics in Prometheus' format
	isTrouble  = "trouble"  // the store refused, or did not answer, because of Cause; the member continues
	isFailed   = "failed"   // the member cannot continue, because of Cause
)

// An event is a message from a member to the director. At is a reading of the host's shared
// monotonic clock, in nanoseconds.
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
	Lags    []int64 `json:"lags,omitempty"` // in microseconds
	Metrics string  `json:"metrics,omitempty"`
}

const (
	wasRefused  = "refused"  // the fence refused the write
	wasAccepted = "accepted" // the store accepted the write
	wasFailed   = "failed"   // any other outcome
)

// The gate describes an airport's fenced writes in this form.
type write struct {
	Airport   string `json:"airport"`
	Token     int64  `json:"token"`
	Departure int    `json:"departure"` // the first departure that it decides
	Count     int    `json:"count"`     // the Count of the write's last decision
	Outcome   string `json:"outcome,omitempty"`
	Current   int64  `json:"current,omitempty"` // the current token, because of which the store refused the write
	Cause     string `json:"cause,omitempty"`
}
