package redis

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
)

// serverError is an error in a server's answer.
type serverError string

func (e serverError) Error() string { return string(e) }
func (e serverError) RedisError()   {}

func TestRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err     error
		certain bool
	}{
		{serverError("OOM command not allowed when used memory > 'maxmemory'."), true},
		{serverError("MISCONF Errors writing to the AOF file: No space left on device"), true},
		{serverError("LOADING Redis is loading the dataset in memory"), true},
		{fmt.Errorf("wrapped: %w", serverError("NOPERM User tenure has no permissions")), true},
		{serverError("MOVED 3999 127.0.0.1:6381"), true},
		{serverError("OOM command not allowed script: 0f, on @user_script:12."), false},
		{serverError("NOPERM no permissions script: 0f, on @user_script:12."), false},
		{serverError("ERR something else"), false},
		{errors.New("OOM said by no server"), false},
		{errors.New("i/o timeout"), false},
		{&notSentError{errors.New("connection refused")}, true},
	} {
		if got := driver.NotApplied(classified(c.err)); got != c.certain {
			t.Errorf("%v is certainly not applied: %v; want %v", c.err, got, c.certain)
		}
	}
}
