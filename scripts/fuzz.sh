#!/bin/sh
# Runs every fuzz target of the repository for FUZZTIME (default 20s) each.
set -eu
cd "$(dirname "$0")/.."
go list ./... | while read -r package; do
	go test -list '^Fuzz' "$package" | grep '^Fuzz' | while read -r target; do
		echo "== $package $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-20s}" "$package"
	done
done
