package servers

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// These are a Consul server's other ports, for gossip and for remote calls between members.
const (
	consulGossip = iota
	consulCalls
	consulPorts
)

// consulRecipe runs one server. ACLs are off unless a line of Options.Config turns them on. The
// lines of Options.Config are HCL and override the recipe's settings:
//
//	acl = { enabled = true, default_policy = "deny", tokens = { initial_management = "<UUID>" } }
func consulRecipe() (recipe, error) {
	path, err := tool(Consul, "consul")
	if err != nil {
		return recipe{}, err
	}
	var member *local
	return recipe{
		ports:   consulPorts,
		prepare: func(context.Context, *local) error { return nil },
		configure: func(l *local) error {
			member = l
			return configureConsul(l)
		},
		command: func(l *local) (string, []string) {
			return path, []string{"agent", "-config-file=" + l.path("conf", "consul.json"), "-config-file=" +
				l.path("conf", "extra.hcl")}
		},
		probe: func(conn net.Conn) error { return probeConsul(conn, member.files) },
		dsns: func(l *local) (user, admin, local DSN) {
			d := DSN{kind: Consul, network: "tcp", addr: l.addr()}
			return d, d, d
		},
	}, nil
}

func configureConsul(l *local) error {
	m := consulMember{
		name: l.name(), data: l.path("data"), bind: "127.0.0.1", members: len(l.members), files: l.files,
		port: l.port, gossip: l.ports[consulGossip], calls: l.ports[consulCalls],
	}
	for _, other := range l.members {
		if other != l {
			m.others = append(m.others, net.JoinHostPort("127.0.0.1", strconv.Itoa(other.ports[consulGossip])))
		}
	}
	text, err := m.config(l.opts)
	if err != nil {
		return err
	}
	if _, err := l.write("consul.json", text); err != nil {
		return err
	}
	_, err = l.write("extra.hcl", strings.Join(l.opts.Config, "\n")+"\n")
	return err
}

// consulMember contains the ports of one server of a cluster, and the addresses of the other
// servers.
type consulMember struct {
	name, data, bind    string
	port, gossip, calls int // for clients, and between members
	members             int
	others              []string // host:port of the others' gossip
	files               *certificates
}

// config returns the server's configuration in JSON.
func (m consulMember) config(o *Options) (string, error) {
	type object = map[string]any
	ports := object{
		"http": m.port, "https": -1, "dns": -1, "grpc": -1, "grpc_tls": -1, "serf_wan": -1,
		"serf_lan": m.gossip, "server": m.calls,
	}
	config := object{
		"server": true, "bootstrap_expect": m.members, "node_name": m.name, "data_dir": m.data,
		"bind_addr": m.bind, "client_addr": m.bind, "ports": ports,
		"retry_interval": "1s",
		"connect":        object{"enabled": false}, "disable_update_check": true, "log_level": "warn",
		"performance": object{"raft_multiplier": 1},
		// The server treats all tests on a machine as one client, and each process has a few
		// connections.
		"limits": object{"http_max_conns_per_client": 900},
	}
	if len(m.others) > 0 {
		config["retry_join"] = m.others
	}
	if m.files != nil {
		ports["http"], ports["https"] = -1, m.port
		config["tls"] = object{"https": object{
			"ca_file": m.files.ca, "cert_file": m.files.serverCert, "key_file": m.files.serverKey,
			"verify_incoming": o.TLS == TLSMutual,
		}}
	}
	text, err := json.Marshal(config)
	return string(text), err
}

// probeConsul reads a key in the mode that requires a majority. If the key is missing or may not be
// read, the error counts as an answer.
func probeConsul(conn net.Conn, files *certificates) error {
	if files != nil {
		cfg, err := files.config()
		if err != nil {
			return err
		}
		conn = tls.Client(conn, cfg)
	}
	if _, err := io.WriteString(conn, "GET /v1/kv/tenure-probe?consistent HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK, http.StatusNotFound, http.StatusForbidden:
		return nil
	}
	return fmt.Errorf("it is starting: %s", answer.Status)
}
