package merge

import (
	"bytes"
	"cmp"
	"context"
	"path"
	"slices"
	"sort"
	"strings"
	"unicode"

	"github.com/git-agency/git-agency/gitagency/internal/git/fsck"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/submodule"
)

// FsckTree refuses a tree that must never land, with a *fsck.Error. It applies git's checks on checkout and git's
// strict fsck checks, and more: no entry may fake git-agency's .agency directory, and no path may lead through a
// symlink on any file system, such as a case-insensitive one. It skips entries that the known tree, which may be empty,
// has too.
func (m *Merger) FsckTree(ctx context.Context, tree, known string) error {
	top, likeTop, err := m.treePair(ctx, tree, known)
	if err != nil {
		return err
	}
	return m.fsckDir(ctx, map[string]bool{}, "", top, likeTop)
}

// treePair returns the root trees of two commits or trees; the second may be empty.
func (m *Merger) treePair(ctx context.Context, tree, known string) (top, likeTop []byte, err error) {
	oid, err := m.treeOf(ctx, tree)
	if err != nil {
		return nil, nil, err
	}
	if known != "" {
		if known, err = m.treeOf(ctx, known); err != nil {
			return nil, nil, err
		}
	}
	return object.RawOID(oid), object.RawOID(known), nil
}

// fsckDir checks a tree at a path, and its subtrees. It checks a tree once, at whatever paths it is: checked has the ids of
// each tree and of the known tree with which it was compared.
func (m *Merger) fsckDir(ctx context.Context, checked map[string]bool, at string, oid, known []byte) error {
	pair := string(oid) + string(known)
	if bytes.Equal(oid, known) || checked[pair] {
		return nil
	}
	checked[pair] = at != "" // the root tree has rules of its own
	dir, err := m.readTree(ctx, oid)
	switch {
	case isUnreadableObject(err):
		return &fsck.Error{Path: cmp.Or(at, "."), Why: err.Error()}
	case err != nil:
		return err
	}
	like := &object.Tree{}
	if len(known) > 0 {
		if like, err = m.readTree(ctx, known); err != nil {
			return err
		}
	}
	links, dirs := map[string]bool{}, map[string]string{}
	for i, it := range dir.Entries {
		name := string(it.Name)
		if i > 0 && bytes.Equal(it.Name, dir.Entries[i-1].Name) {
			return &fsck.Error{Path: path.Join(at, name), Why: "duplicate entry"}
		}
		if had, there := like.Find(name); !there || !had.Equal(it) {
			if why := refusedEntry(at, it); why != "" {
				return &fsck.Error{Path: at + name, Why: why}
			}
		}
		switch folded := foldName(name); it.Mode {
		case object.ModeSymlink:
			links[folded] = true
		case object.ModeTree:
			dirs[folded] = name
		}
	}
	if !dir.Canonical && (at != "" || len(dir.Entries) > 0) { // only the root tree may be empty
		return &fsck.Error{Path: cmp.Or(at, "."), Why: "not in the form in which git writes trees"}
	}
	for folded, name := range dirs {
		if links[folded] {
			return &fsck.Error{Path: at + name, Why: "on some file systems the same name as a symbolic link"}
		}
	}
	for _, it := range dir.Entries {
		if it.Mode != object.ModeTree {
			continue
		}
		had, _ := like.Find(string(it.Name))
		if had.Mode != object.ModeTree {
			had = object.TreeEntry{}
		}
		if err := m.fsckDir(ctx, checked, at+string(it.Name)+"/", it.OID, had.OID); err != nil {
			return err
		}
	}
	return nil
}

