package elapsed

import "time"

// The rule is not for code that is no test's.
func late(start time.Time) bool { return time.Since(start) > time.Second }
