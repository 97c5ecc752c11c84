// Package merge merges and replays commits, and compares trees, in memory and in a temporary object directory: no other
// process sees the new objects until they are persisted. It changes no worktree, index or ref.
package merge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// Merger merges and replays commits without a worktree, an index or a ref. It is a Mirror, so that config and
// attributes of the repository, which an agent without walls could have written, have no effect. Its objects are
// visible to no other process until Persist, and are deleted by Close. It is safe for concurrent use.
type Merger struct {
	*git.Mirror
	Trusted bool // only the user can have written the repository's config: its merge drivers run

	realRepo *git.Repo // repository to which Persist writes
	format   object.Format

	prefetching      sync.WaitGroup                  // background reads
	cancelPrefetch   func()                          // cancels the background reads
	prefetchedIndex  func() (*index.Editable, error) // waits for the prefetched index
	prefetchedGitDir string                          // git directory of that index

	mu             sync.Mutex                    // guards the git cat-file, the caches, and the pending and persisted objects
	killCatFile    func(cause error)             // kills catFile
	catFile        *git.CatFile                  // the one git cat-file of this merger; nil: not running
	commitCache    map[string][]byte             // commit objects by id
	rangeCache     map[[2]string][]object.Commit // results of listBetween
	treeCache      map[string]*object.Tree       // parsed trees by raw id
	treeCacheBytes int                           // size of the cached trees

	rangeChecks map[[2]string]*rangeCheck // checks of ranges that have passed or are running

	commitSerial atomic.Int64 // counter of synthesized commits

	pending      map[string]object.Raw // new objects that are only in memory, by raw id
	pendingBytes int                   // size of the pending objects

	// The refs will also reach objects that were just written to the repository itself and that no ref reaches yet.
	// They are protected as if a gc were always running.
	UsesUnreferenced bool

	persisted      []object.Raw // objects that Persist has written and that have no file in the mirror
	PersistedPaths []string     // files that Persist has written to the repository
}

