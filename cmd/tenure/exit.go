package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	"github.com/hashicorp/consul/api"
	"github.com/jackc/pgx/v5/pgconn"
	goredis "github.com/redis/go-redis/v9"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	sqlitedriver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/operator"
)

// The page docs/tenure.md lists these exit codes.
const (
	exitOK          = 0
	exitOther       = 1   // any other error, such as a full disk of this host
	exitUsage       = 2   // wrong arguments or configuration
	exitNotFound    = 3   // no such shard, node, session, entry or namespace
	exitUnreachable = 4   // the store did not answer in time
	exitRefused     = 5   // the store or a condition refused the command, or --yes is missing
	exitDamaged     = 6   // a record cannot be read, or contradicts another record
	exitSilent      = 7   // status: there is no member, a silent or troubled member, or a quarantined shard
	exitMayNot      = 8   // may-stop: the node may not be stopped now
	exitBroken      = 9   // certify: the store broke a rule
	exitUnproven    = 10  // certify: the run proves nothing
	exitInterrupted = 130 // the command was interrupted before its end
)

type exitError struct {
	code int
	err  error // if nil, nothing is printed
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}
func (e *exitError) Unwrap() error { return e.err }

func exit(code int, text string) error { return &exitError{code, errors.New(text)} }

func usage(text string) error    { return exit(exitUsage, text) }
func notFound(text string) error { return exit(exitNotFound, text) }

func codeOf(ctx context.Context, err error) int {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return exitInterrupted
	case errors.Is(err, core.ErrStuck):
		return exitOther
	case errors.Is(err, core.ErrDamaged), errors.Is(err, core.ErrStoreChanged), errors.Is(err, core.ErrStoreLost):
		return exitDamaged
	case errors.Is(err, core.ErrInvalid), errors.Is(err, core.ErrTooLarge):
		return exitUsage
	case errors.Is(err, core.ErrTrimmed), errors.Is(err, operator.ErrNoNode):
		return exitNotFound
	case errors.Is(err, core.ErrUnsupported), errors.Is(err, core.ErrConflict), errors.Is(err, core.ErrLost), denied(err),
		errors.Is(err, os.ErrPermission):
		return exitRefused
	case ours(err):
		return exitOther
	}
	return exitUnreachable
}

// ours reports whether an error concerns this host's files or disk, rather than a server.
func ours(err error) bool {
	if e, ok := errors.AsType[*sqlitedriver.Error](err); ok {
		return e.Code()&0xff == lib.SQLITE_FULL || e.Code()&0xff == lib.SQLITE_IOERR
	}
	_, file := errors.AsType[*fs.PathError](err)
	return file
}

// denied reports whether an error means that the store rejected this user, or that the user lacks a
// permission.
func denied(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code == "42501" || strings.HasPrefix(e.Code, "28")
	}
	if e, ok := errors.AsType[*mysqldriver.MySQLError](err); ok {
		switch e.Number {
		case 1044, 1045, 1142, 1143, 1227, 1698:
			return true
		}
		return false
	}
	if e, ok := errors.AsType[api.StatusError](err); ok {
		return e.Code == 401 || e.Code == 403
	}
	if e, ok := errors.AsType[goredis.Error](err); ok {
		return slices.ContainsFunc([]string{"NOPERM", "NOAUTH", "WRONGPASS", "can't run this command", "no permissions"},
			func(part string) bool { return strings.Contains(e.Error(), part) })
	}
	for _, refusal := range []error{rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty, rpctypes.ErrUserNotFound,
		rpctypes.ErrAuthFailed, rpctypes.ErrInvalidAuthToken} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unauthenticated:
		return true
	}
	return errors.Is(err, zk.ErrNoAuth) || errors.Is(err, zk.ErrAuthFailed)
}

// If the store rejected the user, advised adds a reference to the page that lists the required
// permissions.
func advised(err error, backend string) error {
	if err == nil || !denied(err) || strings.Contains(err.Error(), "docs/backends") {
		return err
	}
	return fmt.Errorf("%w: check the user, the password and the rights: docs/backends/%s.md lists them", err, backend)
}

const maxLine = 1000 // maximum number of characters of an error, because a store's error may be long

// oneLine formats an error as a single line that begins with the command's name. Configuration
// mistakes are separated by semicolons.
func (a *app) oneLine(err error) string {
	text := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	text = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, text)
	if text == "" {
		return ""
	}
	if r := []rune(text); len(r) > maxLine {
		text = string(r[:maxLine]) + "..."
	}
	return "tenure: " + strings.ReplaceAll(text, "tenure: ", "")
}
