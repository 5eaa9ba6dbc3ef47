// Package grants encodes a shard's last leases, which stores keep for operators to read.
package grants

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// MaxBytes is the size limit for one shard. The limit allows Keep leases with any ends and labels.
const (
	MaxBytes = 200
	Keep     = 4
	maxNode  = 23
)

// ends lists the values of driver.End. The encoding of an end is the index in this list.
var ends = []driver.End{"", driver.EndReleased, driver.EndPassed, driver.EndRenewed, driver.EndGone, driver.EndPreempted}

// An event is a time in seconds, an end, and a label.
var event = regexp.MustCompile(`^([0-9a-z]{1,7})\+([0-5])\+(~?[\w.-]{0,23})/`)

// These are the characters that labels and texts may contain.
const (
	labels = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
	chars  = labels + "+/~"
)

// Node returns a label in its stored form. The stored form of a label with more than 23 bytes is
// "~" and the label's last 22 bytes. The stored form of an invalid label is empty.
func Node(node string) string {
	switch {
	case strings.Trim(node, labels) != "":
		return ""
	case len(node) > maxNode:
		return "~" + node[len(node)-maxNode+1:]
	}
	return node
}

// Event returns the text for one change of a shard's owner. The argument end is the reason why the
// previous lease ended, or empty if an earlier event contains the reason. The argument node is the
// new owner's label, or empty if the label is unknown or the shard is free. The record of a shard
// is a concatenation of such texts, with the newest text first.
func Event(now time.Time, end driver.End, node string) string {
	return strconv.FormatInt(max(0, now.Unix()), 36) + "+" + strconv.Itoa(slices.Index(ends, end)) + "+" + Node(node) + "/"
}

// Add returns the text with one event added. If the result would exceed MaxBytes, Add drops the
// oldest events. If the text has invalid characters, Add drops the whole text.
func Add(event, text string) string {
	if strings.Trim(text, chars) != "" {
		return event
	}
	text = event + text
	return text[:1+strings.LastIndexByte(text[:min(len(text), MaxBytes)], '/')]
}

// Parse returns the last leases in a text, with the oldest lease first. If the text is damaged,
// Parse returns only the leases that are newer than the damage, and the reason. A text of MaxBytes
// may be cut in the middle of its last event.
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
		if end != "" && len(all) == 0 { // no event shows how this lease began
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
