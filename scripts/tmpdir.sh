#!/bin/sh
# Runs a command with a TMPDIR of its own, in which ext4 spreads directories over the disk. ext4 does not reuse the inode
# of a removed file for minutes, and passes over each of them whenever it makes a file in the same part of the disk: that
# took a quarter of the processor time of the tests. Elsewhere it is an ordinary directory.
#
# usage: scripts/tmpdir.sh <command> [<argument>…]
set -eu

dir=$(mktemp -d "${TMPDIR:-/tmp}/ga.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
chmod 1777 "$dir" # tests run as other users too
chattr +T "$dir" 2>/dev/null || : # not ext4
TMPDIR=$dir "$@"
