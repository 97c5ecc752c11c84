package status

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"golang.org/x/sys/unix"
)

// Cases that random changes rarely meet.
func TestOverlayScanAgreesWithGitInRareCases(t *testing.T) {
	t.Parallel()
	if !inMountNamespace(t) {
		return
	}
	cases := map[string]func(o *overlayWorktree){
		"the first file of a directory is untracked": func(o *overlayWorktree) {
			o.GitIn(o.w.Tree, "rm", "-q", "--cached", "d0/deep/f0")
		},
		"the last file of a directory is untracked": func(o *overlayWorktree) {
			o.GitIn(o.w.Tree, "rm", "-q", "--cached", "d1/x/y/f2", "d0/f2")
		},
		"all files but one are untracked": func(o *overlayWorktree) {
			o.GitIn(o.w.Tree, "rm", "-q", "-r", "--cached", ".")
			o.GitIn(o.w.Tree, "add", "d1/x/y/f1")
		},
		"all lower files are untracked": func(o *overlayWorktree) {
			o.GitIn(o.w.Tree, "rm", "-q", "-r", "--cached", ".")
			o.WriteIn(o.w.Tree, "d1/new", "new\n")
			o.GitIn(o.w.Tree, "add", "d1/new")
		},
		"submodule in place of lower files": func(o *overlayWorktree) {
			o.GitIn(o.w.Tree, "rm", "-q", "-r", "--cached", "d2", "d1/x")
			o.GitIn(o.w.Tree, "update-index", "--add", "--cacheinfo", "160000,"+o.head()+",d2", "--cacheinfo", "160000,"+o.head()+",d1/x")
		},
		"submodule in place of a lower file": func(o *overlayWorktree) {
			o.GitIn(o.w.Tree, "update-index", "--add", "--cacheinfo", "160000,"+o.head()+",d2/f0")
		},
		"submodule is no longer one": func(o *overlayWorktree) {
			o.GitIn(o.w.Tree, "rm", "-q", "--cached", "sub")
			o.WriteIn(o.w.Tree, "sub/x", "x\n")
		},
		"intended to be added": func(o *overlayWorktree) {
			o.GitIn(o.w.Tree, "rm", "-q", "--cached", "empty", "f0")
			o.GitIn(o.w.Tree, "add", "-N", "empty", "f0")
		},
		"other mode in the index": func(o *overlayWorktree) {
			o.GitIn(o.w.Tree, "update-index", "--chmod=+x", "f0")
		},
		"other content in the index": func(o *overlayWorktree) {
			o.GitIn(o.w.Tree, "update-index", "--cacheinfo", "100644,"+o.GitIn(o.w.Tree, "rev-parse", "HEAD:f1")+",f0")
		},
		"racy entries": func(o *overlayWorktree) {
			o.GitIn(o.w.Tree, "read-tree", "HEAD") // without stat data
		},
		"opaque directory with a directory of the same name": func(o *overlayWorktree) {
			o.Must(os.RemoveAll(o.w.Tree + "/d1"))
			o.WriteIn(o.w.Tree, "d1/x/y/f1", "new\n")
		},
		"rules and attributes in lower directories": func(o *overlayWorktree) {
			o.WriteIn(o.w.Tree, "d1/keep.o", "not ignored\n")
			o.WriteIn(o.w.Tree, "d0/x.o", "ignored\n")
			o.WriteIn(o.w.Tree, "crlf/f", "converted again\r\n")
		},
		"rules are removed": func(o *overlayWorktree) {
			o.WriteIn(o.w.Tree, "d0/x.o", "no longer ignored\n")
			o.Must(os.Remove(o.w.Tree + "/.gitignore"))
			o.Must(os.Remove(o.w.Tree + "/crlf/.gitattributes"))
			o.WriteIn(o.w.Tree, "crlf/f", "not converted\r\n")
		},
		"sparse checkout": func(o *overlayWorktree) {
			o.GitIn(o.w.Tree, "sparse-checkout", "set", "d0")
		},
		"split index": func(o *overlayWorktree) {
			o.GitIn(o.w.Tree, "update-index", "--split-index")
			o.WriteIn(o.w.Tree, "f0", "changed\n")
		},
		"conflict": func(o *overlayWorktree) {
			o.WriteIn(o.w.Tree, "d0/f0", "ours\n")
			o.GitIn(o.w.Tree, "commit", "-q", "-a", "-m", "ours")
			if _, err := o.TryGit(o.w.Tree, "merge", "other"); err == nil {
				o.T.Fatal("the merge had no conflict")
			}
		},
		"chmod of a directory": func(o *overlayWorktree) { o.Must(os.Chmod(o.w.Tree+"/d1/x", 0o700)) },
	}
	for i, name := range slices.Sorted(maps.Keys(cases)) {
		if testing.Short() && i%2 != 0 {
			continue
		}
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			l := newLayeredRepo(t)
			l.Write("empty", "")
			l.Write("crlf/.gitattributes", "* text eol=crlf\n")
			l.Write("crlf/f", "converted\n")
			l.Git("add", "empty", "crlf")
			l.Git("commit", "-q", "-m", "third")
			o := newOverlayWorktree(l)
			o.mount()
			cases[name](o)
			o.compare(name)
		})
	}
}

