package redis

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// DefaultReplicaTimeout is how long a write, or a read of something new, waits for replicas.
const DefaultReplicaTimeout = time.Second

// Options for Open. The zero value, and nil, work.
type Options struct {
	// Create writes the namespace's identity if it has none. Without it a missing
	// identity is an error, because it may mean a wiped store (rule I1).
	Create bool `json:"create" yaml:"create"`

	// AllowLoss accepts a server that can lose grants and commits that it has
	// acknowledged: one without appendfsync always, one that may evict keys, or one that
	// is replaced by a replica without waiting for it. Default false: Open refuses it,
	// and names the setting. A lost end of the history is found out all the same: the
	// processes stop with driver.ErrStoreChanged, and tokens go on above all earlier
	// ones when they open the namespace again. Commits that were lost stay lost.
	AllowLoss bool `json:"allow_loss" yaml:"allow_loss"`

	// Replicas is how many replicas must have a write before it counts, a heartbeat
	// included, and what a read shows before it is handed out. Set it to the number of
	// replicas that may take over: then a promotion takes nothing back, processes go on at
	// the server that took over, and one that was cut off keeps nobody's trust. Default 0:
	// none is waited for; at most 16. A write that too few replicas have in time has an
	// unknown outcome, so more than are connected stop all writes.
	Replicas int `json:"replicas" yaml:"replicas"`

	// SettingsVerified asserts that an administrator has verified the settings that INFO
	// does not tell: appendfsync always, no-appendfsync-on-rewrite no, and with Replicas
	// min-replicas-to-write of at least as many and a min-replicas-max-lag from 1 to below
	// the TTL, in seconds. Open then reads none of them, so that the user needs no right to
	// CONFIG GET, by which it could read the server's passwords. Default false: Open
	// reads them, and refuses what can lose acknowledged writes.
	SettingsVerified bool `json:"settings_verified" yaml:"settings_verified"`

	// ReplicaTimeout is how long a write or a read waits for Replicas, at most. Default (0)
	// DefaultReplicaTimeout; 1 ms to 1 min.
	ReplicaTimeout time.Duration `json:"replica_timeout" yaml:"replica_timeout"`

	// Insecure lets Open reach another host, or a Sentinel, without TLS, or without checking
	// its certificate. Default false: that is refused.
	Insecure bool `json:"insecure" yaml:"insecure"`
}

// withDefaults returns a copy with the defaults filled in, or an error that says what to change.
func (o *Options) withDefaults() (*Options, error) {
	c := Options{}
	if o != nil {
		c = *o
	}
	if c.ReplicaTimeout == 0 {
		c.ReplicaTimeout = DefaultReplicaTimeout
	}
	if c.Replicas < 0 || c.Replicas > 16 {
		return nil, fmt.Errorf("tenure: %w: %d replicas: use 0 to 16", driver.ErrInvalid, c.Replicas)
	}
	if c.ReplicaTimeout < time.Millisecond || c.ReplicaTimeout > time.Minute {
		return nil, fmt.Errorf("tenure: %w: %v for replicas: use 1 ms to 1 min", driver.ErrInvalid, c.ReplicaTimeout)
	}
	return &c, nil
}
