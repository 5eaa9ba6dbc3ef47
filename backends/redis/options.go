package redis

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// defaultReplicaTimeout limits how long a write, or a read of something new, waits for replicas.
const defaultReplicaTimeout = time.Second

// Options configure Open. The zero value and nil are valid.
type Options struct {
	// Create writes the namespace's identity if it has none. Without it, a missing identity is
	// an error, because it may mean a wiped store (rule I1).
	Create bool `json:"create" yaml:"create"`

	// AllowLoss accepts a server that can lose acknowledged grants and commits. Such a server
	// lacks appendfsync always, may evict keys, or is replaced by a replica for which no write
	// waited. Default false: Open refuses such a server, and names the setting. Tenure still
	// detects a lost end of the history. Processes stop with driver.ErrStoreChanged, and tokens
	// continue above all earlier ones when the namespace is opened again. Lost commits stay
	// lost.
	AllowLoss bool `json:"allow_loss" yaml:"allow_loss"`

	// Replicas is the number of replicas that must have a write or a heartbeat before it
	// counts. They must also have the result of a read before it is returned. Set it to the
	// number of replicas that may take over. Then a promotion loses nothing, processes continue
	// at the server that took over, and no member trusts a server that was cut off. Default 0:
	// no waiting; at most 16. If too few replicas have a write in time, its outcome is unknown,
	// so a number above the connected replicas stops all writes.
	Replicas int `json:"replicas" yaml:"replicas"`

	// SettingsVerified asserts that an administrator has verified the settings that INFO does
	// not report. These are appendfsync always and no-appendfsync-on-rewrite no. With Replicas,
	// they are also min-replicas-to-write of at least that number, and a min-replicas-max-lag
	// from 1 to below the TTL, in seconds. Open then does not read them, so the user needs no
	// right to CONFIG GET, which shows the server's passwords. Default false: Open reads them,
	// and refuses settings that can lose acknowledged writes.
	SettingsVerified bool `json:"settings_verified" yaml:"settings_verified"`

	// ReplicaTimeout limits how long a write or a read waits for Replicas. Default (0)
	// 1 s; 1 ms to 1 min.
	ReplicaTimeout time.Duration `json:"replica_timeout" yaml:"replica_timeout"`

	// Insecure lets Open reach another host, or a Sentinel, without TLS, or without checking
	// its certificate. Default false: Open refuses.
	Insecure bool `json:"insecure" yaml:"insecure"`
}

// withDefaults returns a copy with the defaults filled in, or an error that says what to change.
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
