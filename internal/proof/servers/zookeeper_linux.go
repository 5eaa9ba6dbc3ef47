package servers

import (
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// zookeeperJars is the folder in which Debian's package installs the server's jars. The folder may
// also contain the jars of the upstream archive.
const zookeeperJars = "/usr/share/java"

// zookeeperRecipe runs a standalone server, or one member of an ensemble. The server's
// administrator is the digest user "super", who has all permissions. Ordinary users of digest
// authentication need no preparation. A client acts as a user if it has the name and password in a
// node's ACL.
func zookeeperRecipe() (recipe, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return recipe{}, unavailable(ZooKeeper, "no java in the PATH: run make servers, or set %s",
			ZooKeeper.variable())
	}
	if _, err := os.Stat(filepath.Join(zookeeperJars, "zookeeper.jar")); err != nil {
		return recipe{}, unavailable(ZooKeeper, "no zookeeper.jar in %s: run make servers, or set %s", zookeeperJars,
			ZooKeeper.variable())
	}
	var serve *local
	return recipe{
		accounts: []string{"zookeeper", "nobody"},
		ports:    2,
		prepare:  func(context.Context, *local) error { return nil },
		configure: func(l *local) error {
			serve = l
			return configureZooKeeper(l)
		},
		command: func(l *local) (string, []string) {
			class := "org.apache.zookeeper.server.ZooKeeperServerMain"
			if len(l.members) > 1 {
				class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
			}
			return java, zookeeperArguments(l, class)
		},
		probe: func(conn net.Conn) error { return probeZooKeeper(conn, serve.files) },
		dsns: func(l *local) (user, admin, local DSN) {
			user = DSN{kind: ZooKeeper, network: "tcp", addr: l.addr()}.As(userName, l.userPassword)
			admin = user.As(zookeeperSuper, l.adminPassword)
			return user, admin, admin
		},
	}, nil
}

// zookeeperSuper is the only user that a server has from the start.
const zookeeperSuper = "super"

// zookeeperArguments returns the arguments that start a server's main class. The arguments set the
// same heap size as zkServer.sh. With a quarter of that size, the append benchmarks would be
// slower. The arguments also make the server log warnings, and keep the server from sharing a file
// with other processes.
func zookeeperArguments(l *local, class string) []string {
	sum := sha1.Sum([]byte(zookeeperSuper + ":" + l.adminPassword))
	args := []string{
		"-Xmx1000m", "-XX:+UseSerialGC", "-XX:-UsePerfData",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-Dzookeeper.DigestAuthenticationProvider.superDigest=" + zookeeperSuper + ":" +
			base64.StdEncoding.EncodeToString(sum[:]),
	}
	if l.files != nil {
		args = append(args, "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory")
	}
	// The first jar lists its dependencies, except for a logger and some dependencies for TLS.
	jars := []string{"zookeeper.jar", "netty-codec.jar", "netty-resolver.jar", "slf4j-simple.jar"}
	for i, jar := range jars {
		jars[i] = filepath.Join(zookeeperJars, jar)
	}
	return append(args, "-cp", strings.Join(jars, ":"), class, l.path("conf", "zoo.cfg"))
}

func configureZooKeeper(l *local) error {
	lines, err := zookeeperConfig(l)
	if err != nil {
		return err
	}
	if len(l.members) > 1 {
		peers, err := zookeeperPeers(l)
		if err != nil {
			return err
		}
		lines = append(lines, peers...)
	}
	_, err = l.write("zoo.cfg", strings.Join(append(lines, l.opts.Config...), "\n")+"\n")
	return err
}

// zookeeperPeers returns the configuration that makes a server a member. Peers communicate in
// plaintext over loopback. Their time limits are the documented defaults.
func zookeeperPeers(l *local) ([]string, error) {
	id := l.path("data", "myid")
	if err := os.WriteFile(id, []byte(strconv.Itoa(l.index+1)+"\n"), 0o600); err != nil {
		return nil, err
	}
	if err := l.own(id); err != nil {
		return nil, err
	}
	lines := []string{"initLimit = 10", "syncLimit = 5"}
	for _, m := range l.members {
		lines = append(lines, fmt.Sprintf("server.%d = 127.0.0.1:%d:%d", m.index+1, m.ports[0], m.ports[1]))
	}
	return lines, nil
}

func zookeeperConfig(l *local) ([]string, error) {
	lines := []string{
		"tickTime = 2000",
		"dataDir = " + l.path("data"),
		"admin.enableServer = false",
		"4lw.commands.whitelist = *",
		"maxClientCnxns = 0",
		"preAllocSize = 4096", // in KiB, instead of 64 MiB for each new log
	}
	if l.opts.NoSync {
		lines = append(lines, "forceSync = no")
	}
	if l.files == nil {
		return append(lines, "clientPortAddress = 127.0.0.1", "clientPort = "+strconv.Itoa(l.port)), nil
	}
	var pair strings.Builder
	for _, path := range []string{l.files.serverKey, l.files.serverCert} {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		pair.Write(text)
	}
	keys, err := l.write("server-pair.pem", pair.String())
	if err != nil {
		return nil, err
	}
	clients := "none"
	if l.opts.TLS == TLSMutual {
		clients = "need"
	}
	return append(lines, "secureClientPortAddress = 127.0.0.1", "secureClientPort = "+strconv.Itoa(l.port),
		"ssl.keyStore.location = "+keys, "ssl.keyStore.type = PEM",
		"ssl.trustStore.location = "+l.files.ca, "ssl.trustStore.type = PEM",
		"ssl.clientAuth = "+clients, "ssl.hostnameVerification = false"), nil
}

// probeZooKeeper asks for the server's state. The server reports a state only when it serves.
func probeZooKeeper(conn net.Conn, files *certificates) error {
	if files != nil {
		cfg, err := files.config()
		if err != nil {
			return err
		}
		conn = tls.Client(conn, cfg)
	}
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return err
	}
	answer, err := io.ReadAll(io.LimitReader(conn, 4096))
	if text := string(answer); strings.HasPrefix(text, "Zookeeper version") {
		return nil
	} else if err == nil {
		err = fmt.Errorf("it says %.80q", text)
	}
	return errors.Join(errors.New("it is starting"), err)
}
