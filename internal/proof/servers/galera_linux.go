package servers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// galeraProvider is the path of the library in Debian's package galera-4.
const galeraProvider = "/usr/lib/galera/libgalera_smm.so"

// galeraScript is the script that the servers run when a node joins. Such a script normally copies
// the data. All nodes begin with the same data, and receive later data as writes, so galeraScript
// copies nothing. The script's arguments are --role ROLE, --gtid POSITION and more.
const galeraScript = `#!/bin/sh
while [ $# -gt 0 ]; do
	case $1 in
	--role) role=$2 ;;
	--gtid) position=$2 ;;
	--bypass) bypass=yes ;;
	esac
	shift
done
case $role-$bypass in
donor-yes) echo "done $position" ;;
joiner-*) echo 'ready 127.0.0.1:4444/none' && sed -n 's/^\(uuid\|seqno\): *//p' grastate.dat | paste -sd: ;;
*) exit 22 ;;
esac
`

// galeraRecipe runs MariaDB servers that certify each other's writes. The nodes begin with
// identical data at the first position of one history, so no node needs a copy of another node's
// data. Debian's scripts for copying data are not used, because their package also installs a
// service. Each node has its own server_id, unless Options.Config sets it.
func galeraRecipe() (recipe, error) {
	if _, err := os.Stat(galeraProvider); err != nil {
		return recipe{}, unavailable(Galera, "no %s: run make servers", galeraProvider)
	}
	r, err := mariadbRecipe()
	if err != nil {
		return recipe{}, unavailable(Galera, "%w", err)
	}
	prepare, command := r.prepare, r.command
	r.ports = 2 // for writes, and for writes that a node missed
	r.prepare = func(ctx context.Context, l *local) error {
		if err := prepare(ctx, l); err != nil {
			return err
		}
		path, _ := command(l)
		return prepareGalera(ctx, l, path)
	}
	r.configure = configureGalera
	r.command = func(l *local) (string, []string) {
		path, args := command(l)
		if l.index == 0 && l.proc == nil {
			args = append(args, "--wsrep-new-cluster")
		}
		return "/usr/bin/env", slices.Concat([]string{"PATH=" + l.path("conf") + ":/usr/sbin:/usr/bin:/sbin:/bin", path}, args)
	}
	r.form = func(ctx context.Context, members []*local) error {
		return poll(ctx, func() (bool, error) {
			for _, l := range members {
				if !strings.Contains(l.logs(), "Synchronized with group") {
					return false, nil
				}
			}
			return true, nil
		})
	}
	return r, nil
}

// prepareGalera begins the history on the first node, and copies this initial data to the other
// nodes.
func prepareGalera(ctx context.Context, l *local, path string) error {
	script, err := l.write("wsrep_sst_tenure", galeraScript)
	if err != nil {
		return err
	}
	if err := os.Chmod(script, 0o700); err != nil {
		return err
	}
	if l.index > 0 {
		return l.run(ctx, "", "/bin/cp", "-a", l.members[0].path("data")+"/.", l.path("data"))
	}
	end, err := l.write("end.sql", "SHUTDOWN;\n")
	if err != nil {
		return err
	}
	port, err := l.freePort(ctx)
	if err != nil {
		return err
	}
	err = l.run(ctx, "", path, "--no-defaults", "--skip-networking", "--datadir="+l.path("data"), "--tmpdir="+l.path("conf"),
		"--socket="+l.path("conf", "socket"), "--init-file="+end, "--innodb-log-file-size=16M", "--binlog-format=ROW",
		"--wsrep-on", "--wsrep-new-cluster", "--wsrep-provider="+galeraProvider, "--wsrep-cluster-address=gcomm://",
		fmt.Sprintf("--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:%d;gcache.size=1M", port))
	if err != nil {
		return err
	}
	for _, name := range []string{"galera.cache", "gvwstate.dat"} {
		if err := os.Remove(l.path("data", name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func configureGalera(l *local) error {
	var nodes []string
	for _, m := range l.members {
		nodes = append(nodes, "127.0.0.1:"+strconv.Itoa(m.ports[0]))
	}
	own := *l.opts
	own.Config = append([]string{
		"server-id = " + strconv.Itoa(l.index+1),
		"binlog-format = ROW",
		"default-storage-engine = InnoDB",
		"innodb-autoinc-lock-mode = 2",
		"wsrep-on = ON",
		"wsrep-provider = " + galeraProvider,
		"wsrep-cluster-name = tenure",
		"wsrep-node-name = " + l.name(),
		"wsrep-node-address = " + nodes[l.index],
		"wsrep-sst-method = tenure",
		"wsrep-cluster-address = gcomm://" + strings.Join(nodes, ","),
		fmt.Sprintf(`wsrep-provider-options = "gmcast.listen_addr=tcp://%s;ist.recv_addr=127.0.0.1:%d;gcache.size=32M"`,
			nodes[l.index], l.ports[1]),
	}, l.opts.Config...)
	with := *l
	with.opts = &own
	return configureMariaDB(&with)
}
