package gitagency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// checkDataDir checks that the data directories exist and are private.
func (x *examination) dataDir(context.Context) error {
	for _, name := range x.entryNames() {
		place, ours := dataDirOf(name, x.entries[name].Path)
		if _, there := store.Taken(place); !ours || there || x.known(name) {
			continue
		}
		x.found(Finding{
			Code: "data-dir-missing", ID: "data-dir", Path: place, AtRisk: true,
			What: "git knows trees there, but the directory is gone: not mounted, or moved",
			Mend: "git config --global agency.dataDir DIR",
		}, nil)
		x.unmounted = true
		break
	}
	if _, there := store.Taken(x.store.RepoDir(x.ID)); !there {
		return nil
	}
	return x.openDataDir()
}

// checkDataDirMode finds data directories that other users can read. If the data directory also contains other files, only
// our directories in it have to be private.
func (x *examination) openDataDir() error {
	entries, err := os.ReadDir(x.DataDir)
	if err != nil {
		return err
	}
	dirs := []string{x.DataDir}
	if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return !slices.Contains(store.Tops, e.Name()) }) {
		dirs = nil
		for _, e := range entries {
			if slices.Contains(store.Tops, e.Name()) {
				dirs = append(dirs, filepath.Join(x.DataDir, e.Name()))
			}
		}
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			x.found(Finding{
				Code: "data-dir-open", ID: "data-dir", Path: dir,
				What: fmt.Sprintf("others can look into the data directory (mode %04o)", info.Mode().Perm()),
			}, func(context.Context) error { return os.Chmod(dir, 0o700) })
		}
	}
	return nil
}

// checkSandboxSettings finds settings that make the walls impossible, so that no command would run behind them. As start
// does, it reports the first of several invalid settings.
func (x *examination) sandboxSettings(context.Context) error {
	_, err := x.unborn().planWalls(Primitives{Isolation: isolationOS, Outputs: outputsOpen})
	var invalid *InvalidError
	if !errors.As(x.blame(err), &invalid) || invalid.key == "" {
		return nil // no walls on this machine, or a problem that another check reports
	}
	key, path := strings.TrimPrefix(invalid.key, "key "), x.configFile(invalid.setting)
	fixCommand := "git config --show-origin --get-all " + ShellWord(key) // a setting from the command line is in no file
	switch file := ShellWord(path); {
	case path == "":
		path = x.CommonDir
	case invalid.setting.Bare: // a key without a value, which --unset-all cannot match
		fixCommand = "git config --file " + file + " --edit"
	default:
		fixCommand = "git config --file " + file + " --fixed-value --unset-all " + ShellWord(key) + " " + ShellWord(invalid.Value)
	}
	x.found(Finding{Code: "refused-setting", ID: key, Path: path, What: "no command runs behind walls: " + invalid.Error(), Mend: fixCommand}, nil)
	return nil
}

// configFile returns the path of the file that contains a setting; empty if it is in no file. Git reports the repository's
// files relative to the directory in which it ran.
func (x *examination) configFile(s git.Setting) string {
	name, inFile := strings.CutPrefix(s.Origin, "file:")
	switch {
	case !inFile:
		return ""
	case filepath.IsAbs(name):
		return name
	}
	for _, dir := range []string{x.repo.TopLevel, x.opts.Dir, x.repo.GitDir} {
		if path, there := store.Taken(filepath.Join(dir, name)); dir != "" && there {
			return path
		}
	}
	return filepath.Join(x.CommonDir, "config")
}

// checkMovedRepository finds records of this repository under its former path. Records name a repository by its path; the
// ids in git's worktree entries connect them to this one.
func (x *examination) movedRepository(context.Context) error {
	repos, err := x.store.Repos()
	if err != nil {
		return err
	}
	var formerly []string
	for _, r := range repos {
		if r.RepoID == x.ID {
			formerly = r.Formerly
			x.damagedRepo(r)
		}
	}
	for _, old := range repos {
		there := store.IsDir(old.CommonDir)
		if old.RepoID == x.ID || there && !onePlace(old.CommonDir, x.CommonDir) {
			continue
		}
		found, err := x.idsOf(old.RepoID)
		if err != nil {
			return err
		}
		if real, err := filepath.EvalSymlinks(old.CommonDir); there && (err != nil || real != x.CommonDir) {
			for _, id := range found { // the same directory mounted in two places has not moved
				x.elsewhere[id] = true
			}
			continue
		}
		known := slices.ContainsFunc(found, func(id string) bool { _, here := x.entries[id]; return here })
		if !known && !slices.Contains(formerly, old.RepoID) {
			continue
		}
		for _, id := range found {
			x.elsewhere[id] = true
		}
		x.found(Finding{
			Code: "moved-repository", ID: old.RepoID, Path: x.store.RepoDir(old.RepoID), AtRisk: true,
			What: "these are the records of this repository from when it was at " + cmp.Or(old.CommonDir, "another place"),
		}, func(ctx context.Context) error { return x.moveHere(ctx, old.RepoID, found) })
	}
	return nil
}

