// Package setup installs the manual and the shell completions of the program below the prefix of its binary, removes them
// again, and finds out which lines the user has to add to startup files. It must never overwrite or remove a file that it
// did not write, follow a symlink to one, or leave an installation incomplete.
package setup

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
)

// Request asks to install the manual and the shell completions below the prefix of the binary, where man and shells look
// for them.
type Request struct {
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

// Result reports the files of an installation or its undo.
type Result struct {
	Prefix      string          `json:"prefix"`
	Undo        bool            `json:"undo"`
	DryRun      bool            `json:"dry_run"` // nothing was done; the result is a plan
	Files       []InstalledFile `json:"files"`
	Directories []string        `json:"directories"` // directories that were made or removed
}

// InstalledFile is one file and the action taken on it.
type InstalledFile struct {
	Kind   string `json:"kind"` // manual, bash, zsh or fish
	Path   string `json:"path"`
	Action Action `json:"action"`
	Why    string `json:"why"` // reason for the action FileLeft
}

// Action is the action taken on a file.
type Action string

// Actions of an installation or its undo.
const (
	FileWritten   Action = "written"
	FileReplaced  Action = "replaced"  // an older version of ours was there
	FileUnchanged Action = "unchanged" // it had the right content already
	FileRemoved   Action = "removed"
	FileAbsent    Action = "absent" // there was nothing to remove
	FileLeft      Action = "left"   // not ours to overwrite or remove
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
	data := getenv(env, "XDG_DATA_HOME")
	if !filepath.IsAbs(data) {
		data = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(data, strings.TrimPrefix(p.relPath, "share/"))
}

func (p installTarget) fishConfigPath(env []string, home string) string {
	config := getenv(env, "XDG_CONFIG_HOME")
	if !filepath.IsAbs(config) {
		config = filepath.Join(home, ".config")
	}
	return filepath.Join(config, "fish", "conf.d", filepath.Base(p.relPath))
}

// Install installs files, all of them or none, or removes the files that it installed. Doing it twice is fine. A file
// that is not ours, or that was edited since, is neither overwritten nor removed: the last line of every installed
// file names its installation and the checksum of its content.
func Install(ctx context.Context, req Request) (Result, error) {
	if !filepath.IsAbs(req.Prefix) {
		return Result{}, fmt.Errorf("the prefix %q is not an absolute path", req.Prefix)
	}
	for kind := range req.Files {
		if !slices.ContainsFunc(installTargets, func(p installTarget) bool { return p.kind == kind }) {
			return Result{}, fmt.Errorf("unknown kind of file %q: want manual, bash, zsh or fish", kind)
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
func (req Request) installFiles(ctx context.Context) (Result, error) {
	result := Result{Prefix: req.Prefix, DryRun: req.DryRun, Files: []InstalledFile{}, Directories: []string{}}
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
			return Result{}, err
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
				return Result{}, err
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
		return Result{}, errors.Join(foreign...)
	}
	if req.DryRun {
		return result, nil
	}

	tx := &transaction{fault: req.Fault}
	for _, i := range todo {
		if err := tx.step(ctx, i.target.kind, func() error { return i.write(tx) }); err != nil {
			err = fmt.Errorf("install %s: %w", i.path, err)
			return Result{}, errors.Join(append([]error{err}, tx.rollback()...)...)
		}
	}
	return result, nil
}

// write makes the missing directories of a file and writes the file.
func (i pendingFile) write(tx *transaction) error {
	made := i.current.madeDirs
	for _, dir := range i.missingDirs {
		err := mkdir(dir, 0o755)
		switch {
		case errors.Is(err, fs.ErrExist): // another process made it: it and the directories above are not ours to remove
			made = 0
			continue
		case err != nil:
			return err
		}
		made++
		tx.addUndo("make "+dir, func() error { _, err := removeEmptyDir(dir); return err })
	}
	// The file may have changed since it was read.
	switch now, err := readFileState(i.path, i.target.commentPrefix); {
	case err != nil:
		return err
	case now.exists && now.foreignReason == "" && bytes.Equal(now.data, i.data): // another setup wrote the same content, and relies on the directories
		return nil
	case now.exists != i.current.exists || !bytes.Equal(now.raw, i.current.raw):
		return &ForeignFileError{Path: i.path, Why: "another process has just written it"}
	}
	owner := i.owner
	if i.current.exists && i.current.owner != "" {
		owner = i.current.owner // the installation that wrote it first
	}
	content := withFooter(i.data, i.target.commentPrefix, made, owner)
	tx.addUndo("write "+i.path, func() error {
		now, err := readFileState(i.path, i.target.commentPrefix)
		switch {
		case err != nil || !bytes.Equal(now.raw, content): // not written yet, or changed by another process since
			return err
		case i.current.exists:
			return writeFile(i.path, i.current.raw, i.current.mode)
		}
		return remove(i.path)
	})
	return writeFile(i.path, content, 0o644)
}

// removeFiles removes the installed files. It continues after an error: every removed file is one less to remove by
// hand.
func (req Request) removeFiles(ctx context.Context) (Result, error) {
	result := Result{Prefix: req.Prefix, Undo: true, DryRun: req.DryRun, Files: []InstalledFile{}, Directories: []string{}}
	gone := map[string]bool{} // paths that were removed, or would be in a dry run
	made := map[string]bool{} // directories that were made for these files
	var failed []error
	tx := &transaction{fault: req.Fault}
	for _, p := range installTargets {
		file := InstalledFile{Kind: p.kind, Path: req.targetPath(p), Action: FileAbsent}
		err := tx.step(ctx, p.kind, func() error {
			for _, temp := range leftoverTemps(file.Path) {
				gone[temp] = true
				if !req.DryRun {
					if err := remove(temp); err != nil {
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
				if err := remove(file.Path); err != nil {
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

// targetPath returns the path to install a file at.
func (req Request) targetPath(p installTarget) string {
	if home := getenv(req.Env, "HOME"); p.userPath != nil && !req.Staged && isInside(req.Prefix, home) {
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
	path, err := resolve(path)
	if err != nil {
		return false
	}
	dir, err = resolve(dir)
	return err == nil && (path == dir || strings.HasPrefix(path, dir+string(filepath.Separator)))
}

// resolve returns the path without symlinks; the last components need not exist.
func resolve(path string) (string, error) {
	found, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
		return found, err
	}
	above, err := resolve(filepath.Dir(path))
	return filepath.Join(above, filepath.Base(path)), err
}

// getenv returns the value of a variable in an environment; the last setting counts.
func getenv(env []string, name string) string {
	value := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	return value
}

// ForeignFileError reports a file, directory or link at a path to install at that is not ours to overwrite.
type ForeignFileError struct {
	Path string
	Why  string
}

func (e *ForeignFileError) Error() string { return fmt.Sprintf("%s is in the way: %s", e.Path, e.Why) }
