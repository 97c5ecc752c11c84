package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// AtWork says which git of somebody else's works in this repository now; empty when none does. While one
// does, lock files are in use, and an entry that looks half made is being made. It must be asked after
// what it is to excuse, the evidence, was seen: what began later cannot have made that. trees are the
// worktrees of the repository. Where it cannot be told, there is one.
func (r *Repo) AtWork(trees, evidence []string) (who string) {
	gits, ok := proc.Running(func(name string) bool {
		return name == "git" || strings.HasPrefix(name, "git-") && !strings.HasPrefix(name, "git-agency") // ours are seen by their lock
	})
	if !ok {
		return "for all that can be told, a git"
	}
	var dirs []fs.FileInfo
	for _, dir := range append([]string{r.CommonDir, r.TopLevel}, trees...) {
		if fi, err := os.Stat(dir); err == nil {
			dirs = append(dirs, fi)
		}
	}
	for _, p := range gits {
		switch {
		case p.PID == os.Getppid() && !r.inHook: // "git agency …", waiting for us
		case p.Hidden && made(p.UID, evidence): // a guess, for which there may be somebody better
			who = fmt.Sprintf("pid %d (%s)", p.PID, called(p.Args))
		case !p.Hidden && p.Reaches(dirs, named(p)...):
			return fmt.Sprintf("pid %d (%s)", p.PID, called(p.Args))
		}
	}
	return who
}

// called is how somebody typed a command, more or less.
func called(args []string) string {
	if len(args) == 0 {
		return "git"
	}
	return strings.Join(append([]string{filepath.Base(args[0])}, args[1:min(len(args), 4)]...), " ")
}

// made reports whether one of these files is somebody's. Of a process that is not ours to look at, that is
// all there is to go by.
func made(uid uint32, files []string) bool {
	return slices.ContainsFunc(files, func(path string) bool {
		fi, err := os.Lstat(path)
		if err != nil {
			return false // gone, so there is nothing to be said of it
		}
		stat, ok := fi.Sys().(*syscall.Stat_t)
		return !ok || stat.Uid == uid
	})
}

// named lists what a process was started with that may be a path: a git can be pointed at a repository
// that it does not stand in.
func named(p proc.Process) []string {
	const most = 64 // options that say where come first
	var paths []string
	for _, word := range p.Args[:min(len(p.Args), most)] {
		_, value, option := strings.Cut(word, "=")
		if paths = append(paths, word); option {
			paths = append(paths, value)
		}
	}
	for _, kv := range p.Env {
		if name, value, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "GIT_") && value != "" {
			paths = append(paths, value)
		}
	}
	return paths
}

// Lock is a lock file of git's.
type Lock struct {
	Rel  string // its name from the common dir
	seen fs.FileInfo
}

// Locks lists the lock files of git's that are there. One is stale when no git is at work; nothing in it
// says so.
func (r *Repo) Locks() ([]Lock, error) {
	var locks []Lock
	add := func(rel string) {
		if fi, err := os.Lstat(filepath.Join(r.CommonDir, rel)); err == nil && strings.HasSuffix(rel, ".lock") {
			locks = append(locks, Lock{rel, fi})
		}
	}
	shallow := []string{".", "info", "objects", "objects/info", "objects/info/commit-graphs", "objects/pack"}
	deep := []string{"refs", "logs", "worktrees"}
	for _, dir := range shallow {
		entries, err := os.ReadDir(filepath.Join(r.CommonDir, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if e.Type().IsRegular() {
				add(filepath.Join(dir, e.Name()))
			}
		}
	}
	for _, dir := range deep {
		if err := r.files(dir, add); err != nil {
			return nil, err
		}
	}
	return locks, nil
}

// RemoveLock removes a lock file that Locks listed. The caller knows that it is stale; one that somebody
// has taken since is not.
func (r *Repo) RemoveLock(l Lock) error {
	path := filepath.Join(r.CommonDir, l.Rel)
	now, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !os.SameFile(now, l.seen) || !now.ModTime().Equal(l.seen.ModTime()) {
		return fmt.Errorf("%s was taken by another git meanwhile", path)
	}
	return durable.Remove(path)
}

// Blocker is a ref that is neither a file nor a link, and on which a git that looks at it hangs; empty when
// there is none.
func (r *Repo) Blocker() (path string, err error) {
	root := filepath.Join(r.CommonDir, "refs")
	err = filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !d.Type().IsRegular() && d.Type()&fs.ModeSymlink == 0 {
			path = at
			return fs.SkipAll
		}
		return nil // what cannot be listed is said where it is looked for
	})
	return path, err
}

// OrphanLogs lists the refs that have a log and do not exist.
func (r *Repo) OrphanLogs(ctx context.Context) ([]string, error) {
	var refs []string
	err := r.files("logs/refs", func(rel string) {
		ref := filepath.ToSlash(strings.TrimPrefix(rel, "logs/"))
		if !strings.HasSuffix(ref, ".lock") && !strings.ContainsAny(ref, "\n\x00") {
			refs = append(refs, ref)
		}
	})
	if err != nil || len(refs) == 0 {
		return nil, err
	}
	found, err := r.Lookup(ctx, refs...)
	if err != nil {
		return nil, err
	}
	var orphans []string
	for i, ref := range refs {
		if _, err := os.Lstat(r.RefPath(ref)); err != nil && found[i].Missing() {
			orphans = append(orphans, ref)
		}
	}
	return orphans, nil
}

// OnlyLogged lists the commits that the log of a ref names and that no ref holds.
func (r *Repo) OnlyLogged(ctx context.Context, ref string) ([]string, error) {
	data, err := durable.ReadFile(r.LogPath(ref), 1<<22)
	if err != nil {
		return nil, err
	}
	var input strings.Builder
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line) // "<old> <new> <who> …"
		for _, word := range words[:min(2, len(words))] {
			if isOID(word) && strings.Trim(word, "0") != "" {
				input.WriteString(word + "\n")
			}
		}
	}
	if input.Len() == 0 {
		return nil, nil
	}
	out, err := r.read(ctx, place{stdin: input.String()}, "rev-list", "--ignore-missing", "--stdin", "--not", "--glob=refs/*")
	return strings.Fields(string(out)), err
}

// RemoveLog removes the log of a ref that does not exist.
func (r *Repo) RemoveLog(ref string) error { return durable.Remove(r.LogPath(ref)) }

// LogPath is where the log of a ref lies.
func (r *Repo) LogPath(ref string) string {
	return filepath.Join(r.CommonDir, "logs", filepath.FromSlash(ref))
}

// files calls found for every file below a directory of the common dir, by its name from there.
func (r *Repo) files(dir string, found func(rel string)) error {
	root := filepath.Join(r.CommonDir, dir)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // gone since it was listed
		case err != nil:
			return err
		case d.Type().IsRegular():
			rel, err := filepath.Rel(r.CommonDir, path)
			if err != nil {
				return err
			}
			found(rel)
		}
		return nil
	})
	return err
}
