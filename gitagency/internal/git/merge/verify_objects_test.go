package merge

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// damage has the file of an object hold something else.
func damage(l *gittest.Lab, oid string, how func(data []byte) []byte) {
	l.T.Helper()
	path := filepath.Join(l.Root, ".git/objects", oid[:2], oid[2:])
	data, err := os.ReadFile(path)
	l.Must(err)
	l.Must(os.Remove(path))
	l.Must(os.WriteFile(path, how(data), 0o444))
}

// Promise: commits of which not everything is there, or is not what it has to be, do not land; who made them is told of the
// commit and the path.
func TestCommitsOfWhichSomethingIsMissingAreRefused(t *testing.T) {
	t.Parallel()
	cut := func(data []byte) []byte { return data[:len(data)-8] }
	nonsense := func([]byte) []byte { return []byte("nonsense") }
	empty := func([]byte) []byte { return nil }
	for _, c := range []struct {
		name  string
		path  string // empty where nothing is wrong
		lines func(l *gittest.Lab) []string
	}{
		{"all is well", "", func(l *gittest.Lab) []string { return []string{"100644 blob " + l.MakeBlob("new\n") + "\tnew"} }},
		{"no file", "new", func(l *gittest.Lab) []string { return []string{"100644 blob " + strings.Repeat("1", 40) + "\tnew"} }},
		{"no program", "new", func(l *gittest.Lab) []string { return []string{"100755 blob " + strings.Repeat("1", 40) + "\tnew"} }},
		{"no link", "new", func(l *gittest.Lab) []string { return []string{"120000 blob " + strings.Repeat("1", 40) + "\tnew"} }},
		{"no file below", "sub/deep/new", func(l *gittest.Lab) []string {
			deep := l.MakeTree("100644 blob " + strings.Repeat("1", 40) + "\tnew")
			return []string{"040000 tree " + l.MakeTree("040000 tree "+deep+"\tdeep") + "\tsub"}
		}},
		{"no directory", "sub", func(l *gittest.Lab) []string { return []string{"040000 tree " + strings.Repeat("1", 40) + "\tsub"} }},
		{"a submodule is elsewhere", "", func(l *gittest.Lab) []string {
			return []string{"160000 commit " + strings.Repeat("1", 40) + "\tmodule"}
		}},
		{"a directory for a file", "new", func(l *gittest.Lab) []string {
			l.WriteIn(l.Root, ".git/entry", "100644 new\x00"+string(object.RawID(l.Git("rev-parse", "HEAD^{tree}"))))
			return nil // as no git would make it
		}},
		{"a directory for a file, and for itself", "z", func(l *gittest.Lab) []string {
			tree := string(object.RawID(l.MakeTree("100644 blob " + l.MakeBlob("new\n") + "\tnew")))
			l.WriteIn(l.Root, ".git/entry", "40000 a\x00"+tree+"100644 z\x00"+tree)
			return nil
		}},
		{"cut off", "new", func(l *gittest.Lab) []string {
			oid := l.MakeBlob(strings.Repeat("new\n", 10))
			damage(l, oid, cut)
			return []string{"100644 blob " + oid + "\tnew"}
		}},
		{"nonsense", "new", func(l *gittest.Lab) []string {
			oid := l.MakeBlob("new\n")
			damage(l, oid, nonsense)
			return []string{"100644 blob " + oid + "\tnew"}
		}},
		{"nothing in it", "new", func(l *gittest.Lab) []string {
			oid := l.MakeBlob("new\n")
			damage(l, oid, empty)
			return []string{"100644 blob " + oid + "\tnew"}
		}},
		{"something else", "b", func(l *gittest.Lab) []string {
			oid, other := l.MakeBlob("new\n"), l.MakeBlob("old\n")
			data, err := os.ReadFile(filepath.Join(l.Root, ".git/objects", other[:2], other[2:]))
			l.Must(err)
			damage(l, oid, func([]byte) []byte { return data })
			return []string{"100644 blob " + other + "\ta", "100644 blob " + oid + "\tb"}
		}},
		{"another directory", "sub", func(l *gittest.Lab) []string {
			oid, other := l.MakeTree("100644 blob "+l.MakeBlob("new\n")+"\tnew"), l.Git("rev-parse", "HEAD:dir")
			data, err := os.ReadFile(filepath.Join(l.Root, ".git/objects", other[:2], other[2:]))
			l.Must(err)
			damage(l, oid, func([]byte) []byte { return data })
			return []string{"040000 tree " + oid + "\tsub"}
		}},
		{"a directory cut off", "sub", func(l *gittest.Lab) []string {
			oid := l.MakeTree("100644 blob " + l.MakeBlob("new\n") + "\tnew")
			damage(l, oid, cut)
			return []string{"040000 tree " + oid + "\tsub"}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			base := l.Git("rev-parse", "HEAD")
			lines := c.lines(l)
			var tree string
			if lines != nil {
				tree = l.MakeTree(append(lines, strings.Split(l.Git("ls-tree", "HEAD"), "\n")...)...)
			} else {
				tree = l.Git("hash-object", "-t", "tree", "-w", "--literally", ".git/entry")
			}
			evil := l.Git("commit-tree", "-p", base, "-m", "evil", tree)
			good := l.Git("commit-tree", "-p", evil, "-m", "taken back", base+"^{tree}") // which the history goes on to have
			for _, tip := range []string{evil, good} {
				err := openMerger(l).FsckRange(t.Context(), base, tip)
				var unsound *fsck.Error
				switch {
				case c.path == "" && err != nil:
					t.Error(err)
				case c.path != "" && (!errors.As(err, &unsound) || strings.TrimSuffix(unsound.Path, "/") != c.path || !strings.Contains(err.Error(), evil[:12])):
					t.Errorf("%v", err)
				}
			}
		})
	}
}

