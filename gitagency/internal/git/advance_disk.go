package git

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// checkFiles compares the worktree with the index at every path that changes: a file that is replaced or removed has to be
// as staged, and no file may be where a new one comes. Mismatches become overlaps; files that stat data cannot decide go
// to contentUnknown.
func (co *seat) onDisk() error {
	w, err := openWalker(co.a.Tree)
	if err != nil {
		return err
	}
	defer w.close()
	co.dev = w.dev
	scan := &scanner{
		modes: co.repo.boolean("core.filemode", true), symlinks: co.repo.boolean("core.symlinks", true),
		empty: nameObject(co.format, "blob", nil), young: co.index.at,
	}
	looked := map[string]bool{}
	for _, t := range co.touched {
		if co.overlaps[t.path] != "" {
			continue
		}
		fd, err := w.open(path.Dir(t.path))
		var blocked *blockedError
		var st unix.Stat_t
		switch {
		case errors.As(err, &blocked):
			co.blocked(t, blocked.at)
			continue
		case err != nil && !nothingThere(err):
			return err
		case err == nil && w.dev != co.dev:
			return &fs.PathError{Op: "replace", Path: filepath.Join(co.a.Tree, t.path), Err: errors.New("it is on another file system")}
		case err == nil:
			err = unix.Fstatat(fd, path.Base(t.path), &st, unix.AT_SYMLINK_NOFOLLOW)
		}
		if err != nil && !nothingThere(err) {
			return &fs.PathError{Op: "stat", Path: filepath.Join(co.a.Tree, t.path), Err: err}
		}
		there := err == nil
		if t.was != aFile {
			co.repositoryAround(t.path, looked)
		}
		if there {
			t.seen = stampOf(&st)
		}
		if err := co.compare(t, there, &st, scan); err != nil {
			return err
		}
		if there && t.was == aFile && t.is != aFile {
			co.mayGo(t.path)
		}
	}
	return nil
}

// checkFile decides about one path, given its lstat result.
func (co *seat) compare(t *touch, there bool, st *unix.Stat_t, scan *scanner) error {
	isDir := there && st.Mode&unix.S_IFMT == unix.S_IFDIR
	switch t.was {
	case noFile:
		switch {
		case !there:
			return nil
		case isDir && t.is == aModule:
			return co.moduleOver(t)
		case isDir:
			return co.empty(t.path, OverlapUntracked)
		}
		co.overlap(t.path, OverlapUntracked)
	case aModule:
		switch {
		case !there || t.is == aModule:
			return nil
		case !isDir:
			co.overlap(t.path, OverlapDirty)
		case t.is == aFile:
			return co.empty(t.path, OverlapSubmodule)
		default: // a populated submodule stays, as git leaves it
			co.gone[t.path] = dir{Path: []byte(t.path), Perm: uint32(st.Mode) & 0o7777}
		}
	case aFile:
		switch {
		case !there && (t.entry.skipped || t.is == noFile):
			return nil // skip-worktree is set, or the file is already deleted
		case !there || isDir:
			co.overlap(t.path, OverlapDirty)
		case !scan.asStaged(&t.entry, st):
			co.unsure = append(co.unsure, t)
		}
	}
	return nil
}

// checkSubmoduleDir accepts a directory for a new submodule if it is empty or already a repository.
func (co *seat) moduleOver(t *touch) error {
	if _, err := os.Lstat(filepath.Join(co.a.Tree, t.path, ".git")); err == nil {
		return nil
	}
	before := maps.Clone(co.gone)
	err := co.empty(t.path, OverlapUntracked)
	co.gone = before // the directory stays
	return err
}

// addBlockedPath decides about a path that has a non-directory (at) among its parents.
func (co *seat) blocked(t *touch, at string) {
	around := co.by[at]
	switch {
	case t.was == noFile && around != nil && around.was == aFile:
		return // a tracked file, which is removed if it is unchanged
	case t.was == aFile && (t.entry.skipped || t.is == noFile), t.was == aModule && t.is != aFile:
		return // the old entry is not on disk and no new one comes: the blocking file stays
	case t.was == aFile:
		co.overlap(t.path, OverlapDirty)
	}
	co.overlap(at, OverlapUntracked)
}

// requireEmptyDir checks that a directory which a file replaces holds nothing but files that this update removes. It adds
// the directory and those below to removableDirs, and everything else in them as an overlap.
func (co *seat) empty(at, why string) error {
	full := filepath.Join(co.a.Tree, at)
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
		switch known := co.by[name]; {
		case e.Name() == ".git":
			if why == OverlapUntracked {
				why = OverlapRepository
			}
			co.overlap(at, why)
			return nil
		case known != nil && known.was == aFile && !e.IsDir():
		case known != nil && known.was == aModule && e.IsDir():
			if err := co.empty(name, OverlapSubmodule); err != nil {
				return err
			}
		case e.IsDir():
			if err := co.empty(name, why); err != nil {
				return err
			}
		default:
			co.overlap(name, why)
		}
	}
	co.gone[at] = dir{Path: []byte(at), Perm: permOf(fi), must: true}
	return nil
}

