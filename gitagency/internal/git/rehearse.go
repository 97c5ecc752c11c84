package git

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Rehearse finds what Capture would find, and refuses what it would refuse, without changing anything:
// it is Capture, but whatever that writes goes into a directory elsewhere and goes away with it. So the
// commit it returns exists no more, unless it was there before. Only the dates of objects that git meets
// again are new. A tree that could only be read after a change of permissions is refused too.
func (r *Repo) Rehearse(ctx context.Context, s Subject) (got Captured, err error) {
	err = r.rehearse(func(elsewhere *Repo) error {
		got, err = elsewhere.Capture(ctx, s)
		return err
	})
	return got, err
}

// Holds reports whether a commit, or what it leads to, has all that Capture would find in a worktree. Nothing is changed.
func (r *Repo) Holds(ctx context.Context, commit string, s Subject) (all bool, err error) {
	err = r.rehearse(func(elsewhere *Repo) error {
		got, err := elsewhere.Capture(ctx, s)
		if err != nil {
			return err
		}
		all, err = elsewhere.Covers(ctx, commit, got.Commit)
		return err
	})
	return all, err
}

// rehearse does something with a repository of which all objects are there, and none that are written stay.
func (r *Repo) rehearse(do func(elsewhere *Repo) error) (err error) {
	scratch, err := tempDirectory()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.remove()) }()
	if err := os.Mkdir(filepath.Join(scratch.path, "objects"), 0o700); err != nil {
		return err
	}
	return do(r.rehearsedIn(scratch.path))
}

// rehearsedIn is the repository for somebody who may write nothing to it: everything goes into a directory.
func (r *Repo) rehearsedIn(dir string) *Repo {
	rehearsed := *r
	rehearsed.rehearsal = dir
	objects := inList(filepath.Join(r.CommonDir, "objects"))
	if more, is := proc.LookupVariable(r.env, "GIT_ALTERNATE_OBJECT_DIRECTORIES"); is { // what a merger has
		objects += ":" + more
	}
	rehearsed.env = append(slices.Clone(r.env),
		"GIT_OBJECT_DIRECTORY="+filepath.Join(dir, "objects"),
		"GIT_ALTERNATE_OBJECT_DIRECTORIES="+objects)
	return &rehearsed
}

// inList writes a path so that git finds it whole in a list of paths that colons separate.
func inList(path string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(path) + `"`
}
