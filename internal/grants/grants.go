// Package grants is the text by which stores remember the last leases of a shard, for people.
package grants

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// MaxBytes bounds the text of one shard, in every store.
const MaxBytes = 200

// Keep is how many leases are remembered.
const Keep = 4

// maxNode leaves room in MaxBytes for as many leases that ended and the present one.
const maxNode = 23

// Node is a label as it is remembered: of a long one its end.
func Node(label string) string {
	if len(label) <= maxNode {
		return label
	}
	return "~" + label[len(label)-maxNode+1:]
}

// ends are written as their place here, counted from 1.
var ends = [...]driver.End{driver.EndReleased, driver.EndPassed, driver.EndRenewed, driver.EndGone, driver.EndPreempted}

// Event is one change of a shard's owner: at is when, in seconds since 1970, or 0 if that is not
// known; end is why the lease before it ended, empty if there was none; node is the new owner's
// label, empty if there is none. Texts are joined, the newest first.
func Event(at int64, end driver.End, node string) string {
	code := ""
	if i := slices.Index(ends[:], end); i >= 0 {
		code = strconv.Itoa(i + 1)
	}
	return strconv.FormatInt(at, 36) + "," + code + "," + Node(node) + ";"
}

// Parse reads events. It ignores what it cannot read, such as one that was cut.
func Parse(text string) (all []driver.Grant) {
	events := strings.Split(text[:strings.LastIndexByte(text, ';')+1], ";")
	for _, event := range slices.Backward(events) {
		f := strings.Split(event, ",")
		if len(f) != 3 || len(f[2]) > maxNode {
			continue
		}
		seconds, err := strconv.ParseInt(f[0], 36, 64)
		if err != nil {
			continue
		}
		at := time.Time{}
		if seconds > 0 {
			at = time.Unix(seconds, 0).UTC()
		}
		code, _ := strconv.Atoi(f[1])
		if n := len(all); n > 0 && all[n-1].End == "" && 0 < code && code <= len(ends) {
			all[n-1].Until, all[n-1].End = at, ends[code-1]
		}
		if f[2] != "" {
			all = append(all, driver.Grant{Node: f[2], Since: at})
		}
	}
	return all[max(0, len(all)-Keep):]
}
