package sharding

import (
	"cmp"
	"slices"
	"time"
)

// Settings are the keys below sharding in the configuration, which config.Config.Section reads. See
// Options.
type Settings struct {
	Shards      []string      `yaml:"shards"`   // names and ranges; or keyspace
	Keyspace    Keyspace      `yaml:"keyspace"` // its shards are served beside shards
	Interval    time.Duration `yaml:"interval"`
	LeaveBudget time.Duration `yaml:"leave_budget"` // default: half of stop_timeout
	Cooldown    time.Duration `yaml:"cooldown"`
	Penalty     time.Duration `yaml:"penalty"`
	Poll        time.Duration `yaml:"poll"`
	ZoneKey     string        `yaml:"zone_key"`
	Capacity    float64       `yaml:"capacity"`
}

// Options returns the settings as options, which NewManager checks. If the settings have no
// LeaveBudget, leave is used, such as half of config.Config.StopTimeout.
func (s *Settings) Options(leave time.Duration) *Options {
	return &Options{Shards: slices.Clone(s.Shards), Keyspace: s.Keyspace, Interval: s.Interval, LeaveBudget: cmp.Or(s.LeaveBudget, leave),
		Cooldown: s.Cooldown, Penalty: s.Penalty, Poll: s.Poll, ZoneKey: s.ZoneKey, Capacity: s.Capacity}
}
