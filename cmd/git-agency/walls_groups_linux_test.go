package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestStartRefusesGitDirOfAnotherGroup checks that start and exec refuse a git directory that belongs to a supplementary
// group of the user: the user namespace has no such group, so git could create no file behind the walls.
func TestStartRefusesGitDirOfAnotherGroup(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Parallel()
		rerunInSecondGroup(t)
		return
	}
	group := supplementaryGroup(t)
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	id := l.agency("start", "wt")
	gitDir := filepath.Join(l.repo, ".git")
	chgrp := func(group int) {
		t.Helper()
		err := filepath.WalkDir(gitDir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(path, -1, group)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	chgrp(group)
	before := l.dump()
	for _, c := range []struct {
		code int
		args []string
	}{
		{1, []string{"start", "wt"}},
		{125, []string{"exec", id, "--", "touch", "ran"}},
	} {
		o := l.try(nil, append([]string{"git-agency"}, c.args...)...)
		if o.code != c.code || !strings.Contains(o.stderr, gitDir+"/objects belongs to the group ") || !strings.Contains(o.stderr, "run chgrp -R ") {
			t.Errorf("%s exited with %d: %s", c.args[0], o.code, o.stderr)
		}
	}
	if d := dumpDiff(before, l.dump()); d != "" {
		t.Errorf("files changed:\n%s", d)
	}
	l.agency("discard", l.agency("start", "wt", "--isolation", "none"))

	chgrp(os.Getegid()) // the remedy of the message
	l.agency("exec", id, "--", "sh", "-ec", "echo new >new; git add new; git commit -qm new")
}

// rerunInSecondGroup runs the test again as the user nobody with a supplementary group, from a copy of this binary which
// that user can read.
func rerunInSecondGroup(t *testing.T) {
	t.Helper()
	skipRerunIfShort(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copied := filepath.Join(dir, "test")
	if out, err := exec.CommandContext(t.Context(), "cp", exe, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const nobody, second = 65534, 65533
	attr := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody, Groups: []uint32{second}}}
	if skip := rerunTest(t, dir, attr, copied, t.Name()); skip != "" {
		t.Errorf("skipped as an ordinary user: %s", skip)
	}
}

// supplementaryGroup returns a group of the user that is not the primary one. The test is skipped if there is none.
func supplementaryGroup(t *testing.T) int {
	t.Helper()
	groups, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(groups, func(g int) bool { return g != os.Getegid() })
	if at < 0 {
		t.Skip("this user has one group only")
	}
	return groups[at]
}
