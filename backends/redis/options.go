package redis

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// defaultReplicaTimeout is the default for Options.ReplicaTimeout.
const defaultReplicaTimeout = time.Second

// Options configure Open. The zero value and nil are valid.
type Options struct {
	// Create lets Open write the namespace's identity if it does not exist. Without Create, a missing
	// identity is an error, because the store may have been wiped (rule I1).
	Create bool `json:"create" yaml:"create"`

	// AllowLoss accepts a server that can lose acknowledged grants and commits. Such a server lacks
	// appendfsync always, may evict keys, or may be replaced by a replica while writes do not wait
	// for replicas. Default false: Open refuses such a server, and its error names the setting.
	// Tenure still detects a loss of recent writes. Processes then stop with
	// driver.ErrStoreChanged. When the namespace is opened again, new tokens are greater than all
	// earlier ones. Lost commits are not recovered.
	AllowLoss bool `json:"allow_loss" yaml:"allow_loss"`

	// Replicas is the number of replicas that must have a write or a heartbeat before it counts.
	// Before a read returns data, these replicas must have that data as well. Set Replicas to the
	// number of replicas that may take over. A promotion then loses nothing, processes continue on
	// the server that took over, and no member trusts a cut-off server. Default 0: no waiting; at
	// most 16. If too few replicas confirm a write within ReplicaTimeout, the write's outcome is
	// unknown. If Replicas exceeds the number of connected replicas, all writes therefore stop.
	Replicas int `json:"replicas" yaml:"replicas"`

	// SettingsVerified asserts that an administrator has verified the settings that INFO does not
	// report. These settings are appendfsync always and no-appendfsync-on-rewrite no. With
	// Replicas, these settings also include a min-replicas-to-write of at least that number, and a
	// min-replicas-max-lag from 1 second to below the TTL. Open then does not read these settings,
	// so the user needs no permission for CONFIG GET, which shows the server's passwords. Default
	// false: Open reads the settings, and refuses settings that can lose acknowledged writes.
	SettingsVerified bool `json:"settings_verified" yaml:"settings_verified"`

	// ReplicaTimeout limits how long a write or a read waits for Replicas. Default (0)
	// 1 s; 1 ms to 1 min.
	ReplicaTimeout time.Duration `json:"replica_timeout" yaml:"replica_timeout"`

	// Insecure lets Open connect to another host or a Sentinel without TLS or without certificate
	// checks. Default false: Open refuses such a connection.
	Insecure bool `json:"insecure" yaml:"insecure"`
}

func (o *Options) withDefaults() (*Options, error) {
	c := Options{}
	if o != nil {
		c = *o
	}
	if c.ReplicaTimeout == 0 {
		c.ReplicaTimeout = defaultReplicaTimeout
	}
	if c.Replicas < 0 || c.Replicas > 16 {
		return nil, fmt.Errorf("tenure: %w: %d replicas: use 0 to 16", driver.ErrInvalid, c.Replicas)
	}
	if c.ReplicaTimeout < time.Millisecond || c.ReplicaTimeout > time.Minute {
		return nil, fmt.Errorf("tenure: %w: %v for replicas: use 1 ms to 1 min", driver.ErrInvalid, c.ReplicaTimeout)
	}
	return &c, nil
}
