package mysql

import (
	"testing"
	"time"
)

// TestLostConnection: connections lost in silence delay no process for long.
func TestLostConnection(t *testing.T) {
	t.Parallel()
	setup.LostConnection(t, 4, 4*time.Second)
}
