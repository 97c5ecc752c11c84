// Package provision copies ignored files of an integration worktree, such as .env and node_modules, into the tree of a new
// sandbox. It only reads the integration worktree, and opens both trees by handles, without following symlinks. It never
// makes hard links: an agent could write through them. It never copies a .git there, so that no program finds a repository
// in it, and a sandbox can end without one in the way. TreeCopy copies a whole directory for a sandbox over plain directories, with .git.
package provision

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// Request says which files to find.
type Request struct {
	Tree        string   // required: canonical path of the integration worktree
	GitDir      string   // required: its git directory
	Patterns    []string // required: rules in the syntax of gitignore, relative to Tree; the last match counts
	TrustConfig bool     // as in git.WorktreeSpec
}

// Selection is the result of Find: ignored files to copy.
type Selection struct {
	NotIgnored []string // files that the patterns select and that are neither tracked nor ignored; they are not copied
	Unmatched  []string // patterns that match no file or directory, except negated ones

	tree     string
	patterns *patterns
	entries  []entry
}

// entry is a file or directory to copy. All of a directory is ignored.
type entry struct {
	name  string
	isDir bool
}

// Find lists the ignored files of a worktree that the patterns select. Files of submodules and of other repositories
// inside of the worktree belong to those and are not listed, unless the directory around them is ignored.
func Find(ctx context.Context, repo *git.Repo, req Request) (_ Selection, err error) {
	f := finder{ctx: ctx, found: Selection{tree: req.Tree, patterns: newPatterns(req.Patterns, repo.ConfigBool("core.ignorecase", false))}}
	tracked, err := repo.RunRead(ctx, git.RunOptions{GitDir: req.GitDir, WorkTree: req.Tree}, "ls-files", "--cached", "-z")
	if err != nil {
		return Selection{}, err
	}
	f.tracked = strings.Split(strings.TrimSuffix(string(tracked), "\x00"), "\x00")
	if !slices.IsSorted(f.tracked) { // git sorts by bytes, as Go does
		slices.Sort(f.tracked)
	}
	if f.rules, err = status.OpenIgnoreRules(repo, git.WorktreeSpec{TrustConfig: req.TrustConfig}, req.Tree); err != nil {
		return Selection{}, err
	}
	defer func() { err = errors.Join(err, f.rules.Close()) }()
	if f.dir, err = beneath.Open(req.Tree); err != nil {
		return Selection{}, err
	}
	defer func() { err = errors.Join(err, f.dir.Close()) }()
	if err = f.walk(".", false, false); err == nil {
		f.found.Unmatched, err = f.found.patterns.unmatchedValues(f.tracked)
	}
	return f.found, err
}

// finder is one Find.
type finder struct {
	ctx     context.Context
	dir     *beneath.Dir
	rules   *status.IgnoreRules
	tracked []string // paths in the index, sorted
	found   Selection
}

// walk searches a directory, which may be selected by the patterns and ignored by git.
func (f *finder) walk(dir string, selected, ignored bool) error {
	if err := context.Cause(f.ctx); err != nil {
		return err
	}
	entries, _, err := f.dir.ReadDir(dir)
	if dir != "." && (beneath.IsGone(err) || errors.Is(err, fs.ErrPermission) && !(selected && ignored)) {
		return nil // git does not see the files either
	}
	if err != nil {
		return unreadable(dir, err)
	}
	isGit := func(e beneath.Entry) bool { return e.Name == ".git" }
	if dir != "." && !ignored && slices.ContainsFunc(entries, isGit) {
		return nil // another repository
	}
	slices.SortFunc(entries, func(a, b beneath.Entry) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range entries {
		if guard.IsReservedName(e.Name) {
			continue
		}
		if err := f.visit(path.Join(dir, e.Name), e.Kind.IsDir(), selected, ignored); err != nil {
			return err
		}
	}
	return nil
}

// visit decides about one entry of a directory that may be selected and ignored.
func (f *finder) visit(name string, isDir, selected, ignored bool) error {
	at, isTracked := slices.BinarySearch(f.tracked, name)
	if isTracked { // a file, or a submodule
		return nil
	}
	selected, err := f.found.patterns.selects(name, isDir, selected)
	if err == nil {
		err = f.found.patterns.noteMatches(name, isDir)
	}
	if err == nil && !ignored {
		ignored, err = f.rules.IsIgnored(name, isDir)
	}
	if err != nil {
		return err
	}
	switch {
	case isDir && ignored && !f.hasTrackedBelow(at, name):
		if selected {
			f.found.entries = append(f.found.entries, entry{name, true})
			f.found.patterns.noteCopied(name)
		} else if f.found.patterns.maySelectBelow(name) {
			return f.walk(name, selected, ignored)
		}
		return nil
	case isDir:
		return f.walk(name, selected, ignored)
	case selected && ignored:
		f.found.entries = append(f.found.entries, entry{name, false})
	case selected:
		f.found.NotIgnored = append(f.found.NotIgnored, name)
	}
	return nil
}

// hasTrackedBelow reports whether the index has files below a directory. at is where the directory itself would be.
func (f *finder) hasTrackedBelow(at int, dir string) bool {
	dir += "/"
	below, _ := slices.BinarySearch(f.tracked[at:], dir)
	return at+below < len(f.tracked) && strings.HasPrefix(f.tracked[at+below], dir)
}
