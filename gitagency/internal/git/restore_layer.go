package git

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// RestoreUpperDir makes git behind the walls see the restored state: in the overlay upper directory it replaces HEAD,
// the index and the state files of the worktree's git directory, and the worktree's branch. Objects, reflogs and
// other refs there stay. No process may run behind the walls.
func (x *Restoration) Layer(ctx context.Context) error {
	root, err := os.OpenRoot(x.s.Layer)
	if errors.Is(err, os.ErrNotExist) || x.s.Layer == "" {
		return nil // nothing was ever written, so the lower directory shows through
	}
	if err != nil {
		return err
	}
	defer root.Close()
	admin, entry := x.repo.AdminDir(x.s.Name), path.Join("worktrees", x.s.Name)
	at, err := x.repo.Tip(ctx, x.s.Branch)
	if err != nil {
		return err
	}
	tip := []byte(at + "\n")
	head, err := readSmall(admin, "HEAD")
	if err != nil {
		return err
	}
	upperEntry := LayeredEntry(x.s.Layer, x.s.Name)
	if upperEntry == "" { // remove what hides files of the real git directory, so that they show through
		for _, name := range slices.Concat([]string{"HEAD", "index"}, underwayFiles, underwayDirs) {
			if err := root.RemoveAll(path.Join(entry, name)); err != nil {
				return err
			}
		}
		return replaceInLayer(root, x.s.Branch, tip, time.Time{})
	}
	if inside := x.under.Inside["HEAD"]; inside != "" && inside != "ref: "+x.s.Branch {
		if branch, on := strings.CutPrefix(inside, "ref: "); !on {
			head = []byte(x.To.Head + "\n")
		} else if at, err := LayerFile(x.s.Layer, branch, 1<<10); err == nil && strings.TrimSpace(string(at.Data)) == x.To.Head {
			head = []byte(inside + "\n")
		} else { // the branch has moved since, and was never the sandbox's own
			head, x.Strayed = []byte(x.To.Head+"\n"), branch
		}
		if was := x.under.Inside["branch"]; isOID(was) {
			tip = []byte(was + "\n")
		}
	}
	if err := writeUnderway(upperEntry, x.under.Files); err != nil {
		return err
	}
	if err := replaceInLayer(root, x.s.Branch, tip, time.Time{}); err != nil {
		return err
	}
	if err := replaceInLayer(root, path.Join(entry, "HEAD"), head, time.Time{}); err != nil {
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
	return replaceInLayer(root, path.Join(entry, "index"), data, fi.ModTime())
}

// replaceInUpperDir writes a file into an overlay upper directory, over anything of that name. A parent that is not a
// directory, because it is a whiteout or a symlink, is replaced by one.
func replaceInLayer(root *os.Root, name string, data []byte, at time.Time) error {
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
	fresh := name + draftSuffix
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
