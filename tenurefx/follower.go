package tenurefx

import (
	"log/slog"

	"go.uber.org/fx"

	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/follower"
	"github.com/tenure-go/tenure/internal/errtext"
)

// Following is an Applier with the shards that it follows. See follower.Tailer.Follow.
type Following struct {
	Name    string
	Applier follower.Applier
	Shards  []string
}

// AsFollowing annotates a constructor of a Following for use with fx.Provide. The constructor
// may also return an error.
func AsFollowing(constructor any) any {
	return fx.Annotate(constructor, fx.ResultTags(followGroup))
}

type tailerParams struct {
	fx.In

	Backend core.Backend
	Config  *config.Config `optional:"true"`
	// Options contains the application's options, which values in the configuration override.
	Options    *follower.Options `optional:"true"`
	Followings []Following       `group:"tenure.followings"`
	Logger     *slog.Logger      `optional:"true"`
}

func newTailer(p tailerParams) (*follower.Tailer, error) {
	var o follower.Options
	if p.Options != nil {
		o = *p.Options
	}
	if p.Config != nil {
		if err := p.Config.Section("follower", &o); err != nil {
			return nil, err
		}
	}
	if o.Logger == nil {
		o.Logger = p.Logger
	}
	t, err := follower.NewTailer(p.Backend, &o)
	if err != nil {
		return nil, errtext.InKeys(err, o)
	}
	for _, f := range p.Followings {
		if err := t.Follow(f.Name, f.Applier, f.Shards...); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Follower provides the *follower.Tailer and runs it from the application's start to its stop.
// Follower needs a core.Backend, but no Elector.
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