// newDirectOverlay returns a worktree whose upper directory the test writes itself, without a mount.
func newDirectOverlay(t *testing.T, whiteouts ...string) *overlayWorktree {
	t.Helper()
	o := newOverlayWorktree(newLayeredRepo(t))
	for _, name := range whiteouts {
		o.Must(os.MkdirAll(filepath.Dir(filepath.Join(o.layer.Upper, name)), 0o755))
		if err := unix.Mknod(filepath.Join(o.layer.Upper, name), unix.S_IFCHR, 0); err != nil {
			t.Skipf("cannot create whiteouts: %v", err)
		}
	}
	return o
}

// Before a capture of an overlay that is not in use, permissions are restored in the upper directory only, and whiteouts are
// no special files.
func TestCaptureOfOverlayRestoresPermissionsOfUpperDirectory(t *testing.T) {
	t.Parallel()
	if !gittest.Unprivileged(t) {
		return
	}
	o := newDirectOverlay(t, ".gitignore", "d1/.gitignore")
	o.WriteIn(o.layer.Upper, "d0/f0", "unreadable\n")
	o.Must(os.Chmod(filepath.Join(o.layer.Upper, "d0/f0"), 0))
	o.Must(os.Mkdir(filepath.Join(o.layer.Upper, "closed"), 0))
	lower := filepath.Join(o.layer.Lowers[0], "d0/f1")
	o.Must(os.Chmod(lower, 0))
	s := o.spec()
	if _, err := CollectWorktree(t.Context(), o.repo, s, o.headOfEntry()); !errors.Is(err, os.ErrPermission) {
		t.Errorf("of a worktree in use: %v", err)
	}
	s.InUse = false
	_, g := o.collect(t.Context(), s)
	leaf := g.Worktree
	if leaf == nil || leaf.HexOID() == o.Git("rev-parse", "main^{tree}") {
		t.Error("the changes are not captured")
	}
	var st unix.Stat_t
	for path, readable := range map[string]bool{filepath.Join(o.layer.Upper, "d0/f0"): true, filepath.Join(o.layer.Upper, "closed"): true, lower: false} {
		if o.Must(unix.Lstat(path, &st)); st.Mode&unix.S_IRUSR != 0 != readable {
			t.Errorf("%s has the mode %o", path, st.Mode)
		}
	}
}

// Repositories, special files and rules are found in all layers.
func TestOverlayChecksSeeAllLayers(t *testing.T) {
	t.Parallel()
	o := newDirectOverlay(t, ".gitignore")
	s := o.spec()
	rules, err := OpenIgnoreRules(o.repo, s, s.Dir)
	o.Must(err)
	for name, want := range map[string]bool{"x.o": false, "out/x": false} { // a whiteout hides the rules
		if ignored, err := rules.IsIgnored(name, false); err != nil || ignored != want {
			t.Errorf("%s is ignored: %v, %v", name, ignored, err)
		}
	}
	o.Must(rules.Close())
	o.Must(os.Remove(filepath.Join(o.layer.Upper, ".gitignore")))
	if ignored, err := IgnoredPaths(o.repo, s, s.Dir, []string{"x.o", "d1/keep.o"}); err != nil || strings.Join(ignored, " ") != "x.o" {
		t.Errorf("ignored: %q, %v", ignored, err)
	}
	if ignored, err := IgnoredPaths(o.repo, s, t.TempDir(), []string{"x.o"}); err != nil || len(ignored) > 0 {
		t.Errorf("ignored by rules in another directory: %q, %v", ignored, err)
	}
	o.WriteIn(o.layer.Upper, "out/nested/.git/HEAD", "ref: refs/heads/main\n")
	_, g := o.collect(t.Context(), s)
	var nested *NestedRepositoryError
	if err := CheckNested(s, Report{IgnoredDirs: g.IgnoredDirs}); !errors.As(err, &nested) || nested.Paths[0] != filepath.Join(s.Dir, "out/nested") {
		t.Errorf("a repository in an ignored directory: %v", err)
	}
	s.InUse = false
	if _, err := CollectWorktree(t.Context(), o.repo, s, o.headOfEntry()); !errors.As(err, &nested) || nested.Paths[0] != filepath.Join(s.Dir, "out/nested") {
		t.Errorf("a capture: %v", err)
	}
	slow := strings.Repeat("*a", 40) + " text\n"
	o.WriteIn(o.layer.Lowers[0], "d0/.gitattributes", slow)
	check, err := OpenAttributesCheck(o.repo, s, o.headOfEntry())
	o.Must(err)
	defer check.Close()
	if err := check.CheckFor(t.Context(), "d0/f0"); err == nil {
		t.Error("slow attributes in a lower directory are accepted")
	}
}

