package pathset

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/diff"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/internal/treediff"
)

// Diff compares two states of the directories of a sandbox: diff.Base, the start; diff.Work, now; and its snapshots. Files are named by
// the paths of the directories as they were given. It changes nothing, and commands may run in the sandbox meanwhile.
func Diff(ctx context.Context, r *core.Repository, req diff.Request) (_ diff.Diff, err error) {
	inv, err := r.Invocation(req.Invocation)
	if err != nil {
		return diff.Diff{}, err
	}
	if inv.Broken {
		return diff.Diff{}, inv.Err()
	}
	m := inv.Entry.Record.PathsFields
	if req.Paths, err = pathsInTree(r, m.Paths, req.Paths); err != nil {
		return diff.Diff{}, err
	}
	if err := req.Check([]string{diff.Base, diff.Work}); err != nil {
		return diff.Diff{}, err
	}
	var left []snapshots.LeftOut
	c := &diff.Comparison{Repo: States(r), TreeName: inv.ID, AnyObject: m.PathsBase}
	c.StateLookups = map[string]func(context.Context) (string, error){
		diff.Base: func(context.Context) (string, error) { return m.PathsBase, nil },
		diff.Work: func(ctx context.Context) (string, error) {
			if _, err := inv.Path(); err != nil {
				return "", err
			}
			w, err := ReadWork(ctx, r, c.Objects(), inv.ID, m)
			for _, l := range w.LeftOut {
				left = append(left, snapshots.LeftOut{Path: Name(m.Paths, l.Path), Reason: l.Reason})
			}
			return w.TreeID, err
		},
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	d, err := c.Diff(ctx, req)
	if err != nil {
		return d, &fault.InvocationError{ID: inv.ID, Err: err}
	}
	for _, files := range [][]treediff.File{d.Added, d.Removed, d.Changed} {
		for i := range files {
			files[i].Path = Name(m.Paths, files[i].Path)
			if files[i].OldPath != "" {
				files[i].OldPath = Name(m.Paths, files[i].OldPath)
			}
		}
	}
	d.LeftOut = left
	return d, nil
}

// pathsInTree returns paths that the user names, as "<path as given>/<file>" or otherwise, as paths of a tree.
func pathsInTree(r *core.Repository, paths []store.PathMeta, named []string) (in []string, err error) {
	for _, name := range named {
		found, clean := "", filepath.Clean(name)
		absolute := clean
		if !filepath.IsAbs(clean) {
			absolute = filepath.Join(r.CallerDir, clean)
		}
		for n, p := range paths {
			for _, form := range []struct{ dir, path string }{{p.Path, absolute}, {p.Given, clean}} {
				if guard.IsOrContains(form.dir, form.path) {
					found = strconv.Itoa(n) + strings.TrimPrefix(form.path, form.dir)
				}
			}
		}
		if found == "" {
			return nil, &fault.InvalidError{What: "path", Value: name, Want: "a path in one of the directories of the sandbox, such as " + paths[0].Given + "/<file>"}
		}
		in = append(in, found)
	}
	return in, nil
}
