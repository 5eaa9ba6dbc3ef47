// Package config reads Tenure's part of an application's configuration file: the backend, its
// address, and the behaviour of this member.
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
// Load reads the file. Environment variables override it, for example TENURE__TTL=5s,
// TENURE__BACKEND=sqlite, TENURE__BACKENDS__POSTGRES__DSN=... The name of a variable is the path of
// a key in capitals, with two underscores between its parts. A value may be written as !file PATH
// or !env NAME. Load then reads the value from that file or variable, and treats it as a secret.
// Only the subtree belongs to Tenure. The rest of the file belongs to the application.
//
// # Checks
//
// Before it opens anything, the package checks unknown keys, units, names, the relations between
// durations, and the parts of all backends. Packages that use the parts sharding and follower
// check them with Config.Section. Unused parts are ignored. Each problem is reported on one line
// with the place, the value and a correction. No such line, and no output of a Config, contains a
// secret.
package config
