package fence

import (
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
)

// RefusedError describes a write that was refused because of its fence. The resource had already
// admitted either a higher token or the same token from a different holder. The error matches
// driver.ErrFenced and driver.ErrLost. Nothing was applied.
type RefusedError struct {
	Resource string
	Fence    driver.Fence // the fence of the write
	Current  driver.Fence // the resource's mark, because of which the write was refused
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("tenure: resource %.200q refuses token %d of session %.64q (shard %.128q): it has admitted "+
		"token %d of session %.64q (shard %.128q)",
		e.Resource, e.Fence.Token, e.Fence.Session, e.Fence.Shard, e.Current.Token, e.Current.Session, e.Current.Shard)
}

// Is reports whether target is driver.ErrFenced or driver.ErrLost.
func (e *RefusedError) Is(target error) bool {
	return target == driver.ErrFenced || target == driver.ErrLost
}

// ForeignError describes a write that was refused because its shard's leases may not write to the
// resource. The error matches driver.ErrInvalid. Nothing was written, and the mark did not change.
type ForeignError struct {
	Resource string
	Fence    driver.Fence // the fence of the write
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("tenure: resource %.200q is not written under leases of shard %.128q: use the lease of its own "+
		"shard, or set MayWrite",
		e.Resource, e.Fence.Shard)
}

// Is reports whether target is driver.ErrInvalid.
func (e *ForeignError) Is(target error) bool { return target == driver.ErrInvalid }

const maxResourceLen = 200

// CheckResource validates a resource's name: 1 to 200 bytes of printable ASCII, without spaces,
// quotes or backslashes. The error matches driver.ErrInvalid.
func CheckResource(resource string) error {
	if resource == "" || len(resource) > maxResourceLen {
		return fmt.Errorf("tenure: %w: a resource's name has %d bytes: use 1 to %d", driver.ErrInvalid, len(resource),
			maxResourceLen)
	}
	for i := range len(resource) {
		switch c := resource[i]; {
		case c <= ' ', c > '~', c == '"', c == '\'', c == '\\', c == '`':
			return fmt.Errorf("tenure: %w: the resource's name %q has %q at byte %d: use printable ASCII without "+
				"spaces, quotes and backslashes",
				driver.ErrInvalid, resource, c, i)
		}
	}
	return nil
}

func check(resource string, f driver.Fence) error {
	if err := CheckResource(resource); err != nil {
		return err
	}
	return driver.CheckFence(f)
}
