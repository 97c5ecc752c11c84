package merge

import (
	"fmt"
	"maps"
	rand "math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// Promise: mergeTrees makes exactly the tree that git makes. The trees are small and random: files, executables, symlinks
// and submodules are added, removed, changed, replaced by directories, and renamed alone or with their directory, on one
// side or on both.
func FuzzMergeTreesMatchesGit(f *testing.F) {
	const seeds = 150
	for seed := range uint64(seeds) {
		f.Add(seed)
	}
	l := newMergeLab(f)
	trivial, all := 0, 0
	f.Fuzz(func(t *testing.T, seed uint64) {
		g := &fileGenerator{rand: rand.New(rand.NewPCG(seed, 7))}
		base := g.randomFiles()
		ours, theirs := maps.Clone(base), maps.Clone(base)
		if g.rand.IntN(4) == 0 { // both sides have changes in common
			for range 1 + g.rand.IntN(2) {
				g.changeRandomly(ours)
			}
			theirs = maps.Clone(ours)
		}
		for range 1 + g.rand.IntN(3) {
			g.changeRandomly(ours)
		}
		for range 1 + g.rand.IntN(3) {
			g.changeRandomly(theirs)
		}
		trees := make([]string, 0, 3)
		for _, files := range []map[string]testFile{base, ours, theirs} {
			trees = append(trees, l.writeTree(t, files))
		}
		got, ok, err := l.merger.mergeTrees(t.Context(), trees[0], trees[1], trees[2])
		if err != nil {
			t.Fatal(err)
		}
		if all++; !ok {
			return
		}
		trivial++
		if want := l.gitMerge(t, trees); len(want.Conflicts) > 0 || want.Tree != got {
			t.Errorf("seed %d: got %s, git made %s with %v\nbase   %v\nours   %v\ntheirs %v", seed, got, want.Tree, want.Conflicts, describeFiles(base), describeFiles(ours), describeFiles(theirs))
		}
	})
	f.Cleanup(func() {
		if all == seeds && trivial < seeds/10 {
			f.Errorf("of %d merges only %d were trivial", all, trivial)
		}
	})
}

// gitMerge merges three trees (base, ours, theirs) with git.
func (l *mergeLab) gitMerge(t *testing.T, trees []string) Result {
	t.Helper()
	synthetic, err := l.merger.synthesizeCommits(t.Context(), trees[0], trees[1], trees[2])
	if err != nil {
		t.Fatal(err)
	}
	merged, err := l.merger.mergeWithGit(t.Context(), Request{Base: trees[0], Ours: trees[1], Theirs: trees[2]}, synthetic[1], synthetic[2])
	if err != nil {
		t.Fatal(err)
	}
	return merged
}

// Promise: mergeTrees merges trees without git if no rename can matter, and leaves all others to git.
func TestMergeTreesOnlyWithoutPossibleRenames(t *testing.T) {
	t.Parallel()
	l := newMergeLab(t)
	files := func(names ...string) map[string]testFile {
		made := map[string]testFile{}
		for _, name := range names {
			name, content, _ := strings.Cut(name, "=")
			made[name] = testFile{object.ModeFile, nineLines + content}
		}
		return made
	}
	for _, c := range []struct {
		what               string
		base, ours, theirs map[string]testFile
		plain              bool
	}{
		{"different files", files("a", "d/b"), files("a=1", "d/b"), files("a", "d/b=2"), true},
		{"the same change", files("a", "d/b"), files("a=1", "d/b"), files("a=1", "d/b", "c"), true},
		{"new in one directory", files("a"), files("a", "n/x"), files("a", "n/y"), true},
		{"all files of a directory removed", files("a", "d/x=x", "d/y=y"), files("a", "d/y=y"), files("a", "d/x=x"), true},
		{"a directory sorts after a.x, its file before", files("a", "a.x", "z"), files("a", "a.x", "z=1"), files("a/b=new", "a.x", "z"), true},
		{"renamed and changed", files("a=x"), files("b=x"), files("a=y"), false},
		{"renamed on both sides", files("a=x", "z"), files("b=x", "z"), files("c=x", "z"), false},
		{"removed on both sides", files("a=x", "z"), files("z"), files("z"), true}, // both sides have the same tree
		{"removed on both sides, with another change", files("a=x", "z"), files("z"), files("z", "c=x"), false},
		{"new in a renamed directory", files("d/a=1", "d/b=2"), files("e/a=1", "e/b=2"), files("d/a=1", "d/b=2", "d/c=3"), false},
		{"a directory and a file", files("z"), files("z", "n"), files("z", "n/x"), false},
		{"the same file", files("a"), files("a=1"), files("a=2"), false},
	} {
		trees := []string{l.writeTree(t, c.base), l.writeTree(t, c.ours), l.writeTree(t, c.theirs)}
		got, plain, err := l.merger.mergeTrees(t.Context(), trees[0], trees[1], trees[2])
		if err != nil || plain != c.plain {
			t.Errorf("%s: %v, %v", c.what, plain, err)
		}
		if want := l.gitMerge(t, trees); plain && (len(want.Conflicts) > 0 || want.Tree != got) {
			t.Errorf("%s: got %s, git made %v", c.what, got, want)
		}
	}
}

// mergeLab has a Merger of an empty repository.
type mergeLab struct{ merger *Merger }

func newMergeLab(tb testing.TB) *mergeLab {
	tb.Helper()
	dir := tb.TempDir()
	if err := git.InitBare(dir); err != nil {
		tb.Fatal(err)
	}
	env := []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"}
	repo, err := git.OpenBare(tb.Context(), dir, env)
	if err != nil {
		tb.Fatal(err)
	}
	m, err := NewMerger(repo, strings.Repeat("0", 40))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := m.Close(); err != nil {
			tb.Error(err)
		}
	})
	return &mergeLab{m}
}

