package fence

import (
	"fmt"
	"strconv"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/errtext"
)

// The names of the metadata fields in which a message carries its fence and number.
const (
	MessageFence = "tenure-fence"
	MessageSeq   = "tenure-seq"
)

// Message is the metadata of a message published for an entry of a decision log. A consumer refuses
// a token lower than one that it has seen for the shard. It drops duplicates, which it identifies
// by shard and number. A message with Seq 0 is not for an entry.
type Message struct {
	Fence driver.Fence
	Seq   driver.Seq
}

// Set writes the metadata with a function such as a header's Set.
func (m Message) Set(set func(key, value string)) {
	set(MessageFence, Format(m.Fence))
	if m.Seq != 0 {
		set(MessageSeq, strconv.FormatInt(int64(m.Seq), 10))
	}
}

// ReadMessage reads the metadata with a function such as a header's Get, which returns "" for a
// missing key. The error matches driver.ErrInvalid.
func ReadMessage(get func(key string) string) (Message, error) {
	f, err := Parse(get(MessageFence))
	if err != nil {
		return Message{}, errtext.Errorf("tenure: %s: %w", MessageFence, err)
	}
	m := Message{Fence: f}
	if text := get(MessageSeq); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n <= 0 {
			return Message{}, fmt.Errorf("tenure: %w: %s %.40q is not a positive number", driver.ErrInvalid, MessageSeq,
				text)
		}
		m.Seq = driver.Seq(n)
	}
	return m, nil
}
