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

// InstallRequest asks to put the files that belong to a program beside its binary where other programs
// look for them: its manual, and its completions for shells.
type InstallRequest struct {
	Prefix string            // required: the directory above bin, absolute
	Files  map[string][]byte // required, except to undo: what to install, by kind; see installPlaces

	// Staged keeps everything below Prefix. Otherwise, when Prefix lies in the home directory, what a
	// shell looks for in directories of the user's goes there.
	Staged bool

	Undo   bool // take away what was installed
	DryRun bool // change nothing, and say what would happen

	Env []string // default: the environment of this process

	// For tests, which need a failure at every step.
	Fault func(ctx context.Context, point string) error // asked at "setup/<kind>:before" and ":after"
}

// Installed is what an installation, or undoing one, did.
type Installed struct {
	Prefix      string          `json:"prefix"`
	Undo        bool            `json:"undo"`
	DryRun      bool            `json:"dry_run"` // nothing was done; this is what would be
	Files       []InstalledFile `json:"files"`
	Directories []string        `json:"directories"` // those that were made, or taken away
}

// InstalledFile is one file and what became of it.
type InstalledFile struct {
	Kind   string        `json:"kind"` // manual, bash, zsh or fish
	Path   string        `json:"path"`
	Action InstallAction `json:"action"`
	Why    string        `json:"why"` // it was left alone
}

// InstallAction is what became of a file.
type InstallAction string

// The actions.
const (
	FileWritten   InstallAction = "written"
	FileReplaced  InstallAction = "replaced"  // an older one of ours was there
	FileUnchanged InstallAction = "unchanged" // it is there already
	FileRemoved   InstallAction = "removed"
	FileAbsent    InstallAction = "absent" // there was nothing to remove
	FileLeft      InstallAction = "left"   // it is not ours to remove
)

// installPlaces says where each kind of file is looked for, and how it holds a remark.
var installPlaces = []installPlace{
	// man looks beside every bin of PATH, also in a home directory.
	{kind: "manual", below: "share/man/man1/git-agency.1", comment: `.\"`},
	// Loaded by name, when git's own completion meets "git agency" for the first time.
	{kind: "bash", below: "share/bash-completion/completions/git-agency", comment: "#", user: installPlace.dataHome},
	// No directory of the user's is searched by zsh unless the user says so.
	{kind: "zsh", below: "share/zsh/site-functions/_git-agency", comment: "#"},
	// Must be read at the start: fish looks up completions for git, not for git-agency.
	{kind: "fish", below: "share/fish/vendor_conf.d/git-agency.fish", comment: "#", user: installPlace.fishHome},
}

type installPlace struct {
	kind    string
	below   string // below the prefix
	comment string // begins a line that its reader skips
	user    func(p installPlace, env []string, home string) string
}