// testFile is a file, executable, symlink or submodule.
type testFile struct {
	mode    uint32
	content string
}

// describeFiles lists files with mode and abbreviated blob id, for failure messages.
func describeFiles(files map[string]testFile) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		list = append(list, fmt.Sprintf("%s:%o:%x", name, files[name].mode, object.HashObject(object.SHA1, "blob", []byte(files[name].content))[:3]))
	}
	return list
}

// writeTree writes the blobs and trees of files and returns the id of the root tree.
func (l *mergeLab) writeTree(t *testing.T, files map[string]testFile) string {
	t.Helper()
	var leaves []object.LeafChange
	var objects []object.Raw
	for name, f := range files {
		oid := object.HashObject(object.SHA1, "blob", []byte(f.content))
		leaves = append(leaves, object.LeafChange{Mode: f.mode, OID: oid, Path: name})
		if f.mode != object.ModeGitlink {
			objects = append(objects, object.Raw{Kind: "blob", OID: oid, Content: []byte(f.content)})
		}
	}
	top := (&object.BuiltTree{}).WithChanges(object.SHA1, leaves)
	if len(leaves) == 0 {
		top.Encode(object.SHA1)
	}
	err := git.VisitNewEntries(top, nil, nil, func(_ string, dir *object.BuiltTree, _ object.TreeEntry) {
		if dir != nil {
			objects = append(objects, object.Raw{Kind: "tree", OID: dir.OID, Content: dir.Content})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if err := l.merger.Repo.WriteLoose(o); err != nil {
			t.Fatal(err)
		}
	}
	return top.HexOID()
}

// fileGenerator makes random files.
type fileGenerator struct {
	rand  *rand.Rand
	count int // number of files made
}

// pick returns a random element of a list.
func pick[T any](g *fileGenerator, list []T) T { return list[g.rand.IntN(len(list))] }

func (g *fileGenerator) randomName() string {
	dirs := []string{"", "d/", "d/", "e/", "d/s/", "d/s/t/", "e/u/", "f/", "g/"}
	return pick(g, dirs) + pick(g, []string{"a", "b", "c", "a.x", "a0", "s", "d", "u", "m", "n", "o"})
}

func (g *fileGenerator) randomFile() testFile {
	g.count++
	mode := pick(g, []uint32{object.ModeFile, object.ModeFile, object.ModeFile, object.ModeFile, object.ModeExecutable, object.ModeSymlink, object.ModeGitlink})
	if mode == object.ModeSymlink || mode == object.ModeGitlink {
		return testFile{mode, fmt.Sprint("to", g.rand.IntN(4))}
	}
	var b strings.Builder
	for i := range 6 {
		fmt.Fprintf(&b, "line %d of file %d\n", i, g.rand.IntN(3)*100+i)
	}
	fmt.Fprintf(&b, "%d\n", g.rand.IntN(5))
	return testFile{mode, b.String()}
}

// randomFiles returns the files of a random tree.
func (g *fileGenerator) randomFiles() map[string]testFile {
	files := map[string]testFile{}
	for range 4 + g.rand.IntN(12) {
		g.put(files, g.randomName(), g.randomFile())
	}
	return files
}

// put adds a file and removes paths that conflict with it: files below it, and files at its parent directories.
func (g *fileGenerator) put(files map[string]testFile, name string, f testFile) {
	for other := range files {
		if strings.HasPrefix(other, name+"/") || strings.HasPrefix(name, other+"/") {
			delete(files, other)
		}
	}
	files[name] = f
}

// changeRandomly makes one random change to files.
func (g *fileGenerator) changeRandomly(files map[string]testFile) {
	if len(files) == 0 {
		g.put(files, g.randomName(), g.randomFile())
		return
	}
	name := pick(g, slices.Sorted(maps.Keys(files)))
	f := files[name]
	switch g.rand.IntN(10) {
	case 0, 1:
		g.put(files, g.randomName(), g.randomFile())
	case 2:
		delete(files, name)
	case 3, 4:
		f.content += fmt.Sprintf("changed %d\n", g.rand.IntN(3))
		files[name] = f
	case 5:
		f.mode = pick(g, []uint32{object.ModeFile, object.ModeExecutable, object.ModeSymlink})
		files[name] = f
	case 6, 7: // rename a file, and perhaps change it
		delete(files, name)
		if g.rand.IntN(2) == 0 {
			f.content += "and a little more\n"
		}
		g.put(files, g.randomName(), f)
	case 8: // rename a directory
		from, to := path.Dir(name)+"/", path.Dir(g.randomName())+"/"
		if from == "./" || to == "./" {
			return
		}
		if g.rand.IntN(2) == 0 {
			to = "new/"
		}
		for _, old := range slices.Sorted(maps.Keys(files)) {
			if rest, below := strings.CutPrefix(old, from); below {
				f := files[old]
				delete(files, old)
				g.put(files, to+rest, f)
			}
		}
	case 9: // remove a directory
		from := path.Dir(name) + "/"
		for _, old := range slices.Sorted(maps.Keys(files)) {
			if strings.HasPrefix(old, from) {
				delete(files, old)
			}
		}
	}
}