// NewMerger makes a Merger. like is any object id of the repository, from which its object format is derived.
func NewMerger(r *git.Repo, like string) (*Merger, error) {
	mirror, err := r.NewMirror(like)
	if err != nil {
		return nil, err
	}
	m := &Merger{
		Mirror: mirror, realRepo: r, cancelPrefetch: func() {}, format: object.FormatOf(like), commitCache: map[string][]byte{}, rangeCache: map[[2]string][]object.Commit{},
		treeCache: map[string]*object.Tree{}, rangeChecks: map[[2]string]*rangeCheck{}, pending: map[string]object.Raw{},
	}
	// The mirror has to know where the history of a shallow repository ends.
	if err := git.CopySmallFile(filepath.Join(r.CommonDir, "shallow"), filepath.Join(m.Dir, "shallow")); err != nil && !git.IsNotExist(err) {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// Close ends the merger and deletes all objects that were not persisted. A nil Merger is valid.
func (m *Merger) Close() error {
	if m == nil {
		return nil
	}
	m.cancelPrefetch()
	m.prefetching.Wait()
	m.closeCatFile()
	return m.Mirror.Close()
}

// Request describes a three-way merge.
type Request struct {
	Base         string // commit or tree; empty: the merge base in the history
	Ours, Theirs string // required: full commit ids; with a Base also tree ids

	// Attributes is the commit or tree whose .gitattributes apply; empty: Ours, as in git. A caller that merges into an
	// agent's commit names another.
	Attributes string

	OursName, TheirsName string // labels of conflict markers, if valid as branch names; else abbreviated ids
}

// Result is the result of a merge.
type Result struct {
	Tree      string     // with conflicts, its files have git's conflict markers
	Conflicts []Conflict // sorted by path; empty: clean merge
}

// Conflict is a path that the user has to resolve.
type Conflict struct {
	Path   string
	Kinds  []string // git's names, at least one: "contents", "modify/delete", "rename/rename" and so on
	Stages []Stage
}

// Stage is one side of a conflict: 1 is the base, 2 ours, 3 theirs.
type Stage struct {
	Number    int
	Mode, OID string
}

// UnrelatedError reports two commits without a merge base: there is nothing to compare either side with.
type UnrelatedError struct{ Ours, Theirs string }

func (e *UnrelatedError) Error() string {
	return fmt.Sprintf("%.12s and %.12s have no history in common", e.Ours, e.Theirs)
}

// Merge merges two commits. The result is exactly git's; a trivial merge, in which no file content is merged and no
// rename matters, is done without git.
func (m *Merger) Merge(ctx context.Context, req Request) (Result, error) {
	ours, err := m.treeOf(ctx, req.Ours)
	if err != nil {
		return Result{}, err
	}
	theirs, err := m.treeOf(ctx, req.Theirs)
	if err != nil {
		return Result{}, err
	}
	base := req.Base
	if base == "" {
		if base, err = m.mergeBase(ctx, req.Ours, req.Theirs); err != nil {
			return Result{}, err
		}
	}
	baseTree := ""
	if base != "" { // empty: several merge bases
		if baseTree, err = m.treeOf(ctx, base); err != nil {
			return Result{}, err
		}
	}
	return m.mergeWithBase(ctx, req, baseTree, ours, theirs)
}

// mergeWithBase merges two trees over a base tree; an empty base means several merge bases, which git handles.
func (m *Merger) mergeWithBase(ctx context.Context, req Request, base, ours, theirs string) (Result, error) {
	if base != "" {
		tree, plain, err := m.mergeTrees(ctx, base, ours, theirs)
		if err != nil || plain {
			return Result{Tree: tree}, err
		}
	}
	if req.Base == "" {
		return m.mergeWithGit(ctx, req, req.Ours, req.Theirs)
	}
	// "git merge-tree --merge-base" takes a commit since git 2.40 and a tree since 2.45. Synthesized commits, of which
	// the base is the parent of the two sides, work with every git.
	synthetic, err := m.synthesizeCommits(ctx, base, ours, theirs)
	if err != nil {
		return Result{}, err
	}
	merged, err := m.mergeWithGit(ctx, req, synthetic[1], synthetic[2])
	for _, oid := range synthetic { // they must not be persisted
		err = errors.Join(err, durable.RemoveIfExists(m.Repo.LoosePath(oid)))
	}
	return merged, err
}

// synthesizeCommits writes a commit of the base tree, and for each other tree a commit with that parent, as loose
// objects that git can read at once.
func (m *Merger) synthesizeCommits(ctx context.Context, base string, trees ...string) ([]string, error) {
	nobody := object.Signature{Identity: object.Identity{Name: "git-agency", Email: "git-agency@localhost"}, When: "0 +0000"}.String()
	// The ids must be unique: another merge of ours must not use the same commits, which are deleted after this one.
	unique := fmt.Sprintf("%s %d\n", filepath.Base(m.Dir), m.commitSerial.Add(1))
	var oids []string
	for i, tree := range append([]string{base}, trees...) {
		c := object.Commit{Tree: tree, Author: nobody, Committer: nobody}
		c.Message = unique
		if i > 0 {
			c.Parents = oids[:1]
		}
		made := c.Encode(m.format)
		if err := m.Repo.WriteLoose(made); err != nil {
			return nil, err
		}
		oids = append(oids, made.HexOID())
	}
	return oids, context.Cause(ctx)
}

// mergeWithGit merges two commits with git merge-tree, in a temporary git directory and a worktree that holds nothing
// but .gitattributes files.
func (m *Merger) mergeWithGit(ctx context.Context, req Request, ours, theirs string) (_ Result, err error) {
	dir, err := os.MkdirTemp(m.Dir, "merge-")
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, durable.RemoveTree(dir)) }()
	p, err := m.mergeRunOptions(ctx, dir, req)
	if err != nil {
		return Result{}, err
	}
	args := []string{"merge-tree", "--write-tree", "-z", "--messages"}
	for _, side := range []struct{ name, id, oid string }{{req.OursName, req.Ours, ours}, {req.TheirsName, req.Theirs, theirs}} {
		const short = 12 // a full id would not count as a name; and the id of a synthesized commit must not show in markers
		name, err := nameCommit(p.GitDir, cmp.Or(side.name, side.id[:short]), side.oid)
		if err != nil {
			return Result{}, err
		}
		args = append(args, name)
	}
	if err := m.Flush(ctx); err != nil {
		return Result{}, err
	}
	out, err := m.Repo.RunWrite(ctx, p, args...)
	if err != nil && !git.ExitedWith(err, 1) {
		return Result{}, err
	}
	merged, err := parseMergeTree(string(out), err != nil)
	if err == nil && len(merged.Conflicts) == 0 {
		err = m.adoptNewObjects(ctx, merged.Tree, ours, theirs)
	}
	return merged, err
}

// nameCommit makes a branch for a commit in a temporary git directory, because git labels conflict markers with the
// name it is given. It returns the id itself if name cannot be a branch name.
func nameCommit(gitDir, name, oid string) (string, error) {
	ref := "refs/heads/" + name
	if name == "" || object.IsOID(name) || name[0] == '-' || !object.IsValidRef(ref) {
		return oid, nil
	}
	path := filepath.Join(gitDir, ref)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return oid, nil // directory/file conflict between the two names
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return oid, nil // both names are the same
	}
	_, err = f.WriteString(oid + "\n")
	return name, errors.Join(err, f.Close())
}
