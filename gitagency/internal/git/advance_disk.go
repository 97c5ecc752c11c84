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

// onDisk makes sure that what is on disk is what the index has, where that goes, and nothing where something comes.
func (s *seat) onDisk() error {
	w, err := openWalker(s.a.Tree)
	if err != nil {
		return err
	}
	defer w.close()
	s.dev = w.dev
	scan := &scanner{
		modes: s.repo.boolean("core.filemode", true), symlinks: s.repo.boolean("core.symlinks", true),
		empty: nameObject(s.format, "blob", nil), young: s.index.at,
	}
	looked := map[string]bool{}
	for _, t := range s.touched {
		if s.overlaps[t.path] != "" {
			continue
		}
		fd, err := w.open(path.Dir(t.path))
		var blocked *blockedError
		var st unix.Stat_t
		switch {
		case errors.As(err, &blocked):
			s.blocked(t, blocked.at)
			continue
		case err != nil && !nothingThere(err):
			return err
		case err == nil && w.dev != s.dev:
			return &fs.PathError{Op: "replace", Path: filepath.Join(s.a.Tree, t.path), Err: errors.New("it is on another file system")}
		case err == nil:
			err = unix.Fstatat(fd, path.Base(t.path), &st, unix.AT_SYMLINK_NOFOLLOW)
		}
		if err != nil && !nothingThere(err) {
			return &fs.PathError{Op: "stat", Path: filepath.Join(s.a.Tree, t.path), Err: err}
		}
		there := err == nil
		if t.was != aFile {
			s.repositoryAround(t.path, looked)
		}
		if there {
			t.seen = stampOf(&st)
		}
		if err := s.compare(t, there, &st, scan); err != nil {
			return err
		}
		if there && t.was == aFile && t.is != aFile {
			s.mayGo(t.path)
		}
	}
	return nil
}

// compare decides about one path.
func (s *seat) compare(t *touch, there bool, st *unix.Stat_t, scan *scanner) error {
	isDir := there && st.Mode&unix.S_IFMT == unix.S_IFDIR
	switch t.was {
	case noFile:
		switch {
		case !there:
			return nil
		case isDir && t.is == aModule:
			return s.moduleOver(t)
		case isDir:
			return s.empty(t.path, OverlapUntracked)
		}
		s.overlap(t.path, OverlapUntracked)
	case aModule:
		switch {
		case !there || t.is == aModule:
			return nil
		case !isDir:
			s.overlap(t.path, OverlapDirty)
		case t.is == aFile:
			return s.empty(t.path, OverlapSubmodule)
		default: // one that is populated stays, as git leaves it
			s.gone[t.path] = dir{Path: []byte(t.path), Perm: uint32(st.Mode) & 0o7777}
		}
	case aFile:
		switch {
		case !there && (t.entry.skipped || t.is == noFile):
			return nil // it is not checked out, or went already
		case !there || isDir:
			s.overlap(t.path, OverlapDirty)
		case !scan.asStaged(&t.entry, st):
			s.unsure = append(s.unsure, t)
		}
	}
	return nil
}

// moduleOver: a submodule takes a directory that is empty, or a repository already.
func (s *seat) moduleOver(t *touch) error {
	if _, err := os.Lstat(filepath.Join(s.a.Tree, t.path, ".git")); err == nil {
		return nil
	}
	before := maps.Clone(s.gone)
	err := s.empty(t.path, OverlapUntracked)
	s.gone = before // it stays
	return err
}

// blocked: on the way to a path there is something that is no directory.
func (s *seat) blocked(t *touch, at string) {
	around := s.by[at]
	switch {
	case t.was == noFile && around != nil && around.was == aFile:
		return // it goes, if it is what it should be
	case t.was == aFile && (t.entry.skipped || t.is == noFile), t.was == aModule && t.is != aFile:
		return // nothing of ours is there; what is stays
	case t.was == aFile:
		s.overlap(t.path, OverlapDirty)
	}
	s.overlap(at, OverlapUntracked)
}

