// Package examine contains checks that several backends share.
package examine

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// Clock compares the time that a server reported with this machine's time before and after the
// query. Because Tenure never compares clocks, the finding is only informational.
func Clock(before, server, after time.Time) driver.Finding {
	middle := before.Add(after.Sub(before) / 2)
	off := server.Sub(middle).Round(time.Millisecond)
	within := (after.Sub(before)/2 + time.Millisecond).Round(time.Millisecond)
	f := driver.Finding{Name: "clock", Value: fmt.Sprintf("the server's is %v ahead of this machine's, within %v", off, within)}
	if off < 0 {
		f.Value = fmt.Sprintf("the server's is %v behind this machine's, within %v", -off, within)
	}
	return f
}
