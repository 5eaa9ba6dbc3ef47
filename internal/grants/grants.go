// Package grants encodes the last leases of a shard. Stores keep them for people to read.
package grants

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// MaxBytes is the size limit for one shard. It has room for Keep leases, whatever their ends
// and labels.
const (
	MaxBytes = 200
	Keep     = 4
	maxNode  = 23
)

// An end is written as its index here.
var ends = []driver.End{"", driver.EndReleased, driver.EndPassed, driver.EndRenewed, driver.EndGone, driver.EndPreempted}

// An event is a time in seconds, an end, and a label.
var event = regexp.MustCompile(`^([0-9a-z]{1,7})\+([0-5])\+(~?[\w.-]{0,23})/`)

// The characters of labels, and of texts.
const (
	labels = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
	chars  = labels + "+/~"
)

// Node returns a label in its stored form. If it has more than 23 bytes, the form is "~" and its
// last 22 bytes. If it is not a valid label, the form is empty.
func Node(node string) string {
	switch {
	case strings.Trim(node, labels) != "":
		return ""
	case len(node) > maxNode:
		return "~" + node[len(node)-maxNode+1:]
	}
	return node
}

// Event returns the text of one change of a shard's owner. end is why the lease before it ended, or
// empty if an earlier event says so. node is the new owner's label, or empty if it is unknown or
// the shard is released. Texts are joined, the newest first.
func Event(now time.Time, end driver.End, node string) string {
	return strconv.FormatInt(max(0, now.Unix()), 36) + "+" + strconv.Itoa(slices.Index(ends, end)) + "+" + Node(node) + "/"
}

// Add returns the text with one more event. If there is no room, it drops the oldest events. It
// drops a text with invalid characters.
func Add(event, text string) string {
	if strings.Trim(text, chars) != "" {
		return event
	}
	text = event + text
	return text[:1+strings.LastIndexByte(text[:min(len(text), MaxBytes)], '/')]
}

// Parse returns the last leases of a text, the oldest first. If the text is damaged, it also
// returns why, and only the leases that are newer than the damage. A text of MaxBytes may be cut
// within its last event.
func Parse(text string) (all []driver.Grant, why string) {
	var events [][]string
	rest := text[:min(len(text), MaxBytes)]
	for f := event.FindStringSubmatch(rest); f != nil; f = event.FindStringSubmatch(rest) {
		events, rest = append(events, f), rest[len(f[0]):]
	}
	if len(text) > MaxBytes || rest != "" && (len(text) < MaxBytes || strings.Contains(rest, "/")) {
		why = "its history makes no sense"
	}
	for _, f := range slices.Backward(events) {
		seconds, _ := strconv.ParseInt(f[1], 36, 64)
		at, end := time.Unix(seconds, 0).UTC(), ends[f[2][0]-'0']
		if end != "" && len(all) == 0 { // how that lease began was not noted
			all = append(all, driver.Grant{})
		}
		if n := len(all); n > 0 && end != "" && all[n-1].End == "" {
			all[n-1].Until, all[n-1].End = at, end
		}
		if end != driver.EndReleased {
			all = append(all, driver.Grant{Node: f[3], Since: at})
		}
	}
	return all[max(0, len(all)-Keep):], why
}
