// Package browser tests web pages in a real Chromium. It opens pages and reads values from them,
// using the DevTools protocol over a pair of pipes.
package browser
