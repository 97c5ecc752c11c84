package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// checkDataDir checks that the data directories exist and are private.
func (x *checkRun) checkDataDir(context.Context) error {
	for _, name := range x.entryNames() {
		place, ours := core.DataDirOfEntry(name, x.entries[name].Path)
		if _, there := store.FirstExisting(place); !ours || there || x.isRecorded(name) {
			continue
		}
		x.addFinding(Finding{
			Code: "data-dir-missing", ID: "data-dir", Path: place, AtRisk: true,
			Problem:    "git has worktrees in this data directory, but it does not exist: not mounted, or moved",
			FixCommand: "git config --global agency.dataDir DIR",
		}, nil)
		x.dataDirMissing = true
		break
	}
	if _, there := store.FirstExisting(x.Store.RepoDir(x.ID)); !there {
		return nil
	}
	return x.checkDataDirMode()
}

// checkDataDirMode finds data directories that other users can read. If the data directory also contains other files, only
// our directories in it have to be private.
func (x *checkRun) checkDataDirMode() error {
	entries, err := os.ReadDir(x.DataDir)
	if err != nil {
		return err
	}
	dirs := []string{x.DataDir}
	if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return !slices.Contains(store.TopLevelNames, e.Name()) }) {
		dirs = nil
		for _, e := range entries {
			if slices.Contains(store.TopLevelNames, e.Name()) {
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
			x.addFinding(Finding{
				Code: "data-dir-open", ID: "data-dir", Path: dir,
				Problem: fmt.Sprintf("other users can access the data directory (mode %04o)", info.Mode().Perm()),
			}, func(context.Context) error { return os.Chmod(dir, 0o700) })
		}
	}
	return nil
}

// checkSettings finds settings with which commands refuse to run. As start does, it reports the first of several invalid
// settings for walls.
func (x *checkRun) checkSettings(ctx context.Context) error {
	if _, err := x.Settings.TrashLimit(); err != nil {
		x.reportRefusedSetting(err, "neither discard nor land can write an archive: ")
	}
	if _, err := x.Settings.SecretPatterns(); err != nil {
		x.reportRefusedSetting(err, "snapshots, diffs, radar and landings might include the files that it is for: ")
	}
	if _, err := x.Settings.LeavePatterns(); err != nil {
		x.reportRefusedSetting(err, "neither submit nor land can tell which files to leave: ")
	}
	_, err := sandbox.Placeholder(x.Repository).PlanWalls(sandbox.WallsRequest{Primitives: store.Primitives{Isolation: settings.IsolationOS, Outputs: settings.OutputsOpen}})
	x.reportRefusedSetting(sandbox.AttributeToSetting(x.Repository, err), "no command can run behind walls: ")
	_, err = x.Settings.TerminalSettings()
	x.reportRefusedSetting(err, "commands that print for people refuse to run: ")
	for _, err := range x.Settings.InvalidSettings(ctx) {
		x.reportRefusedSetting(err, "commands that use it refuse to run: ")
	}
	return nil
}

// reportRefusedSetting reports the setting that an error names, unless it was reported with another effect. Other errors mean
// that there are no walls on this machine, or are reported by another check.
func (x *checkRun) reportRefusedSetting(err error, effect string) {
	var invalid *fault.InvalidError
	if !errors.As(err, &invalid) || invalid.ConfigKey == "" {
		return
	}
	key, path := invalid.ConfigKey, x.configFile(invalid.Setting)
	if slices.ContainsFunc(x.findings, func(f Finding) bool { return f.Code == "refused-setting" && f.ID == key }) {
		return
	}
	fixCommand := "git config --show-origin --get-all " + quote.Shell(key) // a setting from the command line is in no file
	switch file := quote.Shell(path); {
	case path == "":
		path = x.CommonDir
	case invalid.Setting.NoValue: // a key without a value, which --unset-all cannot match
		fixCommand = "git config --file " + file + " --edit"
	default:
		fixCommand = "git config --file " + file + " --fixed-value --unset-all " + quote.Shell(key) + " " + quote.Shell(invalid.Value)
	}
	x.addFinding(Finding{Code: "refused-setting", ID: key, Path: path, Problem: effect + invalid.Error(), FixCommand: fixCommand}, nil)
}

// configFile returns the path of the file that contains a setting; empty if it is in no file. Git reports the repository's
// files relative to the directory in which it ran.
func (x *checkRun) configFile(s config.Setting) string {
	name, inFile := strings.CutPrefix(s.Origin, "file:")
	switch {
	case !inFile:
		return ""
	case filepath.IsAbs(name):
		return name
	}
	for _, dir := range []string{x.repo.TopLevel, x.Opts.Dir, x.repo.GitDir} {
		if path, there := store.FirstExisting(filepath.Join(dir, name)); dir != "" && there {
			return path
		}
	}
	return filepath.Join(x.CommonDir, "config")
}

