package tenureprom

// Show does the same as Watch and Follow, for other types.
func (m *Metrics) Show(e elector, t tailer) { m.elector, m.tailers = e, []tailer{t} }
