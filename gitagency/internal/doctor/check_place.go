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
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
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
	if _, err := x.Settings.CopyPatterns(); err != nil {
		x.reportRefusedSetting(err, "start cannot tell which files to copy: ")
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

// inventory returns the worktree entries and records of this run.
func (x *checkRun) inventory() core.TreeInventory {
	return core.TreeInventory{Repository: x.Repository, Entries: x.entries, Records: x.worktrees}
}

// findMovedAdopted returns the new path of an adopted tree: the one that it has since it was moved together with the
// repository, else as core.TreeInventory.FindMovedAdopted finds it.
func (x *checkRun) findMovedAdopted(w core.Worktree) string {
	to := x.movedPath(w.TreePath)
	if w.Adopted && w.State != store.Archived && to != "" && !x.inventory().HasRecord(to) && (to == x.mainTree() || x.formerEntry(to) != "") {
		return to
	}
	return x.inventory().FindMovedAdopted(w)
}

// checkUnrecordedMarkers finds worktrees that carry the integration marker but have no record.
func (x *checkRun) checkUnrecordedMarkers(context.Context) error {
	if x.changing || x.hasMoved {
		return nil // the record may be among those of the former path
	}
	for _, w := range x.inventory().Unrecorded() {
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
