package trace

// CallOf returns the call of an effect that was answered with in.
func CallOf(e *Effect, in *Input) *Call {
	c := &Call{Call: e.Call, Kind: e.Kind, Session: e.Session, Asked: e.hash(), Answer: in.hash()}
	if in.View != nil {
		c = &Call{Kind: observed, Sent: in.SentAt, Full: in.View.Reset, Answer: in.hash()}
	}
	return c
}