func (p installPlace) dataHome(env []string, home string) string {
	data := proc.Variable(env, "XDG_DATA_HOME")
	if !filepath.IsAbs(data) {
		data = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(data, strings.TrimPrefix(p.below, "share/"))
}

func (p installPlace) fishHome(env []string, home string) string {
	config := proc.Variable(env, "XDG_CONFIG_HOME")
	if !filepath.IsAbs(config) {
		config = filepath.Join(home, ".config")
	}
	return filepath.Join(config, "fish", "conf.d", filepath.Base(p.below))
}

// Install puts files in place, all of them or none, or takes away those that it put there. Doing it
// twice is fine. A file that is not ours, or that somebody changed since, is neither overwritten nor
// removed: every file ends in a line that says whose it is and what it was.
func Install(ctx context.Context, req InstallRequest) (Installed, error) {
	if !filepath.IsAbs(req.Prefix) {
		return Installed{}, &InvalidError{What: "prefix", Value: req.Prefix, Want: "an absolute path"}
	}
	for kind := range req.Files {
		if !slices.ContainsFunc(installPlaces, func(p installPlace) bool { return p.kind == kind }) {
			return Installed{}, &InvalidError{What: "kind of file", Value: kind, Want: "manual, bash, zsh or fish"}
		}
	}
	req.Prefix = filepath.Clean(req.Prefix)
	if req.Env == nil {
		req.Env = os.Environ()
	}
	if req.Undo {
		return req.uninstall(ctx)
	}
	return req.install(ctx)
}

// installation is one file on its way to its place.
type installation struct {
	place installPlace
	path  string
	found installedState
	data  []byte   // what it will hold, without the mark
	owner string   // the installation it belongs to
	dirs  []string // to be made first, the outermost first
}

func (req InstallRequest) install(ctx context.Context) (Installed, error) {
	result := Installed{Prefix: req.Prefix, DryRun: req.DryRun, Files: []InstalledFile{}, Directories: []string{}}
	var todo []installation
	var foreign []error
	for _, p := range installPlaces {
		data, wanted := req.Files[p.kind]
		if !wanted {
			continue
		}
		if !bytes.HasSuffix(data, []byte("\n")) {
			data = append(bytes.Clone(data), '\n')
		}
		i := installation{place: p, path: req.path(p), data: data, owner: ownerOf(req.Prefix)}
		var err error
		if i.found, err = stateOf(i.path, p.comment); err != nil {
			return Installed{}, err
		}
		action := FileWritten
		switch {
		case i.found.there && bytes.Equal(i.found.data, data): // also one that was put there by hand
			action = FileUnchanged
		case i.found.there && i.found.foreign != "":
			foreign = append(foreign, &ForeignFileError{Path: i.path, Why: i.found.foreign})
			result.Files = append(result.Files, InstalledFile{Kind: p.kind, Path: i.path, Action: FileLeft, Why: i.found.foreign})
			continue
		case i.found.there:
			action = FileReplaced
		default:
			if i.dirs, err = missingDirs(filepath.Dir(i.path), result.Directories); err != nil {
				return Installed{}, err
			}
			result.Directories = append(result.Directories, i.dirs...)
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
		return Installed{}, errors.Join(foreign...)
	}
	if req.DryRun {
		return result, nil
	}

	tx := req.begin()
	for _, i := range todo {
		if err := tx.Step(ctx, i.place.kind, func() error { return i.put(tx) }); err != nil {
			err = fmt.Errorf("install %s: %w", i.path, err)
			return Installed{}, errors.Join(append([]error{err}, tx.Rollback(context.WithoutCancel(ctx))...)...)
		}
	}
	tx.Commit()
	return result, nil
}

// put makes the directories of a file, and the file.
func (i installation) put(tx *undo.Tx) error {
	made := i.found.made
	for _, dir := range i.dirs {
		err := durable.Mkdir(dir, 0o755)
		switch {
		case errors.Is(err, fs.ErrExist): // somebody was faster; it is theirs, and so is what is above
			made = 0
			continue
		case err != nil:
			return err
		}
		made++
		tx.Undo("make "+dir, func(context.Context) error { _, err := removeIfEmpty(dir); return err })
	}
	// What is there may have changed since it was looked at.
	switch now, err := stateOf(i.path, i.place.comment); {
	case err != nil:
		return err
	case now.there && now.foreign == "" && bytes.Equal(now.data, i.data): // by another of us, who counts on the rest too
		return nil
	case now.there != i.found.there || !bytes.Equal(now.raw, i.found.raw):
		return &ForeignFileError{Path: i.path, Why: "somebody else has just written it"}
	}
	owner := i.owner
	if i.found.there && i.found.owner != "" {
		owner = i.found.owner // who brought it first
	}
	content := marked(i.data, i.place.comment, made, owner)
	tx.Undo("write "+i.path, func(context.Context) error {
		now, err := stateOf(i.path, i.place.comment)
		switch {
		case err != nil || !bytes.Equal(now.raw, content): // not written, or somebody else's by now
			return err
		case i.found.there:
			return durable.WriteFile(i.path, i.found.raw, i.found.mode)
		}
		return durable.Remove(i.path)
	})
	return durable.WriteFile(i.path, content, 0o644)
}

// uninstall goes on where something cannot be removed: every file less is one less to remove by hand.
func (req InstallRequest) uninstall(ctx context.Context) (Installed, error) {
	result := Installed{Prefix: req.Prefix, Undo: true, DryRun: req.DryRun, Files: []InstalledFile{}, Directories: []string{}}
	gone := map[string]bool{} // what is removed, or in a dry run would be
	made := map[string]bool{} // the directories that were made for these files
	var failed []error
	tx := req.begin()
	for _, p := range installPlaces {
		file := InstalledFile{Kind: p.kind, Path: req.path(p), Action: FileAbsent}
		err := tx.Step(ctx, p.kind, func() error {
			for _, temp := range leftovers(file.Path) {
				gone[temp] = true
				if !req.DryRun {
					if err := durable.Remove(temp); err != nil {
						return err
					}
				}
			}
			found, err := stateOf(file.Path, p.comment)
			switch {
			case err != nil || !found.there:
				return err
			case found.foreign != "":
				file.Action, file.Why = FileLeft, found.foreign
				return nil
			case found.owner != ownerOf(req.Prefix) && !isInside(file.Path, req.Prefix):
				file.Action, file.Why = FileLeft, others
				return nil
			case !req.DryRun:
				if err := durable.Remove(file.Path); err != nil {
					return err
				}
			}
			file.Action, gone[file.Path] = FileRemoved, true
			for dir := filepath.Dir(file.Path); found.made > 0 && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
				made[dir] = true
				found.made--
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
	for _, dir := range innermostFirst(made) {
		var empty bool
		var err error
		if req.DryRun {
			empty, err = wouldBeEmpty(dir, gone)
		} else {
			empty, err = removeIfEmpty(dir)
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

func (req InstallRequest) begin() *undo.Tx {
	tx := &undo.Tx{}
	if req.Fault != nil {
		tx.Fault = func(ctx context.Context, point string) error { return req.Fault(ctx, "setup/"+point) }
	}
	return tx
}

// path is where a file goes.
func (req InstallRequest) path(p installPlace) string {
	if home := proc.Variable(req.Env, "HOME"); p.user != nil && !req.Staged && isInside(req.Prefix, home) {
		return p.user(p, req.Env, filepath.Clean(home))
	}
	return filepath.Join(req.Prefix, filepath.FromSlash(p.below))
}

// isInside reports whether a directory lies in the home directory, by whatever spelling. A home that is
// the root, as some services have, is nobody's.
func isInside(dir, home string) bool {
	if !filepath.IsAbs(home) || filepath.Clean(home) == "/" {
		return false
	}
	dir, err := guard.Resolve(dir)
	if err != nil {
		return false
	}
	home, err = guard.Resolve(home)
	return err == nil && (dir == home || strings.HasPrefix(dir, home+string(filepath.Separator)))
}
