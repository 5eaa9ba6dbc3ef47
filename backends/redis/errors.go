package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/core/driver"
)

// notSentError is the error of a call without a connection, no part of which left this process.
type notSentError struct{ err error }

func (e *notSentError) Error() string { return e.err.Error() }

// Unwrap returns a slice, because the client would unwrap an error that has only one cause.
func (e *notSentError) Unwrap() []error { return []error{e.err} }

// failed classifies the error of a script (rule E1). After any error that is not recognized, the
// outcome is unknown.
func (s *store) failed(ctx context.Context, err error) error {
	if s.life.Err() != nil {
		return errClosed()
	}
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) { // so that errors.Is finds it
		err = fmt.Errorf("%w (%w)", err, driver.Ended(ctx))
	}
	if errors.Is(err, errLost) {
		return fmt.Errorf("tenure: namespace %q: %w", s.names.keys, err)
	}
	return classified(err)
}

// classified returns a command's error, which matches driver.ErrRetry only if the server certainly
// did not run the command.
func classified(err error) error {
	if denied(err) || goredis.HasErrorPrefix(err, "READONLY") {
		err = fmt.Errorf("%w: compare the user's rights with docs/backends/redis.md: %w", driver.ErrDenied, err)
	}
	notSent, _ := errors.AsType[*notSentError](err)
	switch {
	case errors.Is(err, errHistory):
		return fmt.Errorf("tenure: %w: %w", driver.ErrRetry, err)
	case notSent != nil, errors.Is(err, goredis.ErrPoolTimeout):
		return fmt.Errorf("tenure: %w: nothing was sent to Redis: %w", driver.ErrRetry, err)
	case unknownCommand(err):
		err = fmt.Errorf("redis lacks a command: give it its name again (rename-command), or use Redis 7.0 or later: %w", err)
		if text, _ := reply(err); strings.HasPrefix(text, "ERR unknown") {
			err = fmt.Errorf("tenure: %w: %w", driver.ErrRetry, err)
		}
		return err
	case refused(err):
		return fmt.Errorf("tenure: %w: Redis refused it: %w", driver.ErrRetry, err)
	}
	return err
}

// reply returns the server's own error in err.
func reply(err error) (string, bool) {
	var e goredis.Error
	if err == nil || errors.Is(err, goredis.Nil) || !errors.As(err, &e) {
		return "", false
	}
	return e.Error(), true
}

// refused reports whether the server refused to run a command. An error from a running script
// contains the script's name, but does not show what the script wrote.
func refused(err error) bool {
	text, ok := reply(err)
	if !ok || strings.Contains(text, "script: ") {
		return false
	}
	word, _, _ := strings.Cut(text, " ")
	return slices.Contains([]string{
		"NOSCRIPT", "NOAUTH", "WRONGPASS", "NOPERM", "READONLY", "OOM", "LOADING", "BUSY", "MISCONF", "NOREPLICAS",
		"MASTERDOWN", "CLUSTERDOWN", "MOVED", "ASK", "TRYAGAIN", "CROSSSLOT",
	}, word) || text == "ERR max number of clients reached"
}

// unknownCommand reports whether the server lacks a command. Unless a script called the command,
// the server ran nothing.
func unknownCommand(err error) bool {
	text, ok := reply(err)
	return ok && (strings.HasPrefix(text, "ERR unknown command") || strings.HasPrefix(text, "ERR Unknown Redis command"))
}

// replaced reports whether an error shows that nothing was run, and that the server may have
// replaced the previous one.
func replaced(err error) bool {
	return errors.Is(err, errHistory) || goredis.HasErrorPrefix(err, "READONLY") || goredis.HasErrorPrefix(err, "NOREPLICAS")
}

// denied reports whether the server refused the user.
func denied(err error) bool {
	text, ok := reply(err)
	return ok && (strings.Contains(text, "NOPERM") || strings.HasPrefix(text, "NOAUTH") ||
		strings.HasPrefix(text, "WRONGPASS") || strings.Contains(text, "can't run this command") ||
		strings.Contains(text, "no permissions") || strings.Contains(text, "can't access"))
}

func unknownScript(err error) bool { return goredis.HasErrorPrefix(err, "NOSCRIPT") }
