package follower

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/core"
)

// Position is the last applied entry of a shard's log: its number and its token. If Seq is 0,
// nothing was applied. It is a value, comparable with ==.
type Position struct {
	Shard string
	Seq   core.Seq
	Token core.Token
}

// String returns the position as "shard:seq:token", which ParsePosition reads. The position is no
// secret: it may travel in a cookie or a header to the replica that serves the next read.
func (p Position) String() string {
	return p.Shard + ":" + strconv.FormatInt(int64(p.Seq), 10) + ":" + strconv.FormatInt(int64(p.Token), 10)
}

// ParsePosition reads only the form that String writes. A position from outside may name any shard;
// WaitFor refuses a shard that is not followed. The error matches core.ErrInvalid.
func ParsePosition(s string) (Position, error) {
	parts := strings.SplitN(s, ":", 4)
	if len(parts) != 3 {
		return Position{}, badPosition(s)
	}
	seq, err1 := strconv.ParseInt(parts[1], 10, 64)
	token, err2 := strconv.ParseInt(parts[2], 10, 64)
	p := Position{Shard: parts[0], Seq: core.Seq(seq), Token: core.Token(token)}
	if err1 != nil || err2 != nil || p.String() != s {
		return Position{}, badPosition(s)
	}
	if err := p.check(); err != nil {
		return Position{}, err
	}
	return p, nil
}

// check refuses positions that no log can have.
func (p Position) check() error {
	if err := core.CheckShard(p.Shard); err != nil {
		return err
	}
	if p.Seq < 0 || p.Token < 0 || p.Seq > 0 && p.Token == 0 {
		return badPosition(p.String())
	}
	return nil
}

func badPosition(s string) error {
	return fmt.Errorf("tenure: %w: position %.200q is not shard:seq:token, with neither below 0 and no entry without "+
		"a token", core.ErrInvalid, s)
}