// refusedEntry returns the reason why a tree entry must not land; empty: none.
func refusedEntry(at string, it object.TreeEntry) string {
	name := string(it.Name)
	if why := index.PathProblem(it.Name, 0, it.Mode == object.ModeSymlink); why != "" {
		return why
	}
	switch it.Mode {
	case object.ModeFile, object.ModeExecutable, object.ModeTree, object.ModeGitlink:
	case object.ModeSymlink:
		if slices.Contains([]string{".gitattributes", ".gitignore", ".mailmap"}, foldName(name)) {
			return "a symbolic link called " + foldName(name)
		}
	default:
		return "an invalid mode"
	}
	switch {
	case strings.Contains(name, "/"):
		return "a slash in a name"
	case at == "" && foldName(name) == ".agency":
		return "a name that is reserved for git-agency"
	}
	return ""
}

// foldName returns the name as case-insensitive file systems, HFS+ and NTFS compare it: case folded, without ignored
// characters and trailing dots and spaces.
func foldName(name string) string {
	seen := strings.TrimRight(string(index.FoldHFS([]byte(name))), ". ")
	return strings.Map(func(r rune) rune {
		least := r // smallest rune of the case-folding orbit
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return unicode.ToLower(least)
	}, seen)
}

// Gitlink is a submodule that a tree adds, or has at another commit than the known tree.
type Gitlink struct {
	Path string
	OID  string // commit of the submodule
	Old  string // commit in the known tree; empty: new submodule
	Name string // name in the tree's .gitmodules; empty: not listed there
	URL  string // its URL there
}

// ChangedGitlinks lists the submodules of a tree that are new or changed compared with the known tree, by path.
func (m *Merger) ChangedGitlinks(ctx context.Context, tree, known string) ([]Gitlink, error) {
	top, likeTop, err := m.treePair(ctx, tree, known)
	if err != nil {
		return nil, err
	}
	var links []Gitlink
	limit := newWalkLimit(m.Repo, "looking for submodules in "+tree)
	if err := m.gitlinksIn(ctx, limit, &links, "", top, likeTop); err != nil || len(links) == 0 {
		return nil, err
	}
	names, urls, err := m.submoduleNames(ctx, top)
	for i := range links {
		links[i].Name = names[links[i].Path]
		links[i].URL = urls[links[i].Name]
	}
	sort.Slice(links, func(i, j int) bool { return links[i].Path < links[j].Path })
	return links, err
}

func (m *Merger) gitlinksIn(ctx context.Context, limit *walkLimit, links *[]Gitlink, at string, oid, known []byte) error {
	if bytes.Equal(oid, known) {
		return nil
	}
	if err := limit.add(at); err != nil {
		return err
	}
	dir, err := m.readTree(ctx, oid)
	if err != nil {
		return err
	}
	like := &object.Tree{}
	if len(known) > 0 {
		if like, err = m.readTree(ctx, known); err != nil {
			return err
		}
	}
	for _, it := range dir.Entries {
		had, there := like.Find(string(it.Name))
		switch {
		case there && had.Equal(it):
		case it.Mode == object.ModeGitlink:
			link := Gitlink{Path: at + string(it.Name), OID: object.HexOID(it.OID)}
			if had.Mode == object.ModeGitlink {
				link.Old = object.HexOID(had.OID)
			}
			*links = append(*links, link)
		case it.Mode == object.ModeTree:
			if had.Mode != object.ModeTree {
				had = object.TreeEntry{}
			}
			if err := m.gitlinksIn(ctx, limit, links, at+string(it.Name)+"/", it.OID, had.OID); err != nil {
				return err
			}
		}
	}
	return nil
}

// submoduleNames returns the names of the submodules in a tree's .gitmodules, by path, and their URLs, by name. It ignores a
// file with syntax errors.
func (m *Merger) submoduleNames(ctx context.Context, top []byte) (names, urls map[string]string, err error) {
	dir, err := m.readTree(ctx, top)
	if err != nil {
		return nil, nil, err
	}
	it, there := dir.Find(".gitmodules")
	if !there || it.Mode != object.ModeFile && it.Mode != object.ModeExecutable {
		return nil, nil, nil
	}
	data, err := m.ReadContents(ctx, object.HexOID(it.OID), "blob")
	if err != nil {
		return nil, nil, err
	}
	names, urls = submodule.ParseNames(string(data))
	return names, urls, nil
}