// What stands for a submodule, and is elsewhere, says nothing of a file of the same name.
func TestAFileInThePlaceOfASubmoduleHasToBeThere(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	lines, oid := strings.Split(l.Git("ls-tree", "HEAD"), "\n"), strings.Repeat("1", 40)
	base := l.Git("commit-tree", "-p", "HEAD", "-m", "module", l.MakeTree(append(lines, "160000 commit "+oid+"\tmodule")...))
	tip := l.Git("commit-tree", "-p", base, "-m", "file", l.MakeTree(append(lines, "100644 blob "+oid+"\tmodule")...))
	var unsound *fsck.Error
	if err := openMerger(l).FsckRange(t.Context(), base, tip); !errors.As(err, &unsound) || unsound.Path != "module" {
		t.Errorf("%v", err)
	}
}

// What was found sound ahead of time is not read again: it could be gone by then.
func TestWhatWasForeseenIsReadOnce(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	base := l.Git("rev-parse", "HEAD")
	l.Write("dir/new", "new\n")
	tip := l.Commit("new")
	m := openMerger(l)
	m.Prefetch(t.Context(), base, tip, "")
	m.prefetching.Wait()
	for oid := range strings.FieldsSeq(l.Git("rev-list", "--objects", "--no-object-names", tip, "^"+base)) {
		l.Must(os.Remove(filepath.Join(l.Root, ".git/objects", oid[:2], oid[2:])))
	}
	if err := m.FsckRange(t.Context(), base, tip); err != nil {
		t.Errorf("it was looked at twice: %v", err)
	}
	// What was not sound is said to who asks.
	m = openMerger(l)
	m.Prefetch(t.Context(), base, tip, "")
	m.prefetching.Wait()
	if err := m.FsckRange(t.Context(), base, tip); err == nil {
		t.Error("it is gone, and sound")
	}
}

