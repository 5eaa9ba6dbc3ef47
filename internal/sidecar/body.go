package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	mostBody  = 4 << 20
	smallBody = 16 << 10 // a body or answer of at most this size needs no room
	roomUnit  = 64 << 10
)

// A room limits the total size of the bodies or answers that are in memory. A body or answer takes
// up a few times its size in memory. A room is safe for concurrent use.
type room struct {
	turn  chan struct{} // held by the request that takes units; other requests wait in line
	units chan struct{}
}

func newRoom(size int) *room {
	return &room{make(chan struct{}, 1), make(chan struct{}, size/roomUnit)}
}

// If there is no room for size bytes, take waits until ctx ends. The returned function gives the
// room back.
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

// A body must contain a single JSON value without unknown fields. After decode succeeds, the caller
// must call done when it no longer needs the value.
func (s *Server) decode(w http.ResponseWriter, r *http.Request, read func(*json.Decoder) error) (done func(), err error) {
	size := r.ContentLength
	if size < 0 || size > s.maxBody {
		size = s.maxBody // the body may take up to this size
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

// A request that needs no body may have one of up to this size.
const ignoredBody = 4 << 10

// The request's body is discarded before the request is served.
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

func optional(into any) func(*json.Decoder) error {
	return func(d *json.Decoder) error {
		if err := d.Decode(into); err != io.EOF {
			return err
		}
		return nil
	}
}

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
		name, _ := t.(string) // the decoder accepts only strings as keys
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

// A utf8Reader rejects bytes that are not UTF-8, and escapes of half a character, such as \ud800.
// The JSON decoder would silently replace this input with a different character.
type utf8Reader struct {
	from  io.Reader
	begun [utf8.UTFMax]byte // the bytes of a character that has begun
	n     int

	escaped int  // number of bytes of an escape that has begun
	code    int  // the code of that escape
	half    bool // the last escape was the first half of a character
}

func (u *utf8Reader) Read(p []byte) (int, error) {
	n, err := u.from.Read(p)
	text := p[:n]
	for _, c := range text {
		if !u.whole(c) {
			return 0, errNotUTF8
		}
	}
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

// Escapes are parsed byte by byte. The result is false if an escape of half a character is not
// followed by the other half.
func (u *utf8Reader) whole(c byte) bool {
	switch {
	case u.escaped == 0 && c != '\\':
		return !u.half
	case u.escaped == 0 || u.escaped == 1 && c == 'u':
		u.escaped++
		return true
	case u.escaped == 1:
		u.escaped = 0
		return !u.half
	}
	digit := strings.IndexByte("0123456789abcdef", c|0x20) // if it is -1, the decoder refuses the escape
	u.escaped, u.code = u.escaped+1, u.code<<4&0xffff|max(digit, 0)
	if u.escaped < len(`\ud800`) {
		return true
	}
	matches := (u.code>>10 == 0xdc00>>10) == u.half
	u.escaped, u.half = 0, u.code>>10 == 0xd800>>10
	return matches
}

var errNotUTF8 = errors.New("it is not UTF-8, or has an escape of half a character such as \\ud800: send bytes as base64")
