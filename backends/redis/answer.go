package redis

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

// These constants are the first words of the scripts' answers.
const (
	answerHistory  = "history"  // the server's history differs from the one that the call expects
	answerLost     = "lost"     // records or their names are missing
	answerRefused  = "refused"  // then revision, records of the guard
	answerApplied  = "applied"  // then revision, and for each transaction 1 or 0, the value for Prev, records
	answerRead     = "read"     // then revision, records; for a range: whether it continues, names and records
	answerMoved    = "moved"    // the recorded history differs from the expected one; then revision
	answerRecorded = "recorded" // then the recorded history
)

var (
	errHistory = errors.New("the server was restarted, or another one answers")
	errLost    = fmt.Errorf("%w: its identity or other records are missing: they were deleted or evicted", driver.ErrStoreChanged)
	errShape   = errors.New("tenure: Redis answered in another form than the script's")
)

// answer is a script's reply, which is read from left to right.
type answer struct {
	items []any
	wrong bool

	history  *history // of the answering server
	unproven error    // see outcome
	at       kv.Rev   // namespace's revision, for a page of a range
}

// newAnswer returns a script's answer and its first word, which must be one of the given words.
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

// pair returns the next record.
func (a *answer) pair(key string) kv.Pair {
	item := a.next()
	if item == nil {
		return kv.Pair{Key: key}
	}
	record, _ := item.(string)
	rev, value, ok := strings.Cut(record, " ")
	if rev, length, long := strings.Cut(rev, ":"); long && !ok { // longer than kv.Range.Largest
		n, err := strconv.ParseInt(rev, 10, 64)
		size, sizeErr := strconv.Atoi(length)
		a.wrong = a.wrong || n <= 0 || size <= 0 || err != nil || sizeErr != nil
		return kv.Pair{Key: key, Rev: kv.Rev(n), Long: size}
	}
	n, err := strconv.ParseInt(rev, 10, 64)
	a.wrong = a.wrong || !ok || err != nil || n <= 0
	return kv.Pair{Key: key, Value: []byte(value), Rev: kv.Rev(n)}
}

// end returns an error if the answer is too short or too long.
func (a *answer) end() error {
	if a.wrong || len(a.items) > 0 {
		return errShape
	}
	return nil
}
