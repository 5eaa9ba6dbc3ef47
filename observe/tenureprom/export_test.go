package tenureprom

// Show is like Watch and Follow, but for other types.
func (m *Metrics) Show(e elector, t tailer) { m.elector, m.tailers = e, []tailer{t} }
