package layer

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/checkout"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// chain makes n layers in one directory, each a delta over the one before it.
func chain(l *gittest.Fixture, n int) (*git.Repo, Request, []Layer) {
	l.T.Helper()
	for i := range 40 {
		l.Write(fmt.Sprint("more/", i), "x\n")
	}
	l.Commit("more")
	repo := repotest.OpenRepo(l)
	req := request(l, repo, "HEAD")
	req.Source = checkout.Source{}
	var all []Layer
	for i := range n {
		l.Write("changing", fmt.Sprint(i))
		l.Commit("changed")
		req.Tree = l.Git("rev-parse", "HEAD^{tree}")
		got, made := ensure(l, repo, req)
		if !made || len(got.Lowers) != i+1 {
			l.T.Fatalf("layer %d: made %t, %q", i, made, got.Lowers)
		}
		all = append(all, got)
	}
	return repo, req, all
}

// TestPruneKeepsNeededLayers checks that used, held and recent layers stay, with the layers below them, and that nothing changes
// them. It is not parallel: a child that another test forks holds the locks of layers until its exec.
func TestPruneKeepsNeededLayers(t *testing.T) {
	l := gittest.New(t)
	repo, req, all := chain(l, 5)
	never, always := time.Unix(0, 0), time.Now().Add(time.Hour)
	prune := func(used map[string]bool, before time.Time, want ...Layer) {
		t.Helper()
		sum := stamps(l, req.Dir)
		removed, err := Prune(t.Context(), PruneRequest{Dir: req.Dir, Before: before, Used: func() (map[string]bool, error) { return used, nil }})
		l.Must(err)
		var names []string
		for _, layer := range want {
			names = append(names, layer.Name)
		}
		if !slices.Equal(removed, names) {
			t.Errorf("removed %q, want %q", removed, names)
		}
		for path, state := range stamps(l, req.Dir) {
			if sum[path] != state {
				t.Errorf("%s changed", path)
			}
		}
		if left := glob(l, req.Dir+"/old-*"); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}
	prune(nil, never)
	prune(map[string]bool{all[4].Name: true}, always)
	prune(map[string]bool{all[3].Name: true, "missing": true}, always, all[4])
	req.Tree, _, _ = strings.Cut(all[2].Name, "-")
	got, made, release, err := Ensure(t.Context(), repo, req)
	if err != nil || made || got.Name != all[2].Name {
		t.Fatal(got, made, err)
	}
	prune(nil, always, all[3])
	l.Must(release())
	old := time.Now().Add(-time.Hour)
	for _, layer := range all[:3] {
		l.Must(os.Chtimes(filepath.Join(req.Dir, layer.Name), old, old))
	}
	ensure(l, repo, Request{Dir: req.Dir, Tree: all[1].Name[:40]})
	prune(nil, time.Now().Add(-time.Minute), all[2]) // the second was used just now
	if removed, err := Prune(t.Context(), PruneRequest{Dir: req.Dir, Before: always, Only: all[1].Name, Used: noneUsed}); err != nil || !slices.Equal(removed, []string{all[1].Name}) {
		t.Errorf("removed %q of one layer, %v", removed, err)
	}
	if removed, err := Prune(t.Context(), PruneRequest{Dir: req.Dir, Before: always, Used: noneUsed}); err != nil || !slices.Equal(removed, []string{all[0].Name}) {
		t.Errorf("removed %q of the last layer, %v", removed, err)
	}
	if _, err := os.Lstat(req.Dir); !os.IsNotExist(err) {
		t.Errorf("the empty directory stays: %v", err)
	}
	if removed, err := Prune(t.Context(), PruneRequest{Dir: req.Dir, Before: always}); err != nil || removed != nil {
		t.Errorf("without a directory: %q, %v", removed, err)
	}
}

// TestPruneDuringEnsure makes deltas while another goroutine prunes all that is not held. No layer may lose its base.
func TestPruneDuringEnsure(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo, req, all := chain(l, 3)
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		var failed error
		for failed == nil {
			select {
			case <-stop:
				done <- nil
				return
			default:
				_, failed = Prune(t.Context(), PruneRequest{Dir: req.Dir, Before: time.Now().Add(time.Hour), Used: noneUsed})
			}
		}
		done <- failed
	}()
	for range 20 {
		for _, want := range all {
			req.Tree, _, _ = strings.Cut(want.Name, "-")
			got, _, release, err := Ensure(t.Context(), repo, req)
			l.Must(err)
			for _, lower := range got.Lowers {
				if _, err := os.Stat(lower); err != nil {
					t.Error(err)
				}
			}
			if data, err := os.ReadFile(filepath.Join(got.Lowers[0], "changing")); err != nil || want.Name == all[1].Name && string(data) != "1" {
				t.Errorf("%q %v", data, err)
			}
			l.Must(release())
		}
	}
	close(stop)
	l.Must(<-done)
}