// externalWorktrees lists the main worktree and the linked worktrees of this repository that are outside every data
// directory.
func (x *checkRun) externalWorktrees() []worktree.Worktree {
	trees := []worktree.Worktree{}
	if x.repo.TopLevel != "" && x.repo.GitDir == x.repo.CommonDir {
		trees = append(trees, worktree.Worktree{Path: x.repo.TopLevel, Branch: x.mainWorktreeRef()})
	}
	for _, name := range x.entryNames() {
		e := x.entries[name]
		// Other repositories and other data directories report their own trees.
		here, _, err := x.linkedEntry(e.Path, name)
		if _, kept := core.DataDirOfEntry(name, e.Path); err == nil && here && !kept {
			trees = append(trees, e.Worktree)
		}
	}
	return trees
}

// mainWorktreeRef returns the full ref that HEAD of the main worktree names; empty when it is detached.
func (x *checkRun) mainWorktreeRef() string {
	head, _ := git.ReadHead(x.CommonDir) // an unreadable HEAD names no branch
	return head.Branch
}

// linkedEntry reads the .git file of a tree and reports its target: git's entry of that name in this repository, or another
// existing directory, whose path it returns.
func (x *checkRun) linkedEntry(tree, name string) (here bool, elsewhere string, err error) {
	at, err := git.DotGitTarget(tree)
	switch {
	case err != nil || at == "" || !store.IsDir(at):
		return false, "", err
	case core.SameDirectory(at, x.repo.AdminDir(name)):
		return true, "", nil
	}
	return false, at, nil
}

// unrecordedWorktrees lists the external worktrees that carry the integration marker but have no record.
func (x *checkRun) unrecordedWorktrees() []worktree.Worktree {
	var found []worktree.Worktree
	for _, w := range x.externalWorktrees() {
		if marked, err := guard.Integration.IsIn(w.Path); w.Path != "" && err == nil && marked && !x.hasWorktreeRecord(w.Path) {
			found = append(found, w)
		}
	}
	return found
}

// hasWorktreeRecord reports whether the record of a worktree that is not archived names a tree. A broken record counts.
func (x *checkRun) hasWorktreeRecord(tree string) bool {
	return slices.ContainsFunc(x.worktrees, func(e store.Entry[store.WorktreeMeta]) bool {
		return e.Record.State != store.Archived && (e.TreePath == tree || core.SameDirectory(e.TreePath, tree))
	})
}

// findMovedAdopted returns the new path of an adopted tree, if there is exactly one candidate: a worktree on the branch of
// the record or, as HEAD of an adopted worktree moves, the only one that is left for the only lost record. An archived
// record has no tree; the tree that it names may have another record by now.
func (x *checkRun) findMovedAdopted(s treeInfo, w core.Worktree) string {
	if s.managed || w.State == store.Archived {
		return ""
	}
	for _, w := range x.externalWorktrees() {
		if w.Path != s.tree && core.SameDirectory(w.Path, s.tree) {
			return w.Path // a symlink was left at the old path
		}
	}
	if to := x.movedPath(s.tree); to != "" && !x.hasWorktreeRecord(to) && (to == x.mainTree() || x.formerEntry(to) != "") {
		return to
	}
	unrecorded, to := x.unrecordedWorktrees(), ""
	for _, w := range unrecorded {
		if w.Branch == s.branch {
			if to != "" {
				return "" // ambiguous
			}
			to = w.Path
		}
	}
	if to == "" && len(unrecorded) == 1 && x.countLostAdopted() == 1 {
		return unrecorded[0].Path
	}
	return to
}

// countLostAdopted counts the records of adopted worktrees whose tree is missing.
func (x *checkRun) countLostAdopted() int {
	lost := 0
	for _, e := range x.worktrees {
		if w := x.WorktreeFromEntry(e); w.Adopted && w.State != store.Archived && e.Defect == store.MissingTree {
			lost++
		}
	}
	return lost
}

// checkUnrecordedMarkers finds worktrees that carry the integration marker but have no record.
func (x *checkRun) checkUnrecordedMarkers(context.Context) error {
	if x.changing || x.hasMoved {
		return nil // the record may be among those of the former path
	}
	for _, w := range x.unrecordedWorktrees() {
		if slices.ContainsFunc(x.worktrees, func(e store.Entry[store.WorktreeMeta]) bool { return e.Defect != store.NoDefect }) {
			return nil // it may belong to a broken record
		}
		if archived := slices.ContainsFunc(x.worktrees, func(e store.Entry[store.WorktreeMeta]) bool {
			return e.Record.State == store.Archived && e.TreePath == w.Path
		}); archived {
			continue // reported with that worktree
		}
		x.addFinding(Finding{
			Code: "unclaimed-marker", ID: guard.AgencyDir, Path: guard.Integration.Path(w.Path), Problem: "integration worktree without a record",
			FixCommand: "git agency worktree adopt " + quote.Shell(w.Path),
		}, nil)
	}
	return nil
}
