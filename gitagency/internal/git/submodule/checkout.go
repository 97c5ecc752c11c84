package submodule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
	"github.com/git-agency/git-agency/gitagency/internal/git/snapshot"
)

// Checkout is a submodule that is checked out in a worktree, or was.
type Checkout struct {
	Module
	Source *git.Repo // repository of the submodule in the user's repository; nil where it is not initialised there

	worktree string // name of git's entry of the superproject's worktree
	tree     string // directory of that worktree
	files    string // directory that has the files of that worktree: tree, or the upper directory of an overlay
	upper    string // directory that git in the sandbox writes to: upper directory over the common git directory, or git directory of a clone; empty for neither
	super    *git.Repo
}

// FindRequest says in which worktree to look for submodules.
type FindRequest struct {
	Worktree string // required: name of git's entry of the worktree
	Tree     string // required: its directory
	Files    string // upper directory if the worktree is an overlay, whose lower directories have no submodules; else empty
	UpperDir string // directory that git in the sandbox writes to: upper directory over the common git directory, or git directory of a clone; empty for neither
	Commit   string // commit whose submodules are compared, where the index of the worktree is gone; empty: those in the index
}

// Find lists the submodules of a worktree that have files or a repository of their own there.
func Find(ctx context.Context, r *git.Repo, req FindRequest) ([]Checkout, error) {
	files := cmp.Or(req.Files, req.Tree)
	list := func() ([]Module, error) { return List(ctx, r, req.Worktree, files) }
	if req.Commit != "" {
		list = func() ([]Module, error) { return ListCommit(ctx, r, req.Commit, files) }
	}
	all, err := list()
	if err != nil {
		return nil, err
	}
	var found []Checkout
	for _, m := range all {
		c := Checkout{Module: m, worktree: req.Worktree, tree: req.Tree, files: files, upper: req.UpperDir, super: r}
		if there, err := c.exists(); err != nil || !there {
			if err != nil {
				return nil, err
			}
			continue
		}
		if c.Source, err = OpenRepo(ctx, r, m.Name); err != nil && !errors.As(err, new(*NotInitialisedError)) {
			return nil, err
		}
		found = append(found, c)
	}
	return found, nil
}

// dir returns the directory that has the files of the checkout.
func (c Checkout) dir() string { return filepath.Join(c.files, c.Path) }

// PrivateDir returns the path of the repository of the checkout, as programs in the worktree see it.
func (c Checkout) PrivateDir() string { return PrivateDir(c.super, c.worktree, c.Name) }

// exists reports whether the submodule has files or a repository in the worktree.
func (c Checkout) exists() (bool, error) {
	if names, err := listBeneath(c.files, c.Path); err != nil || len(names) > 0 {
		return len(names) > 0, err
	}
	_, _, there, err := c.readPrivate("HEAD")
	return there, err
}

// listBeneath lists the names in a directory below another, without following symbolic links. A missing one has none.
func listBeneath(top, dir string) (names []string, err error) {
	at, err := beneath.Open(top)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.Close()) }()
	entries, _, err := at.ReadDir(dir)
	if beneath.IsGone(err) {
		return nil, nil
	}
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return names, err
}

// readPrivate reads a file of the repository of the checkout as data: an agent may have written it.
func (c Checkout) readPrivate(name string) (data []byte, mtime time.Time, there bool, err error) {
	if c.upper != "" {
		rel := filepath.Join(overlay.EntryIn(c.upper, c.worktree), "modules", c.Name, name)
		f, err := overlay.ReadUpperFile(c.upper, rel, index.MaxSize)
		if err != nil || f.Found || f.Deleted {
			return f.Data, f.ModTime, f.Found, err
		}
	}
	file, fi, err := git.OpenRegular(filepath.Join(c.PrivateDir(), name))
	if err != nil {
		return nil, mtime, false, ignoreNotExist(err)
	}
	data, err = io.ReadAll(io.LimitReader(file, index.MaxSize+1))
	if err == nil && len(data) > index.MaxSize {
		err = fmt.Errorf("%s is larger than %d bytes", file.Name(), index.MaxSize)
	}
	err = errors.Join(err, file.Close())
	return data, fi.ModTime(), err == nil, err
}

// privateRepo returns where the files of the repository of the checkout are: below a directory that belongs to this program
// or to the user, the path of a directory that an agent can write.
func (c Checkout) privateRepo() (top, rel string, err error) {
	if c.upper != "" {
		inside := filepath.Join(overlay.EntryIn(c.upper, c.worktree), "modules", c.Name)
		if names, err := listBeneath(c.upper, inside); err != nil || len(names) > 0 {
			return c.upper, inside, err
		}
	}
	return c.super.CommonDir, filepath.Join("worktrees", c.worktree, "modules", c.Name), nil
}

// HasNewCommits reports whether HEAD, refs or reflogs of the repository of the checkout name commits that no ref of the
// user's repository of the submodule leads to: git may have them there, but would remove them some time.
func (c Checkout) HasNewCommits(ctx context.Context) (bool, error) {
	oids, err := c.namedObjects()
	if err != nil || len(oids) == 0 {
		return false, err
	}
	if c.Source == nil {
		return true, nil
	}
	found, err := c.Source.Lookup(ctx, oids...)
	if err != nil || slices.ContainsFunc(found, git.Object.Missing) {
		return err == nil, err
	}
	unreferenced, err := listUnreferenced(ctx, c.Source, oids)
	return len(unreferenced) > 0, err
}

