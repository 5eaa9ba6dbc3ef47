package routegrpc

import (
	"fmt"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/sharding"
)

const (
	domain        = "tenure.route"
	reasonOwner   = "NOT_OWNER" // another member owns the shard
	reasonUnowned = "NO_OWNER"  // the shard has no owner now
)

// OwnerError reports that a call was not served. Nothing was done. If the shard has no owner, Node
// is empty, and the error matches sharding.ErrNoOwner.
type OwnerError struct {
	Shard   string
	Node    string     // node of the owner
	Address string     // address of the owner; empty if the owner publishes none
	Token   core.Token // token of the owner's lease
}

func (e *OwnerError) Error() string {
	if e.Node == "" {
		return fmt.Sprintf("tenure: shard %q: %v", e.Shard, sharding.ErrNoOwner)
	}
	return fmt.Sprintf("tenure: shard %q belongs to %q, with token %d: ask it at %q", e.Shard, e.Node, e.Token, e.Address)
}

// Is reports whether target is sharding.ErrNoOwner and the shard has no owner.
func (e *OwnerError) Is(target error) bool { return target == sharding.ErrNoOwner && e.Node == "" }

// NotApplied returns true. See core.NotApplied.
func (e *OwnerError) NotApplied() bool { return true }

func (e *OwnerError) status() error {
	code, reason := codes.FailedPrecondition, reasonOwner
	if e.Node == "" {
		code, reason = codes.Unavailable, reasonUnowned
	}
	st, err := status.New(code, e.Error()).WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: domain, Metadata: map[string]string{
		"shard": e.Shard, "node": e.Node, "address": e.Address, "token": strconv.FormatInt(int64(e.Token), 10),
	}})
	if err != nil {
		return status.Error(code, e.Error())
	}
	return st.Err()
}

// Error returns the *OwnerError that a call's error contains, or err if there is no *OwnerError.
// Error checks the names and the address in the *OwnerError.
func Error(err error) error {
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	for _, d := range st.Details() {
		info, ok := d.(*errdetails.ErrorInfo)
		if !ok || info.GetDomain() != domain {
			continue
		}
		md := info.GetMetadata()
		token, perr := strconv.ParseInt(md["token"], 10, 64)
		e := &OwnerError{Shard: md["shard"], Node: md["node"], Address: md["address"], Token: core.Token(token)}
		if checkAddress(e.Address) != nil {
			e.Address = ""
		}
		switch {
		case perr != nil || core.CheckShard(e.Shard) != nil:
		case info.GetReason() == reasonUnowned && st.Code() == codes.Unavailable:
			return &OwnerError{Shard: e.Shard}
		case info.GetReason() == reasonOwner && st.Code() == codes.FailedPrecondition && driver.CheckNode(e.Node) == nil:
			return e
		}
		return err
	}
	return err
}
