package core

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Worktree is an integration worktree: a directory that a person owns, and its branch.
type Worktree struct {
	ID           string    `json:"worktree_id"`
	Name         string    `json:"name"`
	RepoID       string    `json:"repo_id"`
	Branch       string    `json:"branch"`
	ParentBranch string    `json:"parent_branch"`
	TreePath     string    `json:"tree_path"`
	CreatedAt    time.Time `json:"created_at"`
	State        string    `json:"state"`
	Broken       bool      `json:"broken"`
	BrokenReason string    `json:"broken_reason"`

	CheckedOut string `json:"checked_out,omitempty"` // branch checked out in the tree, without refs/heads/; set by Worktrees and Worktree only

	Adopted bool                            `json:"-"`
	Missing MissingTree                     `json:"-"` // of an adopted worktree whose tree is missing
	Entry   store.Entry[store.WorktreeMeta] `json:"-"`
}

// Err returns a *BrokenError if the worktree is broken, else nil.
func (w Worktree) Err() error {
	if !w.Broken {
		return nil
	}
	e := &fault.BrokenError{Kind: "worktree", ID: w.ID, Reason: w.BrokenReason, Detail: w.Entry.Detail, Interrupted: w.Entry.Intent != nil}
	if w.Adopted && w.Entry.Defect == store.MissingTree {
		e.RemovedTree, e.Branch = w.TreePath, w.Branch
		e.MovedTo, e.Unlinked, e.Registered, e.Locked = w.Missing.MovedTo, w.Missing.Unlinked, w.Missing.Registered, w.Missing.Locked
		if e.MovedTo != "" {
			e.Detail = w.TreePath + " was moved to " + e.MovedTo
		}
	}
	return e
}

// Worktrees lists the integration worktrees, oldest first: the present and unbroken ones, or with all set, every one.
func (r *Repository) Worktrees(all bool) ([]Worktree, error) {
	r.warnRecordsElsewhere()
	entries, err := r.Store.Worktrees(r.ID, r.IsLocked)
	if err != nil {
		return nil, err
	}
	worktrees := []Worktree{}
	for _, e := range entries {
		if w := r.WorktreeFromEntry(e); all || !w.Broken && w.State == store.Present {
			w.CheckedOut = w.checkedOutBranch()
			worktrees = append(worktrees, w)
		}
	}
	return worktrees, nil
}

// Worktree finds an integration worktree by its name, its id or a unique prefix of the id; an empty query means the
// one that contains the caller's directory. One whose tree is missing is found by its name and its full id, other broken
// ones by their full ids only. Where the records are still those of another path, the error is a
// *fault.MovedRepositoryError.
func (r *Repository) Worktree(query string) (Worktree, error) {
	w, err := r.findWorktree(query)
	if err = r.explainMissing(err); !fault.Is[*fault.MovedRepositoryError](err) {
		r.warnRecordsElsewhere()
	}
	return w, err
}

func (r *Repository) findWorktree(query string) (Worktree, error) {
	entries, err := r.Store.Worktrees(r.ID, r.IsLocked)
	if err != nil {
		return Worktree{}, err
	}
	if query == "" {
		return r.worktreeContainingCaller(entries)
	}
	e, err := store.Resolve("worktree", entries, query, strings.HasPrefix, func(e store.Entry[store.WorktreeMeta]) string {
		if e.Record.State != store.Present {
			return "" // the name of an archived worktree may have been given to another one
		}
		return e.Record.Name
	})
	var none *fault.NotFoundError
	if errors.As(err, &none) {
		if removed := slices.IndexFunc(entries, func(e store.Entry[store.WorktreeMeta]) bool {
			return e.Defect == store.MissingTree && e.Record.State == store.Present && e.Record.Name == query
		}); removed >= 0 { // its record, and with it its name, is intact
			return r.WorktreeFromEntry(entries[removed]), nil
		}
		none.Archived, none.ArchivedBranch = newestArchived(entries, query)
	}
	if err != nil {
		return Worktree{}, err
	}
	w := r.WorktreeFromEntry(e)
	w.CheckedOut = w.checkedOutBranch()
	return w, nil
}

// newestArchived returns the id and the branch of the newest archived worktree of a name; empty if there is none.
func newestArchived(entries []store.Entry[store.WorktreeMeta], name string) (id, branch string) {
	for _, e := range entries {
		if e.Record.State == store.Archived && e.Record.Name == name && e.ID > id {
			id, branch = e.ID, e.Record.Branch
		}
	}
	return id, branch
}

// GitDirOf returns the git directory of a worktree of the repository.
func GitDirOf(repo *git.Repo, tree string) (string, error) {
	gitDir, err := git.DotGitTarget(tree)
	if err == nil && gitDir == "" {
		gitDir = repo.CommonDir // only core.worktree assigns the tree to the repository
	}
	return gitDir, err
}

// checkedOutBranch returns the branch that is checked out in the tree, as its git directory says; empty if HEAD is detached
// or cannot be read.
func (w Worktree) checkedOutBranch() string {
	gitDir, err := git.DotGitTarget(w.TreePath)
	if err != nil || gitDir == "" || w.State != store.Present {
		return ""
	}
	head, err := git.ReadHead(gitDir)
	if err != nil {
		return ""
	}
	return ShortBranch(head.Branch)
}

