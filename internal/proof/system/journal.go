package system

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/history"
)

// note is one line of a member's journal. The journal contains the handlers' calls and the answers,
// as an application sees them. The history contains the calls to the store.
type note struct {
	Is    noteKind        `json:"is"`
	At    history.Instant `json:"at"`
	Shard driver.ShardID  `json:"shard"`
	Token driver.Token    `json:"token"`

	N      int64      `json:"n,omitempty"`      // of a write: its number in this process
	Digest string     `json:"digest,omitempty"` // of a write: digest of its payload
	Out    outcome    `json:"out,omitempty"`    // of noteWrote
	Seq    driver.Seq `json:"seq,omitempty"`    // of noteWrote
	Why    string     `json:"why,omitempty"`    // of noteWrote and noteStopped; of noteBeat: its error
	Wrong  string     `json:"wrong,omitempty"`  // of noteWrong

	Took history.Instant  `json:"took,omitempty"` // of noteBeat, noteSlow, noteStill and noteHeard: duration until At
	Peer driver.SessionID `json:"peer,omitempty"` // of noteEvicted and noteHeard
}

type noteKind string

const (
	noteStarted noteKind = "started" // the handler was called
	noteStopped noteKind = "stopped" // the handler returns, because of Why
	noteWrites  noteKind = "writes"  // a write is about to be made
	noteWrote   noteKind = "wrote"   // the write ended, with its outcome
	noteWrong   noteKind = "wrong"   // an impossible value was read under a valid lease
	noteBeat    noteKind = "beat"    // a heartbeat that was not lost on the wire ended
	noteSlow    noteKind = "slow"    // a heartbeat or a ping that took more than TTL/20 ended
	noteStill   noteKind = "still"   // this process did not run for more than TTL/20
	noteHeard   noteKind = "heard"   // a heartbeat of Peer was seen, Took before At
	noteEvicted noteKind = "evicted" // the member reports that it evicted Peer
)

// outcome is core's answer to a write.
type outcome string

const (
	wasAccepted outcome = "accepted"
	wasRefused  outcome = "refused" // certainly not applied
	wasUnknown  outcome = "unknown"
)

// journal writes notes into a file. Each note is written immediately, so a killed process never
// loses a note. A journal is safe for concurrent use.
type journal struct {
	mu   sync.Mutex
	file *os.File
	err  error // first failure
}

func createJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("tenure: system: journal: %w", err)
	}
	return &journal{file: f}, nil
}

func (j *journal) add(n note) {
	n.At = history.Now()
	b, err := json.Marshal(n)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil {
		_, err = j.file.Write(append(b, '\n'))
	}
	if j.err == nil && err != nil {
		j.err = fmt.Errorf("tenure: system: journal: %w", err)
	}
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return errors.Join(j.err, j.file.Close())
}

// loadJournal reads a journal. A killed process may leave an incomplete last line, which
// loadJournal ignores.
func loadJournal(path string) ([]note, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("tenure: system: journal: %w", err)
	}
	var notes []note
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			break
		}
		var n note
		if err := json.Unmarshal(b[:i], &n); err != nil {
			return nil, fmt.Errorf("tenure: system: journal %s: line %d: %w", path, len(notes)+1, err)
		}
		notes, b = append(notes, n), b[i+1:]
	}
	return notes, nil
}

// payload is the content of a log entry, and of the shard's item. A payload contains the writer's
// process, and the token and head that the writer believes to be current.
type payload struct {
	Process string       `json:"process"`
	N       int64        `json:"n"`
	Token   driver.Token `json:"token"`
	Head    driver.Seq   `json:"head"` // of the log, before this entry
}

func (p payload) encode() []byte {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return b
}

func decodePayload(b []byte) (p payload, err error) {
	err = json.Unmarshal(b, &p)
	return p, err
}
