#!/usr/bin/env bash
# Installs the servers that package servers starts, from Debian packages:
# PostgreSQL, PgBouncer and MariaDB. Does nothing where they are there already.
#
# No service of theirs is started: while apt-get runs, a policy-rc.d that refuses
# is in place, and the machine's own is put back afterwards. Where a package
# cannot be had, this says why; it fails only where servers are required, that is
# with CI or TENURE_REQUIRE_SERVERS set, because elsewhere their tests are skipped.
set -euo pipefail
export LC_ALL=C DEBIAN_FRONTEND=noninteractive PATH="$PATH:/usr/sbin:/sbin"

missing=()
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null || missing+=(postgresql)
command -v pgbouncer >/dev/null || missing+=(pgbouncer)
# The core package has no service, and all that a server in a test needs.
command -v mariadbd >/dev/null || missing+=(mariadb-server-core)
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
apt() { "${root[@]}" apt-get -qq -o DPkg::Lock::Timeout=300 "$@" </dev/null >"$scratch/log" 2>&1; }
# Lists may be missing or old; where they cannot be renewed they may still do.
apt update || true
apt install --yes --no-install-recommends "${missing[@]}" || give_up "$(tail -n 5 "$scratch/log")"