// An overlay has no stat cache: its files are not where one would look for them.
func TestOverlayHasNoStatCache(t *testing.T) {
	t.Parallel()
	o := newDirectOverlay(t)
	s := o.spec()
	m := repotest.NewMirror(o.Fixture)
	tree, cache, err := DiskTreeWithStatCache(t.Context(), m, s, o.headOfEntry(), ReadConfigDigest(o.repo))
	if o.Must(err); tree != o.Git("rev-parse", "main^{tree}") || cache != nil {
		t.Errorf("tree %s, cache of %d bytes", tree, len(cache))
	}
	if tree := TreeFromStatCache(o.repo, s, ReadConfigDigest(o.repo), []byte("any")); tree != "" {
		t.Errorf("tree %s from a cache", tree)
	}
}

// A program in the sandbox that swaps a name in the upper directory for a symlink at any moment must never make a capture read
// a file outside.
func TestCaptureOfOverlayFollowsNoSymlinkThatIsSwappedIn(t *testing.T) {
	t.Parallel()
	o := newDirectOverlay(t, "whiteout")
	secretDir := gittest.TempDir(t)
	const secret = "secret of the person\n"
	for _, name := range []string{"f0", "f1", "deep/f0"} {
		o.WriteIn(secretDir, name, secret)
	}
	at := func(name string) string { return filepath.Join(o.layer.Upper, name) }
	o.WriteIn(o.layer.Upper, "d0/f0", "content\n")
	o.WriteIn(o.layer.Upper, "d1/f0", "content\n")
	o.Must(os.Symlink(secretDir, at("dir-link")))
	o.Must(os.Symlink(filepath.Join(secretDir, "f0"), at("file-link")))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for { // never by a path through a name that is swapped, which would move the file outside into the worktree
			for _, swap := range [][2]string{{"d0", "dir-link"}, {"d1/f0", "file-link"}, {"d0", "whiteout"}} {
				_ = unix.Renameat2(unix.AT_FDCWD, at(swap[0]), unix.AT_FDCWD, at(swap[1]), unix.RENAME_EXCHANGE)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	defer func() { close(stop); <-done }()
	hidden := string(object.HashObject(object.SHA1, "blob", []byte(secret)))
	head := o.headOfEntry()
	gittest.Within(t, "the captures", func() {
		for range 50 {
			g, err := CollectWorktree(t.Context(), o.repo, o.spec(), head)
			if err != nil && !errors.As(err, new(*StillChangingError)) && !errors.As(err, new(*RejectedNameError)) {
				t.Errorf("got %v", err)
			} else if err == nil && g.scan.blobs[hidden].Content != nil {
				t.Error("the capture has read a file outside of the worktree")
			}
			o.Must(g.Close())
		}
	})
}

// Names that come and go in a watched directory of the upper directory do not matter if they are ignored.
func TestOverlayWatchTellsIgnoredNames(t *testing.T) {
	t.Parallel()
	if !inMountNamespace(t) {
		return
	}
	o := newOverlayWorktree(newLayeredRepo(t))
	o.mount()
	o.WriteIn(o.w.Tree, "d0/f0", "changed\n")
	s := o.spec()
	s.ChangingDirs = []string{"d0"}
	g := o.collectQuietly(s)
	o.WriteIn(o.w.Tree, "d0/x.o", "ignored\n")
	if err := g.CheckStable(t.Context()); err != nil {
		t.Errorf("after a new ignored file: %v", err)
	}
	o.WriteIn(o.w.Tree, "d0/f1", "a lower file that is copied\n")
	if err := g.CheckStable(t.Context()); !errors.As(err, new(*StillChangingError)) {
		t.Errorf("after a change: %v", err)
	}
}
