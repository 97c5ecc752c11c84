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

// rewriteObjectFile replaces the content of a loose object's file.
func rewriteObjectFile(l *gittest.Fixture, oid string, how func(data []byte) []byte) {
	l.T.Helper()
	path := filepath.Join(l.Root, ".git/objects", oid[:2], oid[2:])
	data, err := os.ReadFile(path)
	l.Must(err)
	l.Must(os.Remove(path))
	l.Must(os.WriteFile(path, how(data), 0o444))
}

// Promise: FsckRange refuses commits with missing, damaged or mistyped objects, and its error names the commit and the path.
func TestFsckRangeRefusesMissingOrDamagedObjects(t *testing.T) {
	t.Parallel()
	cut := func(data []byte) []byte { return data[:len(data)-8] }
	nonsense := func([]byte) []byte { return []byte("nonsense") }
	empty := func([]byte) []byte { return nil }
	for _, c := range []struct {
		name  string
		path  string // path in the error; empty: no error
		lines func(l *gittest.Fixture) []string
	}{
		{"valid", "", func(l *gittest.Fixture) []string { return []string{"100644 blob " + l.MakeBlob("new\n") + "\tnew"} }},
		{"missing file", "new", func(l *gittest.Fixture) []string { return []string{"100644 blob " + strings.Repeat("1", 40) + "\tnew"} }},
		{"missing executable", "new", func(l *gittest.Fixture) []string { return []string{"100755 blob " + strings.Repeat("1", 40) + "\tnew"} }},
		{"missing symlink", "new", func(l *gittest.Fixture) []string { return []string{"120000 blob " + strings.Repeat("1", 40) + "\tnew"} }},
		{"missing file in a subdirectory", "sub/deep/new", func(l *gittest.Fixture) []string {
			deep := l.MakeTree("100644 blob " + strings.Repeat("1", 40) + "\tnew")
			return []string{"040000 tree " + l.MakeTree("040000 tree "+deep+"\tdeep") + "\tsub"}
		}},
		{"missing directory", "sub", func(l *gittest.Fixture) []string { return []string{"040000 tree " + strings.Repeat("1", 40) + "\tsub"} }},
		{"submodule, whose commit need not exist", "", func(l *gittest.Fixture) []string {
			return []string{"160000 commit " + strings.Repeat("1", 40) + "\tmodule"}
		}},
		{"tree in place of a blob", "new", func(l *gittest.Fixture) []string {
			l.WriteIn(l.Root, ".git/entry", "100644 new\x00"+string(object.RawOID(l.Git("rev-parse", "HEAD^{tree}"))))
			return nil // no git writes such a tree
		}},
		{"tree as directory and in place of a blob", "z", func(l *gittest.Fixture) []string {
			tree := string(object.RawOID(l.MakeTree("100644 blob " + l.MakeBlob("new\n") + "\tnew")))
			l.WriteIn(l.Root, ".git/entry", "40000 a\x00"+tree+"100644 z\x00"+tree)
			return nil
		}},
		{"truncated file", "new", func(l *gittest.Fixture) []string {
			oid := l.MakeBlob(strings.Repeat("new\n", 10))
			rewriteObjectFile(l, oid, cut)
			return []string{"100644 blob " + oid + "\tnew"}
		}},
		{"file that is no zlib data", "new", func(l *gittest.Fixture) []string {
			oid := l.MakeBlob("new\n")
			rewriteObjectFile(l, oid, nonsense)
			return []string{"100644 blob " + oid + "\tnew"}
		}},
		{"empty object file", "new", func(l *gittest.Fixture) []string {
			oid := l.MakeBlob("new\n")
			rewriteObjectFile(l, oid, empty)
			return []string{"100644 blob " + oid + "\tnew"}
		}},
		{"blob under a wrong name", "b", func(l *gittest.Fixture) []string {
			oid, other := l.MakeBlob("new\n"), l.MakeBlob("old\n")
			data, err := os.ReadFile(filepath.Join(l.Root, ".git/objects", other[:2], other[2:]))
			l.Must(err)
			rewriteObjectFile(l, oid, func([]byte) []byte { return data })
			return []string{"100644 blob " + other + "\ta", "100644 blob " + oid + "\tb"}
		}},
		{"tree under a wrong name", "sub", func(l *gittest.Fixture) []string {
			oid, other := l.MakeTree("100644 blob "+l.MakeBlob("new\n")+"\tnew"), l.Git("rev-parse", "HEAD:dir")
			data, err := os.ReadFile(filepath.Join(l.Root, ".git/objects", other[:2], other[2:]))
			l.Must(err)
			rewriteObjectFile(l, oid, func([]byte) []byte { return data })
			return []string{"040000 tree " + oid + "\tsub"}
		}},
		{"truncated directory", "sub", func(l *gittest.Fixture) []string {
			oid := l.MakeTree("100644 blob " + l.MakeBlob("new\n") + "\tnew")
			rewriteObjectFile(l, oid, cut)
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
			good := l.Git("commit-tree", "-p", evil, "-m", "taken back", base+"^{tree}") // the bad commit stays in the history
			for _, tip := range []string{evil, good} {
				err := openMerger(l).FsckRange(t.Context(), base, tip)
				var invalid *fsck.Error
				switch {
				case c.path == "" && err != nil:
					t.Error(err)
				case c.path != "" && (!errors.As(err, &invalid) || strings.TrimSuffix(invalid.Path, "/") != c.path || !strings.Contains(err.Error(), evil[:12])):
					t.Errorf("%v", err)
				}
			}
		})
	}
}

