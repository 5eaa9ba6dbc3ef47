package redis

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

// Words that begin the answers of the scripts.
const (
	answerHistory  = "history"  // the server has another history than the call expects
	answerLost     = "lost"     // records are missing, or their names
	answerRefused  = "refused"  // revision, records of the guard
	answerApplied  = "applied"  // revision, then for each transaction 1 or 0, what Prev asks for, records
	answerRead     = "read"     // revision, records; a range: whether it goes on, names and records
	answerMoved    = "moved"    // the history on record is another one than expected; revision
	answerRecorded = "recorded" // the history on record
)

var (
	errHistory = errors.New("the server was restarted, or another one answers")
	errLost    = fmt.Errorf("%w: its identity or other records are missing: they were deleted or evicted", driver.ErrStoreChanged)
	errShape   = errors.New("tenure: Redis answered in another form than the script's")
)

// answer reads what a script returned, from the left.
type answer struct {
	items []any
	wrong bool

	history  *history // of the server that answered
	unproven error    // of outcome
	at       kv.Rev   // the namespace's revision, of a page of a range
}

// newAnswer checks the first word.
func newAnswer(reply any, words ...string) (*answer, string, error) {
	items, _ := reply.([]any)
	a := &answer{items: items}
	word := a.text()
	switch {
	case word == answerHistory:
		return nil, "", errHistory
	case word == answerLost:
		return nil, "", errLost
	}
	for _, w := range words {
		if word == w {
			return a, word, nil
		}
	}
	return nil, "", errShape
}

func (a *answer) next() any {
	if len(a.items) == 0 {
		a.wrong = true
		return nil
	}
	item := a.items[0]
	a.items = a.items[1:]
	return item
}

func (a *answer) text() string {
	s, ok := a.next().(string)
	a.wrong = a.wrong || !ok
	return s
}

func (a *answer) number() int64 {
	n, ok := a.next().(int64)
	a.wrong = a.wrong || !ok
	return n
}

func (a *answer) rev() kv.Rev {
	n, err := strconv.ParseInt(a.text(), 10, 64)
	a.wrong = a.wrong || err != nil
	return kv.Rev(n)
}

// pair is the next record.
func (a *answer) pair(key string) kv.Pair {
	item := a.next()
	if item == nil {
		return kv.Pair{Key: key}
	}
	record, _ := item.(string)
	rev, value, ok := strings.Cut(record, " ")
	n, err := strconv.ParseInt(rev, 10, 64)
	a.wrong = a.wrong || !ok || err != nil || n <= 0
	return kv.Pair{Key: key, Value: []byte(value), Rev: kv.Rev(n)}
}

// end is the error of an answer that is too short or too long.
func (a *answer) end() error {
	if a.wrong || len(a.items) > 0 {
		return errShape
	}
	return nil
}
