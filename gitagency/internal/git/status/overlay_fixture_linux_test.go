package status

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"golang.org/x/sys/unix"
)

// inMountNamespace reports whether the test runs in a mount namespace of its own, with the user and group ids of the caller.
// Otherwise it runs the test in a process with such a namespace, and fails if the test fails there.
func inMountNamespace(t *testing.T) bool {
	t.Helper()
	const inside = "STATUS_TEST_OVERLAY"
	if os.Getenv(inside) == t.Name() {
		return true
	}
	args := []string{"-test.run=^" + t.Name() + "$", "-test.v"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), inside+"="+t.Name(), "TMPDIR="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
			AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_DAC_OVERRIDE}, // the kernel gives its work directory the mode 0
		}
	}
	out, err := cmd.CombinedOutput()
	switch {
	case cmd.ProcessState == nil:
		t.Skipf("skipped: overlays; no mount namespace here: %v", err)
	case strings.Contains(string(out), "skipped: "):
		t.Skipf("%s", out)
	case err != nil:
		t.Errorf("in a mount namespace: %v\n%s", err, out)
	case !strings.Contains(string(out), "--- PASS: "+t.Name()):
		t.Errorf("the test did not run:\n%s", out)
	}
	return false
}

// overlayWorktree is the worktree of a sandbox as an overlay.
type overlayWorktree struct {
	*gittest.Fixture
	repo  *git.Repo
	w     worktree.Registration
	layer overlay.Tree
	work  string // work directory of the overlay
}

// newOverlayWorktree makes a worktree of the commit HEAD whose files are in one lower directory. Nothing is mounted.
func newOverlayWorktree(l *gittest.Fixture) *overlayWorktree {
	l.T.Helper()
	repo := repotest.OpenRepo(l)
	o := &overlayWorktree{Fixture: l, repo: repo, w: repotest.AddSandbox(l, repo)}
	lower := o.w.Tree + ".lower"
	l.Must(os.Rename(o.w.Tree, lower))
	l.Must(os.Mkdir(o.w.Tree, 0o755))
	o.layer.Lowers = []string{lower}
	o.useUpper("upper")
	o.saveIndex()
	return o
}

// useUpper makes a new upper directory.
func (o *overlayWorktree) useUpper(name string) {
	o.T.Helper()
	top := filepath.Dir(o.w.Tree)
	o.layer.Upper, o.work = filepath.Join(top, name), filepath.Join(top, name+".work")
	o.Must(os.Mkdir(o.layer.Upper, 0o755))
	o.Must(os.Mkdir(o.work, 0o755))
}

// saveIndex makes the present index of the worktree that of the lower directories.
func (o *overlayWorktree) saveIndex() {
	o.T.Helper()
	data, err := os.ReadFile(o.indexPath())
	o.Must(err)
	o.layer.Index = o.layer.Upper + ".index"
	o.Must(os.WriteFile(o.layer.Index, data, 0o644))
}

func (o *overlayWorktree) indexPath() string {
	return filepath.Join(o.repo.AdminDir(o.w.Name), "index")
}

// mount mounts the overlay at the path of the worktree until unmount, or the end of the test.
func (o *overlayWorktree) mount() (unmount func()) {
	o.T.Helper()
	options := "userxattr,index=on,lowerdir=" + strings.Join(o.layer.Lowers, ":") + ",upperdir=" + o.layer.Upper + ",workdir=" + o.work
	if err := unix.Mount("overlay", o.w.Tree, "overlay", 0, options); err != nil {
		o.T.Skipf("skipped: overlays cannot be mounted here: %v", err)
	}
	unmount = func() { _ = unix.Unmount(o.w.Tree, unix.MNT_DETACH) }
	o.T.Cleanup(unmount)
	return unmount
}

// addLower makes what a commit changes a lower directory of its own, above the others.
func (o *overlayWorktree) addLower(commit string) {
	o.T.Helper()
	unmount := o.mount()
	o.GitIn(o.w.Tree, "reset", "-q", "--hard", commit)
	unmount()
	o.layer.Lowers = append([]string{o.layer.Upper}, o.layer.Lowers...)
	o.useUpper("upper2")
	unmount = o.mount()
	o.GitIn(o.w.Tree, "update-index", "-q", "--refresh") // with the stat data that overlayfs shows now
	unmount()
	o.saveIndex()
}

// spec returns the worktree for functions that read its layers. Nothing is mounted at its path.
func (o *overlayWorktree) spec() git.WorktreeSpec {
	s := repotest.SpecOf(o.Fixture, o.w)
	layer := o.layer
	s.Overlay, s.InUse = &layer, true
	s.Dir = filepath.Join(filepath.Dir(o.w.Tree), "unmounted")
	o.Must(os.MkdirAll(s.Dir, 0o755))
	return s
}

// head returns the commit of HEAD.
func (o *overlayWorktree) head() string { return o.GitIn(o.w.Tree, "rev-parse", "HEAD") }

// collect returns the tree of the files in the layers.
func (o *overlayWorktree) collect(ctx context.Context, s git.WorktreeSpec) (string, WorktreeContents) {
	o.T.Helper()
	g, err := CollectWorktree(ctx, o.repo, s, o.headOfEntry())
	o.T.Cleanup(func() { o.Must(g.Close()) })
	o.Must(err)
	return g.Worktree.HexOID(), g
}

