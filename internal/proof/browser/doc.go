// Package browser drives a real Chromium in tests of pages, over the DevTools protocol on
// a pair of pipes: it has a page opened, and asks it for values.
package browser