// A commit is read, too.
func TestACommitThatIsNotWhatItsNameSaysIsRefused(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	base := l.Git("rev-parse", "HEAD")
	evil := l.Git("commit-tree", "-p", base, "-m", "evil", base+"^{tree}")
	other := l.Git("commit-tree", "-p", base, "-m", "other", base+"^{tree}")
	data, err := os.ReadFile(filepath.Join(l.Root, ".git/objects", other[:2], other[2:]))
	l.Must(err)
	damage(l, evil, func([]byte) []byte { return data })
	var unsound *object.InvalidCommitError
	if err := openMerger(l).FsckRange(t.Context(), base, evil); !errors.As(err, &unsound) || unsound.Commit != evil {
		t.Errorf("%v", err)
	}
}

// What a merge brought along from the other side is not looked at again, and more than anybody wants to read is only asked
// for.
func TestOnlyWhatCommitsBroughtIsRead(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	base := l.Git("rev-parse", "HEAD")
	missing := "100644 blob " + strings.Repeat("1", 40) + "\tgone"
	lines := strings.Split(l.Git("ls-tree", "HEAD"), "\n")
	upstream := l.Git("commit-tree", "-p", base, "-m", "upstream", l.MakeTree(append(lines, missing)...))
	own := l.Git("commit-tree", "-p", base, "-m", "own", l.MakeTree(append(lines, "100644 blob "+l.MakeBlob("own\n")+"\town")...))
	merge := l.Git("commit-tree", "-p", own, "-p", upstream, "-m", "merge", l.MakeTree(append(lines, missing, "100644 blob "+l.MakeBlob("own\n")+"\town")...))
	if err := openMerger(l).FsckRange(t.Context(), upstream, merge); err != nil {
		t.Error(err)
	}
	large, small := l.MakeBlob(strings.Repeat("x", maxVerifiedBytes+1)), l.MakeBlob("small\n")
	other, err := os.ReadFile(filepath.Join(l.Root, ".git/objects", small[:2], small[2:]))
	l.Must(err)
	tip := l.Git("commit-tree", "-p", base, "-m", "large", l.MakeTree(append(lines, "100644 blob "+large+"\tlarge")...))
	l.Must(openMerger(l).FsckRange(t.Context(), base, tip))
	l.Must(os.Remove(filepath.Join(l.Root, ".git/objects", large[:2], large[2:])))
	if err := openMerger(l).FsckRange(t.Context(), base, tip); !errors.As(err, new(*fsck.Error)) {
		t.Errorf("it is gone: %v", err)
	}
	l.Must(os.WriteFile(filepath.Join(l.Root, ".git/objects", large[:2], large[2:]), other, 0o444))
	if err := openMerger(l).FsckRange(t.Context(), base, tip); !errors.As(err, new(*fsck.Error)) {
		t.Errorf("it is another, and small: %v", err)
	}
}

// Promise: what a partial or a shallow clone does not have is no fault of the commits, and nothing is fetched for it.
func TestCommitsOfClonesThatLackSomethingAreFine(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	l.Write("a.txt", "second\n")
	l.Commit("second")
	l.Write("other.txt", "third\n")
	l.Commit("third")
	l.Git("config", "uploadpack.allowFilter", "true")
	for _, how := range []string{"--filter=blob:none", "--depth=1"} {
		away := filepath.Join(gittest.TempDir(t), "clone")
		l.Git("clone", "-q", "--no-checkout", how, "file://"+l.Root, away)
		clone := *l
		clone.Root = away
		base := clone.Git("rev-parse", "HEAD")
		old := l.Git("rev-parse", "HEAD~1:a.txt") // which is on no line of the new commit's parent
		if how == "--depth=1" {
			old = clone.MakeBlob("mine\n")
		}
		clone.Git("remote", "set-url", "origin", filepath.Join(away, "nowhere"))
		tree := clone.MakeTree("100644 blob "+old+"\tagain", "100644 blob "+clone.MakeBlob("mine\n")+"\tmine")
		tip := clone.Git("commit-tree", "-p", base, "-m", "mine", tree)
		if err := openMerger(&clone).FsckRange(t.Context(), base, tip); err != nil {
			t.Errorf("%s: %v", how, err)
		}
	}
}
