package git

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
)

// Merger makes commits of commits without a worktree, an index or a ref: it is a Mirror, so that neither settings nor
// attributes that somebody in a sandbox without walls could have written have a say. What it makes is seen by nobody else
// until Keep, and goes with Close. Several may use one at the same time.
type Merger struct {
	*Mirror
	Trusted bool // the repository's own settings can only be the user's: merge drivers that they name run

	real   *Repo
	format ObjectFormat

	foresight sync.WaitGroup // what is read ahead
	forget    func()         // ends that
	ahead     func() (*heldIndex, error)
	aheadOf   string // the git directory whose index that is

	talking sync.Mutex
	silence func(cause error) // ends the teller
	teller  *teller           // of which one is enough for everything
	commits map[string][]byte
	ranges  map[[2]string][]written // what between has found
	trees   map[string]*twig
	held    int // bytes of them

	soundings map[[2]string]*sounding // ranges that were looked at, or are just now

	serial atomic.Int64 // of commits that are made up

	pending map[string]object // what was made, and is not on disk yet
	waiting int               // bytes of it

	// Captured: what refs are to lead to is also made of objects that were written to the repository itself just now, and to
	// which nothing leads yet. They are treated as if somebody tidied up all the time.
	Captured bool

	made []object // what Keep has given the repository, and has no file here
	put  []string // where Keep has put everything
}

