package update

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
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// LeftoverStaging is a staging directory of an Update that has no record any more.
type LeftoverStaging struct {
	Path         string
	MayHoldFiles bool // the user's files may be in it
}

// LeftoverStagings lists the staging directories in the common git directory and in worktrees. The caller must hold the
// lock under which every Update is made, and have no record of one: else they are not leftovers.
func LeftoverStagings(r *git.Repo, trees ...string) ([]LeftoverStaging, error) {
	dirs := []string{r.AgencyDir()}
	for _, tree := range trees {
		dirs = append(dirs, filepath.Join(tree, ".agency"))
	}
	var strays []LeftoverStaging
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !git.IsNotExist(err) {
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
func RecoverStaging(ctx context.Context, r *git.Repo, s LeftoverStaging) error {
	if !s.MayHoldFiles {
		return durable.RemoveTree(s.Path)
	}
	data, err := durable.ReadFile(filepath.Join(s.Path, "plan"), index.MaxSize)
	if err != nil {
		return err
	}
	var p plan
	if err := json.Unmarshal(data, &p); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(s.Path, "plan"), err)
	}
	a := p.Update
	a.OtherRefs = nil
	seats, err := worktreesByGitDir(ctx, r)
	if err != nil {
		return err
	}
	if !object.IsValidRef(a.Branch) || !object.IsOID(a.Old) || !object.IsOID(a.New) || seats[a.GitDir] != a.Worktree || a.Worktree == "" || !slices.Contains(stagingDirs(r, a), s.Path) {
		return fmt.Errorf("%s does not describe a worktree of this repository", filepath.Join(s.Path, "plan"))
	}
	_, err = Recover(ctx, r, a)
	return err
}
