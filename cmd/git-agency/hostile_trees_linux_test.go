package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hostileTrees are contents of a sandbox that are made to stall, exhaust or deceive the commands that look at it. Each is
// a shell script that runs behind the walls, in the tree; $CANARY is a private file of the user.
var hostileTrees = []struct{ name, script string }{
	{"symlinks to a private file", `for n in .gitignore .gitattributes .gitmodules link sub/.gitignore; do mkdir -p sub; ln -s "$CANARY" $n; done`},
	{"a symlink in place of a tracked file", `F=$(git ls-files | head -n 1); rm "$F"; ln -s "$CANARY" "$F"; ln -s "$(dirname "$CANARY")" dir`},
	{"FIFOs", `mkfifo pipe; mkdir sub; mkfifo sub/pipe sub/.gitkeep; F=$(git ls-files | head -n 1); rm "$F"; mkfifo "$F"`},
	{"a FIFO with rules", `mkfifo .gitignore`},
	{"ignore rules that take exponential time", `for i in 1 2 3 4 5 6 7 8 9 10 11 12; do printf '/**/a'; done >.gitignore; echo /c >>.gitignore; d=; for i in $(seq 60); do d=${d}a/; done; mkdir -p $d; echo x >${d}file`},
	{"attribute rules that take exponential time", `for i in 1 2 3 4 5 6 7 8 9 10 11 12; do printf '/**/a'; done >.gitattributes; echo '/c text' >>.gitattributes; d=; for i in $(seq 60); do d=${d}a/; done; mkdir -p $d; echo x >${d}file`},
	{"a large file of rules", `seq 300000 >.gitignore; echo x >file`},
	{"a sparse file", `truncate -s 100G hole`},
	{"a wrong encoding", `echo '* working-tree-encoding=nonsense' >.gitattributes; echo x >file`},
	{"odd names", `echo x >"$(printf 'a\nb')"; echo x >"$(printf '\033[31mred')"; echo x >'.g'"$(printf '\342\200\214')"'it'`},
	{"unreadable files", `echo x >secret; chmod 0 secret; mkdir locked; echo x >locked/x; chmod 0 locked`},
	{"nested repositories", `git init -q nested; git init -q .hidden/repo; echo nested >.git/info/exclude 2>/dev/null; echo x >nested/x`},
	{"a forged .git file", `mkdir sub; echo "gitdir: $(dirname "$CANARY")" >sub/.git; echo x >sub/x`},
	{"deep directories", `d=.; for i in $(seq 400); do mkdir d && cd d; done; echo x >x`},
	{"an index that is a FIFO", `rm -f "$(git rev-parse --git-dir)/index"; mkfifo "$(git rev-parse --git-dir)/index"`},
	{"an index of garbage", `head -c 1000000 /dev/urandom >"$(git rev-parse --git-dir)/index"`},
	{"a configuration that runs programs", `git config filter.x.clean "cat '$CANARY'"; git config core.fsmonitor "cat '$CANARY'"; echo '* filter=x' >.gitattributes; echo x >file`},
}

// canaryText is the content of the private file.
const canaryText = "content of a private file"

// hostileTreeCommands are the commands that look at a sandbox. $ID is its id.
var hostileTreeCommands = [][]string{
	{"diff", "$ID"},
	{"diff", "--stat", "$ID"},
	{"snapshot", "create", "$ID"},
	{"radar"},
	{"ls", "--json"},
	{"show", "$ID"},
	{"land", "$ID", "--commit-all", "-m", "m", "--dry-run"},
	{"sync", "$ID"},
	{"submit", "$ID"},
	{"doctor"},
	{"prune"},
	{"discard", "$ID"},
}

// Every command that looks at a sandbox must end within its limits, whatever the sandbox contains, without opening a
// file outside, and must leave the other sandboxes alone. Whether it succeeds is the subject of other tests.
func TestCommandsEndOnHostileTrees(t *testing.T) {
	t.Parallel()
	for i, h := range hostileTrees {
		if testing.Short() && i%3 != 0 {
			continue
		}
		t.Run(strings.ReplaceAll(h.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			g := newGitEscapeLab(t)
			canary := filepath.Join(g.dir, "home", "canary")
			g.write(canary, canaryText+"\n")
			opened := watchOpens(t, canary)
			id, other := g.agency("start", "wt"), g.agency("start", "wt")
			o := g.runInSandbox(gitEscape{script: h.script}, id, canary)
			if o.code == 125 {
				t.Fatalf("the script did not start: %s", o.stderr)
			}
			opened() // by the program inside, if it could
			for _, argv := range hostileTreeCommands {
				g.runWithinLimits(strings.Split(strings.ReplaceAll(strings.Join(argv, "\x00"), "$ID", id), "\x00"))
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
	const memory = 256 << 20
	ctx, cancel := context.WithTimeout(t.Context(), gitEscapeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(g.bin, "git-agency"), args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = g.repo, append(append([]string{}, g.env...), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=agency.readLimits", "GIT_CONFIG_VALUE_0=time=2s memory=256m"), time.Second
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
	if used := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10; used > memory {
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
