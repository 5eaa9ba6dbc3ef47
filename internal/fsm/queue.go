package fsm

// queue is a binary heap of the shards that need a step. The heap is ordered by due instant and
// then by index, so that the same inputs always lead to the same run. The queue omits a shard that
// needs no step.
type queue []int32

// schedule makes shard i due at the given instant. The instant Never removes the shard from the
// queue.
func (m *Machine) schedule(i int32, at Instant) {
	s := &m.shards[i]
	s.due = at
	switch {
	case s.slot >= 0 && at == Never:
		k := int(s.slot)
		n := len(m.queue) - 1
		m.place(k, m.queue[n])
		m.queue = m.queue[:n]
		s.slot = -1
		if k < n {
			m.fix(k)
		}
	case s.slot >= 0:
		m.fix(int(s.slot))
	case at != Never:
		m.queue = append(m.queue, i)
		m.place(len(m.queue)-1, i)
		m.fix(len(m.queue) - 1)
	}
}

func (m *Machine) place(k int, i int32) {
	m.queue[k] = i
	m.shards[i].slot = int32(k)
}

func (m *Machine) earlier(a, b int32) bool {
	x, y := m.shards[a].due, m.shards[b].due
	return x < y || x == y && a < b
}

func (m *Machine) fix(k int) {
	q := m.queue
	i := q[k]
	for k > 0 && m.earlier(i, q[(k-1)/2]) {
		m.place(k, q[(k-1)/2])
		k = (k - 1) / 2
	}
	for {
		c := 2*k + 1
		if c >= len(q) {
			break
		}
		if c+1 < len(q) && m.earlier(q[c+1], q[c]) {
			c++
		}
		if !m.earlier(q[c], i) {
			break
		}
		m.place(k, q[c])
		k = c
	}
	m.place(k, i)
}