// collectQuietly returns the contents of the layers after a second scan has found no change. A directory that has just changed
// counts as changing. The next CheckStable scans again.
func (o *overlayWorktree) collectQuietly(s git.WorktreeSpec) (g WorktreeContents) {
	o.T.Helper()
	gittest.Within(o.T, "a quiet moment", func() {
		for {
			_, g = o.collect(o.T.Context(), s)
			g.scan.result.consistent = false
			if g.CheckStable(o.T.Context()) == nil {
				return
			}
		}
	})
	return g
}

// headOfEntry returns the commit of HEAD without a look at the files.
func (o *overlayWorktree) headOfEntry() string {
	return o.Git("--git-dir="+o.repo.AdminDir(o.w.Name), "rev-parse", "HEAD")
}

// gitTree returns the tree that git makes of the files in the mounted overlay. It does not change the index. The copy has the
// mtime of the index: git trusts an entry whose file is older than that, and may compare seconds only.
func (o *overlayWorktree) gitTree() string {
	o.T.Helper()
	index := filepath.Join(filepath.Dir(o.w.Tree), "copied-index")
	o.Must(git.CopyFileWithMtime(o.indexPath(), index))
	copied := *o.Fixture
	copied.Env = append(append([]string{}, o.Env...), "GIT_INDEX_FILE="+index)
	copied.GitIn(o.w.Tree, "add", "-A")
	return copied.GitIn(o.w.Tree, "write-tree")
}

// gitStatus returns the paths that git status lists in the mounted overlay.
func (o *overlayWorktree) gitStatus() (paths map[string]bool, listed string) {
	o.T.Helper()
	listed = o.GitIn(o.w.Tree, "--no-optional-locks", "-c", "status.renames=false", "-c", "core.quotePath=false", "status", "--porcelain", "-uall")
	paths = map[string]bool{}
	for line := range strings.Lines(listed) {
		paths[strings.TrimSpace(line[3:])] = true
	}
	return paths, listed
}

// compare compares what the layers contain with what git finds in the mounted overlay.
func (o *overlayWorktree) compare(what string) {
	o.T.Helper()
	s := o.spec()
	paths, listed := o.gitStatus()
	head := o.head()
	count, err := CountChanges(o.T.Context(), o.repo, s, CountRequest{Head: head, HeadTree: o.GitIn(o.w.Tree, "rev-parse", "HEAD^{tree}"), Clock: FileClockOf(o.layer.Upper)})
	if o.Must(err); count != len(paths) {
		o.T.Errorf("%s: %d changes, want %d:\n%s", what, count, len(paths), listed)
	}
	want := o.gitTree()
	for _, s.InUse = range []bool{true, false} {
		g, err := CollectWorktree(o.T.Context(), o.repo, s, head)
		switch {
		case !s.InUse && o.hasPopulatedSubmodule():
			if !errors.As(err, new(*NestedRepositoryError)) {
				o.T.Errorf("%s: the files in the submodule are not reported: %v", what, err)
			}
		case err != nil:
			o.T.Errorf("%s, in use %v: %v", what, s.InUse, err)
		case g.Worktree.HexOID() != want:
			o.T.Errorf("%s, in use %v: the tree is not that of git:\n%s", what, s.InUse, o.diff(want, g.Worktree))
		}
		o.Must(g.Close())
	}
	if o.T.Failed() {
		out, _ := exec.Command("find", o.layer.Upper, "-printf", "%y %P\n").CombinedOutput()
		o.T.Fatalf("%s: upper directory:\n%s\nstatus:\n%s", what, out, listed)
	}
}

// hasPopulatedSubmodule reports whether the directory of a submodule in the index has any content.
func (o *overlayWorktree) hasPopulatedSubmodule() bool {
	for line := range strings.Lines(o.GitIn(o.w.Tree, "ls-files", "-s")) {
		if _, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); strings.HasPrefix(line, "160000 ") {
			if inside, err := os.ReadDir(filepath.Join(o.w.Tree, name)); err == nil && len(inside) > 0 {
				return true
			}
		}
	}
	return false
}

// diff returns the differences between a tree of git and one in memory, as lines of ls-tree. Lines of the latter begin with "+".
func (o *overlayWorktree) diff(want string, got *object.BuiltTree) string {
	o.T.Helper()
	lines := map[string]string{}
	for line := range strings.Lines(o.GitIn(o.Root, "-c", "core.quotePath=false", "ls-tree", "-r", want) + "\n") {
		lines[line] = "-" + line
	}
	var walk func(path string, tree *object.BuiltTree)
	walk = func(path string, tree *object.BuiltTree) {
		for _, e := range tree.Entries {
			name := path + string(e.Name)
			if e.Subtree != nil {
				walk(name+"/", e.Subtree)
				continue
			}
			kind := map[bool]string{true: "commit", false: "blob"}[e.IsGitlink()]
			line := fmt.Sprintf("%06o %s %x\t%s\n", e.Mode, kind, e.OID, name)
			if _, same := lines[line]; same {
				delete(lines, line)
			} else {
				lines[line] = "+" + line
			}
		}
	}
	walk("", got)
	return strings.Join(slices.Sorted(maps.Values(lines)), "")
}
