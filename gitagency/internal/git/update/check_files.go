package update

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
	"golang.org/x/sys/unix"
)

// checkFiles compares the worktree with the index at every path that changes: a file that is replaced or removed has to be
// as staged, and no file may be where a new one comes. Mismatches become overlaps; files that stat data cannot decide go
// to contentUnknown.
func (co *checkout) checkFiles() error {
	w, err := openDirWalker(co.spec.Worktree)
	if err != nil {
		return err
	}
	defer w.close()
	co.dev = w.dev
	scan := &status.Scanner{
		TrustFileMode: co.repo.ConfigBool("core.filemode", true), HasSymlinks: co.repo.ConfigBool("core.symlinks", true),
		EmptyBlob: object.HashObject(co.format, "blob", nil), IndexMtime: co.index.ModTime,
	}
	looked := map[string]bool{}
	for _, t := range co.changes {
		if co.overlaps[t.Path] != "" {
			continue
		}
		fd, err := w.open(path.Dir(t.Path))
		var blocked *notDirError
		var st unix.Stat_t
		switch {
		case errors.As(err, &blocked):
			co.addBlockedPath(t, blocked.name)
			continue
		case err != nil && !git.IsNotExist(err):
			return err
		case err == nil && w.dev != co.dev:
			return &fs.PathError{Op: "replace", Path: filepath.Join(co.spec.Worktree, t.Path), Err: errors.New("it is on another file system")}
		case err == nil:
			err = unix.Fstatat(fd, path.Base(t.Path), &st, unix.AT_SYMLINK_NOFOLLOW)
		}
		if err != nil && !git.IsNotExist(err) {
			return &fs.PathError{Op: "stat", Path: filepath.Join(co.spec.Worktree, t.Path), Err: err}
		}
		there := err == nil
		if t.oldKind != kindFile {
			co.checkNestedRepositories(t.Path, looked)
		}
		if there {
			t.diskStat = git.FileStatOf(&st)
		}
		if err := co.checkFile(t, there, &st, scan); err != nil {
			return err
		}
		if there && t.oldKind == kindFile && t.newKind != kindFile {
			co.addEmptiedDirs(t.Path)
		}
	}
	return nil
}

// checkFile decides about one path, given its lstat result.
func (co *checkout) checkFile(t *pathChange, there bool, st *unix.Stat_t, scan *status.Scanner) error {
	isDir := there && st.Mode&unix.S_IFMT == unix.S_IFDIR
	switch t.oldKind {
	case kindAbsent:
		switch {
		case !there:
			return nil
		case isDir && t.newKind == kindSubmodule:
			return co.checkSubmoduleDir(t)
		case isDir:
			return co.requireEmptyDir(t.Path, OverlapUntracked)
		}
		co.addOverlap(t.Path, OverlapUntracked)
	case kindSubmodule:
		switch {
		case !there || t.newKind == kindSubmodule:
			return nil
		case !isDir:
			co.addOverlap(t.Path, OverlapDirty)
		case t.newKind == kindFile:
			return co.requireEmptyDir(t.Path, OverlapSubmodule)
		default: // a populated submodule stays, as git leaves it
			co.removableDirs[t.Path] = dirRecord{Path: []byte(t.Path), Perm: uint32(st.Mode) & 0o7777}
		}
	case kindFile:
		switch {
		case !there && (t.indexEntry.SkipWorktree || t.newKind == kindAbsent):
			return nil // skip-worktree is set, or the file is already deleted
		case !there || isDir:
			co.addOverlap(t.Path, OverlapDirty)
		case !scan.MatchesIndex(&t.indexEntry, st):
			co.contentUnknown = append(co.contentUnknown, t)
		}
	}
	return nil
}

// checkSubmoduleDir accepts a directory for a new submodule if it is empty or already a repository.
func (co *checkout) checkSubmoduleDir(t *pathChange) error {
	if _, err := os.Lstat(filepath.Join(co.spec.Worktree, t.Path, ".git")); err == nil {
		return nil
	}
	before := maps.Clone(co.removableDirs)
	err := co.requireEmptyDir(t.Path, OverlapUntracked)
	co.removableDirs = before // the directory stays
	return err
}

// addBlockedPath decides about a path that has a non-directory (at) among its parents.
func (co *checkout) addBlockedPath(t *pathChange, at string) {
	around := co.changeByPath[at]
	switch {
	case t.oldKind == kindAbsent && around != nil && around.oldKind == kindFile:
		return // a tracked file, which is removed if it is unchanged
	case t.oldKind == kindFile && (t.indexEntry.SkipWorktree || t.newKind == kindAbsent), t.oldKind == kindSubmodule && t.newKind != kindFile:
		return // the old entry is not on disk and no new one comes: the blocking file stays
	case t.oldKind == kindFile:
		co.addOverlap(t.Path, OverlapDirty)
	}
	co.addOverlap(at, OverlapUntracked)
}

// requireEmptyDir checks that a directory which a file replaces holds nothing but files that this update removes. It adds
// the directory and those below to removableDirs, and everything else in them as an overlap.
func (co *checkout) requireEmptyDir(at, why string) error {
	full := filepath.Join(co.spec.Worktree, at)
	fi, err := os.Lstat(full)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(full)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := at + "/" + e.Name()
		switch known := co.changeByPath[name]; {
		case e.Name() == ".git":
			if why == OverlapUntracked {
				why = OverlapRepository
			}
			co.addOverlap(at, why)
			return nil
		case known != nil && known.oldKind == kindFile && !e.IsDir():
		case known != nil && known.oldKind == kindSubmodule && e.IsDir():
			if err := co.requireEmptyDir(name, OverlapSubmodule); err != nil {
				return err
			}
		case e.IsDir():
			if err := co.requireEmptyDir(name, why); err != nil {
				return err
			}
		default:
			co.addOverlap(name, why)
		}
	}
	co.removableDirs[at] = dirRecord{Path: []byte(at), Perm: permBits(fi), replaced: true}
	return nil
}

