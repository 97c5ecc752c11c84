package snapshot

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
)

// RestoreUpperDir makes git in the sandbox see the restored state: in the directory that git writes to there it replaces HEAD,
// the index and the state files of the worktree's git directory, and the worktree's branch. Objects, reflogs and
// other refs there stay. No process may run in the sandbox.
func (x *Restoration) RestoreUpperDir(ctx context.Context) error {
	root, err := os.OpenRoot(x.spec.UpperDir)
	if errors.Is(err, os.ErrNotExist) || x.spec.UpperDir == "" {
		return nil // nothing was ever written, so the lower directory shows through
	}
	if err != nil {
		return err
	}
	defer root.Close()
	admin, entry := x.repo.AdminDir(x.spec.Name), overlay.EntryIn(x.spec.UpperDir, x.spec.Name)
	at, err := x.repo.Tip(ctx, x.spec.Branch)
	if err != nil {
		return err
	}
	tip := []byte(at + "\n")
	head, err := git.ReadSmallFile(admin, "HEAD")
	if err != nil {
		return err
	}
	upperEntry := overlay.OpaqueEntry(x.spec.UpperDir, x.spec.Name)
	if upperEntry == "" { // remove what hides files of the real git directory, so that they show through
		for _, name := range slices.Concat([]string{"HEAD", "index"}, operationFiles, operationDirs) {
			if err := root.RemoveAll(path.Join(entry, name)); err != nil {
				return err
			}
		}
		return replaceInUpperDir(root, x.spec.Branch, tip, time.Time{})
	}
	if inside := x.operation.SandboxRefs["HEAD"]; inside != "" && inside != "ref: "+x.spec.Branch {
		if branch, on := strings.CutPrefix(inside, "ref: "); !on {
			head = []byte(x.To.Head + "\n")
		} else if at, err := overlay.ReadUpperFile(x.spec.UpperDir, branch, 1<<10); err == nil && strings.TrimSpace(string(at.Data)) == x.To.Head {
			head = []byte(inside + "\n")
		} else { // the branch has moved since, and was never the sandbox's own
			head, x.DetachedFrom = []byte(x.To.Head+"\n"), branch
		}
		if was := x.operation.SandboxRefs["branch"]; object.IsOID(was) {
			tip = []byte(was + "\n")
		}
	}
	if err := writeOperation(upperEntry, x.operation.Files); err != nil {
		return err
	}
	if err := replaceInUpperDir(root, x.spec.Branch, tip, time.Time{}); err != nil {
		return err
	}
	if err := replaceInUpperDir(root, path.Join(entry, "HEAD"), head, time.Time{}); err != nil {
		return err
	}
	index := filepath.Join(admin, "index")
	data, err := os.ReadFile(index)
	if err != nil {
		return err
	}
	fi, err := os.Stat(index)
	if err != nil {
		return err
	}
	return replaceInUpperDir(root, path.Join(entry, "index"), data, fi.ModTime())
}

// replaceInUpperDir writes a file into the directory that git in the sandbox writes to, over anything of that name. A parent that is not a
// directory, because it is a whiteout or a symlink, is replaced by one.
func replaceInUpperDir(root *os.Root, name string, data []byte, at time.Time) error {
	for end := 0; ; end++ {
		next := strings.IndexByte(name[end:], '/')
		if next < 0 {
			break
		}
		end += next
		if fi, err := root.Lstat(name[:end]); err == nil && fi.IsDir() {
			continue
		} else if err == nil {
			if err := root.Remove(name[:end]); err != nil {
				return err
			}
		}
		if err := root.Mkdir(name[:end], 0o755); err != nil {
			return err
		}
	}
	fresh := name + index.DraftSuffix
	if err := root.RemoveAll(fresh); err != nil {
		return err
	}
	if err := root.WriteFile(fresh, data, 0o644); err != nil {
		return err
	}
	if !at.IsZero() {
		if err := root.Chtimes(fresh, at, at); err != nil {
			return err
		}
	}
	if fi, err := root.Lstat(name); err == nil && fi.IsDir() {
		if err := root.RemoveAll(name); err != nil {
			return err
		}
	}
	return root.Rename(fresh, name)
}
