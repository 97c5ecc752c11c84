package git

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree makes a tree of lines as ls-tree writes them, of which not all has to be there.
func (l *lab) tree(lines ...string) string {
	l.t.Helper()
	l.put(l.dir, ".git/lines", strings.Join(lines, "\n")+"\n")
	l.shell("git mktree --missing <.git/lines >.git/tree")
	data, err := os.ReadFile(filepath.Join(l.dir, ".git/tree"))
	l.must(err)
	return strings.TrimSpace(string(data))
}

// blob makes a file that nothing leads to.
func (l *lab) blob(content string) string {
	l.t.Helper()
	l.put(l.dir, ".git/blob", content)
	return l.git("hash-object", "-w", ".git/blob")
}

// damage has the file of an object hold something else.
func (l *lab) damage(oid string, how func(data []byte) []byte) {
	l.t.Helper()
	path := filepath.Join(l.dir, ".git/objects", oid[:2], oid[2:])
	data, err := os.ReadFile(path)
	l.must(err)
	l.must(os.Remove(path))
	l.must(os.WriteFile(path, how(data), 0o444))
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
		lines func(l *lab) []string
	}{
		{"all is well", "", func(l *lab) []string { return []string{"100644 blob " + l.blob("new\n") + "\tnew"} }},
		{"no file", "new", func(l *lab) []string { return []string{"100644 blob " + strings.Repeat("1", 40) + "\tnew"} }},
		{"no program", "new", func(l *lab) []string { return []string{"100755 blob " + strings.Repeat("1", 40) + "\tnew"} }},
		{"no link", "new", func(l *lab) []string { return []string{"120000 blob " + strings.Repeat("1", 40) + "\tnew"} }},
		{"no file below", "sub/deep/new", func(l *lab) []string {
			deep := l.tree("100644 blob " + strings.Repeat("1", 40) + "\tnew")
			return []string{"040000 tree " + l.tree("040000 tree "+deep+"\tdeep") + "\tsub"}
		}},
		{"no directory", "sub", func(l *lab) []string { return []string{"040000 tree " + strings.Repeat("1", 40) + "\tsub"} }},
		{"a submodule is elsewhere", "", func(l *lab) []string {
			return []string{"160000 commit " + strings.Repeat("1", 40) + "\tmodule"}
		}},
		{"a directory for a file", "new", func(l *lab) []string {
			l.put(l.dir, ".git/entry", "100644 new\x00"+string(rawID(l.git("rev-parse", "HEAD^{tree}"))))
			return nil // as no git would make it
		}},
		{"a directory for a file, and for itself", "z", func(l *lab) []string {
			tree := string(rawID(l.tree("100644 blob " + l.blob("new\n") + "\tnew")))
			l.put(l.dir, ".git/entry", "40000 a\x00"+tree+"100644 z\x00"+tree)
			return nil
		}},
		{"cut off", "new", func(l *lab) []string {
			oid := l.blob(strings.Repeat("new\n", 10))
			l.damage(oid, cut)
			return []string{"100644 blob " + oid + "\tnew"}
		}},
		{"nonsense", "new", func(l *lab) []string {
			oid := l.blob("new\n")
			l.damage(oid, nonsense)
			return []string{"100644 blob " + oid + "\tnew"}
		}},
		{"nothing in it", "new", func(l *lab) []string {
			oid := l.blob("new\n")
			l.damage(oid, empty)
			return []string{"100644 blob " + oid + "\tnew"}
		}},
		{"something else", "b", func(l *lab) []string {
			oid, other := l.blob("new\n"), l.blob("old\n")
			data, err := os.ReadFile(filepath.Join(l.dir, ".git/objects", other[:2], other[2:]))
			l.must(err)
			l.damage(oid, func([]byte) []byte { return data })
			return []string{"100644 blob " + other + "\ta", "100644 blob " + oid + "\tb"}
		}},
		{"another directory", "sub", func(l *lab) []string {
			oid, other := l.tree("100644 blob "+l.blob("new\n")+"\tnew"), l.git("rev-parse", "HEAD:dir")
			data, err := os.ReadFile(filepath.Join(l.dir, ".git/objects", other[:2], other[2:]))
			l.must(err)
			l.damage(oid, func([]byte) []byte { return data })
			return []string{"040000 tree " + oid + "\tsub"}
		}},
		{"a directory cut off", "sub", func(l *lab) []string {
			oid := l.tree("100644 blob " + l.blob("new\n") + "\tnew")
			l.damage(oid, cut)
			return []string{"040000 tree " + oid + "\tsub"}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			base := l.git("rev-parse", "HEAD")
			lines := c.lines(l)
			var tree string
			if lines != nil {
				tree = l.tree(append(lines, strings.Split(l.git("ls-tree", "HEAD"), "\n")...)...)
			} else {
				tree = l.git("hash-object", "-t", "tree", "-w", "--literally", ".git/entry")
			}
			evil := l.git("commit-tree", "-p", base, "-m", "evil", tree)
			good := l.git("commit-tree", "-p", evil, "-m", "taken back", base+"^{tree}") // which the history goes on to have
			for _, tip := range []string{evil, good} {
				err := l.merger().FsckRange(t.Context(), base, tip)
				var unsound *FsckError
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
	l := newLab(t)
	lines, oid := strings.Split(l.git("ls-tree", "HEAD"), "\n"), strings.Repeat("1", 40)
	base := l.git("commit-tree", "-p", "HEAD", "-m", "module", l.tree(append(lines, "160000 commit "+oid+"\tmodule")...))
	tip := l.git("commit-tree", "-p", base, "-m", "file", l.tree(append(lines, "100644 blob "+oid+"\tmodule")...))
	var unsound *FsckError
	if err := l.merger().FsckRange(t.Context(), base, tip); !errors.As(err, &unsound) || unsound.Path != "module" {
		t.Errorf("%v", err)
	}
}

// What was found sound ahead of time is not read again: it could be gone by then.
func TestWhatWasForeseenIsReadOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	base := l.git("rev-parse", "HEAD")
	l.write("dir/new", "new\n")
	tip := l.commit("new")
	m := l.merger()
	m.Prefetch(t.Context(), base, tip, "")
	m.prefetching.Wait()
	for oid := range strings.FieldsSeq(l.git("rev-list", "--objects", "--no-object-names", tip, "^"+base)) {
		l.must(os.Remove(filepath.Join(l.dir, ".git/objects", oid[:2], oid[2:])))
	}
	if err := m.FsckRange(t.Context(), base, tip); err != nil {
		t.Errorf("it was looked at twice: %v", err)
	}
	// What was not sound is said to who asks.
	m = l.merger()
	m.Prefetch(t.Context(), base, tip, "")
	m.prefetching.Wait()
	if err := m.FsckRange(t.Context(), base, tip); err == nil {
		t.Error("it is gone, and sound")
	}
}

// A commit is read, too.
func TestACommitThatIsNotWhatItsNameSaysIsRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	base := l.git("rev-parse", "HEAD")
	evil := l.git("commit-tree", "-p", base, "-m", "evil", base+"^{tree}")
	other := l.git("commit-tree", "-p", base, "-m", "other", base+"^{tree}")
	data, err := os.ReadFile(filepath.Join(l.dir, ".git/objects", other[:2], other[2:]))
	l.must(err)
	l.damage(evil, func([]byte) []byte { return data })
	var unsound *InvalidCommitError
	if err := l.merger().FsckRange(t.Context(), base, evil); !errors.As(err, &unsound) || unsound.Commit != evil {
		t.Errorf("%v", err)
	}
}

// What a merge brought along from the other side is not looked at again, and more than anybody wants to read is only asked
// for.
func TestOnlyWhatCommitsBroughtIsRead(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	base := l.git("rev-parse", "HEAD")
	missing := "100644 blob " + strings.Repeat("1", 40) + "\tgone"
	lines := strings.Split(l.git("ls-tree", "HEAD"), "\n")
	upstream := l.git("commit-tree", "-p", base, "-m", "upstream", l.tree(append(lines, missing)...))
	own := l.git("commit-tree", "-p", base, "-m", "own", l.tree(append(lines, "100644 blob "+l.blob("own\n")+"\town")...))
	merge := l.git("commit-tree", "-p", own, "-p", upstream, "-m", "merge", l.tree(append(lines, missing, "100644 blob "+l.blob("own\n")+"\town")...))
	if err := l.merger().FsckRange(t.Context(), upstream, merge); err != nil {
		t.Error(err)
	}
	large, small := l.blob(strings.Repeat("x", maxVerifiedBytes+1)), l.blob("small\n")
	other, err := os.ReadFile(filepath.Join(l.dir, ".git/objects", small[:2], small[2:]))
	l.must(err)
	tip := l.git("commit-tree", "-p", base, "-m", "large", l.tree(append(lines, "100644 blob "+large+"\tlarge")...))
	l.must(l.merger().FsckRange(t.Context(), base, tip))
	l.must(os.Remove(filepath.Join(l.dir, ".git/objects", large[:2], large[2:])))
	if err := l.merger().FsckRange(t.Context(), base, tip); !errors.As(err, new(*FsckError)) {
		t.Errorf("it is gone: %v", err)
	}
	l.must(os.WriteFile(filepath.Join(l.dir, ".git/objects", large[:2], large[2:]), other, 0o444))
	if err := l.merger().FsckRange(t.Context(), base, tip); !errors.As(err, new(*FsckError)) {
		t.Errorf("it is another, and small: %v", err)
	}
}

// Promise: what a partial or a shallow clone does not have is no fault of the commits, and nothing is fetched for it.
func TestCommitsOfClonesThatLackSomethingAreFine(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.write("a.txt", "second\n")
	l.commit("second")
	l.write("other.txt", "third\n")
	l.commit("third")
	l.git("config", "uploadpack.allowFilter", "true")
	for _, how := range []string{"--filter=blob:none", "--depth=1"} {
		away := filepath.Join(tempDir(t), "clone")
		l.git("clone", "-q", "--no-checkout", how, "file://"+l.dir, away)
		clone := *l
		clone.dir = away
		base := clone.git("rev-parse", "HEAD")
		old := l.git("rev-parse", "HEAD~1:a.txt") // which is on no line of the new commit's parent
		if how == "--depth=1" {
			old = clone.blob("mine\n")
		}
		clone.git("remote", "set-url", "origin", filepath.Join(away, "nowhere"))
		tree := clone.tree("100644 blob "+old+"\tagain", "100644 blob "+clone.blob("mine\n")+"\tmine")
		tip := clone.git("commit-tree", "-p", base, "-m", "mine", tree)
		if err := clone.merger().FsckRange(t.Context(), base, tip); err != nil {
			t.Errorf("%s: %v", how, err)
		}
	}
}
