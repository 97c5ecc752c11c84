package gitagency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// InstallRequest asks to install the manual and the shell completions of a program, below the prefix of its binary,
// where man and shells look for them.
type InstallRequest struct {
	Prefix string            // required: parent of the bin directory, absolute
	Files  map[string][]byte // required, except to undo: content by kind; see installTargets

	// Staged installs everything below Prefix. Otherwise, if Prefix lies in the home directory, completions go to the
	// user's own directories that shells search.
	Staged bool

	Undo   bool // remove the installed files
	DryRun bool // change nothing, and report what would happen

	Env []string // default: the environment of this process

	// Hook for tests, which need a failure at every step.
	Fault func(ctx context.Context, point string) error // called at "setup/<kind>:before" and ":after"
}

// InstallResult reports the files of an installation or its undo.
type InstallResult struct {
	Prefix      string          `json:"prefix"`
	Undo        bool            `json:"undo"`
	DryRun      bool            `json:"dry_run"` // nothing was done; the result is a plan
	Files       []InstalledFile `json:"files"`
	Directories []string        `json:"directories"` // directories that were made or removed
}

// InstalledFile is one file and the action taken on it.
type InstalledFile struct {
	Kind   string        `json:"kind"` // manual, bash, zsh or fish
	Path   string        `json:"path"`
	Action InstallAction `json:"action"`
	Why    string        `json:"why"` // reason for the action FileLeft
}

// InstallAction is the action taken on a file.
type InstallAction string

// Actions of an installation or its undo.
const (
	FileWritten   InstallAction = "written"
	FileReplaced  InstallAction = "replaced"  // an older version of ours was there
	FileUnchanged InstallAction = "unchanged" // it had the right content already
	FileRemoved   InstallAction = "removed"
	FileAbsent    InstallAction = "absent" // there was nothing to remove
	FileLeft      InstallAction = "left"   // not ours to overwrite or remove
)

// installTargets lists the path of each kind of file and its comment syntax.
var installTargets = []installTarget{
	// man also searches share/man beside every bin directory of PATH, even in a home directory.
	{kind: "manual", relPath: "share/man/man1/git-agency.1", commentPrefix: `.\"`},
	// bash loads it by name, when git's completion meets "git agency" for the first time.
	{kind: "bash", relPath: "share/bash-completion/completions/git-agency", commentPrefix: "#", userPath: installTarget.xdgDataPath},
	// zsh searches no directory of the user by default.
	{kind: "zsh", relPath: "share/zsh/site-functions/_git-agency", commentPrefix: "#"},
	// fish must read it at startup: it loads completions for git by name, but not for git-agency.
	{kind: "fish", relPath: "share/fish/vendor_conf.d/git-agency.fish", commentPrefix: "#", userPath: installTarget.fishConfigPath},
}

type installTarget struct {
	kind          string
	relPath       string // path below the prefix
	commentPrefix string // prefix of a comment line in this kind of file
	userPath      func(p installTarget, env []string, home string) string
}

