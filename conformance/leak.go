package conformance

import (
	"bytes"
	"fmt"
	"runtime/pprof"
	"strings"
)

// leakLabel is the profiler label that a case's goroutines, and no others, inherit.
const leakLabel = "tenure-conformance-case"

// labelled returns the distinct stacks of the goroutines with a label.
func labelled(value string) []string {
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		return []string{err.Error()}
	}
	want := fmt.Sprintf("%q:%q", leakLabel, value)
	var found []string
	for group := range strings.SplitSeq(b.String(), "\n\n") {
		if strings.Contains(group, want) {
			found = append(found, group)
		}
	}
	return found
}
