package guard

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestResolveFollowsSymlinksAndKeepsMissingParts(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	mkdir(t, root, "real", "deep")
	link(t, "real", root, "relative")
	link(t, filepath.Join(root, "real"), root, "absolute")
	link(t, "relative", root, "twice")
	link(t, "../real", root, "dir", "up")
	for path, want := range map[string]string{
		"real":                      "real",
		"real/deep":                 "real/deep",
		"relative/deep":             "real/deep",
		"absolute":                  "real",
		"twice/deep":                "real/deep",
		"dir/up/deep":               "real/deep",
		"real/new":                  "real/new",
		"relative/new/er/path":      "real/new/er/path",
		"none/at/all":               "none/at/all",
		"real/./deep//":             "real/deep",
		"real/../real/deep":         "real/deep",
		"real/deep/../../real/new/": "real/new",
		"new\nline/é":               "new\nline/é",
		"real/-":                    "real/-",
		"real/...":                  "real/...",
	} {
		if got, err := Resolve(root + "/" + path); err != nil || got != filepath.Join(root, want) {
			t.Errorf("%s: %s, %v; want %s", path, got, err, want)
		}
	}
	if got, err := Resolve("/"); err != nil || got != "/" {
		t.Errorf("/: %s, %v", got, err)
	}
}

func TestResolveRefusesDanglingLinksAndLoops(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	link(t, "nowhere", root, "dangling")
	link(t, "dangling", root, "twice")
	link(t, filepath.Join(root, "dangling", "below"), root, "into")
	link(t, "loop", root, "loop")
	link(t, "b", root, "a")
	link(t, "a", root, "b")
	write(t, "x", root, "file")
	link(t, "file/below", root, "through-file")
	for _, path := range []string{
		"dangling", "dangling/below", "dangling/be/low", "twice", "twice/x", "into", "into/x",
		"loop", "loop/x", "a", "a/b/c", "b", "file/below", "file/be/low", "through-file", "through-file/x",
	} {
		if got, err := Resolve(filepath.Join(root, path)); err == nil {
			t.Errorf("Resolve(%s) = %s", path, got)
		}
		if _, err := Locate(filepath.Join(root, path)); err == nil {
			t.Errorf("Locate(%s) succeeded", path)
		}
	}
}

func TestRelationSeesThroughEverySpelling(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	tree := mkdir(t, root, "a", "b")
	mkdir(t, tree, "sub", "sub")
	mkdir(t, root, "a", "bc")
	mkdir(t, root, "other")
	link(t, tree, root, "link")
	link(t, "../a/b/sub", root, "other", "in")
	link(t, ".", tree, "self")
	link(t, root, tree, "sub", "out")
	link(t, "nowhere", root, "dangling")
	write(t, "x", tree, "file")
	for _, c := range []struct {
		place, tree string
		want        Relation
	}{
		{"a/b", "a/b", Same},
		{"a/b/", "a/b", Same},
		{"a/./b", "a//b", Same},
		{"a/bc/../b", "a/b", Same},
		{"link", "a/b", Same},
		{"a/b", "link", Same},
		{"link/self/self", "a/b", Same},
		{"other/in", "a/b/sub", Same},
		{"a/b/sub", "a/b", Inside},
		{"a/b/sub/sub", "a/b", Inside},
		{"a/b/new", "a/b", Inside},
		{"a/b/new/er", "a/b", Inside},
		{"link/new", "a/b", Inside},
		{"a/b/self/new", "link", Inside},
		{"other/in", "a/b", Inside},
		{"other/in/new", "a/b", Inside},
		{"a", "a/b", Encloses},
		{".", "a/b", Encloses},
		{"a", "link", Encloses},
		{"a/b", "other/in/sub", Encloses},
		{"a/b/sub/out", "a/b", Encloses},
		{"a/b/sub/out/a", "a/b", Encloses},
		{"a/bc", "a/b", Disjoint},
		{"a/b", "a/bc", Disjoint},
		{"a/bcd", "a/bc", Disjoint},
		{"a/b2/new", "a/b", Disjoint},
		{"other", "a/b", Disjoint},
		{"other/new", "a/b", Disjoint},
		{"a/new", "a/b", Disjoint},
		{"a/b/sub/out/other", "a/b", Disjoint},
		{"a/b", "gone", Disjoint},
		{"gone/below", "gone", Inside}, // by name, because it does not exist
		{"gone", "gone/below", Encloses},
		{"gone", "gone", Same},
		{"gonest", "gone", Disjoint},
		{"other", "dangling", Disjoint},
		{"other/..", "a/b", Encloses},
	} {
		if got := mustLocate(t, root+"/"+c.place).Relation(root + "/" + c.tree); got != c.want {
			t.Errorf("%s and %s: %q, want %q", c.place, c.tree, got, c.want)
		}
	}
	for _, c := range []struct {
		place, tree string
		want        Relation
	}{{"/", "/", Same}, {"/", tree, Encloses}, {tree, "/", Inside}, {"/nothing/here", "/", Inside}} {
		if got := mustLocate(t, c.place).Relation(c.tree); got != c.want {
			t.Errorf("%s and %s: %q, want %q", c.place, c.tree, got, c.want)
		}
	}
}

