// Package examine contains findings that several backends make.
package examine

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// Clock compares a server's clock with this machine's clock before and after it was read.
// The finding only informs, because Tenure compares no clocks.
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
