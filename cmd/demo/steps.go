//go:build unix

package main

import (
	"context"
	"slices"
)

func (d *director) join(ctx context.Context) error {
	s := &node{label: nodeName(len(d.members) + 1)}
	d.members = append(d.members, s)
	if err := d.start(s); err != nil {
		return err
	}
	d.say("%s joins as process %d", s.label, s.child.PID())
	w := d.watchMoves(s.label + " joined")
	if err := d.await(ctx, "the member that joins to have its share", d.settled); err != nil {
		return err
	}
	d.sayHandOvers(w.before)
	d.moved(w)
	return nil
}

// A drained member continues to run without airports.
func (d *director) drain(ctx context.Context) error {
	s := d.node(d.schedule.drain)
	s.status = statusDraining
	w := d.watchMoves(s.label + " drained")
	if err := s.child.Order(order{Do: doDrain}); err != nil {
		return err
	}
	d.say("%s drained; it owns %s", s.label, count(len(d.history.owned(s.label)), "airport"))
	emptied := func() bool { return s.status == statusDrained && d.settled() }
	if err := d.await(ctx, "the drained member to be emptied", emptied); err != nil {
		return err
	}
	d.sayHandOvers(w.before)
	d.say("%s owns nothing, and goes on showing all airports", s.label)
	d.moved(w)
	return nil
}

func (d *director) leave(ctx context.Context) error {
	s := d.node(d.schedule.leave)
	s.status = statusLeaving
	w := d.watchMoves(s.label + " shut down")
	if err := s.child.Order(order{Do: doLeave}); err != nil {
		return err
	}
	d.say("%s asked to shut down; it owns %s", s.label, count(len(d.history.owned(s.label)), "airport"))
	gone := func() bool { return s.status == statusLeft && d.settled() }
	if err := d.await(ctx, "the member that leaves to hand over", gone); err != nil {
		return err
	}
	d.sayHandOvers(w.before)
	d.moved(w)
	return nil
}

// closeDown makes the remaining members show their boards and leave in sequence. Members without
// airports leave first.
func (d *director) closeDown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endLimit+stepTTLs*d.o.ttl)
	defer cancel()
	var left []*node
	for _, s := range d.members {
		if s.status == statusLeft {
			continue
		}
		left = append(left, s)
		if err := s.child.Order(order{Do: doShow}); err != nil {
			return err
		}
	}
	if err := d.await(ctx, "the members to show their boards",
		func() bool { return len(d.history.boards) == len(left) }); err != nil {
		return err
	}
	slices.SortStableFunc(left, func(a, b *node) int {
		return len(d.history.owned(a.label)) - len(d.history.owned(b.label))
	})
	for _, s := range left {
		s.status = statusLeaving
		if err := s.child.Order(order{Do: doLeave}); err != nil {
			return err
		}
		if err := d.await(ctx, "the members to leave", func() bool { return s.status == statusLeft }); err != nil {
			return err
		}
	}
	return nil
}

type moves struct {
	reshare
	before int // number of earlier passages
}

// watchMoves starts counting moves. The caller must set the members' statuses first, and must call
// watchMoves before any airport moves.
func (d *director) watchMoves(what string) moves {
	var have []int
	for _, node := range d.takers() {
		have = append(have, len(d.history.owned(node)))
	}
	return moves{reshare{What: what, Least: leastMoves(have, len(d.flights.airports))}, len(d.history.passages())}
}

func (d *director) moved(w moves) {
	w.Moved = len(d.history.passages()) - w.before
	d.history.reshares = append(d.history.reshares, w.reshare)
}

// The takers are the members that should own airports, including those that are still starting.
func (d *director) takers() []string {
	var out []string
	for _, s := range d.members {
		if s.status == statusRunning || s.status == statusStarting {
			out = append(out, s.label)
		}
	}
	return out
}

// settled reports whether the takers own all airports in even shares, and have resumed work on
// them.
func (d *director) settled() bool { return d.unsettled() == "" }

func (d *director) unsettled() string {
	for _, s := range d.members {
		if s.status == statusStarting {
			return s.label + " has not started"
		}
	}
	return d.history.unsettled(d.flights.airports, d.takers())
}
