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

// Promise: where we merge trees ourselves it is, to the last bit, what git makes of them. The trees are small and random:
// files, programs, links and submodules that come and go, change, turn into directories, are renamed one by one or with
// the directory they are in, on one side or on both.
func FuzzMergedTreesAreWhatGitMakes(f *testing.F) {
	const seeds = 150
	for seed := range uint64(seeds) {
		f.Add(seed)
	}
	l := newMergeLab(f)
	plain, all := 0, 0
	f.Fuzz(func(t *testing.T, seed uint64) {
		g := &grower{rand: rand.New(rand.NewPCG(seed, 7))}
		base := g.base()
		ours, theirs := maps.Clone(base), maps.Clone(base)
		if g.rand.IntN(4) == 0 { // something is the same on both
			for range 1 + g.rand.IntN(2) {
				g.change(ours)
			}
			theirs = maps.Clone(ours)
		}
		for range 1 + g.rand.IntN(3) {
			g.change(ours)
		}
		for range 1 + g.rand.IntN(3) {
			g.change(theirs)
		}
		trees := make([]string, 0, 3)
		for _, files := range []map[string]grown{base, ours, theirs} {
			trees = append(trees, l.plant(t, files))
		}
		got, is, err := l.m.mergeTrees(t.Context(), trees[0], trees[1], trees[2])
		if err != nil {
			t.Fatal(err)
		}
		if all++; !is {
			return
		}
		plain++
		if want := l.byGit(t, trees); len(want.Conflicts) > 0 || want.Tree != got {
			t.Errorf("seed %d: got %s, git made %s with %v\nbase   %v\nours   %v\ntheirs %v", seed, got, want.Tree, want.Conflicts, names(base), names(ours), names(theirs))
		}
	})
	f.Cleanup(func() {
		if all == seeds && plain < seeds/10 {
			f.Errorf("of %d merges only %d were plain", all, plain)
		}
	})
}

// byGit is what git makes of a base and two sides.
func (l *mergeLab) byGit(t *testing.T, trees []string) Result {
	t.Helper()
	synthetic, err := l.m.synthesizeCommits(t.Context(), trees[0], trees[1], trees[2])
	if err != nil {
		t.Fatal(err)
	}
	merged, err := l.m.mergeWithGit(t.Context(), Request{Base: trees[0], Ours: trees[1], Theirs: trees[2]}, synthetic[1], synthetic[2])
	if err != nil {
		t.Fatal(err)
	}
	return merged
}

// Promise: what only needs to be put together is, without git; and all in which a rename could play a part is left to it.
func TestTreesAreMergedWithoutGitWhereNoRenameCanMatter(t *testing.T) {
	t.Parallel()
	l := newMergeLab(t)
	files := func(names ...string) map[string]grown {
		made := map[string]grown{}
		for _, name := range names {
			name, content, _ := strings.Cut(name, "=")
			made[name] = grown{object.ModeFile, lines + content}
		}
		return made
	}
	for _, c := range []struct {
		what               string
		base, ours, theirs map[string]grown
		plain              bool
	}{
		{"apart", files("a", "d/b"), files("a=1", "d/b"), files("a", "d/b=2"), true},
		{"the same", files("a", "d/b"), files("a=1", "d/b"), files("a=1", "d/b", "c"), true},
		{"new in one directory", files("a"), files("a", "n/x"), files("a", "n/y"), true},
		{"nothing is left of a directory", files("a", "d/x=x", "d/y=y"), files("a", "d/y=y"), files("a", "d/x=x"), true},
		{"a directory sorts behind what its file came before", files("a", "a.x", "z"), files("a", "a.x", "z=1"), files("a/b=new", "a.x", "z"), true},
		{"renamed and changed", files("a=x"), files("b=x"), files("a=y"), false},
		{"renamed here and there", files("a=x", "z"), files("b=x", "z"), files("c=x", "z"), false},
		{"gone from both", files("a=x", "z"), files("z"), files("z"), true}, // one and the same tree
		{"gone from both, and more", files("a=x", "z"), files("z"), files("z", "c=x"), false},
		{"new in a directory that went elsewhere", files("d/a=1", "d/b=2"), files("e/a=1", "e/b=2"), files("d/a=1", "d/b=2", "d/c=3"), false},
		{"a directory and a file", files("z"), files("z", "n"), files("z", "n/x"), false},
		{"the same file", files("a"), files("a=1"), files("a=2"), false},
	} {
		trees := []string{l.plant(t, c.base), l.plant(t, c.ours), l.plant(t, c.theirs)}
		got, plain, err := l.m.mergeTrees(t.Context(), trees[0], trees[1], trees[2])
		if err != nil || plain != c.plain {
			t.Errorf("%s: %v, %v", c.what, plain, err)
		}
		if want := l.byGit(t, trees); plain && (len(want.Conflicts) > 0 || want.Tree != got) {
			t.Errorf("%s: got %s, git made %v", c.what, got, want)
		}
	}
}

