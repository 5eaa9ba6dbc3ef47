//go:build unix

package main

import (
	"os/exec"
	"sync"

	"github.com/tenure-go/tenure/internal/proof/harness"
)

// A child is a member process, as the director sees it.
type child struct {
	*harness.Process
	joined sync.WaitGroup // the goroutine that reports the child's end
}

// A childReport is an event from a child, or a notice that the child has ended.
type childReport struct {
	from  *child
	event event
	ended bool
	err   error // set at the end of a child: nil if the child exited with status 0
}

// startChild starts this program as a member, and sends the member's events to the channel until
// quit is closed. The last report is the member's end. On Linux, the calling goroutine must be
// locked to a thread that lives as long as the director.
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

func (k *child) end() error {
	err := k.Kill()
	k.joined.Wait()
	return err
}