// listUnreferenced lists the commits that are reachable from the given objects, which exist, and from no ref and not HEAD.
func listUnreferenced(ctx context.Context, r *git.Repo, oids []string) ([]string, error) {
	out, err := r.RunRead(ctx, git.RunOptions{Stdin: strings.Join(oids, "\n") + "\n", Reading: r.ReadingOf("listing new commits")}, "rev-list", "--stdin", "--not", "--all")
	return strings.Fields(string(out)), err
}

// IsUnchanged reports whether the files and the index of the checkout are those of the commit in the index of the
// superproject, and the user's repository of the submodule has that commit and all that the repository of the checkout
// names. Ignored files do not count, as in git. trust says that only the user can have written the configuration of the
// repository of the submodule.
func (c Checkout) IsUnchanged(ctx context.Context, trust bool) (bool, error) {
	if c.Source == nil {
		return false, nil
	}
	found, err := c.Source.Lookup(ctx, c.Commit+"^{commit}", c.Commit+"^{tree}")
	if err != nil || found[0].Missing() || found[1].Missing() {
		return false, err
	}
	tree := found[1].OID
	if known, err := c.isRepoKnown(ctx, tree); err != nil || !known {
		return false, err
	}
	tracked, err := c.Source.RunRead(ctx, git.RunOptions{}, "ls-tree", "-r", "-z", "--name-only", c.Commit)
	if err != nil {
		return false, err
	}
	return c.hasFiles(ctx, tree, strings.FieldsFunc(string(tracked), func(c rune) bool { return c == 0 }), trust)
}

// hasFiles reports whether the files of the checkout are those of a tree, whose paths are given, or the submodule is not
// checked out any more. Source must not be nil.
func (c Checkout) hasFiles(ctx context.Context, tree string, tracked []string, trust bool) (_ bool, err error) {
	if names, err := listBeneath(c.files, c.Path); err != nil || len(names) == 0 {
		return err == nil, err
	}
	if own, err := c.hasOwnGitFile(); err != nil || !own {
		return false, err
	}
	scratch, err := git.MakeTempDir()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, scratch.Remove()) }()
	if err := os.Mkdir(filepath.Join(scratch.Path, "objects"), 0o700); err != nil {
		return false, err
	}
	dry := c.Source.DryRunRepo(scratch.Path)
	state, err := snapshot.CaptureState(ctx, dry, git.WorktreeSpec{
		Name: c.worktree, Dir: c.dir(), Omit: ".git", IndexCache: filepath.Join(scratch.Path, "files"), TrustConfig: trust, ForcedPaths: tracked,
		Author: object.Identity{Name: "git-agency", Email: "git-agency@localhost"}, Message: "files of a submodule",
	}, "")
	if err != nil || len(state.LeftOut) > 0 {
		return false, err
	}
	found, err := dry.Lookup(ctx, state.Commit+"^{tree}")
	return err == nil && found[0].OID == tree, err
}

// hasOwnGitFile reports whether the .git of the checkout is missing, or the file that leads to its repository. Anything else
// is a repository of its own, or leads to one.
func (c Checkout) hasOwnGitFile() (is bool, err error) {
	top, err := beneath.Open(c.files)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, top.Close()) }()
	file, _, err := top.OpenFile(filepath.Join(c.Path, ".git"))
	switch {
	case beneath.IsGone(err):
		return true, nil
	case errors.As(err, new(*beneath.NotRegularError)):
		return false, nil
	case err != nil:
		return false, err
	}
	const most = 1 << 16
	data, err := io.ReadAll(io.LimitReader(file, most))
	if err = errors.Join(err, file.Close()); err != nil {
		return false, err
	}
	at, isLink := strings.CutPrefix(strings.TrimRight(string(data), "\r\n"), "gitdir: ")
	if isLink && !filepath.IsAbs(at) {
		at = filepath.Join(c.tree, c.Path, at)
	}
	return isLink && filepath.Clean(at) == c.PrivateDir(), nil
}

// isRepoKnown reports whether the repository of the checkout is gone, or its index has the given tree and the user's
// repository has all of its commits. Repositories of submodules inside of the submodule are not known.
func (c Checkout) isRepoKnown(ctx context.Context, tree string) (bool, error) {
	if _, _, there, err := c.readPrivate("HEAD"); err != nil || !there {
		return err == nil, err
	}
	if isNew, err := c.HasNewCommits(ctx); err != nil || isNew {
		return false, err
	}
	if nested, err := c.HasNested(); err != nil || nested {
		return false, err
	}
	staged, _, err := c.stagedTree()
	return staged == tree, err
}

// HasNested reports whether the repository of the checkout has repositories of submodules inside of the submodule.
func (c Checkout) HasNested() (bool, error) {
	top, rel, err := c.privateRepo()
	if err != nil {
		return false, err
	}
	names, err := listBeneath(top, filepath.Join(rel, "modules"))
	return len(names) > 0, err
}

// stagedTree returns the tree of the index of the checkout with its paths; empty where it cannot be read, or is not that of a
// commit: it has conflicts, or files with an intent to add them.
func (c Checkout) stagedTree() (tree string, paths []string, err error) {
	data, _, there, err := c.readPrivate("index")
	if err != nil || !there {
		return "", nil, err
	}
	format := object.FormatOf(c.Commit)
	x, err := index.Read(data, format)
	if err != nil {
		return "", nil, nil // not the index that a plain git would write
	}
	var entries []index.Entry
	for e := range x.AllEntries() {
		if e.Stage != 0 || e.IntentToAdd {
			return "", nil, nil
		}
		entries, paths = append(entries, e), append(paths, string(e.Name))
	}
	return index.BuildTree(entries, format).HexOID(), paths, nil
}
