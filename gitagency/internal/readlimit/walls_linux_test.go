package readlimit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/landlock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// runBehindWalls runs a shell script behind walls, in a directory that it can change.
func runBehindWalls(t *testing.T, w *Walls, script string, args ...string) proc.Result {
	t.Helper()
	r := Reading{What: "test", Walls: w}
	res, err := r.Run(t.Context(), proc.Command{Argv: append([]string{"sh", "-c", script, "sh"}, args...), Dir: "/", Env: w.Environment(os.Environ(), "/")})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func requireLandlock(t *testing.T) {
	t.Helper()
	if _, err := landlock.ABI(); err != nil {
		t.Skip("no Landlock: ", err)
	}
}

func TestWallsHideUnlistedFiles(t *testing.T) {
	t.Parallel()
	requireLandlock(t)
	dir := t.TempDir()
	for _, name := range []string{"read/file", "write/file", "other/file"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := &Walls{read: []string{filepath.Join(dir, "read"), filepath.Join(dir, "missing")}, write: []string{filepath.Join(dir, "write")}}
	for script, works := range map[string]bool{
		`cat $1/read/file`:     true,
		`cat $1/write/file`:    true,
		`ls $1/read`:           true,
		`echo x >$1/write/new`: true,
		`mkdir $1/write/d && mv $1/write/d $1/write/e`:   true,
		`echo x >/dev/null`:                              true,
		`git version`:                                    true,
		`cat $1/other/file`:                              false,
		`ls $1/other`:                                    false,
		`cat $1/read/../other/file`:                      false,
		`ln $1/other/file $1/write/link`:                 false,
		`ln -s $1/other/file $1/write/s; cat $1/write/s`: false,
		`echo x >$1/read/file`:                           false,
		`echo x >>$1/other/file`:                         false,
		`rm $1/other/file`:                               false,
		`mv $1/write/file $1/other/moved`:                false,
		`cat /etc/passwd`:                                false,
		`cat /proc/self/environ`:                         false,
	} {
		if res := runBehindWalls(t, w, script, dir); (res.ExitCode == 0) != works {
			t.Errorf("%s: exit code %d\n%s", script, res.ExitCode, res.Stderr)
		}
	}
}

func TestWallsTakeSocketsAway(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil || !isSystemProgram(python) {
		t.Skip("no python3 of the system")
	}
	for _, family := range []string{"AF_INET", "AF_INET6", "AF_UNIX"} {
		code := "import socket; socket.socket(socket." + family + ")"
		if res := runBehindWalls(t, &Walls{}, `python3 -c "$1"`, code); !strings.Contains(string(res.Stderr), "PermissionError") {
			t.Errorf("%s: exit code %d\n%s", family, res.ExitCode, res.Stderr)
		}
	}
}

func TestWallsKeepFewVariables(t *testing.T) {
	t.Parallel()
	env := (&Walls{}).Environment([]string{"PATH=/bin", "HOME=/home/user", "TOKEN=secret", "GIT_CONFIG_COUNT=1", "LC_ALL=C", "GIT_CONFIG_GLOBAL=/x"}, "/scratch")
	want := "PATH=/bin LC_ALL=C HOME=/scratch XDG_CONFIG_HOME=/scratch GIT_CONFIG_NOSYSTEM=1"
	if got := strings.Join(env, " "); got != want {
		t.Errorf("%s", got)
	}
}

func TestGitBehindWallsWritesTrace(t *testing.T) {
	t.Parallel()
	requireLandlock(t)
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	trace := filepath.Join(t.TempDir(), "trace")
	env := append(os.Environ(), "GIT_TRACE="+trace)
	r := Reading{Walls: NewWalls(git, env, nil, nil)}
	res, err := r.Run(t.Context(), proc.Command{Argv: []string{"git", "version"}, Dir: "/", Env: r.Environment(env, "/")})
	if err != nil || res.ExitCode != 0 || len(res.Stderr) > 0 {
		t.Errorf("%+v %v", res, err)
	}
	if text, err := os.ReadFile(trace); err != nil || !strings.Contains(string(text), "git version") {
		t.Errorf("%q %v", text, err)
	}
}

func TestProgramsThatNeedOtherFilesHaveNoWalls(t *testing.T) {
	t.Parallel()
	requireLandlock(t)
	dir := t.TempDir()
	write := func(name, script string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	for program, works := range map[string]bool{
		git:                                     true,
		write("wrapper", `exec git "$@"`):       true,
		write("home", `test -d "$HOME/.shims"`): false,
		write("reads", `cat /etc/passwd`):       false,
		filepath.Join(dir, "missing"):           false,
	} {
		if w := NewWalls(program, nil, nil, nil); (w != nil) != works {
			t.Errorf("%s: %v", program, w)
		}
	}
}
