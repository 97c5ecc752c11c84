package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDoctorFixKilledAtAnyChange kills doctor --fix before each of its changes to the disk. The next --fix must
// complete the repair.
func TestDoctorFixKilledAtAnyChange(t *testing.T) {
	t.Parallel()
	var swept []int
	for i, ill := range doctorCases {
		if ill.killSweep {
			swept = append(swept, i)
		}
	}
	for _, i := range thin(swept) {
		ill := doctorCases[i]
		t.Run(ill.code+"_"+strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			w := newDoctorLab(t)
			l := w.lab
			restore := l.save()
			repo, data, env := l.repo, l.data, l.env
			for n := 1; ; n += killStep(200, 1) {
				ill.damage(w)
				id := ""
				for _, f := range l.findings() {
					if f.Code == ill.code && (ill.id == "*" || ill.id == f.ID || ill.id == "" && f.ID == sweepID) {
						id = f.ID
					}
				}
				done, last := l.runKilled(n, "git-agency", "doctor", "--fix", id)
				point := strconv.Itoa(n) + ", before " + last
				l.fixAll(point)
				ill.checkFixed(w)
				if t.Failed() {
					t.Fatalf("at %s", point)
				}
				if done {
					t.Logf("%d kill points", n-1)
					return
				}
				for _, dir := range []string{l.repo, l.data} {
					if err := os.RemoveAll(dir); err != nil {
						t.Fatal(err)
					}
				}
				l.repo, l.data, l.env = repo, data, env
				restore()
			}
		})
	}
}

// TestDoctorRepositoryMountedTwice bind-mounts a repository at a second path. Doctor must treat both paths as the
// same repository.
func TestDoctorRepositoryMountedTwice(t *testing.T) {
	if rerunInMountNamespace(t) {
		return
	}
	w := newDoctorLab(t)
	first, second := w.repo, filepath.Join(w.dir, "home", "mounted")
	if err := os.Mkdir(second, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(first, second, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("mount: %v", err)
	}
	defer func() {
		if err := unix.Unmount(second, 0); err != nil {
			t.Error(err)
		}
	}()
	w.repo = second
	if found := w.findings(); len(found) > 0 {
		t.Errorf("at the second mount point, doctor found %+v", found)
	}

	// Git runs at one mount point and doctor at the other.
	for _, c := range []struct{ works, looks string }{{first, second}, {second, first}} {
		editing := filepath.Join(t.TempDir(), "editing")
		commit := exec.CommandContext(t.Context(), "git", "commit", "--all", "--allow-empty")
		commit.Dir = c.works
		commit.Env = append(w.env, "GIT_EDITOR=f() { echo x > \"$1\"; : > "+editing+"; while test -e "+editing+"; do sleep 0.01; done; }; f")
		if err := commit.Start(); err != nil {
			t.Fatal(err)
		}
		if !waitForFile(editing) {
			t.Fatal("the editor was not started")
		}
		w.repo = c.looks
		if found := w.findings(); len(found) > 0 {
			t.Errorf("doctor found %+v", found)
		}
		if o := w.try(nil, "git-agency", "doctor"); !strings.Contains(o.stderr, "(git commit --all --allow-empty)") {
			t.Errorf("doctor does not name the running git: %s", o.stderr)
		}
		w.remove(editing)
		if err := commit.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDoctorFixesKilledWorktreeAdd kills a user's "git worktree add" before each change. Some of the leftovers break
// git in the whole repository, and doctor --fix must remove them.
func TestDoctorFixesKilledWorktreeAdd(t *testing.T) {
	t.Parallel()
	l := newSweepLab(t)
	tree := filepath.Join(l.dir, "home", "topic")
	restore, seen := l.save(), map[string]int{}
	step := killStep(10, 1)
	for n := 1; ; n += step {
		log := filepath.Join(t.TempDir(), "log")
		o := l.try(nil, "killat", "-n", strconv.Itoa(n), "-log", log, "-under", l.dir, "--", "git", "worktree", "add", "-q", "-b", "topic/x", tree)
		lines := strings.Split(strings.TrimSpace(l.read(log)), "\n")
		point := strconv.Itoa(n) + ", before " + lines[len(lines)-1]
		switch o.code {
		case killatFailed:
			t.Skipf("ptrace is not permitted here: %s", o.stderr)
		case 0:
			t.Logf("%d kill points: %v", n-1, seen)
			if step == 1 && (seen["stale-lock"] == 0 || seen["orphan-log"] == 0 || seen["damaged-entry"] == 0 || seen["initializing-entry"] == 0) {
				t.Errorf("the sweep did not produce all of the expected findings: %v", seen)
			}
			return
		case killatKilled:
		default:
			t.Fatalf("%s: ended with %d: %s", point, o.code, o.stderr)
		}
		for _, code := range l.fixAll(point) {
			seen[code]++
		}
		// Git works again, and the same worktree can be added.
		if listed := l.git("worktree", "list", "--porcelain"); strings.Contains(listed, "\nlocked") {
			t.Fatalf("%s: a locked worktree is left:\n%s", point, listed)
		}
		if strings.Contains(l.git("worktree", "list"), tree) {
			l.git("worktree", "remove", "--force", tree)
		}
		if err := os.RemoveAll(tree); err != nil {
			t.Fatal(err)
		}
		l.git("worktree", "prune")
		l.git("worktree", "add", "-q", "-B", "topic/x", tree)
		l.git("-C", tree, "status")
		l.git("fsck", "--no-dangling")
		if status := l.git("status", "--porcelain"); status != "A  staged\n?? untracked" {
			t.Fatalf("%s: the main worktree shows %q", point, status)
		}
		restore()
	}
}
