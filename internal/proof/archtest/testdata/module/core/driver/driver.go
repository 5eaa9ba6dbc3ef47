// Package driver shows what the contract's package may hold.
package driver

import (
	"errors"
	"fmt"
)

var (
	ErrFenced = errors.New("fenced")
	ErrHeld   = fmt.Errorf("held: %w", ErrFenced)
	_         = fmt.Stringer(Token(0))
)

var notApplied = [...]error{ErrFenced, ErrHeld}

type Token int64

func (Token) String() string { return "token" }

type Opener struct{ Name string }

func NotApplied(err error) bool {
	for _, e := range notApplied {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
