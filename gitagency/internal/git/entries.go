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

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// Entry is what git keeps of one linked worktree, read without git: git's own listing passes over some
// damage in silence, and dies of other.
type Entry struct {
	Worktree
	Name  string   // of its directory below <common dir>/worktrees
	Flaws []string // its files that say nothing, or what cannot be, of those that git cannot do without
	Used  bool     // something was checked out there once
}

// Entries lists the linked worktrees as their files have them.
func (r *Repo) Entries() ([]Entry, error) {
	found, err := os.ReadDir(filepath.Join(r.CommonDir, "worktrees"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var entries []Entry
	for _, f := range found {
		if f.IsDir() {
			entries = append(entries, r.entry(f.Name()))
		}
	}
	return entries, nil
}

func (r *Repo) entry(name string) Entry {
	dir := r.AdminDir(name)
	e := Entry{Name: name}
	e.Worktree, _ = readAdminEntry(dir)
	if e.Path == "" {
		e.Flaws = append(e.Flaws, "gitdir")
	}
	if !r.leadsToCommon(dir) {
		e.Flaws = append(e.Flaws, "commondir")
	}
	if !isOID(e.Head) && !strings.HasPrefix(e.Branch, "refs/") {
		e.Flaws = append(e.Flaws, "HEAD")
	}
	for _, sign := range []string{"index", "logs"} {
		if _, err := os.Lstat(filepath.Join(dir, sign)); err == nil {
			e.Used = true
		}
	}
	return e
}

// leadsToCommon reports whether an entry says that it is one of this repository's. Where it leads is also
// where git takes its configuration from.
func (r *Repo) leadsToCommon(dir string) bool {
	data, err := readSmall(dir, "commondir")
	path := strings.TrimRight(string(data), "\r\n")
	if err != nil || path == "" {
		return false
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	there, err := os.Stat(path)
	if err != nil {
		return false
	}
	here, err := os.Stat(r.CommonDir)
	return err == nil && os.SameFile(there, here)
}

// LinkedTo is the git directory that the .git of a tree leads to; empty when it leads nowhere. A tree
// that is a repository of its own leads to itself.
func LinkedTo(tree string) (string, error) {
	dotGit := filepath.Join(tree, ".git")
	fi, err := os.Lstat(dotGit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case fi.IsDir():
		return dotGit, nil
	}
	data, err := readSmall(tree, ".git")
	if err != nil {
		return "", err
	}
	return parseDotGit(tree, data), nil
}

// parseDotGit reads a .git that is a file, as git does; empty when git would make nothing of it.
func parseDotGit(tree string, data []byte) string {
	path, ok := strings.CutPrefix(strings.TrimRight(string(data), "\r\n"), "gitdir: ")
	switch {
	case !ok || path == "":
		return ""
	case !filepath.IsAbs(path):
		return filepath.Join(tree, path)
	}
	return path
}

// Relink ties a tree and its entry together again: whatever of the entry is missing is written anew,
// and so is the .git of the tree. What is there stays, but for the two paths. Without an index, files
// count as they are in the commit that the branch is at.
func (r *Repo) Relink(ctx context.Context, w Registration) error {
	dir := r.AdminDir(w.Name)
	if fi, err := os.Lstat(filepath.Join(w.Tree, ".git")); err == nil && !fi.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", filepath.Join(w.Tree, ".git"))
	}
	if fi, err := os.Lstat(dir); err == nil && !fi.IsDir() {
		return fmt.Errorf("%s is not a directory", dir) // a link, to what is not ours to write to
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	flaws := r.entry(w.Name).Flaws
	for name, content := range map[string]string{"commondir": "../..", "HEAD": "ref: " + w.Branch} {
		if !slices.Contains(flaws, name) {
			continue // what HEAD says is the user's to say
		}
		if err := durable.WriteFile(filepath.Join(dir, name), []byte(content+"\n"), 0o644); err != nil {
			return err
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "index")); errors.Is(err, fs.ErrNotExist) {
		if err := r.makeIndex(ctx, w, dir); err != nil {
			return err
		}
	}
	if err := durable.WriteFile(filepath.Join(w.Tree, ".git"), []byte("gitdir: "+dir+"\n"), 0o644); err != nil {
		return err
	}
	// The last thing, so that whoever finds it finds all of it.
	return r.PointAt(w.Name, w.Tree)
}

// PointAt makes an entry say where its tree is, or was.
func (r *Repo) PointAt(name, tree string) error {
	return durable.WriteFile(filepath.Join(r.AdminDir(name), "gitdir"), []byte(filepath.Join(tree, ".git")+"\n"), 0o644)
}

// makeIndex gives an entry the index of the commit that its HEAD is at. Git is pointed at the repository,
// not at the entry: whoever works in the tree can have written a configuration there.
func (r *Repo) makeIndex(ctx context.Context, w Registration, dir string) error {
	head, _, err := r.tips(ctx, Subject{Name: w.Name, Branch: w.Branch})
	if err != nil || head == "" {
		return err
	}
	_, err = r.change(ctx, place{env: []string{"GIT_INDEX_FILE=" + filepath.Join(dir, "index")}}, "read-tree", head)
	return err
}

// RepairEntry makes an entry of somebody else's readable for git again, as far as that can be known from
// what is left of it. One that nothing was ever checked out in is taken away.
func (r *Repo) RepairEntry(e Entry) error {
	if !e.Used {
		return r.RemoveAdmin(e.Name)
	}
	for _, flaw := range e.Flaws {
		content, known := r.repair(e, flaw)
		if !known {
			continue
		}
		if err := durable.WriteFile(filepath.Join(r.AdminDir(e.Name), flaw), []byte(content+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Beyond lists the flaws of an entry that only its owner can mend: what was there cannot be known any more.
func (r *Repo) Beyond(e Entry) []string {
	return slices.DeleteFunc(slices.Clone(e.Flaws), func(flaw string) bool {
		_, known := r.repair(e, flaw)
		return known || !e.Used
	})
}

// repair is what a file of an entry must have held.
func (r *Repo) repair(e Entry, flaw string) (content string, known bool) {
	switch flaw {
	case "commondir":
		return "../..", true
	case "HEAD":
		if log := r.logged(Subject{Name: e.Name}); len(log) > 0 {
			return log[0], true
		}
	}
	return "", false
}

// Unlock removes git's own mark that a worktree is still being made.
func (r *Repo) Unlock(e Entry) error {
	return durable.Remove(filepath.Join(r.AdminDir(e.Name), "locked"))
}

// LastCommit is the newest commit that the log of a worktree's HEAD names and that exists; empty when
// there is none.
func (r *Repo) LastCommit(ctx context.Context, name string) (string, error) {
	log := r.logged(Subject{Name: name})
	for i := range log {
		log[i] += "^{commit}"
	}
	if len(log) == 0 {
		return "", nil
	}
	found, err := r.Lookup(ctx, log...)
	if err != nil {
		return "", err
	}
	for _, o := range found {
		if !o.Missing() {
			return o.OID, nil
		}
	}
	return "", nil
}