// mergeLab is a merger of an empty repository.
type mergeLab struct{ m *Merger }

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

// grown is a file, program, link or submodule.
type grown struct {
	mode    uint32
	content string
}

func names(files map[string]grown) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		list = append(list, fmt.Sprintf("%s:%o:%x", name, files[name].mode, object.HashObject(object.SHA1, "blob", []byte(files[name].content))[:3]))
	}
	return list
}

// plant writes a tree.
func (l *mergeLab) plant(t *testing.T, files map[string]grown) string {
	t.Helper()
	var leaves []object.LeafChange
	var objects []object.Raw
	for name, f := range files {
		oid := object.HashObject(object.SHA1, "blob", []byte(f.content))
		leaves = append(leaves, object.LeafChange{Mode: f.mode, Oid: oid, Path: name})
		if f.mode != object.ModeGitlink {
			objects = append(objects, object.Raw{Kind: "blob", Oid: oid, Content: []byte(f.content)})
		}
	}
	top := (&object.BuiltTree{}).WithChanges(object.SHA1, leaves)
	if len(leaves) == 0 {
		top.Encode(object.SHA1)
	}
	err := git.VisitNew(top, nil, nil, func(_ string, dir *object.BuiltTree, _ object.TreeEntry) {
		if dir != nil {
			objects = append(objects, object.Raw{Kind: "tree", Oid: dir.Oid, Content: dir.Content})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if err := l.m.Repo.WriteLoose(o); err != nil {
			t.Fatal(err)
		}
	}
	return top.HexOID()
}

// grower makes up files.
type grower struct {
	rand *rand.Rand
	made int
}

func pick[T any](g *grower, list []T) T { return list[g.rand.IntN(len(list))] }

func (g *grower) name() string {
	dirs := []string{"", "d/", "d/", "e/", "d/s/", "d/s/t/", "e/u/", "f/", "g/"}
	return pick(g, dirs) + pick(g, []string{"a", "b", "c", "a.x", "a0", "s", "d", "u", "m", "n", "o"})
}

func (g *grower) file() grown {
	g.made++
	mode := pick(g, []uint32{object.ModeFile, object.ModeFile, object.ModeFile, object.ModeFile, object.ModeExecutable, object.ModeSymlink, object.ModeGitlink})
	if mode == object.ModeSymlink || mode == object.ModeGitlink {
		return grown{mode, fmt.Sprint("to", g.rand.IntN(4))}
	}
	var b strings.Builder
	for i := range 6 {
		fmt.Fprintf(&b, "line %d of file %d\n", i, g.rand.IntN(3)*100+i)
	}
	fmt.Fprintf(&b, "%d\n", g.rand.IntN(5))
	return grown{mode, b.String()}
}

func (g *grower) base() map[string]grown {
	files := map[string]grown{}
	for range 4 + g.rand.IntN(12) {
		g.put(files, g.name(), g.file())
	}
	return files
}

// put writes a file, in the place of whatever is in its way.
func (g *grower) put(files map[string]grown, name string, f grown) {
	for other := range files {
		if strings.HasPrefix(other, name+"/") || strings.HasPrefix(name, other+"/") {
			delete(files, other)
		}
	}
	files[name] = f
}

// change does something to files.
func (g *grower) change(files map[string]grown) {
	if len(files) == 0 {
		g.put(files, g.name(), g.file())
		return
	}
	name := pick(g, slices.Sorted(maps.Keys(files)))
	f := files[name]
	switch g.rand.IntN(10) {
	case 0, 1:
		g.put(files, g.name(), g.file())
	case 2:
		delete(files, name)
	case 3, 4:
		f.content += fmt.Sprintf("changed %d\n", g.rand.IntN(3))
		files[name] = f
	case 5:
		f.mode = pick(g, []uint32{object.ModeFile, object.ModeExecutable, object.ModeSymlink})
		files[name] = f
	case 6, 7: // renamed, and perhaps changed
		delete(files, name)
		if g.rand.IntN(2) == 0 {
			f.content += "and a little more\n"
		}
		g.put(files, g.name(), f)
	case 8: // a directory is renamed
		from, to := path.Dir(name)+"/", path.Dir(g.name())+"/"
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
	case 9: // a directory goes
		from := path.Dir(name) + "/"
		for _, old := range slices.Sorted(maps.Keys(files)) {
			if strings.HasPrefix(old, from) {
				delete(files, old)
			}
		}
	}
}