func permOf(fi fs.FileInfo) uint32 {
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
func (co *seat) repositoryAround(name string, looked map[string]bool) {
	for at := path.Dir(name); at != "." && !looked[at]; at = path.Dir(at) {
		looked[at] = true
		if _, err := os.Lstat(filepath.Join(co.a.Tree, at, ".git")); err != nil {
			continue
		}
		why := OverlapRepository
		if known := co.by[at]; known != nil && known.was == aModule {
			why = OverlapSubmodule
		}
		co.overlap(at, why)
	}
}

// addEmptiedDirs adds the parent directories of a removed file to removableDirs: they may become empty.
func (co *seat) mayGo(name string) {
	for at := path.Dir(name); at != "."; at = path.Dir(at) {
		if _, known := co.gone[at]; known {
			continue
		}
		if fi, err := os.Lstat(filepath.Join(co.a.Tree, at)); err == nil && fi.IsDir() {
			co.gone[at] = dir{Path: []byte(at), Perm: permOf(fi)}
		}
	}
}

// compareContents lets git read the files whose stat data does not tell whether they are as staged.
func (co *seat) read(ctx context.Context) (err error) {
	if len(co.unsure) == 0 {
		return nil
	}
	same, err := co.repo.unchanged(ctx, co.a, co.unsure, co.attributes(nil))
	if err != nil {
		return err
	}
	for _, t := range co.unsure {
		if !same[t.path] {
			co.overlap(t.path, OverlapDirty)
		}
	}
	return nil
}

// unchangedFiles lets git read files through their clean filters and returns those whose content is as staged.
func (r *Repo) unchanged(ctx context.Context, u Advance, files []*touch, attributes []stagedEntry) (_ map[string]bool, err error) {
	scratch, err := tempDirectory()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, scratch.remove()) }()
	p, err := r.workshop(u, scratch.path, u.Tree)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	entries := slices.Clone(attributes)
	var names []string
	for _, t := range files {
		known[t.path] = true
		names = append(names, t.path)
	}
	entries = slices.DeleteFunc(entries, func(e stagedEntry) bool { return known[string(e.name)] })
	for _, t := range files {
		e := t.entry
		e.stat = unread(e.mode)
		entries = append(entries, e)
	}
	index := filepath.Join(scratch.path, "index")
	p.env = append(p.env, "GIT_INDEX_FILE="+index)
	p.lightly = true
	if err := os.WriteFile(index, smallIndex(FormatOf(u.New), entries), 0o600); err != nil {
		return nil, err
	}
	if err := r.mayRead(ctx, Subject{Trusted: u.Trusted}, p, names); err != nil {
		return nil, err
	}
	if _, err := r.change(ctx, p, "update-index", "-q", "--ignore-submodules", "--really-refresh"); err != nil && !exitedWith(err, 1) {
		return nil, err
	}
	data, err := os.ReadFile(index)
	if err != nil {
		return nil, err
	}
	x, err := parseHeld(data, FormatOf(u.New))
	if err != nil {
		return nil, err
	}
	same := map[string]bool{}
	for e := range x.all() {
		if known[string(e.name)] && !zero(e.stat[:indexMode]) {
			same[string(e.name)] = true
		}
	}
	return same, nil
}

// checkWritable refuses directories that have to change and are not writable: the parents of changed files and the git
// directory.
func (co *seat) writable() error {
	seen := map[string]bool{}
	for _, t := range co.touched {
		if t.was == aModule && t.is == aModule {
			continue
		}
		at := path.Dir(t.path)
		for !seen[at] {
			fi, err := os.Lstat(filepath.Join(co.a.Tree, at))
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
		full := filepath.Join(co.a.Tree, at)
		if unix.Faccessat(unix.AT_FDCWD, full, unix.W_OK|unix.X_OK, unix.AT_EACCESS) != nil {
			return &fs.PathError{Op: "write to", Path: full, Err: fs.ErrPermission}
		}
	}
	if unix.Faccessat(unix.AT_FDCWD, co.a.GitDir, unix.W_OK|unix.X_OK, unix.AT_EACCESS) != nil {
		return &fs.PathError{Op: "write to", Path: co.a.GitDir, Err: fs.ErrPermission}
	}
	return nil
}
