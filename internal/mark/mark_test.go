package mark

import (
	"testing"

	"github.com/tenure-go/tenure/core/driver"
)

// TestKeys: package driver reads the same keys.
func TestKeys(t *testing.T) {
	t.Parallel()
	s := driver.MemberState{Meta: map[string]string{IneligibleKey: "ill", TroubleKey: "denied"}}
	if s.Ineligible() != "ill" || s.Trouble() != "denied" {
		t.Errorf("got %q and %q", s.Ineligible(), s.Trouble())
	}
}
