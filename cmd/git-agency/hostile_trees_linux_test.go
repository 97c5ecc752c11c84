package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hostileTree is the content of a sandbox that is made to stall, exhaust or deceive the commands that look at it. Its
// fields are shell scripts.
type hostileTree struct {
	name   string
	script string // runs behind the walls, in the tree; $CANARY is a private file of the user

	base, target string // run in the integration worktree before the sandbox is started, and after script
}

// Parts of the scripts of trees with slow patterns, for which $F is the path of a file, and git needs exponential time to
// compare it with the pattern. The file gets an old mtime, so that the git of the script need not read it again.
const (
	deepFile       = `F=$(printf 'a/%.0s' $(seq 30))f; `
	longFile       = `F=$(printf 'a%.0s' $(seq 200))c; `
	deepPattern    = `{ printf '/**/a%.0s' $(seq 22); printf '/**/b'; }`
	longPattern    = `{ printf '*a%.0s' $(seq 20); printf '*b'; }`
	commitBaseFile = `mkdir -p "$(dirname $F)"; printf '1\n2\n3\n' >$F; git add $F; git commit -q -m base`
	// An index that is newer than $F in git's unit of a second, so that git need not read the file again.
	renewIndex       = `while test $(date +%s) -le $(stat -c %Y $F); do sleep 0.1; done; git update-index --force-write-index; `
	commitAttributes = `git update-index --add .gitattributes; git update-ref HEAD $(git commit-tree -m x -p HEAD $(git write-tree))`
	changeLine1      = `sed s/1/changed/ $F >new; mv new $F; touch -d '1 hour ago' $F; git add $F; `
	changeLine3      = `sed s/3/changed/ $F >new; mv new $F; touch -d '1 hour ago' $F; git add $F; `
)

// commitNestedTrees commits 30 trees, of which each has the next under two names, so that they have 2^30 files.
const commitNestedTrees = `T=$(printf '100644 blob %s\tf\n' $(echo x | git hash-object -w --stdin) | git mktree); ` +
	`for i in $(seq 30); do T=$(printf '040000 tree %s\ta\n040000 tree %s\tb\n' $T $T | git mktree); done; ` +
	`T=$({ git ls-tree HEAD; printf '040000 tree %s\tnested\n' $T; } | git mktree); git update-ref HEAD $(git commit-tree -m x -p HEAD $T)`

var hostileTrees = []hostileTree{
	{name: "symlinks to a private file", script: `for n in .gitignore .gitattributes .gitmodules link sub/.gitignore; do mkdir -p sub; ln -s "$CANARY" $n; done`},
	{name: "a symlink in place of a tracked file", script: `F=$(git ls-files | head -n 1); rm "$F"; ln -s "$CANARY" "$F"; ln -s "$(dirname "$CANARY")" dir`},
	{name: "FIFOs", script: `mkfifo pipe; mkdir sub; mkfifo sub/pipe sub/.gitkeep; F=$(git ls-files | head -n 1); rm "$F"; mkfifo "$F"`},
	{name: "a FIFO with rules", script: `mkfifo .gitignore`},
	{name: "ignore rules that take exponential time", script: `for i in 1 2 3 4 5 6 7 8 9 10 11 12; do printf '/**/a'; done >.gitignore; echo /c >>.gitignore; d=; for i in $(seq 60); do d=${d}a/; done; mkdir -p $d; echo x >${d}file`},
	{name: "attribute rules that take exponential time", script: `for i in 1 2 3 4 5 6 7 8 9 10 11 12; do printf '/**/a'; done >.gitattributes; echo '/c text' >>.gitattributes; d=; for i in $(seq 60); do d=${d}a/; done; mkdir -p $d; echo x >${d}file`},
	{name: "a large file of rules", script: `seq 300000 >.gitignore; echo x >file`},
	{name: "a sparse file", script: `truncate -s 100G hole`},
	{name: "a wrong encoding", script: `echo '* working-tree-encoding=nonsense' >.gitattributes; echo x >file`},
	{name: "odd names", script: `echo x >"$(printf 'a\nb')"; echo x >"$(printf '\033[31mred')"; echo x >'.g'"$(printf '\342\200\214')"'it'`},
	{name: "unreadable files", script: `echo x >secret; chmod 0 secret; mkdir locked; echo x >locked/x; chmod 0 locked`},
	{name: "nested repositories", script: `git init -q nested; git init -q .hidden/repo; echo nested >.git/info/exclude 2>/dev/null; echo x >nested/x`},
	{name: "a forged .git file", script: `mkdir sub; echo "gitdir: $(dirname "$CANARY")" >sub/.git; echo x >sub/x`},
	{name: "deep directories", script: `d=.; for i in $(seq 400); do mkdir d && cd d; done; echo x >x`},
	{name: "an index that is a FIFO", script: `rm -f "$(git rev-parse --git-dir)/index"; mkfifo "$(git rev-parse --git-dir)/index"`},
	{name: "an index of garbage", script: `head -c 1000000 /dev/urandom >"$(git rev-parse --git-dir)/index"`},
	{name: "a configuration that runs programs", script: `git config filter.x.clean "cat '$CANARY'"; git config core.fsmonitor "cat '$CANARY'"; echo '* filter=x' >.gitattributes; echo x >file`},
	{
		name: "committed attribute rules that take exponential time", base: deepFile + commitBaseFile,
		script: deepFile + renewIndex + deepPattern + ` >.gitattributes; echo ' merge=union' >>.gitattributes; rm evil; ` + commitAttributes,
	},
	{
		name: "committed asterisks that take exponential time", base: longFile + commitBaseFile,
		script: longFile + renewIndex + longPattern + ` >.gitattributes; echo ' merge=union' >>.gitattributes; rm evil; ` + commitAttributes,
	},
	{
		name:   "a file where the integration worktree has one, and ignore rules that take exponential time",
		script: deepFile + commitBaseFile + `; rm evil`,
		target: deepFile + `mkdir -p "$(dirname $F)"; echo x >$F; ` + deepPattern + ` >.gitignore`,
	},
	{name: "nested trees", script: commitNestedTrees, target: `true`},
	{
		name: "attribute rules of the integration branch that take exponential time", base: deepFile + commitBaseFile,
		script: deepFile + changeLine1 + `rm evil; commit x`,
		target: deepFile + changeLine3 + deepPattern + ` >.gitattributes; echo ' merge=union' >>.gitattributes; git add .gitattributes; git commit -q -m other`,
	},
}

