// Package config reads Tenure's part of an application's configuration file: the
// backend, its address, and the behaviour of this member.
//
//	tenure:
//	  backend: postgres            # one of the names below; needed if there are several
//	  backends:
//	    postgres:
//	      dsn: !file /run/secrets/tenure-dsn
//	      namespace: orders
//	    sqlite:
//	      path: tenure.db
//	      namespace: orders
//	  ttl: 10s
//	  drain_budget: 5s
//
//	c, err := config.Load(&config.LoadOptions{Path: "app.yaml"})
//	b, err := c.Open(ctx, sqlite.Opener(), postgres.Opener())
//	e, err := core.NewElector(b, c.Options())
//
// # Where values come from
//
// From the file, and, on top, from environment variables: TENURE__TTL=5s,
// TENURE__BACKEND=sqlite, TENURE__BACKENDS__POSTGRES__DSN=..., the path of a key in
// capitals with two underscores between its parts. A value may be written as
// !file PATH or !env NAME; it is read when the configuration is loaded, and is a
// secret. Only the subtree is Tenure's; the rest of the file is the application's.
//
// # Checks
//
// Before anything is opened: unknown keys, units, names, the relations between
// durations, the backend's own part even when another one is chosen. The packages
// that use the parts sharding and follower check them, with Config.Section; without
// a user they are ignored. Each problem is one line with the place, the value and a
// correction. No such line, and no output of a Config, has a secret.
package config
