package git

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// LeftoverStaging is a staging directory of an Update that has no record any more.
type LeftoverStaging struct {
	Path         string
	MayHoldFiles bool // the user's files may be in it
}

// LeftoverStagings lists the staging directories in the common git directory and in worktrees. The caller must hold the
// lock under which every Update is made, and have no record of one: else they are not leftovers.
func (r *Repo) LeftoverStagings(trees ...string) ([]LeftoverStaging, error) {
	dirs := []string{r.agencyDir()}
	for _, tree := range trees {
		dirs = append(dirs, filepath.Join(tree, ".agency"))
	}
	var strays []LeftoverStaging
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !isNotExist(err) {
			return nil, err
		}
		for _, e := range entries {
			if !e.IsDir() || !strings.HasPrefix(e.Name(), stagingPrefix) {
				continue
			}
			path := filepath.Join(dir, e.Name())
			_, err := os.Lstat(filepath.Join(path, "plan"))
			strays = append(strays, LeftoverStaging{path, !errors.Is(err, fs.ErrNotExist)})
		}
	}
	return strays, nil
}

// RecoverStaging removes a leftover staging directory. If files may have been moved, it first finishes or undoes the update
// as Recover does, but leaves the other refs alone: by now they may belong to something else.
func (r *Repo) RecoverStaging(ctx context.Context, s LeftoverStaging) error {
	if !s.MayHoldFiles {
		return durable.RemoveTree(s.Path)
	}
	data, err := durable.ReadFile(filepath.Join(s.Path, "plan"), maxIndexSize)
	if err != nil {
		return err
	}
	var p plan
	if err := json.Unmarshal(data, &p); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(s.Path, "plan"), err)
	}
	a := p.Update
	a.OtherRefs = nil
	seats, err := r.worktreesByGitDir(ctx)
	if err != nil {
		return err
	}
	if !isValidRef(a.Branch) || !isOID(a.Old) || !isOID(a.New) || seats[a.GitDir] != a.Worktree || a.Worktree == "" || !slices.Contains(r.stagingDirs(a), s.Path) {
		return fmt.Errorf("%s is not about a worktree of this repository", filepath.Join(s.Path, "plan"))
	}
	_, err = r.Recover(ctx, a)
	return err
}
