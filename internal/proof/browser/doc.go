// Package browser drives a real Chromium in tests of pages, over the DevTools protocol on a pair of
// pipes. It opens a page and reads values from it.
package browser