func permBits(fi fs.FileInfo) uint32 {
	perm := uint32(fi.Mode().Perm())
	for bit, is := range map[uint32]fs.FileMode{unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid, unix.S_ISVTX: fs.ModeSticky} {
		if fi.Mode()&is != 0 {
			perm |= bit
		}
	}
	return perm
}

// checkNestedRepositories adds an overlap for every parent directory of a new file that is a nested repository: nothing is
// written into those. looked holds the directories that were checked before.
func (co *checkout) checkNestedRepositories(name string, looked map[string]bool) {
	for at := path.Dir(name); at != "." && !looked[at]; at = path.Dir(at) {
		looked[at] = true
		if _, err := os.Lstat(filepath.Join(co.spec.Worktree, at, ".git")); err != nil {
			continue
		}
		why := OverlapRepository
		if known := co.changeByPath[at]; known != nil && known.oldKind == kindSubmodule {
			why = OverlapSubmodule
		}
		co.addOverlap(at, why)
	}
}

// addEmptiedDirs adds the parent directories of a removed file to removableDirs: they may become empty.
func (co *checkout) addEmptiedDirs(name string) {
	for at := path.Dir(name); at != "."; at = path.Dir(at) {
		if _, known := co.removableDirs[at]; known {
			continue
		}
		if fi, err := os.Lstat(filepath.Join(co.spec.Worktree, at)); err == nil && fi.IsDir() {
			co.removableDirs[at] = dirRecord{Path: []byte(at), Perm: permBits(fi)}
		}
	}
}

// compareContents lets git read the files whose stat data does not tell whether they are as staged.
func (co *checkout) compareContents(ctx context.Context) (err error) {
	if len(co.contentUnknown) == 0 {
		return nil
	}
	same, err := unchangedFiles(ctx, co.repo, co.spec, co.contentUnknown, co.attributeEntries(nil))
	if err != nil {
		return err
	}
	for _, t := range co.contentUnknown {
		if !same[t.Path] {
			co.addOverlap(t.Path, OverlapDirty)
		}
	}
	return nil
}

// unchangedFiles lets git read files through their clean filters and returns those whose content is as staged.
func unchangedFiles(ctx context.Context, r *git.Repo, u Update, files []*pathChange, attributes []index.Entry) (_ map[string]bool, err error) {
	scratch, err := git.MakeTempDir()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, scratch.Remove()) }()
	p, err := checkoutRunOptions(r, u, scratch.Path, u.Worktree)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	entries := slices.Clone(attributes)
	var names []string
	for _, t := range files {
		known[t.Path] = true
		names = append(names, t.Path)
	}
	entries = slices.DeleteFunc(entries, func(e index.Entry) bool { return known[string(e.Name)] })
	for _, t := range files {
		e := t.indexEntry
		e.Stat = index.StatWithMode(e.Mode)
		entries = append(entries, e)
	}
	idx := filepath.Join(scratch.Path, "index")
	p.Env = append(p.Env, "GIT_INDEX_FILE="+idx)
	p.NoFsync = true
	if err := os.WriteFile(idx, index.EncodeEntries(object.FormatOf(u.New), entries), 0o600); err != nil {
		return nil, err
	}
	if err := r.CheckCleanFilters(ctx, git.WorktreeSpec{TrustConfig: u.Trusted}, p, names); err != nil {
		return nil, err
	}
	if _, err := r.RunWrite(ctx, p, "update-index", "-q", "--ignore-submodules", "--really-refresh"); err != nil && !git.ExitedWith(err, 1) {
		return nil, err
	}
	data, err := os.ReadFile(idx)
	if err != nil {
		return nil, err
	}
	x, err := index.ParseEditable(data, object.FormatOf(u.New))
	if err != nil {
		return nil, err
	}
	same := map[string]bool{}
	for e := range x.AllEntries() {
		if known[string(e.Name)] && !object.IsZero(e.Stat[:index.ModeOffset]) {
			same[string(e.Name)] = true
		}
	}
	return same, nil
}

// checkWritable refuses directories that have to change and are not writable: the parents of changed files and the git
// directory.
func (co *checkout) checkWritable() error {
	seen := map[string]bool{}
	for _, t := range co.changes {
		if t.oldKind == kindSubmodule && t.newKind == kindSubmodule {
			continue
		}
		at := path.Dir(t.Path)
		for !seen[at] {
			fi, err := os.Lstat(filepath.Join(co.spec.Worktree, at))
			if err == nil && fi.IsDir() {
				break
			}
			seen[at] = true
			at = path.Dir(at)
		}
		if seen[at] {
			continue
		}
		seen[at] = true
		full := filepath.Join(co.spec.Worktree, at)
		if unix.Faccessat(unix.AT_FDCWD, full, unix.W_OK|unix.X_OK, unix.AT_EACCESS) != nil {
			return &fs.PathError{Op: "write to", Path: full, Err: fs.ErrPermission}
		}
	}
	if unix.Faccessat(unix.AT_FDCWD, co.spec.GitDir, unix.W_OK|unix.X_OK, unix.AT_EACCESS) != nil {
		return &fs.PathError{Op: "write to", Path: co.spec.GitDir, Err: fs.ErrPermission}
	}
	return nil
}