func (p installTarget) xdgDataPath(env []string, home string) string {
	data := proc.Getenv(env, "XDG_DATA_HOME")
	if !filepath.IsAbs(data) {
		data = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(data, strings.TrimPrefix(p.relPath, "share/"))
}

func (p installTarget) fishConfigPath(env []string, home string) string {
	config := proc.Getenv(env, "XDG_CONFIG_HOME")
	if !filepath.IsAbs(config) {
		config = filepath.Join(home, ".config")
	}
	return filepath.Join(config, "fish", "conf.d", filepath.Base(p.relPath))
}

// Install installs files, all of them or none, or removes the files that it installed. Doing it twice is fine. A file
// that is not ours, or that was edited since, is neither overwritten nor removed: the last line of every installed
// file names its installation and the checksum of its content.
func Install(ctx context.Context, req InstallRequest) (InstallResult, error) {
	if !filepath.IsAbs(req.Prefix) {
		return InstallResult{}, &InvalidError{What: "prefix", Value: req.Prefix, Want: "an absolute path"}
	}
	for kind := range req.Files {
		if !slices.ContainsFunc(installTargets, func(p installTarget) bool { return p.kind == kind }) {
			return InstallResult{}, &InvalidError{What: "kind of file", Value: kind, Want: "manual, bash, zsh or fish"}
		}
	}
	req.Prefix = filepath.Clean(req.Prefix)
	if req.Env == nil {
		req.Env = os.Environ()
	}
	if req.Undo {
		return req.removeFiles(ctx)
	}
	return req.installFiles(ctx)
}

// pendingFile is one file to install.
type pendingFile struct {
	target      installTarget
	path        string
	current     fileState
	data        []byte   // content without the footer
	owner       string   // id of the installation that the file belongs to
	missingDirs []string // directories to make first, outermost first
}

// installFiles plans all files first, then writes them in one transaction.
func (req InstallRequest) installFiles(ctx context.Context) (InstallResult, error) {
	result := InstallResult{Prefix: req.Prefix, DryRun: req.DryRun, Files: []InstalledFile{}, Directories: []string{}}
	var todo []pendingFile
	var foreign []error
	for _, p := range installTargets {
		data, wanted := req.Files[p.kind]
		if !wanted {
			continue
		}
		if !bytes.HasSuffix(data, []byte("\n")) {
			data = append(bytes.Clone(data), '\n')
		}
		i := pendingFile{target: p, path: req.targetPath(p), data: data, owner: installationID(req.Prefix)}
		var err error
		if i.current, err = readFileState(i.path, p.commentPrefix); err != nil {
			return InstallResult{}, err
		}
		action := FileWritten
		switch {
		case i.current.exists && bytes.Equal(i.current.data, data): // also a file without our footer, installed by hand
			action = FileUnchanged
		case i.current.exists && i.current.foreignReason != "":
			foreign = append(foreign, &ForeignFileError{Path: i.path, Why: i.current.foreignReason})
			result.Files = append(result.Files, InstalledFile{Kind: p.kind, Path: i.path, Action: FileLeft, Why: i.current.foreignReason})
			continue
		case i.current.exists:
			action = FileReplaced
		default:
			if i.missingDirs, err = missingDirs(filepath.Dir(i.path), result.Directories); err != nil {
				return InstallResult{}, err
			}
			result.Directories = append(result.Directories, i.missingDirs...)
		}
		result.Files = append(result.Files, InstalledFile{Kind: p.kind, Path: i.path, Action: action})
		if action != FileUnchanged {
			todo = append(todo, i)
		}
	}
	if len(foreign) > 0 && req.DryRun {
		return result, errors.Join(foreign...)
	}
	if len(foreign) > 0 {
		return InstallResult{}, errors.Join(foreign...)
	}
	if req.DryRun {
		return result, nil
	}

	tx := req.beginTx()
	for _, i := range todo {
		if err := tx.Step(ctx, i.target.kind, func() error { return i.write(tx) }); err != nil {
			err = fmt.Errorf("install %s: %w", i.path, err)
			return InstallResult{}, errors.Join(append([]error{err}, tx.Rollback(context.WithoutCancel(ctx))...)...)
		}
	}
	tx.Commit()
	return result, nil
}

// write makes the missing directories of a file and writes the file.
func (i pendingFile) write(tx *undo.Tx) error {
	made := i.current.madeDirs
	for _, dir := range i.missingDirs {
		err := durable.Mkdir(dir, 0o755)
		switch {
		case errors.Is(err, fs.ErrExist): // another process made it: it and the directories above are not ours to remove
			made = 0
			continue
		case err != nil:
			return err
		}
		made++
		tx.Undo("make "+dir, func(context.Context) error { _, err := removeEmptyDir(dir); return err })
	}
	// The file may have changed since it was read.
	switch now, err := readFileState(i.path, i.target.commentPrefix); {
	case err != nil:
		return err
	case now.exists && now.foreignReason == "" && bytes.Equal(now.data, i.data): // another setup wrote the same content, and relies on the directories
		return nil
	case now.exists != i.current.exists || !bytes.Equal(now.raw, i.current.raw):
		return &ForeignFileError{Path: i.path, Why: "somebody else has just written it"}
	}
	owner := i.owner
	if i.current.exists && i.current.owner != "" {
		owner = i.current.owner // the installation that wrote it first
	}
	content := withFooter(i.data, i.target.commentPrefix, made, owner)
	tx.Undo("write "+i.path, func(context.Context) error {
		now, err := readFileState(i.path, i.target.commentPrefix)
		switch {
		case err != nil || !bytes.Equal(now.raw, content): // not written yet, or changed by another process since
			return err
		case i.current.exists:
			return durable.WriteFile(i.path, i.current.raw, i.current.mode)
		}
		return durable.Remove(i.path)
	})
	return durable.WriteFile(i.path, content, 0o644)
}

// removeFiles removes the installed files. It continues after an error: every removed file is one less to remove by
// hand.
func (req InstallRequest) removeFiles(ctx context.Context) (InstallResult, error) {
	result := InstallResult{Prefix: req.Prefix, Undo: true, DryRun: req.DryRun, Files: []InstalledFile{}, Directories: []string{}}
	gone := map[string]bool{} // paths that were removed, or would be in a dry run
	made := map[string]bool{} // directories that were made for these files
	var failed []error
	tx := req.beginTx()
	for _, p := range installTargets {
		file := InstalledFile{Kind: p.kind, Path: req.targetPath(p), Action: FileAbsent}
		err := tx.Step(ctx, p.kind, func() error {
			for _, temp := range leftoverTemps(file.Path) {
				gone[temp] = true
				if !req.DryRun {
					if err := durable.Remove(temp); err != nil {
						return err
					}
				}
			}
			found, err := readFileState(file.Path, p.commentPrefix)
			switch {
			case err != nil || !found.exists:
				return err
			case found.foreignReason != "":
				file.Action, file.Why = FileLeft, found.foreignReason
				return nil
			case found.owner != installationID(req.Prefix) && !isInside(file.Path, req.Prefix):
				file.Action, file.Why = FileLeft, reasonOtherInstallation
				return nil
			case !req.DryRun:
				if err := durable.Remove(file.Path); err != nil {
					return err
				}
			}
			file.Action, gone[file.Path] = FileRemoved, true
			for dir := filepath.Dir(file.Path); found.madeDirs > 0 && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
				made[dir] = true
				found.madeDirs--
			}
			return nil
		})
		if err != nil {
			failed = append(failed, fmt.Errorf("remove %s: %w", file.Path, err))
			if file.Action != FileRemoved {
				file.Action, file.Why = FileLeft, err.Error()
			}
		}
		result.Files = append(result.Files, file)
	}
	for _, dir := range sortInnermostFirst(made) {
		var empty bool
		var err error
		if req.DryRun {
			empty, err = wouldBeEmpty(dir, gone)
		} else {
			empty, err = removeEmptyDir(dir)
		}
		if err != nil {
			failed = append(failed, err)
		}
		if empty {
			gone[dir] = true
			result.Directories = append(result.Directories, dir)
		}
	}
	return result, errors.Join(failed...)
}

func (req InstallRequest) beginTx() *undo.Tx {
	tx := &undo.Tx{}
	if req.Fault != nil {
		tx.Fault = func(ctx context.Context, point string) error { return req.Fault(ctx, "setup/"+point) }
	}
	return tx
}

// targetPath returns the path to install a file at.
func (req InstallRequest) targetPath(p installTarget) string {
	if home := proc.Getenv(req.Env, "HOME"); p.userPath != nil && !req.Staged && isInside(req.Prefix, home) {
		return p.userPath(p, req.Env, filepath.Clean(home))
	}
	return filepath.Join(req.Prefix, filepath.FromSlash(p.relPath))
}

// isInside reports whether path is dir or lies inside it, with symbolic links resolved. Nothing counts as
// inside of "/", which some services have as their home.
func isInside(path, dir string) bool {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) == "/" {
		return false
	}
	path, err := guard.Resolve(path)
	if err != nil {
		return false
	}
	dir, err = guard.Resolve(dir)
	return err == nil && (path == dir || strings.HasPrefix(path, dir+string(filepath.Separator)))
}
