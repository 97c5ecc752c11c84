#!/bin/sh
# Installs podman, with which tests make images. It needs no network but that of Debian's packages, and no daemon.
#
# usage: scripts/podman.sh install
set -eu

[ "$#" -eq 1 ] && [ "$1" = install ] || { echo "usage: scripts/podman.sh install" >&2; exit 2; }
command -v podman >/dev/null && exit
[ "$(id -u)" -eq 0 ] || { echo "scripts/podman.sh: podman is not installed, and only root can install it" >&2; exit 1; }
command -v apt-get >/dev/null || { echo "scripts/podman.sh: podman is not installed, and there is no apt-get" >&2; exit 1; }
exec 9<"$0"
flock 9 # one at a time
command -v podman >/dev/null && exit
log=$(mktemp)
if ! { apt-get update -q && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -qy --no-install-recommends podman runc; } >"$log" 2>&1; then
	tail -n 15 "$log" >&2
	rm -f "$log"
	exit 1
fi
rm -f "$log"
