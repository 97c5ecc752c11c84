#!/bin/sh
# Installs the agents that runs are tested with from npm, in the versions that they were tried with, and links their
# programs in <dir>/bin. The default of <dir> is below the cache directory of the user. A version that is installed
# already is not fetched again. No script of a package is run, and nothing but npm's registry is contacted.
#
# usage: scripts/agents.sh [<dir>]
set -eu

dir=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/git-agency/agents}
for program in node npm; do
	command -v "$program" >/dev/null || { echo "scripts/agents.sh: $program is not installed" >&2; exit 1; }
done
platform=$(node -p 'process.platform + "-" + process.arch')
mkdir -p "$dir/bin"
dir=$(cd "$dir" && pwd)

# agent <name> <package> <version> <program>: the program is a pattern below node_modules.
agent() {
	at=$dir/$1-$3
	if [ ! -d "$at" ]; then
		echo "installing $2 $3" >&2
		rm -rf "$at.new"
		npm install --prefix "$at.new" --ignore-scripts --no-audit --no-fund --loglevel error "$2@$3" >&2
		mv "$at.new" "$at"
	fi
	for program in "$at/node_modules/"$4; do
		[ -f "$program" ] || { echo "scripts/agents.sh: $2 $3 has no program for $platform" >&2; exit 1; }
		chmod +x "$program"
		ln -sfn "$program" "$dir/bin/$1"
	done
}

agent claude @anthropic-ai/claude-code 2.1.197 "@anthropic-ai/claude-code-$platform/claude"
agent codex @openai/codex 0.166.0 "@openai/codex-$platform/vendor/*/bin/codex"
agent gemini @google/gemini-cli 0.61.0 "@google/gemini-cli/bundle/gemini.js"
agent opencode opencode-ai 1.18.33 "opencode-$platform/bin/opencode"
echo "$dir"