// WorktreeByID returns the worktree whose id a record holds.
func (r *Repository) WorktreeByID(id string) (Worktree, error) {
	if !ids.Valid(id) { // the id comes from a file and becomes part of a path
		return Worktree{}, &fault.NotFoundError{Kind: "worktree", Query: id}
	}
	return r.WorktreeFromEntry(r.Store.Worktree(r.ID, id, nil)), nil
}

// worktreeContainingCaller finds the integration worktree that contains the caller's directory.
func (r *Repository) worktreeContainingCaller(entries []store.Entry[store.WorktreeMeta]) (Worktree, error) {
	here, err := guard.Locate(r.CallerDir)
	if err != nil {
		return Worktree{}, err
	}
	for dir := range here.Ancestors {
		if marked, err := guard.Sandbox.IsIn(dir); err != nil {
			return Worktree{}, &fault.UnsafePathError{Path: dir, Why: err.Error()}
		} else if marked {
			return Worktree{}, &fault.IsSandboxError{Path: dir}
		}
		place, err := guard.Locate(dir)
		if err != nil {
			return Worktree{}, err
		}
		for _, e := range entries {
			if w, found := r.worktreeIfAt(e, place); found {
				w.CheckedOut = w.checkedOutBranch()
				return w, nil
			}
		}
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return Worktree{}, r.notIntegrationError(fault.NotIntegrationError{Path: here.Path}) // top of another worktree; one around it is not meant
		}
	}
	return Worktree{}, r.notIntegrationError(fault.NotIntegrationError{Path: here.Path, NoTree: true})
}

// worktreeIfAt returns the worktree of a present record, and whether its tree is at a place or was moved there.
func (r *Repository) worktreeIfAt(e store.Entry[store.WorktreeMeta], place guard.Location) (Worktree, bool) {
	if e.Record.State != store.Present || e.TreePath == "" {
		return Worktree{}, false
	}
	at := place.Relation(e.TreePath) == guard.Same
	if !at && e.Defect != store.MissingTree {
		return Worktree{}, false
	}
	w := r.WorktreeFromEntry(e)
	return w, at || w.Missing.MovedTo != "" && place.Relation(w.Missing.MovedTo) == guard.Same
}

// notIntegrationError returns e, or a *fault.NoCommitError in a repository in which no worktree can be made one yet,
// because the caller's branch has no commits.
func (r *Repository) notIntegrationError(e fault.NotIntegrationError) error {
	if branch := r.Git.HeadBranch(); branch != "" {
		if oid, ok := r.Git.ReadRefFile("refs/heads/" + branch); ok && oid == "" {
			return &fault.NoCommitError{Name: branch, Unborn: true}
		}
	}
	return &e
}

// WorktreeFromEntry converts the stored entry of a worktree.
func (r *Repository) WorktreeFromEntry(e store.Entry[store.WorktreeMeta]) Worktree {
	m := e.Record
	w := Worktree{
		ID: e.ID, Name: m.Name, RepoID: r.ID, Branch: m.Branch, ParentBranch: m.ParentBranch,
		TreePath: e.TreePath, CreatedAt: m.CreatedAt, State: m.State,
		Broken: e.Defect != store.NoDefect, BrokenReason: string(e.Defect),
		Adopted: r.isAdopted(e),
		Entry:   e,
	}
	if w.Adopted && e.Defect == store.MissingTree {
		w.Missing = r.findMissingTree(w)
	}
	if w.CreatedAt.IsZero() {
		w.CreatedAt, _ = ids.Time(e.ID)
	}
	return w
}

// CheckUsable refuses a worktree that no sandbox may start from: one that is broken, archived or without its marker.
func (w Worktree) CheckUsable() error {
	if err := w.Err(); err != nil {
		return err
	}
	if w.State != store.Present {
		return &fault.ArchivedError{Name: w.Name, ID: w.ID, Branch: w.Branch}
	}
	marked, err := guard.Integration.IsIn(w.TreePath)
	if err != nil {
		return &fault.UnsafePathError{Path: w.TreePath, Why: err.Error()}
	}
	if !marked {
		return &fault.NotIntegrationError{Path: w.TreePath, Worktree: w.Name}
	}
	return nil
}

var worktreeNamePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9-]{1,39}$`) })

// CheckWorktreeName refuses a malformed name of an integration worktree with a *fault.InvalidError.
func CheckWorktreeName(name string) error {
	if !worktreeNamePattern().MatchString(name) || ids.Valid(name) {
		return &fault.InvalidError{What: "worktree name", Value: name, Want: "2 to 40 of a-z, 0-9 and -, not starting with - and not looking like an id"}
	}
	return nil
}

// checkNameFree refuses the name of a present worktree. The caller holds the lock.
func (r *Repository) checkNameFree(name string) error {
	r.warnRecordsElsewhere()
	entries, err := r.Store.Worktrees(r.ID, nil)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Record.State == store.Present && e.Record.Name == name {
			return &fault.NameTakenError{Name: name, ID: e.ID}
		}
	}
	return nil
}