// TestRelationComparesInodes: two paths with one inode are the same. A hard link to a file stands in for a directory on
// a case-insensitive file system, because directories cannot be hard-linked.
func TestRelationComparesInodes(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	write(t, "x", root, "one")
	must(t, os.Link(filepath.Join(root, "one"), filepath.Join(root, "two")))
	if got := mustLocate(t, filepath.Join(root, "one")).Relation(filepath.Join(root, "two")); got != Same {
		t.Errorf("got %q", got)
	}
}

func TestRelationIsSymmetric(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	paths := []string{root, mkdir(t, root, "a"), mkdir(t, root, "a", "b"), mkdir(t, root, "ab"), link(t, "a/b", root, "l"), link(t, "..", root, "a", "up"), "/"}
	mirror := map[Relation]Relation{Same: Same, Disjoint: Disjoint, Inside: Encloses, Encloses: Inside}
	for _, p := range paths {
		for _, q := range paths {
			if pq, qp := mustLocate(t, p).Relation(q), mustLocate(t, q).Relation(p); pq != mirror[qp] {
				t.Errorf("%s %q %s, but %s %q %s", p, pq, q, q, qp, p)
			}
		}
	}
}

func TestAncestorsGoUpToTheRoot(t *testing.T) {
	t.Parallel()
	got := slices.Collect(Location{Path: "/a/b/c"}.Ancestors)
	if want := []string{"/a/b/c", "/a/b", "/a", "/"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if got := slices.Collect(Location{Path: "/"}.Ancestors); !slices.Equal(got, []string{"/"}) {
		t.Errorf("of /: %q", got)
	}
	for dir := range (Location{Path: "/a/b/c"}).Ancestors { // the iteration may stop early
		if dir == "/a/b" {
			break
		}
	}
}

func TestContains(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dir, path string
		want      bool
	}{
		{"/a", "/a/b", true},
		{"/a", "/a", false},
		{"/a", "/ab", false},
		{"/a/b", "/a", false},
		{"/", "/a", true},
		{"/", "/", false},
		{"/a/", "/a/b", true},
		{"/a", "/a/..", true},
		{"/a b", "/a b/c", true},
		{"/é", "/é/x", true},
	} {
		if got := Contains(c.dir, c.path); got != c.want {
			t.Errorf("%s in %s: %v", c.path, c.dir, got)
		}
		if got := IsOrContains(c.dir, c.path); got != (c.want || c.dir == c.path) {
			t.Errorf("%s is %s or in it: %v", c.path, c.dir, got)
		}
	}
}

// TestResolveGoesUpFromSymlinkTarget: where x is a symlink, "x/.." is the parent of its target. Cleaning ".." before
// following links would check another path than the kernel opens.
func TestResolveGoesUpFromSymlinkTarget(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	tree := mkdir(t, root, "far", "tree", "sub")
	link(t, tree, root, "near", "link")
	for _, path := range []string{"near/link/..", "near/link/../new", "near/link/../../tree/new"} {
		full := root + "/" + path // not Join, which cleans ".."
		got, err := Resolve(full)
		if err != nil {
			continue // a refusal is safe
		}
		if rel := mustLocate(t, full).Relation(filepath.Join(root, "far/tree")); rel == Disjoint {
			t.Errorf("Resolve(%s) = %s, outside the tree that it leads into", path, got)
		}
	}
	// The kernel resolves it in the same way.
	if err := os.Mkdir(root+"/near/link/../made", 0o755); err != nil || !exists(filepath.Join(root, "far/tree/made")) {
		t.Fatalf("the kernel made another directory: %v", err)
	}
}

// TestResolveRefusesDotDotAfterFile: the kernel returns ENOTDIR for "file/..".
func TestResolveRefusesDotDotAfterFile(t *testing.T) {
	t.Parallel()
	root := tempDir(t)
	write(t, "x", root, "dir", "file")
	for _, path := range []string{"dir/file/..", "dir/file/../new", "dir/file/."} {
		if got, err := Resolve(root + "/" + path); err == nil {
			t.Errorf("Resolve(%s) = %s", path, got)
		}
	}
}
