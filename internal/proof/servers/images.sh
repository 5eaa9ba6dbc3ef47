#!/usr/bin/env bash
# Makes sure that the images that tests run in containers are there: pulled, or else
# built here from what tools built, under the official name.
# Does nothing where no Docker engine answers.
set -euo pipefail
cd "$(dirname "$0")/../../.."
docker info >/dev/null 2>&1 || exit 0

# image NAME PATH: PATH is where the image has the program.
image() {
	local name=$1 path=$2 tool=${2##*/} context
	docker image inspect "$name" >/dev/null 2>&1 && return
	timeout 120 docker pull --quiet "$name" >/dev/null 2>&1 && return
	[ -x ".cache/bin/$tool" ] || { echo "servers for tests: no image of $tool, and no $tool to make one of" >&2; return; }
	echo "servers for tests: making $name of the $tool built here"
	context=$(mktemp -d)
	cp ".cache/bin/$tool" "$context/$tool"
	printf 'FROM scratch\nCOPY %s %s\nCMD ["%s"]\n' "$tool" "$path" "$path" >"$context/Dockerfile"
	DOCKER_BUILDKIT=0 docker build --quiet --tag "$name" "$context" >/dev/null || { rm -rf "$context"; return 1; }
	rm -rf "$context"
}

# redis_image NAME: Debian's redis-server, with the libraries that it loads.
redis_image() {
	local name=$1 server context
	docker image inspect "$name" >/dev/null 2>&1 && return
	server=$(command -v redis-server) || return 0
	echo "servers for tests: making $name of the redis-server installed here"
	context=$(mktemp -d)
	mkdir -p "$context/root/data"
	{ echo "$server"; ldd "$server" | grep -o '/[^ ]*'; } | xargs -I{} cp -L --parents {} "$context/root"
	printf 'FROM scratch\nCOPY root /\nWORKDIR /data\nENTRYPOINT ["%s"]\n' "$server" >"$context/Dockerfile"
	DOCKER_BUILDKIT=0 docker build --quiet --tag "$name" "$context" >/dev/null || { rm -rf "$context"; return 1; }
	rm -rf "$context"
}

# Two processes that use testcontainers for the first time may both make its network, and two of one
# name hide from it the address of this machine. So it is made here.
networks=$(docker network ls --quiet --filter name='^reaper_default$')
if [ "$(wc -w <<<"$networks")" -gt 1 ]; then
	xargs docker network rm <<<"$networks" >/dev/null
	networks=
fi
[ -n "$networks" ] || docker network create reaper_default >/dev/null

image gcr.io/etcd-development/etcd:v3.7.3 /usr/local/bin/etcd
image hashicorp/consul:1.16.3 /bin/consul
redis_image tenure/redis-server:debian
