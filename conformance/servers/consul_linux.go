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
)

// Further ports of a Consul server: gossip and remote calls between members.
const (
	consulGossip = iota
	consulCalls
	consulPorts
)

// consulRecipe runs one server. ACLs are off unless a line of Options.Config
// turns them on, which is HCL and wins over what is set here:
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
			return path, []string{"agent", "-config-file=" + l.path("conf", "consul.json"), "-config-file=" + l.path("conf", "extra.hcl")}
		},
		probe: func(conn net.Conn) error { return probeConsul(conn, member.files) },
		dsns: func(l *local) (user, admin, local DSN) {
			d := DSN{kind: Consul, network: "tcp", addr: l.addr()}
			return d, d, d
		},
	}, nil
}

func configureConsul(l *local) error {
	type object = map[string]any
	var others []string
	for _, m := range l.members {
		if m != l {
			others = append(others, net.JoinHostPort("127.0.0.1", strconv.Itoa(m.ports[consulGossip])))
		}
	}
	ports := object{
		"http": l.port, "https": -1, "dns": -1, "grpc": -1, "grpc_tls": -1, "serf_wan": -1,
		"serf_lan": l.ports[consulGossip], "server": l.ports[consulCalls],
	}
	config := object{
		"server": true, "bootstrap_expect": len(l.members), "node_name": l.name(), "data_dir": l.path("data"),
		"bind_addr": "127.0.0.1", "client_addr": "127.0.0.1", "ports": ports,
		"retry_join": others, "retry_interval": "1s",
		"connect": object{"enabled": false}, "disable_update_check": true, "log_level": "warn",
		"performance": object{"raft_multiplier": 1},
		// Every test of a machine is one client, and each process of it has a few.
		"limits": object{"http_max_conns_per_client": 900},
	}
	if l.files != nil {
		ports["http"], ports["https"] = -1, l.port
		config["tls"] = object{"https": object{
			"ca_file": l.files.ca, "cert_file": l.files.serverCert, "key_file": l.files.serverKey,
			"verify_incoming": l.opts.TLS == TLSMutual,
		}}
	}
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	if _, err := l.write("consul.json", string(text)); err != nil {
		return err
	}
	extra := ""
	for _, line := range l.opts.Config {
		extra += line + "\n"
	}
	_, err = l.write("extra.hcl", extra)
	return err
}

// probeConsul reads a key in the mode for which a majority must agree. That it is
// missing, or not for everybody to read, is an answer.
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
