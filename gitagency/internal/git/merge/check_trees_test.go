package merge

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// Promise: FsckTree refuses trees that no git would write, and names that some file system takes for .git or .agency.
func TestFsckTreeRefusesUnsafeTrees(t *testing.T) {
	t.Parallel()
	l := newMergeLab(t)
	blob := l.writeObject(t, "blob", "x")
	entry := func(mode, name, oid string) string { return mode + " " + name + "\x00" + string(object.RawOID(oid)) }
	file := func(name string) string { return entry("100644", name, blob) }
	link := func(name string) string { return entry("120000", name, blob) }
	tree := func(entries ...string) string { return l.writeObject(t, "tree", strings.Join(entries, "")) }
	sub := func(name, oid string) string { return entry("40000", name, oid) }
	fine := tree(file("a"), sub("d", tree(file(".agency"), link("l"))), entry("160000", "m", blob), entry("100755", "x", blob))
	if err := l.merger.FsckTree(t.Context(), fine, ""); err != nil {
		t.Fatal(err)
	}
	if err := l.merger.FsckTree(t.Context(), tree(), fine); err != nil {
		t.Errorf("an empty tree: %v", err)
	}
	known := tree(link(".gitattributes"), file("a"))
	if err := l.merger.FsckTree(t.Context(), tree(link(".gitattributes"), file("a"), file("b")), known); err != nil {
		t.Errorf("an entry that the known tree has: %v", err)
	}
	for what, oid := range map[string]string{
		".git":                     tree(file(".git")),
		".git in a subdirectory":   tree(sub("d", tree(sub("e", tree(sub(".git", tree(file("config")))))))),
		".GIT":                     tree(file(".GIT")),
		"git~1":                    tree(file("git~1")),
		".git in HFS":              tree(file(".g\u200cit")),
		".git with an NTFS stream": tree(file(".git::$INDEX_ALLOCATION")),
		"..":                       tree(sub("..", tree(file("a")))),
		".":                        tree(sub(".", tree(file("a")))),
		"a slash":                  tree(file("a/b")),
		"duplicate entries":        tree(file("a"), file("a")),
		"a file and a directory":   tree(file("a"), file("a.b"), sub("a", tree(file("b")))),
		"a link and a directory":   tree(link("a"), file("a.b"), sub("a", tree(file("b")))),
		"the same but for case":    tree(link("A"), sub("a", tree(file("b")))),
		"wrong order":              tree(file("b"), file("a")),
		"an unknown mode":          tree(entry("100664", "a", blob)),
		"a mode with a zero":       tree(entry("040000", "a", tree(file("b")))),
		"mode 0":                   tree(entry("0", "a", blob)),
		".agency":                  tree(sub(".agency", tree(file("a")))),
		".Agency":                  tree(file(".Agency")),
		".agency with a dot":       tree(file(".agency.")),
		"link .gitmodules":         tree(link(".gitmodules")),
		"link GITMOD~1":            tree(link("GITMOD~1")),
		"link .gitattributes":      tree(link(".gitattributes")),
		"link .GitIgnore":          tree(sub("d", tree(link(".GitIgnore")))),
		"an empty directory":       tree(sub("d", l.writeObject(t, "tree", ""))),
		"truncated":                tree(file("a"), "100644 b"),
		"a missing directory":      tree(sub("d", strings.Repeat("1", 40))),
		"a file as a directory":    tree(sub("d", blob)),
	} {
		var invalid *fsck.Error
		if err := l.merger.FsckTree(t.Context(), oid, fine); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// writeObject writes an object of any content, also invalid, and returns its id.
func (l *mergeLab) writeObject(t *testing.T, kind, content string) string {
	t.Helper()
	o := object.Raw{Kind: kind, OID: object.HashObject(object.SHA1, kind, []byte(content)), Content: []byte(content)}
	if err := l.merger.Repo.WriteLoose(o); err != nil {
		t.Fatal(err)
	}
	return o.HexOID()
}

// Promise: ChangedGitlinks lists new and changed submodules with their names in .gitmodules.
func TestChangedGitlinksListsNewAndChanged(t *testing.T) {
	t.Parallel()
	l := newMergeLab(t)
	module := func(content string) testFile { return testFile{object.ModeGitlink, content} }
	oid := func(content string) string {
		return object.HexOID(object.HashObject(object.SHA1, "blob", []byte(content)))
	}
	modules := testFile{object.ModeFile, "[submodule \"named\"]\n\tpath = d/new\n\turl = x\n"}
	known := l.writeTree(t, map[string]testFile{"same/m": module("1"), "moved": module("1"), "gone": module("1"), "f": {object.ModeFile, "f"}})
	tree := l.writeTree(t, map[string]testFile{".gitmodules": modules, "same/m": module("1"), "same/x": {object.ModeFile, "x"}, "moved": module("2"), "f": module("3"), "d/new": module("4")})
	got, err := l.merger.ChangedGitlinks(t.Context(), tree, known)
	want := []Gitlink{{Path: "d/new", OID: oid("4"), Name: "named", URL: "x"}, {Path: "f", OID: oid("3")}, {Path: "moved", OID: oid("2"), Old: oid("1")}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := l.merger.ChangedGitlinks(t.Context(), tree, tree); err != nil || got != nil {
		t.Errorf("got %v, %v", got, err)
	}
}
