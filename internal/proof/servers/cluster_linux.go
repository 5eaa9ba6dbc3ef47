package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// startLocalCluster starts n members as processes of this machine, each with its own directory,
// janitor and ports. A single server is a cluster with one member. All members share passwords and
// certificates.
func startLocalCluster(ctx context.Context, kind Kind, n int, o *Options) (servers []*Server, err error) {
	if n > 1 && !kind.clusters() {
		return nil, fmt.Errorf("tenure: %s has no clusters here: start one server", kind)
	}
	if o.DiskBytes > 0 && os.Getuid() != 0 {
		return nil, unavailable(kind, "a separate disk of %d bytes needs root, to mount it", o.DiskBytes)
	}
	members := make([]*local, n)
	user, admin := randomHex(16), randomHex(16)
	for i := range members {
		r, err := findRecipe(kind, o)
		if err != nil {
			return nil, err
		}
		members[i] = &local{kind: kind, opts: o, recipe: r, index: i, members: members, userPassword: user,
			adminPassword: admin}
	}
	defer func() {
		if err == nil {
			return
		}
		err = fmt.Errorf("tenure: cannot start %s: %w", kind, err)
		for _, l := range members {
			if l.dir == nil {
				continue
			}
			if log := l.logs(); log != "" {
				err = fmt.Errorf("%w; the log of %s ends:\n%s", err, l.name(), redact(log, user, admin))
			}
			err = errors.Join(err, l.close())
		}
	}()
	for _, l := range members {
		if l.dir, err = newDirectory(ctx); err != nil {
			return nil, err
		}
		if err = l.prepare(ctx); err != nil {
			return nil, err
		}
	}
	if err = launchAll(ctx, members); err != nil {
		return nil, err
	}
	if form := members[0].recipe.form; form != nil && n > 1 {
		if err = form(ctx, members); err != nil {
			return nil, err
		}
	}
	for _, l := range members {
		s := &Server{kind: kind, files: l.files, inst: l}
		s.user, s.admin, s.local = l.recipe.dsns(l)
		servers = append(servers, s)
	}
	return servers, nil
}

// launchAll assigns ports to the members and starts all members together. A member may be unable to
// serve until other members serve.
func launchAll(ctx context.Context, members []*local) (err error) {
	// A process that is no server of this package may take a free port before the server opens it.
	for range 5 {
		if err = assignPorts(ctx, members); err != nil {
			return err
		}
		for _, l := range members {
			if err = l.recipe.configure(l); err != nil {
				return err
			}
		}
		launched := make(chan error, len(members))
		for _, l := range members {
			go func() { launched <- l.launch(ctx) }()
		}
		for range members {
			err = errors.Join(err, <-launched)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		taken := false
		for _, l := range members {
			taken = taken || strings.Contains(strings.ToLower(l.logs()), "already in use")
		}
		if !taken {
			return err
		}
		for _, l := range members {
			if killed := l.kill(ctx); killed != nil {
				return errors.Join(err, killed)
			}
		}
	}
	return err
}

func assignPorts(ctx context.Context, members []*local) error {
	for _, l := range members {
		err := l.releasePorts()
		if err != nil {
			return err
		}
		if l.port, err = l.freePort(ctx); err != nil {
			return err
		}
		l.ports = make([]int, l.recipe.ports)
		for i := range l.ports {
			if l.ports[i], err = l.freePort(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// name returns a name that is unique in the cluster and valid in configuration files.
func (l *local) name() string { return fmt.Sprintf("m%d", l.index) }

// tool finds a server that "make servers" has built from its Go module. It looks in .cache/bin of
// the module in which the test runs, and in the PATH.
func tool(kind Kind, name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		path := filepath.Join(dir, ".cache", "bin", name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
		if parent := filepath.Dir(dir); parent != dir {
			dir = parent
			continue
		}
		break
	}
	if path, err := lookPath(name); err == nil {
		return path, nil
	}
	return "", unavailable(kind, "no %s in .cache/bin of the module or in the PATH: run make servers", name)
}
