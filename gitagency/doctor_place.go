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

// dataDir looks at the directory that everything lies in.
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

// openDataDir looks whether others can look into the data directory. One that holds more than what is
// ours is not ours to close, and need not be: what is in it is closed.
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

// sandboxSettings looks whether walls can be drawn with what is set for them: else no command runs behind any.
// Of several that are wrong the first is named, as by start.
func (x *examination) sandboxSettings(context.Context) error {
	_, err := x.unborn().planWalls(Primitives{Isolation: isolationOS, Outputs: outputsOpen})
	var invalid *InvalidError
	if !errors.As(x.blame(err), &invalid) || invalid.key == "" {
		return nil // this machine has none, or something is broken that is said elsewhere
	}
	key, path := strings.TrimPrefix(invalid.key, "key "), x.configFile(invalid.setting)
	mend := "git config --show-origin --get-all " + ShellWord(key) // of the command line nothing stays
	switch file := ShellWord(path); {
	case path == "":
		path = x.CommonDir
	case invalid.setting.Bare: // which no value matches
		mend = "git config --file " + file + " --edit"
	default:
		mend = "git config --file " + file + " --fixed-value --unset-all " + ShellWord(key) + " " + ShellWord(invalid.Value)
	}
	x.found(Finding{Code: "refused-setting", ID: key, Path: path, What: "no command runs behind walls: " + invalid.Error(), Mend: mend}, nil)
	return nil
}

// configFile is the file that a setting stands in; empty when it stands in none. Git names those of the
// repository from where it was when it read them.
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

// movedRepository looks for records of this repository under the name it had elsewhere. Records name a
// repository by its path; what ties them to it all the same are the ids that git knows here.
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
			for _, id := range found { // the same directory, mounted in two places: it has not moved
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

// damagedRepo looks whether the records say whose they are.
func (x *examination) damagedRepo(r store.RepoRecord) {
	if r.CommonDir == "" && !x.unsettled {
		x.found(Finding{Code: "damaged-repo", ID: x.ID, Path: x.store.RepoDir(x.ID), What: "repo.json does not say which repository the records are of"},
			func(context.Context) error { return x.store.WriteRepo(x.ID, x.CommonDir, x.now()) })
	}
}

// idsOf lists the ids that there is anything of.
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

// moveHere brings the records and trees of a repository that was moved, and mends each.
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

// trees lists the worktrees of git's that are nobody's but this repository's, and not in a data directory.
func (x *examination) trees() []git.Worktree {
	trees := []git.Worktree{}
	if x.repo.TopLevel != "" && x.repo.GitDir == x.repo.CommonDir {
		trees = append(trees, git.Worktree{Path: x.repo.TopLevel, Branch: x.repo.MainBranch()})
	}
	for _, name := range x.entryNames() {
		e := x.entries[name]
		// What belongs to another repository, or to records kept elsewhere, is said of those.
		here, _, err := x.tied(e.Path, name)
		if _, kept := dataDirOf(name, e.Path); err == nil && here && !kept {
			trees = append(trees, e.Worktree)
		}
	}
	return trees
}

// tied says what a tree is tied to: git's entry of that name here, or another that exists elsewhere.
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

// unclaimed lists the worktrees of git's that carry the integration marker and that no record speaks of.
func (x *examination) unclaimed() []git.Worktree {
	var found []git.Worktree
	for _, w := range x.trees() {
		if marked, err := guard.Integration.In(w.Path); w.Path != "" && err == nil && marked && !x.claimed(w.Path) {
			found = append(found, w)
		}
	}
	return found
}

// claimed reports whether a record of a present worktree, or one that cannot be read but has its tree
// there, speaks of a tree.
func (x *examination) claimed(tree string) bool {
	return slices.ContainsFunc(x.worktrees, func(e store.Entry[store.WorktreeMeta]) bool {
		return e.Record.State != store.Archived && (e.Tree == tree || onePlace(e.Tree, tree))
	})
}

// onePlace reports whether two paths lead to one directory, by whatever links and mounts. Who moves
// something often leaves a link where it was.
func onePlace(path, other string) bool {
	a, err := os.Stat(path)
	if err != nil {
		return false
	}
	b, err := os.Stat(other)
	return err == nil && os.SameFile(a, b)
}

// movedAdopted is where a tree that was adopted is now, if there is one it can be.
func (x *examination) movedAdopted(s subject) string {
	if s.ours {
		return ""
	}
	for _, w := range x.trees() {
		if w.Path != s.tree && onePlace(w.Path, s.tree) {
			return w.Path // a link was left behind
		}
	}
	to := ""
	for _, w := range x.unclaimed() {
		if w.Branch == s.branch {
			if to != "" {
				return "" // either could be it
			}
			to = w.Path
		}
	}
	return to
}

// unclaimedMarkers looks for worktrees that say they are a person's and that nothing is known of.
func (x *examination) unclaimedMarkers(context.Context) error {
	if x.unsettled {
		return nil
	}
	for _, w := range x.unclaimed() {
		if slices.ContainsFunc(x.worktrees, func(e store.Entry[store.WorktreeMeta]) bool { return e.Broken != store.Whole }) {
			return nil // it may be the tree of one of those
		}
		if archived := slices.ContainsFunc(x.worktrees, func(e store.Entry[store.WorktreeMeta]) bool {
			return e.Record.State == store.Archived && e.Tree == w.Path
		}); archived {
			continue // said there
		}
		x.found(Finding{
			Code: "unclaimed-marker", ID: guard.Dir, Path: guard.Integration.Path(w.Path), What: "an integration worktree that there is no record of",
			Mend: "git agency worktree adopt " + ShellWord(w.Path),
		}, nil)
	}
	return nil
}
