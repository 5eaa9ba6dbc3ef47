package conformance
func membershipCases() []Case { return nil }
func acquireCases() []Case { return nil }
func tokenCases() []Case { return nil }
func releaseCases() []Case { return nil }
func commitCases() []Case { return nil }
func logCases() []Case { return nil }
func viewCases() []Case { return nil }
func errorCases() []Case { return nil }
func chaosCases() []Case { return nil }