// canaryText is the content of the private file.
const canaryText = "content of a private file"

// hostileTreeCommands are the commands that look at a sandbox. $ID is its id.
var hostileTreeCommands = [][]string{
	{"diff", "$ID"},
	{"diff", "--stat", "$ID"},
	{"snapshot", "create", "$ID"},
	{"radar", "wt"},
	{"ls", "--json"},
	{"show", "$ID"},
	{"land", "$ID", "--commit-all", "-m", "m", "--dry-run"},
	{"land", "$ID", "--dry-run"},
	{"sync", "$ID"},
	{"submit", "$ID"},
	{"snapshot", "checkout", "$ID/1", "$DIR/copy"},
	{"snapshot", "rollback", "$ID", "$ID/1"},
	{"land", "$ID"},
	{"start", "wt"},
	{"doctor"},
	{"prune"},
	{"discard", "$ID"},
}

// Every command that looks at a sandbox must end within its limits, whatever the sandbox contains, without opening a
// file outside, and must leave the other sandboxes alone. Whether it succeeds is the subject of other tests.
func TestCommandsEndOnHostileTrees(t *testing.T) {
	t.Parallel()
	for i, h := range hostileTrees {
		if testing.Short() && i%8 != 0 {
			continue
		}
		t.Run(strings.ReplaceAll(h.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			g := newGitEscapeLab(t)
			canary := filepath.Join(g.dir, "home", "canary")
			g.write(canary, canaryText+"\n")
			opened := watchOpens(t, canary)
			g.runShell(g.integrationTree(), h.base)
			id, other := g.agency("start", "wt"), g.agency("start", "wt")
			o := g.runInSandbox(gitEscape{script: h.script}, id, canary)
			if o.code == 125 {
				t.Fatalf("the script did not start: %s", o.stderr)
			}
			if (h.base != "" || h.target != "") && o.code != 0 {
				t.Fatalf("the script ended with %d: %s", o.code, o.stderr)
			}
			opened() // by the program inside, if it could
			g.runShell(g.integrationTree(), h.target)
			for _, argv := range hostileTreeCommands {
				argv = slices.Clone(argv)
				for i := range argv {
					argv[i] = strings.NewReplacer("$ID", id, "$DIR", g.dir).Replace(argv[i])
				}
				g.runWithinLimits(argv)
				if opened() {
					t.Errorf("%q opened a private file", argv)
				}
			}
			g.write(filepath.Join(g.sandboxesDir(), other, "tree", "work"), "w\n")
			if o := g.runWithTimeout(nil, g.repo, "git-agency", "diff", other); o.code != 0 || !strings.Contains(o.stdout, "+w") {
				t.Errorf("diff of the other sandbox ended with %d: %s", o.code, o.stderr)
			}
		})
	}
}

// runWithinLimits runs a command with small read limits and checks that neither it nor a program that it started exceeded
// them.
func (g *gitEscapeLab) runWithinLimits(args []string) {
	t := g.t
	t.Helper()
	const memory = 256<<20 + 16<<20 // the limit, and the code of a program, to which it does not apply
	timeout := gitEscapeTimeout
	if args[0] == "start" { // a checkout has ten times the limit
		timeout *= 5
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(g.bin, "git-agency"), args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = g.repo, append(append([]string{}, g.env...), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=agency.readLimits", "GIT_CONFIG_VALUE_0=time=1s memory=256m"), time.Second
	out, err := cmd.CombinedOutput()
	switch {
	case cmd.ProcessState == nil:
		t.Fatal(err)
	case ctx.Err() != nil:
		t.Errorf("%q did not end: %s", args, out)
	}
	if code := cmd.ProcessState.ExitCode(); code < 0 || code > 128 {
		t.Errorf("%q ended with %d: %s", args, code, out)
	}
	// The kernel counts the memory of this process until the command was executed in it.
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		t.Fatal(err)
	}
	if used := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10; used > max(memory, own.Maxrss<<10) {
		t.Errorf("%q used %d MiB", args, used>>20)
	}
	if strings.Contains(string(out), canaryText) {
		t.Errorf("%q printed a private file: %s", args, out)
	}
}

// watchOpens returns a function that reports whether any process has opened a file since it was last called.
func watchOpens(t *testing.T, path string) func() bool {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN|unix.IN_ACCESS); err != nil {
		t.Fatal(err)
	}
	return func() bool {
		n, err := unix.Read(fd, make([]byte, 4096))
		return err == nil && n > 0
	}
}