// TestEnsureAfterKill checks that what a killed process left at any step does not matter, and is removed.
func TestEnsureAfterKill(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	repo, req, all := chain(l, 2)
	for name, files := range map[string][]string{
		"nothing": nil, "a part of the files": {"tree/more/1"}, "git's files": {"tree/a.txt", "index.git/HEAD", "index.git/index.lock"},
		"all": {"tree/a.txt", "index", "layer.json"},
	} {
		for _, prune := range []bool{false, true} {
			for _, prefix := range []string{newPrefix, oldPrefix} {
				dir := filepath.Join(req.Dir, prefix+all[1].Name)
				l.Must(os.RemoveAll(filepath.Join(req.Dir, all[1].Name)))
				l.Must(os.MkdirAll(dir, 0o700))
				for _, file := range files {
					l.WriteIn(dir, file, "incomplete")
				}
				if prune {
					_, err := Prune(t.Context(), PruneRequest{Dir: req.Dir, Before: time.Unix(0, 0), Used: noneUsed})
					l.Must(err)
				} else {
					got, made := ensure(l, repo, req)
					if !made || len(got.Lowers) != 2 {
						t.Errorf("%s: %v", name, got)
					}
					if data, err := os.ReadFile(filepath.Join(got.Lowers[0], "changing")); err != nil || string(data) != "1" {
						t.Errorf("%s: %q, %v", name, data, err)
					}
				}
				if gittest.Exists(dir) {
					t.Errorf("%s: %s is left, prune %t", name, dir, prune)
				}
			}
		}
	}
}

// TestKilledEnsure kills processes that make a layer after various times, and checks what they leave.
func TestKilledEnsure(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	for i := range 200 {
		l.Write(fmt.Sprint("more/", i), strings.Repeat("x\n", i))
	}
	l.Commit("more")
	repo := repotest.OpenRepo(l)
	req := request(l, repo, "HEAD")
	kills, killed := 40, 0
	if testing.Short() {
		kills = 10
	}
	for i := range kills {
		cmd := ensureCommand(l, req)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		l.Must(cmd.Start())
		time.Sleep(time.Duration(i*100/kills) * time.Millisecond)
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if cmd.Wait() != nil {
			killed++
		}
		for _, path := range glob(l, req.Dir+"/*") {
			name := filepath.Base(path)
			if isName(name) {
				got, err := Open(req.Dir, name)
				l.Must(err)
				requireCheckout(l, got, got.Lowers[0], "HEAD")
				l.Must(os.RemoveAll(path))
			} else if !strings.HasPrefix(name, newPrefix) && !strings.HasPrefix(name, oldPrefix) {
				t.Errorf("left: %s", name)
			}
		}
	}
	if killed == 0 {
		t.Error("no process was killed")
	}
	got, _ := ensure(l, repo, req)
	requireCheckout(l, got, got.Lowers[0], "HEAD")
	if names := glob(l, req.Dir+"/*"); len(names) != 1 {
		t.Errorf("left: %q", names)
	}
}

// TestEnsureOnFullDisk checks the error of a full disk, for files that are copied and that git writes.
func TestEnsureOnFullDisk(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	for i := range 40 {
		l.Write(fmt.Sprint("more/", i), strings.Repeat("0123456789", 10_000))
	}
	l.Commit("four megabytes")
	repo := repotest.OpenRepo(l)
	for _, source := range []bool{true, false} {
		req := request(l, repo, "HEAD")
		if !source {
			req.Source = checkout.Source{}
		}
		l.Must(os.MkdirAll(req.Dir, 0o700))
		cmd := ensureCommand(l, req)
		cmd.Env = append(cmd.Env, "LAYER_TEST_TMPFS=1")
		cmd.SysProcAttr = inNamespace()
		out, err := cmd.CombinedOutput()
		if strings.Contains(string(out), "cannot mount") || errors.Is(err, unix.EPERM) {
			t.Skipf("%s %v", out, err)
		}
		if err == nil || !strings.Contains(string(out), "no space left on device") || !strings.Contains(string(out), "left: []") {
			t.Errorf("source %t: %s %v", source, out, err)
		}
	}
}

// TestUmaskIsRead checks the umask that is a part of the name of a layer, in a process with another one.
func TestUmaskIsRead(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	req := request(l, repotest.OpenRepo(l), "HEAD")
	for _, mask := range []string{"022", "077", "022"} {
		cmd := ensureCommand(l, req)
		cmd.Args = []string{"sh", "-c", `umask "$1" && exec "$2"`, "sh", mask, os.Args[0]}
		cmd.Path = "/bin/sh"
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if names := glob(l, req.Dir+"/*"); len(names) != 2 {
		t.Errorf("two umasks made %q", names)
	}
}

// ensureCommand returns a command that makes a layer in a process of its own.
func ensureCommand(l *gittest.Fixture, req Request) *exec.Cmd {
	l.T.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Dir = l.Root
	cmd.Env = append(slices.Clone(l.Env), ensureVariable+"="+strings.Join([]string{req.Dir, req.Tree, req.Source.Tree, req.Source.GitDir}, ":"))
	return cmd
}

func noneUsed() (map[string]bool, error) { return nil, nil }
