package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/internal/sidecar"
)

type serving struct {
	listen    string
	tokenFile string
	options   sidecar.Options
}

func (a *app) serveCommand() *cobra.Command {
	v := &serving{}
	c := &cobra.Command{
		Use:   "serve --listen ADDRESS",
		Short: "Serve leases to programs in other languages, over HTTP on this machine",
		Long: `Serve leases to programs in other languages, over HTTP on this machine.

ADDRESS is unix: and the path of a socket, which takes clients of this process's user, or
an address of loopback, such as 127.0.0.1:8650, with --token-file: clients send its text as
a bearer token. A lease ends when its client's stream ends, and when the client has made no
request for its TTL. docs/sidecar.md has the API.`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), v) },
	}
	f := c.Flags()
	f.StringVar(&v.listen, "listen", "", "unix:PATH, 127.0.0.1:PORT or [::1]:PORT (required)")
	f.StringVar(&v.tokenFile, "token-file", "", "file with the token of clients, with mode 0600; required with a port")
	f.IntVar(&v.options.MaxLeases, "max-leases", 0, "clients that contend at once (default 256)")
	f.IntVar(&v.options.MaxTails, "max-tails", 0, "streams of logs at once (default 16)")
	f.IntVar(&v.options.MaxRequests, "max-requests", 0, "other requests at once (default 64)")
	return c
}

func (a *app) serve(ctx context.Context, v *serving) (err error) {
	if v.listen == "" {
		return usage("--listen is missing: use unix:PATH or 127.0.0.1:PORT")
	}
	if v.tokenFile != "" {
		if v.options.Token, err = sidecar.ReadToken(v.tokenFile); err != nil {
			return usage(fmt.Sprintf("--token-file: %v", err))
		}
	}
	b, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	o := a.conf.Options()
	// Supersede and the host lock could hand over a shard while the client of a killed sidecar
	// still relies on its lease.
	o.Supersede, o.LockDir = false, "none"
	log := slog.New(slog.NewTextHandler(a.errs, nil))
	o.Logger = log
	v.options.Elector = o
	s, err := sidecar.New(b, &v.options)
	if err != nil {
		return err
	}
	ln, err := sidecar.Listen(v.listen)
	if err != nil {
		return err
	}
	log.Info("serving leases", "address", ln.Addr().String())
	return s.Serve(ctx, ln)
}
