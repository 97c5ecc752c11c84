package proc

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// startSleep runs sleep under a unique name in dir until the end of the test.
func startSleep(t *testing.T, dir string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	must(t, err)
	name := filepath.Join(t.TempDir(), "waits-"+strings.ReplaceAll(filepath.Base(t.TempDir()), "0", "x"))
	must(t, os.Symlink(sleep, name))
	cmd := exec.CommandContext(t.Context(), name, append([]string{"600"}, args...)...)
	cmd.Dir, cmd.Env = dir, env
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// findProcess returns the entry of ListProcesses for one process.
func findProcess(t *testing.T, pid int) (Process, bool) {
	t.Helper()
	found, ok := ListProcesses(func(string) bool { return true })
	if !ok {
		t.Fatal("ListProcesses does not work here")
	}
	at := slices.IndexFunc(found, func(p Process) bool { return p.PID == pid })
	if at < 0 {
		return Process{}, false
	}
	return found[at], true
}

func statDir(t *testing.T, path string) []fs.FileInfo {
	t.Helper()
	fi, err := os.Stat(path)
	must(t, err)
	return []fs.FileInfo{fi}
}

func TestListProcessesFiltersByName(t *testing.T) {
	t.Parallel()
	cmd := startSleep(t, t.TempDir(), []string{"A=b\nc", "GIT_DIR=/x"}, "0")
	name := filepath.Base(cmd.Path)[:len("waits-")]
	found, ok := ListProcesses(func(n string) bool { return strings.HasPrefix(n, name) })
	at := slices.IndexFunc(found, func(p Process) bool { return p.PID == cmd.Process.Pid })
	if !ok || at < 0 {
		t.Fatalf("%+v, %v", found, ok)
	}
	p := found[at]
	if !slices.Equal(p.Args, cmd.Args) || !slices.Equal(p.Env, cmd.Env) || p.CwdHidden || p.UID != uint32(os.Geteuid()) {
		t.Errorf("got %+v", p)
	}
	if found, _ := ListProcesses(func(string) bool { return false }); len(found) > 0 {
		t.Errorf("a filter that matches nothing found %+v", found)
	}
	if _, ourselves := findProcess(t, os.Getpid()); ourselves {
		t.Error("ListProcesses found the calling process")
	}
}

func TestListProcessesOmitsZombies(t *testing.T) {
	t.Parallel()
	cmd := startSleep(t, t.TempDir(), nil)
	if _, there := findProcess(t, cmd.Process.Pid); !there {
		t.Fatal("the running process was not found")
	}
	must(t, cmd.Process.Kill()) // a zombie until Wait
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		if _, there := findProcess(t, cmd.Process.Pid); !there {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the ended process is still listed")
		}
	}
}

func TestUsesDirsByWorkingDirectoryAndArguments(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, dir := range []string{"repo/deep/er", "repository", "other"} {
		must(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	must(t, os.Symlink("repo", filepath.Join(root, "link")))
	must(t, os.Symlink("loop", filepath.Join(root, "loop")))
	must(t, os.WriteFile(filepath.Join(root, "repo", "file"), nil, 0o644))
	repo := statDir(t, filepath.Join(root, "repo"))
	for _, c := range []struct {
		dir   string
		paths []string
		want  bool
	}{
		{"repo", nil, true},
		{"repo/deep/er", nil, true},
		{"link/deep", nil, true},
		{"repository", nil, false},
		{"other", nil, false},
		{"/", nil, false},
		{"other", []string{"../repo"}, true},
		{"other", []string{"../repo/deep/er"}, true},
		{"other", []string{"../repo/file"}, true},
		{"other", []string{"../repo/not-yet.lock"}, true},
		{"other", []string{"../link/deep"}, true},
		{"other", []string{filepath.Join(root, "link", "deep")}, true},
		{"other", []string{filepath.Join(root, "repo") + "/"}, true},
		{"other", []string{"repo", "commit", "-m", "../repository", "", ".", "/", "/proc/self/cwd", "../loop", "\x00", strings.Repeat("x/", 9999)}, false},
	} {
		dir := c.dir
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(root, dir)
		}
		p, there := findProcess(t, startSleep(t, dir, nil).Process.Pid)
		if got := p.UsesDirs(repo, c.paths...); got != c.want || !there {
			t.Errorf("from %s by %.80q: %v, %v", c.dir, c.paths, got, there)
		}
	}
	if (Process{PID: 1 << 30}).UsesDirs(repo, root) {
		t.Error("a process that does not exist uses the directory")
	}
}
