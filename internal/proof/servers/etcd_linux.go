package servers

import (
	"context"
	"net"
	"strconv"
)

// etcdRecipe runs one member. Peers communicate in plaintext over loopback. Authentication is off.
// A test that needs authentication adds users and enables authentication, as on any running store.
func etcdRecipe() (recipe, error) {
	path, err := tool(Etcd, "etcd")
	if err != nil {
		return recipe{}, err
	}
	var member *local
	return recipe{
		ports:   1,
		prepare: func(context.Context, *local) error { return nil },
		configure: func(l *local) error {
			member = l
			return nil
		},
		command: func(l *local) (string, []string) { return path, etcdArguments(l) },
		probe:   func(conn net.Conn) error { return probeEtcd(conn, member.files) },
		dsns: func(l *local) (user, admin, local DSN) {
			d := DSN{kind: Etcd, network: "tcp", addr: l.addr()}
			return d, d, d
		},
	}, nil
}

func etcdArguments(l *local) []string {
	cluster := make([]etcdMember, len(l.members))
	for i, m := range l.members {
		peer := net.JoinHostPort("127.0.0.1", strconv.Itoa(m.ports[0]))
		cluster[i] = etcdMember{
			name: m.name(), data: m.path("data"), listen: m.addr(), advertise: m.addr(),
			listenPeer: peer, tellPeer: peer, files: m.files,
		}
	}
	return cluster[l.index].arguments(cluster, strconv.Itoa(l.members[0].ports[0]), l.opts)
}
