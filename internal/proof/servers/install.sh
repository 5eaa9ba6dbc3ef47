#!/usr/bin/env bash
# Installs the servers that package servers starts. From Debian packages:
# PostgreSQL, PgBouncer, MariaDB, Galera, Redis, ZooKeeper, Prometheus, strace and Chromium. From their Go modules, which the
# folders below tools name, into .cache/bin: etcd, etcdctl, Consul, versitygw and fake-gcs-server. Does
# nothing where they are there already.
#
# No service of theirs is started: while apt-get runs, a policy-rc.d that refuses
# is in place, and the machine's own is put back afterwards. Where a package
# cannot be had, this says why; it fails only where servers are required, that is
# with CI or TENURE_REQUIRE_SERVERS set, because elsewhere their tests are skipped.
set -euo pipefail
export LC_ALL=C DEBIAN_FRONTEND=noninteractive PATH="$PATH:/usr/sbin:/sbin"

# With --missing it installs nothing, and says whose tests are skipped.
only=${1:-}

# Built again where the module's file is newer, that is after a change of version.
cd "$(dirname "$0")/../../.."
absent=()

# build NAME FOLDER [PACKAGE]: the program of a package; without one, the module's tool.
build() {
	local tool=$1 dir=$2 from=${3:-tool} bin=$PWD/.cache/bin/$1 package
	if [ -n "$only" ]; then
		[ -x "$bin" ] || absent+=("$tool")
		return
	fi
	echo "servers for tests: building $tool"
	mkdir -p .cache/bin
	if package=$(GOWORK=off go -C "$dir" list "$from") &&
		CGO_ENABLED=0 GOWORK=off go -C "$dir" build -trimpath -ldflags='-s -w' -o "$bin.new" "$package"; then
		mv "$bin.new" "$bin" # at once, so that nobody starts half of it
	else
		echo "servers for tests: cannot build $tool" >&2
		[ -z "${CI:-}${TENURE_REQUIRE_SERVERS:-}" ] || exit 1
		echo "tests that need it are skipped" >&2
	fi
}
[ ! tools/etcd/go.mod -nt .cache/bin/etcd ] || build etcd tools/etcd go.etcd.io/etcd/server/v3
# For the recipes of docs/backends/etcd.md, which internal/proof/doctest runs.
[ ! tools/etcd/go.mod -nt .cache/bin/etcdctl ] || build etcdctl tools/etcd go.etcd.io/etcd/etcdctl/v3
[ ! tools/consul/go.mod -nt .cache/bin/consul ] || build consul tools/consul
[ ! tools/versitygw/go.mod -nt .cache/bin/versitygw ] || build versitygw tools/versitygw
[ ! tools/fakegcs/go.mod -nt .cache/bin/fake-gcs-server ] || build fake-gcs-server tools/fakegcs
[ -n "$only" ] || internal/proof/servers/images.sh

missing=()
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null || missing+=(postgresql)
command -v pgbouncer >/dev/null || missing+=(pgbouncer)
# The core package has no service, and all that a server in a test needs.
command -v mariadbd >/dev/null || missing+=(mariadb-server-core)
# The library by which servers of MariaDB form a cluster. Its package has no service.
[ -e /usr/lib/galera/libgalera_smm.so ] || missing+=(galera-4)
command -v redis-server >/dev/null || missing+=(redis-server)
# The package of the library has the server; the other one has a service besides.
if [ ! -e /usr/share/java/zookeeper.jar ] || [ ! -e /usr/share/java/slf4j-simple.jar ]; then
	missing+=(libzookeeper-java libslf4j-java)
fi
# It delays SQLite's flushes.
command -v strace >/dev/null || missing+=(strace)
# promtool tests the alert rules. Its service is not started either.
command -v promtool >/dev/null || missing+=(prometheus)
# They check proof/.
command -v spin >/dev/null || missing+=(spin)
command -v z3 >/dev/null || missing+=(z3)
# The board is shown to a browser.
command -v chromium >/dev/null || missing+=(chromium)
command -v java >/dev/null || missing+=(default-jre-headless)
if [ -n "$only" ]; then
	absent+=("${missing[@]}")
	[ ${#absent[@]} -eq 0 ] || echo "skipped, until make servers: tests that need ${absent[*]}"
	exit 0
fi
[ ${#missing[@]} -gt 0 ] || exit 0

give_up() {
	echo "servers for tests: cannot install ${missing[*]}: $*" >&2
	echo "install them by hand, or name running servers in TENURE_POSTGRES_DSN and TENURE_MYSQL_DSN" >&2
	[ -z "${CI:-}${TENURE_REQUIRE_SERVERS:-}" ] || exit 1
	echo "tests that need them are skipped" >&2
	exit 0
}

command -v apt-get >/dev/null || give_up "there is no apt-get"
root=()
if [ "$(id -u)" -ne 0 ]; then
	sudo -n true 2>/dev/null || give_up "that needs root, or sudo without a password"
	root=(sudo -n --preserve-env=DEBIAN_FRONTEND,LC_ALL)
fi

policy=/usr/sbin/policy-rc.d
scratch=$(mktemp -d)
restore() {
	if [ -e "$scratch/refuse" ]; then
		"${root[@]}" rm -f "$policy"
		[ ! -e "$scratch/own" ] || "${root[@]}" mv "$scratch/own" "$policy"
	fi
	rm -rf "$scratch"
}
trap restore EXIT
trap 'exit 130' INT TERM HUP
[ ! -e "$policy" ] || "${root[@]}" mv "$policy" "$scratch/own"
printf '#!/bin/sh\nexit 101\n' >"$scratch/refuse"
"${root[@]}" install -m 755 "$scratch/refuse" "$policy"

echo "servers for tests: installing ${missing[*]}"
apt() { "${root[@]}" apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" </dev/null >"$scratch/log" 2>&1; }
# Lists may be missing or old; where they cannot be renewed they may still do.
apt update || true
apt install --yes --no-install-recommends "${missing[@]}" || give_up "$(tail -n 5 "$scratch/log")"
internal/proof/servers/images.sh # of what is there now