// Merger makes one. like is the id of any object, which says how ids are made.
func (r *Repo) Merger(like string) (*Merger, error) {
	mirror, err := r.Mirror(like)
	if err != nil {
		return nil, err
	}
	m := &Merger{
		Mirror: mirror, real: r, forget: func() {}, format: FormatOf(like), commits: map[string][]byte{}, ranges: map[[2]string][]written{},
		trees: map[string]*twig{}, soundings: map[[2]string]*sounding{}, pending: map[string]object{},
	}
	// Of a shallow repository no more is there than it says.
	if err := copyRules(filepath.Join(r.CommonDir, "shallow"), filepath.Join(m.dir, "shallow")); err != nil && !nothingThere(err) {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// Close takes away all that was made and not kept. Of none there is nothing.
func (m *Merger) Close() error {
	if m == nil {
		return nil
	}
	m.forget()
	m.foresight.Wait()
	m.hangUp()
	return m.Mirror.Close()
}

// Merging says what to merge.
type Merging struct {
	Base         string // a commit or tree; empty where history says what both have in common
	Ours, Theirs string // required: full ids of commits; with a base, of trees as well

	// Attributes is the commit or tree whose .gitattributes say how files are merged; empty is that of ours, as in git. Who
	// merges into what an agent made names another.
	Attributes string

	OursName, TheirsName string // what markers in files call them, if that could be names of branches; else the beginning of their ids
}

// Merged is what came of it.
type Merged struct {
	Tree      string     // where there are conflicts, files in it have the markers that git writes
	Conflicts []Conflict // by path; none when it went well
}

// Conflict is a path that a person has to decide on.
type Conflict struct {
	Path   string
	Kinds  []string // as git calls them: "contents", "modify/delete", "rename/rename" and so on; at least one
	Stages []Stage
}

// Stage is one side of a conflict: 1 is what both had, 2 ours, 3 theirs.
type Stage struct {
	Number    int
	Mode, OID string
}

// UnrelatedError is commits that have no history in common: there is nothing to tell what either side changed.
type UnrelatedError struct{ Ours, Theirs string }

func (e *UnrelatedError) Error() string {
	return fmt.Sprintf("%.12s and %.12s have no history in common", e.Ours, e.Theirs)
}

// Merge merges two commits. It is exactly what git makes of them, but where no file has to be merged and no rename can
// play a part, we do it ourselves.
func (m *Merger) Merge(ctx context.Context, what Merging) (Merged, error) {
	ours, err := m.treeOf(ctx, what.Ours)
	if err != nil {
		return Merged{}, err
	}
	theirs, err := m.treeOf(ctx, what.Theirs)
	if err != nil {
		return Merged{}, err
	}
	base := what.Base
	if base == "" {
		if base, err = m.commonBase(ctx, what.Ours, what.Theirs); err != nil {
			return Merged{}, err
		}
	}
	baseTree := ""
	if base != "" { // else there are several
		if baseTree, err = m.treeOf(ctx, base); err != nil {
			return Merged{}, err
		}
	}
	return m.mergeOver(ctx, what, baseTree, ours, theirs)
}

// mergeOver merges trees.
func (m *Merger) mergeOver(ctx context.Context, what Merging, base, ours, theirs string) (Merged, error) {
	if base != "" {
		tree, plain, err := m.mergeTrees(ctx, base, ours, theirs)
		if err != nil || plain {
			return Merged{Tree: tree}, err
		}
	}
	if what.Base == "" {
		return m.mergeByGit(ctx, what, what.Ours, what.Theirs)
	}
	// Since 2.40 git can be told of a base, if it is a commit, and since 2.45 if it is a tree. Commits whose history says the
	// same can be made for every git.
	synthetic, err := m.synthesize(ctx, base, ours, theirs)
	if err != nil {
		return Merged{}, err
	}
	merged, err := m.mergeByGit(ctx, what, synthetic[1], synthetic[2])
	for _, oid := range synthetic { // nobody needs them any more, and they are not to be kept
		err = errors.Join(err, removeIfThere(m.repo.loosePath(oid)))
	}
	return merged, err
}

// synthesize makes commits of trees: one, and two that follow it. They are there for git at once, each in a file.
func (m *Merger) synthesize(ctx context.Context, base string, trees ...string) ([]string, error) {
	nobody := Signature{Identity: Identity{Name: "git-agency", Email: "git-agency@localhost"}, When: "0 +0000"}.String()
	// Nobody else makes the same, who would miss them when they are taken away: not even another merge of ours.
	unique := fmt.Sprintf("%s %d\n", filepath.Base(m.dir), m.serial.Add(1))
	var oids []string
	for i, tree := range append([]string{base}, trees...) {
		c := written{tree: tree, author: nobody, committer: nobody}
		c.message = unique
		if i > 0 {
			c.parents = oids[:1]
		}
		made := c.object(m.format)
		if err := m.repo.storeLoose(made); err != nil {
			return nil, err
		}
		oids = append(oids, made.name())
	}
	return oids, context.Cause(ctx)
}

// mergeByGit is what merge-tree makes of two commits. It runs in a git directory of its own, and in a worktree that has
// nothing but attributes.
func (m *Merger) mergeByGit(ctx context.Context, what Merging, ours, theirs string) (_ Merged, err error) {
	dir, err := os.MkdirTemp(m.dir, "merge-")
	if err != nil {
		return Merged{}, err
	}
	defer func() { err = errors.Join(err, durable.RemoveTree(dir)) }()
	p, err := m.mergingPlace(ctx, dir, what)
	if err != nil {
		return Merged{}, err
	}
	args := []string{"merge-tree", "--write-tree", "-z", "--messages"}
	for _, side := range []struct{ name, id, oid string }{{what.OursName, what.Ours, ours}, {what.TheirsName, what.Theirs, theirs}} {
		const short = 12 // never the whole of it, which would not be taken for a name; and of commits that we made up, nothing
		name, err := nameIn(p.gitDir, cmp.Or(side.name, side.id[:short]), side.oid)
		if err != nil {
			return Merged{}, err
		}
		args = append(args, name)
	}
	if err := m.flush(ctx); err != nil {
		return Merged{}, err
	}
	out, err := m.repo.change(ctx, p, args...)
	if err != nil && !exitedWith(err, 1) {
		return Merged{}, err
	}
	merged, err := parseMerged(string(out), err != nil)
	if err == nil && len(merged.Conflicts) == 0 {
		err = m.adopt(ctx, merged.Tree, ours, theirs)
	}
	return merged, err
}

// nameIn gives a commit a name in a git directory of ours: git writes into files what it was called by. One that cannot
// be a branch's name is not used.
func nameIn(gitDir, name, oid string) (string, error) {
	ref := "refs/heads/" + name
	if name == "" || isOID(name) || name[0] == '-' || !validRef(ref) {
		return oid, nil
	}
	path := filepath.Join(gitDir, ref)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return oid, nil // one name lies below the other
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return oid, nil // both have the same
	}
	_, err = f.WriteString(oid + "\n")
	return name, errors.Join(err, f.Close())
}
