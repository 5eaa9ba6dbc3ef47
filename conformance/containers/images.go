package containers

import (
	"crypto/rand"
	"fmt"

	"github.com/tenure-go/tenure/backends/consul"
	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/backends/redis"
	"github.com/tenure-go/tenure/backends/sql/mysql"
	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/backends/zookeeper"
	"github.com/tenure-go/tenure/core/driver"
)

// Image is a container image of a store, with the settings for running it and for opening a
// backend. The functions of this package return Images. The zero Image is invalid.
type Image struct {
	name       string
	port       int // the store's port inside the container
	env        map[string]string
	entrypoint []string // if empty, the image's entry point
	command    []string
	secret     string // a text that is removed from messages
	opener     driver.Opener
	// settings returns a backend's settings for the store at addr, without the namespace.
	settings func(addr string) settings
}

type settings map[string]any

// Postgres returns an image with the entry point of the official image "postgres", version 13 or
// later.
func Postgres(image string) Image {
	password := rand.Text()
	return Image{
		name: image, port: 5432, secret: password, opener: postgres.Opener(),
		env:     map[string]string{"POSTGRES_PASSWORD": password, "POSTGRES_DB": "tenure"},
		command: []string{"postgres", "-c", "max_connections=500"},
		settings: func(addr string) settings {
			return settings{"dsn": fmt.Sprintf("postgres://postgres:%s@%s/tenure?sslmode=disable", password, addr), "migrate": true}
		},
	}
}

// MySQL returns an image with the entry point of the official image "mysql", version 8 or later.
func MySQL(image string) Image { return mysqlImage(image, "MYSQL") }

// MariaDB returns an image with the entry point of the official image "mariadb", version 10.6 or
// later.
func MariaDB(image string) Image { return mysqlImage(image, "MARIADB") }

func mysqlImage(image, prefix string) Image {
	password := rand.Text()
	return Image{
		name: image, port: 3306, secret: password, opener: mysql.Opener(),
		env:     map[string]string{prefix + "_ROOT_PASSWORD": password, prefix + "_DATABASE": "tenure"},
		command: []string{"--max-connections=500"},
		settings: func(addr string) settings {
			return settings{"dsn": fmt.Sprintf("root:%s@tcp(%s)/tenure", password, addr), "migrate": true}
		},
	}
}

// Etcd returns an image with the program /usr/local/bin/etcd, such as
// "gcr.io/etcd-development/etcd:v3.7.3".
func Etcd(image string) Image {
	return Image{
		name: image, port: 2379, opener: etcd.Opener(),
		entrypoint: []string{"/usr/local/bin/etcd"},
		command: []string{
			"--data-dir=/data", "--listen-client-urls=http://0.0.0.0:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		},
		settings: func(addr string) settings { return settings{"endpoints": []string{"http://" + addr}} },
	}
}

// Consul returns an image with the program /bin/consul, such as "hashicorp/consul:1.16.3".
func Consul(image string) Image {
	return Image{
		name: image, port: 8500, opener: consul.Opener(),
		entrypoint: []string{"/bin/consul"},
		command: []string{
			"agent", "-server", "-bootstrap-expect=1", "-data-dir=/data", "-bind=0.0.0.0", "-client=0.0.0.0",
			"-disable-host-node-id", "-log-level=warn",
			// With a raft_multiplier of 1, an election takes one second. The connection limit is
			// high because the suite is a single client that sends the requests of many processes.
			`-hcl={"performance":{"raft_multiplier":1},"limits":{"http_max_conns_per_client":2000},"disable_update_check":true}`,
		},
		settings: func(addr string) settings { return settings{"address": addr} },
	}
}

// ZooKeeper returns an image with the entry point of the official image "zookeeper", version 3.5.3
// or later.
func ZooKeeper(image string) Image {
	return Image{
		name: image, port: 2181, opener: zookeeper.Opener(),
		env:      map[string]string{"ZOO_MAX_CLIENT_CNXNS": "0", "ZOO_ADMINSERVER_ENABLED": "false"},
		settings: func(addr string) settings { return settings{"servers": []string{addr}} },
	}
}

// Redis returns an image whose entry point passes options to the server. The official images
// "redis" and "valkey/valkey", version 7.0 or later, have such an entry point.
func Redis(image string) Image {
	return Image{
		name: image, port: 6379, opener: redis.Opener(),
		command:  []string{"--appendonly", "yes", "--appendfsync", "always", "--save", "", "--protected-mode", "no"},
		settings: func(addr string) settings { return settings{"addrs": []string{addr}} },
	}
}
