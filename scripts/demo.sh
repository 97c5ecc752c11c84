#!/bin/sh
# demo.sh <directory of git-agency>: runs the main workflow end to end on a temporary repository. The transcript can be
# pasted into a shell: commands stand alone on their lines, and all else is a comment.
set -eu
program=$1
output=$(mktemp)
trap 'rm -rf "$output" "${work:-}"' EXIT
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE XDG_DATA_HOME

# say prints an explanation. run prints a command line, runs it and prints its output as comments; it must succeed. refuse
# is run for a command line that must fail.
say() { printf '\n# %s\n' "$*"; }
run() {
	printf '%s\n' "$1"
	eval "$1" >"$output" 2>&1 || { sed 's/^/#   /' "$output"; echo "# failed: $1"; exit 1; }
	sed 's/^/#   /' "$output"
}
refuse() {
	printf '%s\n' "$1"
	if eval "$1" >"$output" 2>&1; then echo "# succeeded, and must not: $1"; exit 1; else status=$?; fi
	sed 's/^/#   /' "$output"
	echo "#   (exit status $status)"
}

say 'A project, in a directory and with settings that are thrown away.'
run 'work=$(mktemp -d)'
run "export PATH=\"$program:\$PATH\" HOME=\$work/home AGENCY_DATA_DIR=\$work/data GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=\$work/home/.gitconfig"
run 'mkdir -p ~/.ssh && echo "a private key" >~/.ssh/id_ed25519'
run 'git config --global user.name "A Person"; git config --global user.email person@example.com'
run 'git config --global agency.autoDetach false # no background process outlives this demo'
run 'git init -q -b main "$work/project" && cd "$work/project"'
run 'echo hello >greeting; git add greeting; git commit -q -m "first commit"'

say 'An integration worktree: a branch and a directory that are yours.'
run 'git agency worktree create payments'
run 'tree=$(git agency worktree path payments)'

say 'Two agents, two sandboxes. Each has a tree and a branch of its own.'
run 'first=$(git agency start payments --name refunds --runner claude)'
run 'second=$(git agency start payments --name invoices --runner codex)'
run 'git agency ls'

say 'Copy files into a sandbox and run commands in it. No path leads out of it, and no process outlives its command.'
run 'echo "refunds work" >"$work/refunds"'
run 'git agency put "$first" "$work/refunds" .'
run 'git agency exec "$first" -- git add refunds'
run 'git agency exec "$first" -- git commit -q -m "Add refunds"'
run 'git agency exec "$second" -- sh -c "echo half an idea >notes; sleep 1000 &"'
refuse 'git agency put "$second" "$work/refunds" ../../elsewhere'
refuse 'git agency exec "$second" --timeout 200ms -- sleep 1000'

say 'Walls hold: a command can neither write your worktrees, nor read your keys, nor change another branch.'
refuse 'git agency exec "$second" -- sh -c "echo overwritten >$tree/greeting"'
refuse 'git agency exec "$second" -- sh -c "echo overwritten >$work/project/greeting"'
refuse 'git agency exec "$second" -- cat "$HOME/.ssh/id_ed25519"'
run 'git agency exec "$second" -- git update-ref refs/heads/stolen HEAD || true'
run 'cat "$tree/greeting" greeting; git branch --list stolen'
test "$(cat "$tree/greeting" greeting)" = "$(printf 'hello\nhello')"
test -z "$(git branch --list stolen)"

say 'A snapshot is the state of a sandbox as a commit, with its uncommitted files.'
run 'snapshot=$(git agency snapshot create "$second" -m Notes)'
run 'git show "$snapshot:notes"'

say 'Compare, verify and copy snapshots, or roll back to one. A rollback first takes a snapshot of the current state.'
run 'git agency exec "$second" -- sh -c "echo a bad idea >notes; rm greeting; echo token >.env"'
run 'git agency diff "$second"'
run 'git agency snapshot rollback "$second" "$second/1"'
run 'git agency snapshot ls "$second"'
run 'git agency diff "$second" --from "$second/1" --to "$second/2" --stat'
run 'git agency snapshot verify "$second/1"'
run 'git agency snapshot checkout "$second/1" "$work/copy"'
test "$(cat "$work/copy/notes")" = 'half an idea'
test "$(cat "$(git agency path "$second")/.env")" = token # snapshots leave it out, so a rollback does not remove it

