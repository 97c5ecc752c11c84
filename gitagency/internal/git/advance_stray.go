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
type StrayStage struct {
	Path  string
	Moved bool // the user's files may be in it
}

// LeftoverStagings lists the staging directories in the common git directory and in worktrees. The caller must hold the
// lock under which every Update is made, and have no record of one: else they are not leftovers.
func (r *Repo) StrayStages(trees ...string) ([]StrayStage, error) {
	dirs := []string{r.ownDir()}
	for _, tree := range trees {
		dirs = append(dirs, filepath.Join(tree, ".agency"))
	}
	var strays []StrayStage
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !nothingThere(err) {
			return nil, err
		}
		for _, e := range entries {
			if !e.IsDir() || !strings.HasPrefix(e.Name(), advancePrefix) {
				continue
			}
			path := filepath.Join(dir, e.Name())
			_, err := os.Lstat(filepath.Join(path, "plan"))
			strays = append(strays, StrayStage{path, !errors.Is(err, fs.ErrNotExist)})
		}
	}
	return strays, nil
}

// RecoverStaging removes a leftover staging directory. If files may have been moved, it first finishes or undoes the update
// as Recover does, but leaves the other refs alone: by now they may belong to something else.
func (r *Repo) EndStray(ctx context.Context, s StrayStage) error {
	if !s.Moved {
		return durable.RemoveTree(s.Path)
	}
	data, err := durable.ReadFile(filepath.Join(s.Path, "plan"), mostIndex)
	if err != nil {
		return err
	}
	var p plan
	if err := json.Unmarshal(data, &p); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(s.Path, "plan"), err)
	}
	a := p.Advance
	a.Also = nil
	seats, err := r.seats(ctx)
	if err != nil {
		return err
	}
	if !validRef(a.Branch) || !isOID(a.Old) || !isOID(a.New) || seats[a.GitDir] != a.Tree || a.Tree == "" || !slices.Contains(r.stageDirs(a), s.Path) {
		return fmt.Errorf("%s is not about a worktree of this repository", filepath.Join(s.Path, "plan"))
	}
	_, err = r.FinishAdvance(ctx, a)
	return err
}
