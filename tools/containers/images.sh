#!/usr/bin/env bash
# Makes sure that the images that package servers runs in containers are there:
# pulled, or else built here from what tools built, under the official name.
# Does nothing where no Docker engine answers.
set -euo pipefail
cd "$(dirname "$0")/../.."
docker info >/dev/null 2>&1 || exit 0

image=gcr.io/etcd-development/etcd:v3.7.3
docker image inspect "$image" >/dev/null 2>&1 && exit 0
timeout 120 docker pull --quiet "$image" >/dev/null 2>&1 && exit 0
[ -x .cache/bin/etcd ] || { echo "servers for tests: no image of etcd, and no etcd to make one of" >&2; exit 0; }
echo "servers for tests: making $image of the etcd built here"
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
cp .cache/bin/etcd "$context/etcd"
printf 'FROM scratch\nCOPY etcd /usr/local/bin/etcd\nCMD ["/usr/local/bin/etcd"]\n' >"$context/Dockerfile"
DOCKER_BUILDKIT=0 docker build --quiet --tag "$image" "$context" >/dev/null