// FsckRange requires the blob of a file that replaces a submodule with the same object id: the base has that id only as a
// gitlink, whose commit need not exist.
func TestFsckRangeRequiresFileThatReplacesSubmodule(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	lines, oid := strings.Split(l.Git("ls-tree", "HEAD"), "\n"), strings.Repeat("1", 40)
	base := l.Git("commit-tree", "-p", "HEAD", "-m", "module", l.MakeTree(append(lines, "160000 commit "+oid+"\tmodule")...))
	tip := l.Git("commit-tree", "-p", base, "-m", "file", l.MakeTree(append(lines, "100644 blob "+oid+"\tmodule")...))
	var invalid *fsck.Error
	if err := openMerger(l).FsckRange(t.Context(), base, tip); !errors.As(err, &invalid) || invalid.Path != "module" {
		t.Errorf("%v", err)
	}
}

// FsckRange does not read objects again that Prefetch has checked: the test deletes them in between.
func TestFsckRangeReusesPrefetchedResult(t *testing.T) {
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
		t.Errorf("the objects were read twice: %v", err)
	}
	// FsckRange returns the error that Prefetch found.
	m = openMerger(l)
	m.Prefetch(t.Context(), base, tip, "")
	m.prefetching.Wait()
	if err := m.FsckRange(t.Context(), base, tip); err == nil {
		t.Error("no error for missing objects")
	}
}

// FsckRange refuses a commit whose file holds another commit.
func TestFsckRangeRefusesCommitUnderWrongName(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	base := l.Git("rev-parse", "HEAD")
	evil := l.Git("commit-tree", "-p", base, "-m", "evil", base+"^{tree}")
	other := l.Git("commit-tree", "-p", base, "-m", "other", base+"^{tree}")
	data, err := os.ReadFile(filepath.Join(l.Root, ".git/objects", other[:2], other[2:]))
	l.Must(err)
	rewriteObjectFile(l, evil, func([]byte) []byte { return data })
	var invalid *object.InvalidCommitError
	if err := openMerger(l).FsckRange(t.Context(), base, evil); !errors.As(err, &invalid) || invalid.Commit != evil {
		t.Errorf("%v", err)
	}
}

// FsckRange does not check objects that a merge took from upstream. It does not read a blob beyond maxVerifiedBytes, but
// requires that it exists.
func TestFsckRangeReadsOnlyNewObjects(t *testing.T) {
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
		t.Errorf("with the large blob missing: %v", err)
	}
	l.Must(os.WriteFile(filepath.Join(l.Root, ".git/objects", large[:2], large[2:]), other, 0o444))
	if err := openMerger(l).FsckRange(t.Context(), base, tip); !errors.As(err, new(*fsck.Error)) {
		t.Errorf("with a small blob in its place: %v", err)
	}
}

// Promise: FsckRange accepts objects that a partial or shallow clone does not have, and fetches nothing.
func TestFsckRangeAcceptsPartialAndShallowClones(t *testing.T) {
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
		old := l.Git("rev-parse", "HEAD~1:a.txt") // not in the tree of the new commit's parent
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
