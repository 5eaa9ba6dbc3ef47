package fsm

import (
	"fmt"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// showInput and showEffect return one line each, for traces and scripts.

func showInput(in *Input) string {
	var b strings.Builder
	switch in.Kind {
	case InWake:
		b.WriteString("wake")
	case InWant:
		fmt.Fprintf(&b, "want %s", in.Shard)
	case InUnwant:
		fmt.Fprintf(&b, "unwant %s", in.Shard)
		if in.To != "" {
			fmt.Fprintf(&b, " to %s", in.To)
		}
	case InDrained:
		fmt.Fprintf(&b, "drained %s token %d", in.Shard, in.Token)
	case InStalled:
		fmt.Fprintf(&b, "stalled %s token %d", in.Shard, in.Token)
	case InFenced:
		fmt.Fprintf(&b, "fenced %s token %d by %s", in.Shard, in.Token, showOwner(in.Owner))
	case InObserved:
		b.WriteString("observed " + showView(in.View))
	case InLeave:
		b.WriteString("leave")
	case InPrefer:
		fmt.Fprintf(&b, "prefer %v for %v", in.Heirs, in.Shards)
	case InUpdate:
		fmt.Fprintf(&b, "update to weight %d", in.State.Weight)
	case InEligible:
		fmt.Fprintf(&b, "not eligible: %q", in.Reason)
	case InJoined, InBeaten, InAcquired, InTransferred, InReleased, InEvicted, InUpdated, InRead, InClosed:
		names := [...]string{"joined", "beaten", "acquired", "transferred", "released", "evicted", "updated", "read", "closed"}
		fmt.Fprintf(&b, "%s #%d", names[in.Kind-InJoined], in.Call)
		for i := range in.Results {
			if r := &in.Results[i]; r.Err != nil {
				fmt.Fprintf(&b, " (%v)", r.Err)
			} else {
				fmt.Fprintf(&b, " %s", showFence(r.Fence))
			}
		}
		for _, r := range in.Evictions {
			fmt.Fprintf(&b, " %v/%d", r.Evicted, r.Current)
		}
	default:
		fmt.Fprintf(&b, "input %d", in.Kind)
	}
	if in.Err != nil {
		fmt.Fprintf(&b, ": %v", in.Err)
	}
	return b.String()
}

func showEffect(e *Effect) string {
	var b strings.Builder
	call := func(name string) {
		fmt.Fprintf(&b, "%s #%d", name, e.Call)
	}
	switch e.Kind {
	case EffJoin:
		call("join")
		fmt.Fprintf(&b, " as %s", e.Session)
		if e.Member.Supersede {
			b.WriteString(" superseding")
		}
	case EffBeat:
		call("beat")
	case EffAcquire:
		call("acquire")
		for _, c := range e.Claims {
			fmt.Fprintf(&b, " %s seen %s", c.Shard, showOwner(c.Seen))
		}
	case EffTransfer:
		call("transfer")
		for _, h := range e.Transfers {
			fmt.Fprintf(&b, " %s to %s", showFence(h.Fence), h.To)
		}
	case EffRelease:
		call("release")
		for _, f := range e.Fences {
			fmt.Fprintf(&b, " %s", showFence(f))
		}
	case EffEvict:
		call("evict")
		for _, s := range e.Suspects {
			fmt.Fprintf(&b, " %s version %d", s.Session, s.Version)
		}
	case EffUpdate:
		call("update")
		fmt.Fprintf(&b, " %d", e.State.Update)
	case EffRead:
		call("read")
	case EffClose:
		call("close")
		fmt.Fprintf(&b, " of %s", e.Session)
	case EffResync:
		b.WriteString("resync")
	case EffGrant:
		fmt.Fprintf(&b, "grant %s until %s", showFence(e.Fence), showInstant(e.Until))
		if !e.HeadKnown {
			b.WriteString(", head unknown")
		}
	case EffExtend:
		fmt.Fprintf(&b, "extend until %s", showInstant(e.Until))
	case EffRevoke:
		fmt.Fprintf(&b, "revoke %s: %v", showFence(e.Fence), e.Cause)
	case EffSettled:
		fmt.Fprintf(&b, "settled %s: %v", showFence(e.Fence), e.Outcome)
		switch e.Outcome {
		case OutcomeTransferred, OutcomeUnknown:
			fmt.Fprintf(&b, ": %s", showOwner(e.Owner))
		case OutcomeLost:
			fmt.Fprintf(&b, ": %v", e.Cause)
		}
	case EffYield:
		fmt.Fprintf(&b, "yield %s: %v", showFence(e.Fence), e.Cause)
	case EffEvent:
		fmt.Fprintf(&b, "event: %v", e.Event)
		if e.Peer.Session != "" {
			fmt.Fprintf(&b, " %s", e.Peer.Session)
		}
		if e.Err != nil {
			fmt.Fprintf(&b, ": %v", e.Err)
		}
	default:
		fmt.Fprintf(&b, "effect %d", e.Kind)
	}
	return b.String()
}

var outcomeNames = [...]string{
	OutcomeReleased: "released", OutcomeTransferred: "transferred", OutcomeUnknown: "unknown",
	OutcomeRefused: "refused", OutcomeLost: "lost",
}

func (o Outcome) String() string {
	if int(o) < len(outcomeNames) && outcomeNames[o] != "" {
		return outcomeNames[o]
	}
	return "none"
}

func showInstant(t Instant) string {
	if t == Never {
		return "never"
	}
	return time.Duration(t).Round(time.Millisecond).String()
}

func showFence(f driver.Fence) string { return fmt.Sprintf("%s/%s/%d", f.Shard, f.Session, f.Token) }

func showOwner(o driver.Owner) string {
	if o == (driver.Owner{}) {
		return "nothing"
	}
	if o.Session == "" {
		return fmt.Sprintf("free/%d", o.Token)
	}
	return fmt.Sprintf("%s/%d", o.Session, o.Token)
}

func showView(v *driver.View) string {
	if v == nil {
		return "nil"
	}
	var b strings.Builder
	if v.Reset {
		b.WriteString("all")
	}
	for _, m := range v.Members {
		fmt.Fprintf(&b, " +%s", m.Session)
	}
	for _, g := range v.Gone {
		fmt.Fprintf(&b, " -%s", g)
	}
	for _, x := range v.Beats {
		fmt.Fprintf(&b, " %s@%d", x.Session, x.Version)
	}
	for _, s := range v.Shards {
		fmt.Fprintf(&b, " %s=%s", s.Shard, showOwner(s.Owner))
	}
	return strings.TrimSpace(b.String())
}
