package servers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// s3Recipe runs versitygw, which stores each object in a file. Its only user has the name and the
// password of [Server.User] as access key. Buckets may have versions.
func s3Recipe() (recipe, error) {
	r, err := objectRecipe(S3, "versitygw", "/health", func(l *local) []string {
		return []string{"--port=" + l.addr(), "--health=/health", "--quiet", "posix",
			"--versioning-dir=" + l.path("data", "versions"), l.path("data", "buckets")}
	})
	// Other users of the machine can read arguments.
	r.environment = func(l *local) []string {
		return append(configLines(l), "ROOT_ACCESS_KEY_ID="+userName, "ROOT_SECRET_ACCESS_KEY="+l.userPassword)
	}
	r.dsns = func(l *local) (user, admin, local DSN) {
		d := DSN{kind: S3, network: "tcp", addr: l.addr()}.As(userName, l.userPassword)
		return d, d, d
	}
	return r, err
}

// gcsRecipe runs fake-gcs-server, which asks for no password. Buckets have no versions. The server
// stores each object in a file, unless Options.Config contains "FAKE_GCS_BACKEND = memory".
func gcsRecipe() (recipe, error) {
	r, err := objectRecipe(GCS, "fake-gcs-server", "/_internal/healthcheck", func(l *local) []string {
		return []string{"-scheme=http", "-host=127.0.0.1", "-port=" + strconv.Itoa(l.port), "-public-host=" + l.addr(),
			"-filesystem-root=" + l.path("data", "buckets"), "-log-level=warn"}
	})
	r.environment = func(l *local) []string { return append([]string{"FAKE_GCS_BACKEND=filesystem"}, configLines(l)...) }
	return r, err
}

// objectRecipe runs an object store. The lines of Options.Config are variables of its environment.
func objectRecipe(kind Kind, program, health string, arguments func(*local) []string) (recipe, error) {
	path, err := tool(kind, program)
	if err != nil {
		return recipe{}, err
	}
	return recipe{
		prepare: func(_ context.Context, l *local) error {
			for _, name := range []string{"buckets", "versions"} {
				if err := os.Mkdir(l.path("data", name), 0o700); err != nil {
					return err
				}
			}
			return nil
		},
		configure: func(*local) error { return nil },
		command:   func(l *local) (string, []string) { return path, arguments(l) },
		probe:     func(conn net.Conn) error { return probeHealth(conn, health) },
		dsns: func(l *local) (user, admin, local DSN) {
			d := DSN{kind: kind, network: "tcp", addr: l.addr()}
			return d, d, d
		},
	}, nil
}

func configLines(l *local) (lines []string) {
	for _, line := range l.opts.Config {
		name, value, _ := strings.Cut(line, "=")
		lines = append(lines, strings.TrimSpace(name)+"="+strings.TrimSpace(value))
	}
	return lines
}

func probeHealth(conn net.Conn, path string) error {
	_, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	if err != nil {
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
