// Package clone makes git directories that borrow the objects of a repository and share nothing else with it: refs, settings,
// index, hooks and reflogs are their own. A git command in one changes nothing in the repository.
//
// It writes the files itself: "git clone" would run templates and hooks, contact the source, and take three times as long.
// It must never read a file of such a directory: an agent may have written it.
package clone

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// Request describes a git directory to make.
type Request struct {
	Dir     string   // path; must not exist
	Branch  string   // full ref that HEAD is on
	Tip     string   // commit of Branch
	Admin   string   // git directory of the worktree whose index and reflog of HEAD are copied
	Source  Source   // where the remote "origin" is
	Without []string // prefixes of full refs of branches that it does not get: see Source.Refs

	// Hardlinks makes hard links to the objects of the repository instead of borrowing them. A process that can write to Dir
	// can then change the objects of the repository.
	Hardlinks bool
}

// Make makes a git directory. A failure leaves an incomplete one, which the caller removes.
func Make(ctx context.Context, r *git.Repo, req Request) error {
	if err := os.Mkdir(req.Dir, 0o755); err != nil {
		return err
	}
	for _, dir := range []string{"objects", "objects/info", "objects/pack", "refs", "refs/heads", "refs/tags", "info", "hooks", "logs"} {
		if err := os.Mkdir(filepath.Join(req.Dir, dir), 0o755); err != nil {
			return err
		}
	}
	settings, err := clonedConfig(r, req)
	if err != nil {
		return err
	}
	refs, err := req.Source.Refs(ctx, r, req.Without...)
	if err != nil {
		return err
	}
	for name, content := range map[string]string{
		"HEAD":        "ref: " + req.Branch + "\n",
		"config":      settings,
		"packed-refs": packedRefs(refs),
		req.Branch:    req.Tip + "\n",
	} {
		if err := writeNew(filepath.Join(req.Dir, name), []byte(content)); err != nil {
			return err
		}
	}
	if err := req.shareObjects(r); err != nil {
		return err
	}
	return req.copyFiles(r)
}

// Files lists the files and directories of a git directory that Make made without which git would not work in it. The hard links to
// objects are not among them.
func Files(dir, branch string) []string {
	names := []string{"HEAD", "config", "packed-refs", "index", "shallow", branch, "objects/info/alternates", "objects/info", "objects", ""}
	for parent := filepath.Dir(branch); parent != "."; parent = filepath.Dir(parent) {
		names = append(names, parent)
	}
	files := []string{}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); err == nil {
			files = append(files, path)
		}
	}
	return files
}

// packedRefs returns the content of a packed-refs file.
func packedRefs(refs map[string]string) string {
	var out strings.Builder
	out.WriteString("# pack-refs with: sorted \n")
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		fmt.Fprintf(&out, "%s %s\n", refs[name], name)
	}
	return out.String()
}

// copyFiles copies index, reflogs, hooks, exclude patterns and attributes, and the limits of a shallow history.
func (req Request) copyFiles(r *git.Repo) error {
	files := map[string]string{"index": filepath.Join(req.Admin, "index"), "logs/HEAD": filepath.Join(req.Admin, "logs/HEAD")} // by their new names
	for _, name := range []string{"logs/" + req.Branch, "shallow", "info/exclude", "info/attributes", "info/grafts"} {
		files[name] = filepath.Join(r.CommonDir, name)
	}
	hooks, err := os.ReadDir(filepath.Join(r.CommonDir, "hooks"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, h := range hooks { // git runs them in every worktree of the repository, so a clone needs them too
		if !h.IsDir() && filepath.Ext(h.Name()) != ".sample" {
			files["hooks/"+h.Name()] = filepath.Join(r.CommonDir, "hooks", h.Name())
		}
	}
	for name, from := range files {
		if err := copyFile(from, filepath.Join(req.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// copyFile copies a regular file, with the permission to execute it and with its modification time, by which git knows which files
// of an index it must read again.
func copyFile(from, to string) error {
	fi, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := git.CopyFileWithMtime(from, to); err != nil || fi.Mode().Perm()&0o111 == 0 {
		return err
	}
	return os.Chmod(to, 0o755)
}

// shareObjects makes the objects of the repository those of the new git directory.
func (req Request) shareObjects(r *git.Repo) error {
	objects, err := filepath.EvalSymlinks(filepath.Join(r.CommonDir, "objects"))
	if err != nil {
		return err
	}
	if strings.ContainsRune(objects, '\n') {
		return fmt.Errorf("the path %q contains a newline, so that no other repository can borrow its objects", objects)
	}
	if !req.Hardlinks {
		return writeNew(filepath.Join(req.Dir, "objects/info/alternates"), []byte(objects+"\n"))
	}
	if borrowed := r.Alternates(); len(borrowed) > 0 {
		if err := writeNew(filepath.Join(req.Dir, "objects/info/alternates"), []byte(strings.Join(borrowed, "\n")+"\n")); err != nil {
			return err
		}
	}
	return linkObjects(objects, filepath.Join(req.Dir, "objects"))
}

// linkObjects makes hard links to the loose objects and packs in an object directory.
func linkObjects(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch name := d.Name(); {
		case rel == "info/alternates" || strings.HasPrefix(name, "tmp_") || filepath.Ext(name) == ".lock" || filepath.Ext(name) == ".keep":
			return nil
		case d.IsDir():
			if err := os.Mkdir(target, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			return nil
		case d.Type().IsRegular():
			if err := os.Link(path, target); err != nil && !errors.Is(err, fs.ErrNotExist) { // gone: git has packed it meanwhile
				return fmt.Errorf("%w; git config agency.clone.hardlinks false borrows the objects instead", err)
			}
		}
		return nil
	})
}

// writeNew writes a file that must not exist, and the directories that it is in.
func writeNew(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return durable.WriteNew(path, content, 0o644)
}
