#!/bin/sh
# Runs every fuzz target of the repository for FUZZTIME (default 20s) each. Minimising is limited, because minimising
# a large JSON document would take longer than finding it.
set -eu
cd "$(dirname "$0")/.."
go list ./... | while read -r package; do
	go test -list '^Fuzz' "$package" | grep '^Fuzz' | while read -r target; do
		echo "== $package $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-20s}" -fuzzminimizetime 20x "$package"
	done
done
