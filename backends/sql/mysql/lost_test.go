package mysql

import (
	"testing"
	"time"
)

// TestLostConnection: connections that are lost silently do not delay any process for long.
func TestLostConnection(t *testing.T) {
	t.Parallel()
	setup.LostConnection(t, 4, 4*time.Second)
}