// checkRepoRecord finds a repo.json that does not name its repository.
func (x *examination) damagedRepo(r store.RepoRecord) {
	if r.CommonDir == "" && !x.unsettled {
		x.found(Finding{Code: "damaged-repo", ID: x.ID, Path: x.store.RepoDir(x.ID), What: "repo.json does not say which repository the records are of"},
			func(context.Context) error { return x.store.WriteRepo(x.ID, x.CommonDir, x.now()) })
	}
}

// recordedIDs lists the ids that have any directory below the records of a repository.
func (x *examination) idsOf(repoID string) ([]string, error) {
	var all []string
	for _, kind := range []string{"worktrees", "invocations", "sandboxes"} {
		found, err := x.store.IDs(repoID, kind)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// relocateRecords moves the records and trees of a moved repository to its new path, and fixes the links of each.
func (x *examination) moveHere(ctx context.Context, from string, moved []string) error {
	if err := x.store.Relocate(from, x.ID, x.CommonDir, x.now()); err != nil {
		return err
	}
	again := &examination{Repository: x.Repository, repo: x.repo}
	if err := again.look(ctx); err != nil {
		return err
	}
	for _, f := range again.findings {
		if f.mend != nil && slices.Contains(moved, f.ID) && (f.Code == "moved-data" || f.Code == "moved-tree" || f.Code == "unlinked-tree") {
			if err := f.mend(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// externalWorktrees lists the main worktree and the linked worktrees of this repository that are outside every data
// directory.
func (x *examination) trees() []git.Worktree {
	trees := []git.Worktree{}
	if x.repo.TopLevel != "" && x.repo.GitDir == x.repo.CommonDir {
		trees = append(trees, git.Worktree{Path: x.repo.TopLevel, Branch: x.repo.MainBranch()})
	}
	for _, name := range x.entryNames() {
		e := x.entries[name]
		// Other repositories and other data directories report their own trees.
		here, _, err := x.tied(e.Path, name)
		if _, kept := dataDirOf(name, e.Path); err == nil && here && !kept {
			trees = append(trees, e.Worktree)
		}
	}
	return trees
}

// linkedEntry reads the .git file of a tree and reports its target: git's entry of that name in this repository, or another
// existing directory, whose path it returns.
func (x *examination) tied(tree, name string) (here bool, elsewhere string, err error) {
	at, err := git.LinkedTo(tree)
	switch {
	case err != nil || at == "" || !store.IsDir(at):
		return false, "", err
	case onePlace(at, x.repo.AdminDir(name)):
		return true, "", nil
	}
	return false, at, nil
}

// unrecordedWorktrees lists the external worktrees that carry the integration marker but have no record.
func (x *examination) unclaimed() []git.Worktree {
	var found []git.Worktree
	for _, w := range x.trees() {
		if marked, err := guard.Integration.In(w.Path); w.Path != "" && err == nil && marked && !x.claimed(w.Path) {
			found = append(found, w)
		}
	}
	return found
}

// hasWorktreeRecord reports whether the record of a worktree that is not archived names a tree. A broken record counts.
func (x *examination) claimed(tree string) bool {
	return slices.ContainsFunc(x.worktrees, func(e store.Entry[store.WorktreeMeta]) bool {
		return e.Record.State != store.Archived && (e.Tree == tree || onePlace(e.Tree, tree))
	})
}

// sameDirectory reports whether two paths lead to the same directory, through any symlinks and mounts. A moved
// directory often leaves a symlink at its old path.
func onePlace(path, other string) bool {
	a, err := os.Stat(path)
	if err != nil {
		return false
	}
	b, err := os.Stat(other)
	return err == nil && os.SameFile(a, b)
}

// findMovedAdopted returns the new path of an adopted tree, if there is exactly one candidate.
func (x *examination) movedAdopted(s subject) string {
	if s.ours {
		return ""
	}
	for _, w := range x.trees() {
		if w.Path != s.tree && onePlace(w.Path, s.tree) {
			return w.Path // a symlink was left at the old path
		}
	}
	to := ""
	for _, w := range x.unclaimed() {
		if w.Branch == s.branch {
			if to != "" {
				return "" // ambiguous
			}
			to = w.Path
		}
	}
	return to
}

// checkUnrecordedMarkers finds worktrees that carry the integration marker but have no record.
func (x *examination) unclaimedMarkers(context.Context) error {
	if x.unsettled {
		return nil
	}
	for _, w := range x.unclaimed() {
		if slices.ContainsFunc(x.worktrees, func(e store.Entry[store.WorktreeMeta]) bool { return e.Broken != store.Whole }) {
			return nil // it may belong to a broken record
		}
		if archived := slices.ContainsFunc(x.worktrees, func(e store.Entry[store.WorktreeMeta]) bool {
			return e.Record.State == store.Archived && e.Tree == w.Path
		}); archived {
			continue // reported with that worktree
		}
		x.found(Finding{
			Code: "unclaimed-marker", ID: guard.Dir, Path: guard.Integration.Path(w.Path), What: "an integration worktree that there is no record of",
			Mend: "git agency worktree adopt " + ShellWord(w.Path),
		}, nil)
	}
	return nil
}