// empty makes sure that nothing is in a directory where a file has to be, but for what goes.
func (s *seat) empty(at, why string) error {
	full := filepath.Join(s.a.Tree, at)
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
		switch known := s.by[name]; {
		case e.Name() == ".git":
			if why == OverlapUntracked {
				why = OverlapRepository
			}
			s.overlap(at, why)
			return nil
		case known != nil && known.was == aFile && !e.IsDir():
		case known != nil && known.was == aModule && e.IsDir():
			if err := s.empty(name, OverlapSubmodule); err != nil {
				return err
			}
		case e.IsDir():
			if err := s.empty(name, why); err != nil {
				return err
			}
		default:
			s.overlap(name, why)
		}
	}
	s.gone[at] = dir{Path: []byte(at), Perm: permOf(fi), must: true}
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

// repositoryAround: into a repository of its own nothing is written.
func (s *seat) repositoryAround(name string, looked map[string]bool) {
	for at := path.Dir(name); at != "." && !looked[at]; at = path.Dir(at) {
		looked[at] = true
		if _, err := os.Lstat(filepath.Join(s.a.Tree, at, ".git")); err != nil {
			continue
		}
		why := OverlapRepository
		if known := s.by[at]; known != nil && known.was == aModule {
			why = OverlapSubmodule
		}
		s.overlap(at, why)
	}
}

// mayGo notes the directories that a file which goes may leave empty.
func (s *seat) mayGo(name string) {
	for at := path.Dir(name); at != "."; at = path.Dir(at) {
		if _, known := s.gone[at]; known {
			continue
		}
		if fi, err := os.Lstat(filepath.Join(s.a.Tree, at)); err == nil && fi.IsDir() {
			s.gone[at] = dir{Path: []byte(at), Perm: permOf(fi)}
		}
	}
}

// read has git read the files of which times and sizes do not tell whether they are what the index has.
func (s *seat) read(ctx context.Context) (err error) {
	if len(s.unsure) == 0 {
		return nil
	}
	same, err := s.repo.unchanged(ctx, s.a, s.unsure, s.attributes(nil))
	if err != nil {
		return err
	}
	for _, t := range s.unsure {
		if !same[t.path] {
			s.overlap(t.path, OverlapDirty)
		}
	}
	return nil
}

// unchanged has git read files, with the filters that there are, and says which of them are what the index has.
func (r *Repo) unchanged(ctx context.Context, a Advance, files []*touch, attributes []stagedEntry) (_ map[string]bool, err error) {
	scratch, err := tempDirectory()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, scratch.remove()) }()
	p, err := r.workshop(a, scratch.path, a.Tree)
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
	if err := os.WriteFile(index, smallIndex(FormatOf(a.New), entries), 0o600); err != nil {
		return nil, err
	}
	if err := r.mayRead(ctx, Subject{Trusted: a.Trusted}, p, names); err != nil {
		return nil, err
	}
	if _, err := r.change(ctx, p, "update-index", "-q", "--ignore-submodules", "--really-refresh"); err != nil && !exitedWith(err, 1) {
		return nil, err
	}
	data, err := os.ReadFile(index)
	if err != nil {
		return nil, err
	}
	x, err := parseHeld(data, FormatOf(a.New))
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

// writable looks for directories in which something has to change and cannot.
func (s *seat) writable() error {
	seen := map[string]bool{}
	for _, t := range s.touched {
		if t.was == aModule && t.is == aModule {
			continue
		}
		at := path.Dir(t.path)
		for !seen[at] {
			fi, err := os.Lstat(filepath.Join(s.a.Tree, at))
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
		full := filepath.Join(s.a.Tree, at)
		if unix.Faccessat(unix.AT_FDCWD, full, unix.W_OK|unix.X_OK, unix.AT_EACCESS) != nil {
			return &fs.PathError{Op: "write to", Path: full, Err: fs.ErrPermission}
		}
	}
	if unix.Faccessat(unix.AT_FDCWD, s.a.GitDir, unix.W_OK|unix.X_OK, unix.AT_EACCESS) != nil {
		return &fs.PathError{Op: "write to", Path: s.a.GitDir, Err: fs.ErrPermission}
	}
	return nil
}
