//go:build unix

package main

import (
	"os/exec"
	"sync"

	"github.com/tenure-go/tenure/internal/proof/harness"
)

// A child is one member process as its director sees it.
type child struct {
	*harness.Process
	joined sync.WaitGroup // the goroutine that reports its end
}

// A report of a child: an event, or its end.
type childReport struct {
	from  *child
	event event
	ended bool
	err   error // of an ended child: nil if it exited with status 0
}

// startChild runs this program as a member. Its events go to reports until quit is closed. Its
// end is the last report. On Linux, the calling goroutine must be locked to a thread that lives
// as long as the director.
func startChild(c memberConfig, reports chan<- childReport, quit <-chan struct{}) (*child, error) {
	k := &child{}
	send := func(r childReport) {
		select {
		case reports <- r:
		case <-quit:
		}
	}
	take := func(events *harness.Reader) {
		for e := range harness.All[event](events) {
			send(childReport{from: k, event: e})
		}
	}
	var err error
	if k.Process, err = harness.Start(c.Node, memberEnv, c, (*exec.Cmd).Start, take); err != nil {
		return nil, err
	}
	k.joined.Go(func() {
		<-k.Done()
		send(childReport{from: k, ended: true, err: k.Err()})
	})
	return k, nil
}

// end kills the process, stopped or not, and waits until it is gone.
func (k *child) end() error {
	err := k.Kill()
	k.joined.Wait()
	return err
}
