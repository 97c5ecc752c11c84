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

// AtWork reports whether a git of somebody else's works in this repository now: its lock files are then
// in use, and an entry that looks half made is being made. trees are the worktrees of the repository.
// Where it cannot be told, it is said to.
func (r *Repo) AtWork(trees []string) bool {
	gits, ok := proc.Running(func(name string) bool {
		return name == "git" || strings.HasPrefix(name, "git-") && name != "git-agency"
	})
	if !ok {
		return true
	}
	owner, known := ownerOf(r.CommonDir)
	return slices.ContainsFunc(gits, func(p proc.Process) bool {
		switch {
		case p.PID == os.Getppid() && !r.inHook:
			return false // "git agency …", waiting for us
		case p.Dir == "":
			return !known || p.UID == owner
		}
		return r.mentions(p, trees)
	})
}

// mentions reports whether a process stands in the repository, or was pointed at it from elsewhere.
func (r *Repo) mentions(p proc.Process, trees []string) bool {
	for _, dir := range append([]string{r.CommonDir, r.TopLevel}, trees...) {
		if dir == "" {
			continue
		}
		if p.Dir == dir || strings.HasPrefix(p.Dir, dir+"/") {
			return true
		}
		named := func(word string) bool { return strings.HasSuffix(word, dir) || strings.Contains(word, dir+"/") }
		if slices.ContainsFunc(p.Args, named) {
			return true
		}
		if slices.ContainsFunc(p.Env, func(kv string) bool { return strings.HasPrefix(kv, "GIT_") && named(kv) }) {
			return true
		}
	}
	return false
}

// Locks lists the lock files of git's that are there, relative to the common dir. One is stale when no
// git is at work; nothing in it says so.
func (r *Repo) Locks() ([]string, error) {
	var locks []string
	shallow := []string{".", "info", "objects", "objects/info"}
	deep := []string{"refs", "worktrees"}
	for _, dir := range shallow {
		entries, err := os.ReadDir(filepath.Join(r.CommonDir, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if e.Type().IsRegular() && strings.HasSuffix(e.Name(), ".lock") {
				locks = append(locks, filepath.Join(dir, e.Name()))
			}
		}
	}
	for _, dir := range deep {
		err := r.files(dir, func(rel string) {
			if strings.HasSuffix(rel, ".lock") {
				locks = append(locks, rel)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return locks, nil
}

// RemoveLock removes a lock file that Locks listed. The caller knows that it is stale.
func (r *Repo) RemoveLock(rel string) error {
	if !filepath.IsLocal(rel) || !strings.HasSuffix(rel, ".lock") {
		return fmt.Errorf("%q is not a lock of git's", rel)
	}
	return durable.Remove(filepath.Join(r.CommonDir, rel))
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
	data, err := durable.ReadFile(r.logPath(ref), 1<<22)
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
func (r *Repo) RemoveLog(ref string) error { return durable.Remove(r.logPath(ref)) }

func (r *Repo) logPath(ref string) string {
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

func ownerOf(path string) (uint32, bool) {
	fi, err := os.Stat(path)
	if err != nil {
		return 0, false
	}
	stat, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return stat.Uid, true
}
