// Package config reads Tenure's section of an application's configuration file. The section
// specifies the backend, its address, and the behavior of this member.
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
// Load reads the file. Environment variables such as TENURE__TTL=5s, TENURE__BACKEND=sqlite and
// TENURE__BACKENDS__POSTGRES__DSN=... override the file. A variable's name is the path of a key in
// upper case, with two underscores between the parts. If a value is written as !file PATH or !env
// NAME, Load reads the value from that file or variable and treats it as a secret. Only the tenure
// subtree belongs to Tenure. The rest of the file belongs to the application.
//
// # Checks
//
// Before it opens a backend, package config checks keys, units, names, the relations between
// durations, and the settings of all backends. Packages that use the "sharding" or "follower"
// section check it with Config.Section. If no package uses such a section, its content is ignored.
// An error reports each problem on one line, with the place, the value and a correction. Neither
// these lines nor any output of a Config contains a secret.
package config