say 'Start another sandbox from a snapshot. Uncommitted work is still uncommitted there.'
run 'third=$(git agency start --from-snapshot "$second/1" --name again)'
run 'git agency exec "$third" -- git status --short'
run 'git agency discard "$third"'

say 'Your own worktrees are unchanged.'
run 'git -C "$tree" status --short --branch'
run 'git status --short --branch'

say 'Reviewed work lands on your integration branch and in its worktree, all or nothing. Your uncommitted files stay.'
run 'echo "a note of mine" >"$tree/mine"'
run 'git agency radar payments'
run 'git agency submit "$first"'
run 'git agency land --all-ready payments --verify "test -s greeting"'
run 'git -C "$tree" log --oneline --first-parent'
run 'git -C "$tree" status --short'

say 'A landing can be reverted.'
run 'git agency unland "$first"'
test ! -e "$tree/refunds"
run 'git agency show "$first"'

say 'Three agents work side by side, each with a task of its own. Here they are scripts; claude, codex, gemini and opencode'
echo '# need no configuration.'
cat >"$HOME/agent.sh" <<'EOF'
# Does the task on its standard input and commits. It asks once if it is to add a name.
read -r task
if test "$task" = "add a name" && test -z "${AGENCY_ANSWER_FILE-}"; then
	echo '{"question":"Which name?","options":["Ada","Bob"]}' >"$AGENCY_QUESTION_FILE"
	exit
fi
echo "$task" >"file-$(echo "$task" | tr ' ' -)"
git add .
git commit -q -m "$task"
EOF
run 'git config --global agency.scripted.command "sh ~/agent.sh"'
run 'git config --global --add agency.sandbox.read "$HOME/agent.sh"'
run 'git agency preflight payments --runner scripted'
run 'red=$(git agency run payments --runner scripted --detach -p "paint it red")'
run 'blue=$(git agency run payments --runner scripted --detach -p "paint it blue")'
run 'name=$(git agency run payments --runner scripted --detach -p "add a name")'
refuse 'git agency wait "$red" "$blue" "$name"'

say 'One asks. The answer goes to the same sandbox and the same session.'
run 'git agency questions'
run 'git agency resume "$name" --answer Ada'
run 'git agency ls'
run 'git agency land "$red" "$blue" "$name"'
test -e "$tree/file-paint-it-red"
test -e "$tree/file-paint-it-blue"
test -e "$tree/file-Ada"

say 'A sandbox need not be a worktree. An overlay shares the files of its commit with others: it takes no space, and no longer to'
echo '# make when the project is large. A clone has a git directory of its own. All else is the same.'
run 'overlay=$(git agency start payments --changeset overlay)'
run 'clone=$(git agency start payments --changeset clone)'
run 'git agency exec "$overlay" -- sh -c "echo from an overlay >overlay; git add overlay; git commit -q -m overlay"'
run 'git agency exec "$clone" -- sh -c "echo from a clone >clone; git add clone; git commit -q -m clone"'
run 'git agency land "$overlay" "$clone"'
test "$(cat "$tree/overlay" "$tree/clone")" = "$(printf 'from an overlay\nfrom a clone')"

say 'Directories need no git: a sandbox over two of them changes neither until it lands, and then both or none.'
run 'mkdir "$work/site" "$work/notes"; echo old >"$work/site/page"; echo todo >"$work/notes/list"'
run 'cd "$work"; paths=$(git agency start --path site --path notes)'
run 'git agency exec "$paths" -- sh -c "echo new >page; echo done >../notes/list"'
run 'cat site/page notes/list; git agency diff "$paths" --stat'
test "$(cat site/page notes/list)" = "$(printf 'old\ntodo')"
run 'git agency land "$paths"; cat site/page notes/list; cd project'
test "$(cat "$work/site/page" "$work/notes/list")" = "$(printf 'new\ndone')"

say 'Discard the other sandbox. Its work is kept as a ref, with uncommitted files.'
run 'git agency discard "$second"'
run 'git show "refs/agency/trash/$second:notes"'
run 'git agency ls --all'

test "$(git show "$snapshot:notes")" = 'half an idea'
test "$(git -C "$tree" log --diff-filter=A --format= --name-only -- refunds)" = refunds
test "$(cat "$tree/mine")" = 'a note of mine'
test "$(git show "refs/agency/trash/$second:notes")" = 'half an idea'
test -z "$(git agency ls 2>/dev/null)"
say 'Remove it all.'
run 'cd / && rm -rf "$work"'
