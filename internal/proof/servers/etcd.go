package servers

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// etcdMember contains the addresses on which a cluster member listens, and the addresses at which
// others reach that member.
type etcdMember struct {
	name, data           string
	listen, advertise    string // host:port for clients
	listenPeer, tellPeer string // host:port for the other members
	files                *certificates
}

// arguments returns a cluster member's command line.
func (m etcdMember) arguments(cluster []etcdMember, token string, o *Options) []string {
	scheme := "http://"
	if m.files != nil {
		scheme = "https://"
	}
	peers := make([]string, len(cluster))
	for i, p := range cluster {
		peers[i] = p.name + "=http://" + p.tellPeer
	}
	args := []string{
		"--name=" + m.name,
		"--data-dir=" + m.data,
		"--listen-client-urls=" + scheme + m.listen,
		"--advertise-client-urls=" + scheme + m.advertise,
		"--listen-peer-urls=http://" + m.listenPeer,
		"--initial-advertise-peer-urls=http://" + m.tellPeer,
		"--initial-cluster=" + strings.Join(peers, ","),
		"--initial-cluster-token=" + token,
		"--log-level=warn",
	}
	if m.files != nil {
		args = append(args, "--cert-file="+m.files.serverCert, "--key-file="+m.files.serverKey)
		if o.TLS == TLSMutual {
			args = append(args, "--client-cert-auth", "--trusted-ca-file="+m.files.ca)
		}
	}
	if o.NoSync {
		args = append(args, "--unsafe-no-fsync")
	}
	for _, line := range o.Config {
		name, value, _ := strings.Cut(line, "=")
		args = append(args, "--"+strings.TrimSpace(name)+"="+strings.TrimSpace(value))
	}
	return args
}

// probeEtcd checks whether the member serves, which requires a majority. A member also serves while
// the space alarm is raised.
func probeEtcd(conn net.Conn, files *certificates) error {
	if files != nil {
		cfg, err := files.config()
		if err != nil {
			return err
		}
		conn = tls.Client(conn, cfg)
	}
	if _, err := io.WriteString(conn, "GET /health?exclude=NOSPACE HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("it is starting: %s", answer.Status)
	}
	return nil
}
