package follower

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/core"
)

// Position contains the number and the token of the last applied entry of a shard's log. If Seq is
// 0, no entry was applied. Positions can be compared with ==.
type Position struct {
	Shard string
	Seq   core.Seq
	Token core.Token
}

// String returns the position as "shard:seq:token", which ParsePosition reads. A position is not
// secret, so a cookie or a header can carry it to the replica that serves the client's next read.
func (p Position) String() string {
	return p.Shard + ":" + strconv.FormatInt(int64(p.Seq), 10) + ":" + strconv.FormatInt(int64(p.Token), 10)
}

// ParsePosition parses a position in exactly String's form. A position from a client may name any
// shard, but WaitFor refuses shards that no Applier follows. The error matches core.ErrInvalid.
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
