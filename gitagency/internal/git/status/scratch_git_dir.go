package status

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// makeScratchGitDir makes a scratch git directory for a worktree: see Repo.FillScratchGitDir. Git reads no configuration that
// an agent in the worktree could have written, and none of its files: the work tree of the returned options is a directory
// for copies of them. The returned function deletes all of it.
func makeScratchGitDir(r *git.Repo, s git.WorktreeSpec, head string) (git.RunOptions, func() error, error) {
	if fi, err := os.Lstat(s.Dir); s.Dir != "" && (err != nil || !fi.IsDir()) {
		return git.RunOptions{}, nil, errors.Join(fmt.Errorf("%s is not a directory", s.Dir), err)
	}
	// An agent may have removed its own permissions; git would skip such a directory silently. In a worktree that is in
	// use nothing is changed, and the scan reports the directory.
	for _, dir := range []string{s.Dir, r.AdminDir(s.Name)} {
		if dir == "" || s.InUse {
			continue
		}
		if _, _, err := walkWorktree(dir); errors.Is(err, fs.ErrPermission) {
			if r.IsDryRun() {
				return git.RunOptions{}, nil, err
			}
			if err := durable.RestoreOwnerPermissions(dir); err != nil {
				return git.RunOptions{}, nil, err
			}
		}
	}
	dir := filepath.Join(r.AgencyDir(), git.CapturePrefix+s.Name)
	if err := durable.RemoveTree(dir); err != nil { // of a capture that was killed
		return git.RunOptions{}, nil, err
	}
	done := func() error { return durable.RemoveTree(dir) }
	env, err := r.FillScratchGitDir(s, head, dir)
	copies := filepath.Join(dir, "tree")
	if err == nil {
		err = os.Mkdir(copies, 0o700)
	}
	if err != nil {
		return git.RunOptions{}, nil, errors.Join(err, done())
	}
	return git.RunOptions{
		GitDir: dir, WorkTree: copies,
		Env:     env,
		Reading: readlimit.Reading{Limits: r.ReadLimits, What: "reading the files of " + s.Dir},
		Config:  []string{"-c", "core.safecrlf=false", "-c", "core.untrackedCache=false", "-c", "core.splitIndex=false"},
	}, done, nil
}
