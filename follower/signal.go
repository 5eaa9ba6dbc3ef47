package follower

// signal wakes the goroutines that wait for a change. Both methods are called under one mutex.
type signal struct{ ch chan struct{} }

// wait returns a channel that the next wake closes.
func (s *signal) wait() <-chan struct{} {
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) wake() {
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
