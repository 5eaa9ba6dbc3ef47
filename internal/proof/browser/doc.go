// Package browser tests web pages in a real Chromium, over the DevTools protocol on a pair of
// pipes. It opens a page and reads values from it.
package browser
