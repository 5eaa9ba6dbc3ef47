package tenurefx

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.uber.org/fx"

	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/errtext"
)

const (
	electionGroup = `group:"tenure.elections"`
	hooksGroup    = `group:"tenure.hooks"`
	followGroup   = `group:"tenure.followings"`
)

// Election is a set of shards that this process contends for, with their handler. An application
// may provide any number of Elections. See AsElection.
type Election struct {
	Shards  []string
	Handler core.Handler
}

// AsElection annotates a constructor of an Election for use with fx.Provide. The constructor may
// also return an error.
func AsElection(constructor any) any {
	return fx.Annotate(constructor, fx.ResultTags(electionGroup))
}

// AsHooks annotates a constructor of core.Hooks for use with fx.Provide. An application may provide
// several Hooks. The Elector calls all of them, in addition to the hooks of core.Options.
func AsHooks(constructor any) any {
	return fx.Annotate(constructor, fx.ResultTags(hooksGroup))
}

// Work runs while this process holds a shard. The work starts after the shard has been granted, and
// ends before the Elector gives up the lease.
type Work struct {
	Shards []string
	// Start begins the work and returns. The context ctx ends when the lease may no longer be used,
	// so the work may use ctx after Start has returned. If Start returns an error, the Elector
	// gives up the shard, and claims it again after a back-off.
	Start func(ctx context.Context, lease *core.Lease) error
	// Stop ends the work and returns when the work has ended. The context ctx ends when the lease
	// may no longer be used. When ctx ends, Stop must abandon the rest of the work.
	Stop func(ctx context.Context) error
}

// Election returns an Election whose handler runs the work.
func (w Work) Election() Election {
	return Election{Shards: w.Shards, Handler: func(ctx context.Context, lease *core.Lease) error {
		if err := w.Start(lease.Context(), lease); err != nil {
			return err
		}
		<-ctx.Done()
		return w.Stop(lease.Context())
	}}
}

type electorParams struct {
	fx.In

	Backend core.Backend
	Config  *config.Config `optional:"true"`
	// When provided, Options replaces the options of Config.
	Options   *core.Options `optional:"true"`
	Elections []Election    `group:"tenure.elections"`
	Hooks     []core.Hooks  `group:"tenure.hooks"`
	// Logger receives the configuration's warnings. If Options has no logger, Logger becomes
	// core.Options.Logger.
	Logger *slog.Logger `optional:"true"`
}

func newElector(p electorParams) (*core.Elector, error) {
	o := p.Options
	switch {
	case o != nil:
		c := *o
		o = &c
	case p.Config != nil:
		o = p.Config.Options()
	default:
		o = &core.Options{}
	}
	if o.Logger == nil {
		o.Logger = p.Logger
	}
	if p.Config != nil && p.Logger != nil {
		for _, w := range p.Config.Warnings() {
			p.Logger.Warn("tenure: " + w)
		}
	}
	o.Hooks = core.JoinHooks(append([]core.Hooks{o.Hooks}, p.Hooks...)...)
	e, err := core.NewElector(p.Backend, o)
	if err != nil {
		return nil, err
	}
	for _, el := range p.Elections {
		if el.Handler == nil {
			return nil, fmt.Errorf("tenure: %w: the election of %q has no handler", core.ErrInvalid, el.Shards)
		}
		if err := e.Contend(el.Handler, el.Shards...); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// Backends provides the core.Backend that *config.Config selects from openers. Backends closes the
// backend after all parts that use it have stopped.
func Backends(openers ...core.Opener) fx.Option {
	return fx.Provide(func(lc fx.Lifecycle, c *config.Config) (core.Backend, error) {
		b, err := c.Open(context.Background(), openers...) // open_wait and open_timeout limit this call
		if err != nil {
			return nil, err
		}
		lc.Append(fx.StopHook(b.Close))
		return b, nil
	})
}

// Module provides the *core.Elector, and runs it from the application's start to its stop. Module
// needs a core.Backend. See Backends.
func Module() fx.Option {
	return fx.Module("tenure",
		fx.Provide(func(lc fx.Lifecycle, sd fx.Shutdowner, p electorParams) (*core.Elector, error) {
			e, err := newElector(p)
			if err != nil {
				return nil, err
			}
			lc.Append(hook("elector", e.Run, sd))
			return e, nil
		}),
		fx.Invoke(func(*core.Elector) {}),
	)
}

// hook runs a function in the background, from start to stop.
func hook(name string, run func(context.Context) error, sd fx.Shutdowner) fx.Hook {
	var cancel context.CancelFunc
	ended := make(chan error, 1)
	return fx.Hook{
		OnStart: func(context.Context) error {
			var ctx context.Context
			ctx, cancel = context.WithCancel(context.Background())
			go func() {
				err := run(ctx)
				ended <- err
				if ctx.Err() == nil { // the run ended before it was asked to end
					// Shutdown fails only if no goroutine is waiting for a shutdown.
					_ = sd.Shutdown(fx.ExitCode(1))
				}
			}()
			return nil
		},
		OnStop: func(ctx context.Context) error {
			cancel()
			ctx, release := early(ctx)
			defer release()
			select {
			case err := <-ended:
				if err != nil {
					return errtext.Errorf("tenure: the %s ended: %w", name, err)
				}
				return nil
			case <-ctx.Done():
				return errtext.Errorf("tenure: the %s had not stopped in time: other members take over the shards "+
					"that it "+
					"still holds: %w", name, context.Cause(ctx))
			}
		},
	}
}

// The returned context ends before the deadline of ctx, to leave time for later hooks. The margin
// is a tenth of the remaining time, but at least 1 s, and never more than half of the remaining
// time. A store needs this time if it syncs its files when it closes. If a hook had no time left,
// fx would report only that the deadline passed.
func early(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	left := time.Until(deadline)
	return context.WithDeadline(ctx, deadline.Add(-max(left/10, min(time.Second, left/2))))
}
