package tenurefx

import (
	"log/slog"
	"time"

	"go.uber.org/fx"

	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/follower"
	"github.com/tenure-go/tenure/internal/errtext"
)

// FollowerSettings are the keys below follower in the configuration. See
// follower.Options.
type FollowerSettings struct {
	Batch       int           `yaml:"batch"`
	Parallel    int           `yaml:"parallel"`
	Buffer      int           `yaml:"buffer"`
	Reads       int           `yaml:"reads"`
	ReadRate    int           `yaml:"read_rate"`
	Resync      time.Duration `yaml:"resync"`
	CallTimeout time.Duration `yaml:"call_timeout"`
	BackoffMin  time.Duration `yaml:"backoff_min"`
	BackoffMax  time.Duration `yaml:"backoff_max"`
	DrainBudget time.Duration `yaml:"drain_budget"`
}

// Following is an Applier and the shards that it follows. See Tailer.Follow.
type Following struct {
	Name    string
	Applier follower.Applier
	Shards  []string
}

// AsFollowing marks a constructor that returns a Following, and perhaps an error,
// for fx.Provide.
func AsFollowing(constructor any) any {
	return fx.Annotate(constructor, fx.ResultTags(followGroup))
}

// tailerParams are the inputs of newTailer.
type tailerParams struct {
	fx.In

	Backend core.Backend
	Config  *config.Config `optional:"true"`
	// Options, if there are any, are used instead of those of Config.
	Options    *follower.Options `optional:"true"`
	Followings []Following       `group:"tenure.followings"`
	Logger     *slog.Logger      `optional:"true"`
}

// newTailer returns a Tailer with the followings. The caller runs it.
func newTailer(p tailerParams) (*follower.Tailer, error) {
	var s FollowerSettings
	if p.Config != nil {
		if err := p.Config.Section("follower", &s); err != nil {
			return nil, err
		}
	}
	o := &follower.Options{
		Batch: s.Batch, Parallel: s.Parallel, Buffer: s.Buffer, Reads: s.Reads, ReadRate: s.ReadRate, Resync: s.Resync,
		CallTimeout: s.CallTimeout, BackoffMin: s.BackoffMin, BackoffMax: s.BackoffMax, DrainBudget: s.DrainBudget,
	}
	if p.Options != nil {
		c := *p.Options
		o = &c
	}
	if o.Logger == nil {
		o.Logger = p.Logger
	}
	t, err := follower.NewTailer(p.Backend, o)
	if err != nil && p.Options == nil {
		err = errtext.InKeys(err, s)
	}
	if err != nil {
		return nil, err
	}
	for _, f := range p.Followings {
		if err := t.Follow(f.Name, f.Applier, f.Shards...); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Follower provides the *follower.Tailer, and runs it from the application's start
// to its stop. It needs a core.Backend, and no Elector.
func Follower() fx.Option {
	return fx.Module("tenure-follower",
		fx.Provide(func(lc fx.Lifecycle, sd fx.Shutdowner, p tailerParams) (*follower.Tailer, error) {
			t, err := newTailer(p)
			if err != nil {
				return nil, err
			}
			lc.Append(hook("follower", t.Run, sd))
			return t, nil
		}),
		fx.Invoke(func(*follower.Tailer) {}),
	)
}
