package fence

import (
	"fmt"
	"strconv"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/errtext"
)

const (
	messageFence = "tenure-fence"
	messageSeq   = "tenure-seq"
)

// Message is the metadata of a message that is published for a decision log's entry. The metadata
// has two fields: tenure-fence, in the form that Format returns, and tenure-seq. For each shard, a
// consumer refuses any token lower than the highest token that it has seen. A consumer also drops
// duplicates, which are messages with the same shard and Seq. A message with Seq 0 does not belong
// to any entry.
type Message struct {
	Fence driver.Fence
	Seq   driver.Seq
}

// Set passes the metadata to a function such as a header's Set.
func (m Message) Set(set func(key, value string)) {
	set(messageFence, Format(m.Fence))
	if m.Seq != 0 {
		set(messageSeq, strconv.FormatInt(int64(m.Seq), 10))
	}
}

// ReadMessage reads the metadata with a function such as a header's Get, which returns "" for a
// missing key. The error matches driver.ErrInvalid.
func ReadMessage(get func(key string) string) (Message, error) {
	f, err := Parse(get(messageFence))
	if err != nil {
		return Message{}, errtext.Errorf("tenure: %s: %w", messageFence, err)
	}
	m := Message{Fence: f}
	if text := get(messageSeq); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n <= 0 {
			return Message{}, fmt.Errorf("tenure: %w: %s %.40q is not a positive number", driver.ErrInvalid, messageSeq,
				text)
		}
		m.Seq = driver.Seq(n)
	}
	return m, nil
}
