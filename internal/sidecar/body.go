package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
	"unicode/utf8"
)

// Bounds of what is in memory of bodies and answers.
const (
	mostBody  = 4 << 20
	smallBody = 16 << 10 // and those up to this size wait for nobody
	roomUnit  = 64 << 10
)

// A room bounds the bytes of bodies, or of answers, that are in memory at once. What one
// costs in all is a few times its size. Safe for concurrent use.
type room struct {
	turn  chan struct{} // of the request whose units are taken; the others wait in line
	units chan struct{}
}

func newRoom(size int) *room {
	return &room{make(chan struct{}, 1), make(chan struct{}, size/roomUnit)}
}

// take takes room, for which it waits until ctx ends. leave gives it back.
func (o *room) take(ctx context.Context, size int64) (leave func(), err error) {
	if size <= smallBody {
		return func() {}, nil
	}
	taken, need := 0, min(int(size+roomUnit-1)/roomUnit, cap(o.units))
	leave = func() {
		for range taken {
			<-o.units
		}
	}
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return nil, noRoom()
	}
	for taken < need {
		select {
		case o.units <- struct{}{}:
			taken++
		case <-ctx.Done():
			leave()
			return nil, noRoom()
		}
	}
	return leave, nil
}

func noRoom() error {
	return refuse(http.StatusServiceUnavailable, codeBusy, "large requests and answers are being served: try again")
}

// decode has read read the one JSON value of a body, in which nothing is unknown, and wants
// nothing behind it. Where it succeeds the caller calls done when it needs the values no
// more.
func (s *Server) decode(w http.ResponseWriter, r *http.Request, read func(*json.Decoder) error) (done func(), err error) {
	size := r.ContentLength
	if size < 0 || size > s.maxBody {
		size = s.maxBody // that many are read at the most
	}
	ctx, cancel := context.WithTimeout(r.Context(), bodyTime)
	defer cancel()
	leave, err := s.bodies.take(ctx, size)
	if err != nil {
		return nil, err
	}
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(bodyTime))
	if err := readBody(http.MaxBytesReader(w, r.Body, s.maxBody), read); err != nil {
		leave()
		return nil, err
	}
	_ = c.SetReadDeadline(time.Time{})
	return leave, nil
}

// readBody has read read a JSON value, and then wants the end.
func readBody(from io.Reader, read func(*json.Decoder) error) error {
	d := json.NewDecoder(&utf8Reader{from: from})
	d.DisallowUnknownFields()
	err := read(d)
	if err == nil {
		switch _, err = d.Token(); {
		case errors.Is(err, io.EOF):
			return nil
		case err == nil:
			err = errors.New("it has more after its first JSON value: send one object")
		}
	}
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return refuse(http.StatusRequestEntityTooLarge, codeTooLarge, "the body is longer than %d bytes: write less at once", large.Limit)
	}
	return refuse(http.StatusBadRequest, codeInvalid, "the body is not as GET /v1/openapi.json describes it: %s", cut(err.Error(), 200))
}

// ignoredBody is what a request may have of a body that nobody reads.
const ignoredBody = 4 << 10

// bodiless serves requests that need no body, when what they have of one has come.
func bodiless(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, ignoredBody)); err != nil {
			fail(w, refuse(http.StatusBadRequest, codeInvalid, "the body, of which there is no need, cannot be read: %v", err))
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		serve(w, r)
	}
}

// optional reads a value into into, or nothing.
func optional(into any) func(*json.Decoder) error {
	return func(d *json.Decoder) error {
		if err := d.Decode(into); err != io.EOF {
			return err
		}
		return nil
	}
}

// object reads an object, whose values member reads.
func object(d *json.Decoder, member func(name string) error) error {
	if err := delim(d, '{'); err != nil {
		return err
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string) // of an object's keys the decoder takes no others
		if seen[name] {
			return fmt.Errorf("%.40q is there twice", name)
		}
		seen[name] = true
		if err := member(name); err != nil {
			return err
		}
	}
	return delim(d, '}')
}

// array reads an array, whose elements next reads.
func array(d *json.Decoder, next func() error) error {
	if err := delim(d, '['); err != nil {
		return err
	}
	for d.More() {
		if err := next(); err != nil {
			return err
		}
	}
	return delim(d, ']')
}

func delim(d *json.Decoder, want json.Delim) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	if t != want {
		return fmt.Errorf("%.40v where %q is wanted", t, want)
	}
	return nil
}

// A utf8Reader fails at bytes that are not UTF-8, for which the decoder would put others.
type utf8Reader struct {
	from  io.Reader
	begun [utf8.UTFMax]byte // of a character
	n     int
}

func (u *utf8Reader) Read(p []byte) (int, error) {
	n, err := u.from.Read(p)
	text := p[:n]
	for u.n > 0 && len(text) > 0 {
		u.begun[u.n], text = text[0], text[1:]
		u.n++
		if utf8.FullRune(u.begun[:u.n]) {
			if !utf8.Valid(u.begun[:u.n]) {
				return 0, errNotUTF8
			}
			u.n = 0
		}
	}
	if u.n == 0 {
		whole := len(text)
		for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
			if tail := text[len(text)-i:]; utf8.RuneStart(tail[0]) {
				if !utf8.FullRune(tail) {
					whole -= i
				}
				break
			}
		}
		u.n = copy(u.begun[:], text[whole:])
		if !utf8.Valid(text[:whole]) {
			return 0, errNotUTF8
		}
	}
	if err == io.EOF && u.n > 0 {
		return 0, errNotUTF8
	}
	return n, err
}

var errNotUTF8 = errors.New("it is not UTF-8: send bytes as base64")
