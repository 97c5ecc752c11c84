#!/bin/sh
# Installs podman, and makes the image with which tests run containers. It needs no network but that of Debian's packages, and no daemon.
#
# The image is almost empty: tests mount the programs of this machine in its containers, with the options that "options" prints.
# "storage" prints the variables with which podman keeps its images, containers and state below a directory, also without root and
# without subordinate ids; "podman system reset --force" removes them.
#
# usage: scripts/podman.sh install | storage <directory> | image <name> | options
set -eu

usage() {
	echo "usage: scripts/podman.sh install | storage <directory> | image <name> | options" >&2
	exit 2
}

install_podman() {
	command -v podman >/dev/null && return
	[ "$(id -u)" -eq 0 ] || { echo "scripts/podman.sh: podman is not installed, and only root can install it" >&2; exit 1; }
	command -v apt-get >/dev/null || { echo "scripts/podman.sh: podman is not installed, and there is no apt-get" >&2; exit 1; }
	exec 9<"$0"
	flock 9 # one at a time
	command -v podman >/dev/null && return
	log=$(mktemp)
	if ! { apt-get update -q && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -qy --no-install-recommends podman runc; } >"$log" 2>&1; then
		tail -n 15 "$log" >&2
		rm -f "$log"
		exit 1
	fi
	rm -f "$log"
}

make_storage() {
	mkdir -m 700 "$1" "$1/runtime"
	cat >"$1/storage.conf" <<-END
		[storage]
		driver = "vfs"
		graphroot = "$1/graph"
		runroot = "$1/run"
		[storage.options.vfs]
		ignore_chown_errors = "true"
	END
	# As root its default is the same for every storage: /run/libpod, which a reset of any of them removes, and locks in /dev/shm.
	cat >"$1/containers.conf" <<-END
		[engine]
		tmp_dir = "$1/state"
		lock_type = "file"
	END
	echo "CONTAINERS_CONF=$1/containers.conf"
	echo "CONTAINERS_STORAGE_CONF=$1/storage.conf"
	echo "XDG_RUNTIME_DIR=$1/runtime"
}

# machine_dirs prints the directories with the programs of this machine.
machine_dirs() {
	for dir in /usr/bin /usr/lib /usr/lib64 /usr/libexec /usr/share; do
		[ ! -d "$dir" ] || echo "$dir"
	done
}

make_image() {
	root=$(mktemp -d)
	for dir in /usr/local/bin /etc /root /tmp /var/tmp /var/lib /proc /sys /dev /home $(machine_dirs); do
		mkdir -p "$root$dir"
	done
	chmod 1777 "$root/tmp" "$root/var/tmp"
	for link in bin lib lib64; do
		ln -s "usr/$link" "$root/$link"
	done
	echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
	echo 'root:x:0:' >"$root/etc/group"
	tar -C "$root" -cf "$root.tar" .
	status=0
	podman import --quiet --change 'ENV PATH=/usr/local/bin:/usr/bin:/bin' "$root.tar" "$1" || status=$?
	rm -rf "$root" "$root.tar"
	return "$status"
}

# print_options prints options of "podman run", one in each line: the programs of this machine, no network, and limits that need no
# privilege.
print_options() {
	machine_dirs | sed 's/.*/--volume=&:&:ro/'
	printf '%s\n' --network=none --ulimit=nofile=1024:1024 --ulimit=nproc=4096:4096
}

case ${1-} in
install) [ "$#" -eq 1 ] || usage; install_podman ;;
storage) [ "$#" -eq 2 ] || usage; make_storage "$2" ;;
image) [ "$#" -eq 2 ] || usage; make_image "$2" ;;
options) [ "$#" -eq 1 ] || usage; print_options ;;
*) usage ;;
esac
