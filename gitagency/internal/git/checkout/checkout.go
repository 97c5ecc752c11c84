// Package checkout fills new worktrees with the files of a commit. Files that another worktree of the repository has on disk
// are copied from there, which is faster than git's own checkout; git writes the others. It moves no ref, and it must never
// write to the other worktree.
package checkout

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/config"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Request describes a checkout.
type Request struct {
	Worktree worktree.Registration // it is registered, unless there is a GitDir, and empty but for its .git
	GitDir   string                // git directory to use for a directory that is not registered: it gets a plain index
	Commit   string                // commit to check out
	Tree     string                // tree of the commit; empty if it is not known
	Source   Source                // the zero value copies nothing
	SkipLFS  bool                  // Git LFS downloads nothing
}

// Source is a worktree of the same repository.
type Source struct {
	Tree   string    // the directory
	GitDir string    // its git directory, which has its index
	Hashes HashCache // of its files
}

// Fill checks out a commit in a new worktree. The result is the one of git's checkout, but that copied files keep their
// mtimes: so builds that are copied too stay valid, and git trusts the stat data of the index from the first git status on.
func Fill(ctx context.Context, r *git.Repo, req Request) error {
	if req.Source.Tree != "" && isPlain(r) {
		complete, err := copyUnchanged(ctx, r, req)
		if err != nil || complete {
			return err
		}
	}
	at := git.RunOptions{GitDir: req.gitDir(r), WorkTree: req.Worktree.Tree, LazyFetch: true}
	if req.GitDir != "" {
		at.Config = PlainIndexArgs
	}
	return ByGit(ctx, r, at, req.Commit, req.SkipLFS)
}

// ByGit is worktree.CheckoutIn with an error that says so if the disk is full.
func ByGit(ctx context.Context, r *git.Repo, at git.RunOptions, treeish string, skipLFS bool) error {
	err := worktree.CheckoutIn(ctx, r, at, treeish, skipLFS)
	if errors.As(err, new(*git.Error)) {
		err = errors.Join(checkNotFull(at.WorkTree), err)
	}
	return err
}

// PlainIndexArgs make git write an index that holds every entry itself, whatever the user's settings are.
var PlainIndexArgs = []string{"-c", "core.splitIndex=false", "-c", "index.sparse=false", "-c", "core.untrackedCache=false"}

// gitDir returns the git directory whose index is written.
func (req Request) gitDir(r *git.Repo) string {
	return cmp.Or(req.GitDir, r.AdminDir(req.Worktree.Name))
}

// checkNotFull returns the error of writing a small file to a worktree in which git could not write a file: git does not say why
// it could not.
func checkNotFull(tree string) error {
	f, err := os.CreateTemp(tree, ".probe-")
	if err != nil {
		return err
	}
	const size = 1 << 20 // most of what was left is in the file that git could not complete
	_, err = f.Write(make([]byte, size))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// isPlain reports whether the settings are such that all worktrees have the same files for the same commit, which are those
// of the commit unless an attribute says otherwise.
func isPlain(r *git.Repo) bool {
	return !r.ConfigVariesByWorktree() && !r.ConfigBool("core.sparsecheckout", false) && !r.ConfigBool("core.ignorecase", false) &&
		!convertsLineEndings(r) && r.Config.Value("attr.tree") == "" && !r.HasReplaceRefs()
}

// copyUnchanged copies what the commit and the source have in common, and writes an index of the copies. It reports whether
// that is the whole commit. Where the source cannot be used, nothing is copied; an error is one of the new worktree.
func copyUnchanged(ctx context.Context, r *git.Repo, req Request) (complete bool, err error) {
	format := object.FormatOf(req.Commit)
	readHashes := proc.Async(func() (index.File, error) { return req.Source.Hashes.read(format), nil })
	defer func() { _, _ = readHashes() }() // it does not outlive the checkout
	x, err := r.ReadEditableIndex(ctx, req.Source.GitDir, format)
	if err != nil || x.Count == 0 {
		return false, context.Cause(ctx) // git says what is wrong with the index when the user asks it
	}
	same := req.Tree != "" && hex.EncodeToString(x.TreeID()) == req.Tree
	entries, err := commonEntries(ctx, r, req, x, same)
	if err != nil || len(entries) == 0 {
		return false, context.Cause(ctx)
	}
	if fi, err := os.Lstat(filepath.Join(req.Source.GitDir, "index")); err != nil || durable.StatFingerprint(fi) != x.Stamp {
		return false, nil // git may have answered for another index than x
	}
	cached, _ := readHashes()
	hashed := req.Source.Hashes.newHashedFiles(cached, entries)
	stats, err := copyFiles(ctx, req.Source.Tree, req.Worktree.Tree, format, r.ConfigBool("core.filemode", true), entries, hashed)
	if stopped := context.Cause(ctx); stopped != nil {
		return false, stopped
	}
	if err != nil {
		return false, fmt.Errorf("copy files of %s: %w", req.Source.Tree, err)
	}
	req.Source.Hashes.save(format, hashed)
	copied := index.File{Format: format, Body: make([]byte, 0, len(x.Body))}
	for i, e := range entries {
		if stats[i] != nil {
			copied.Append(stats[i], e.OID, e.Name)
		}
	}
	if copied.Count == 0 {
		return false, nil
	}
	data := copied.Encode()
	if complete = same && copied.Count == x.Count && (req.GitDir != "" || hasPlainIndex(r)); complete {
		data = copied.EncodeWithCacheTree(x.CacheTree())
	}
	return complete, os.WriteFile(filepath.Join(req.gitDir(r), "index"), data, 0o666)
}

// hasPlainIndex reports whether git writes an index of the default format and permissions.
func hasPlainIndex(r *git.Repo) bool {
	return !slices.ContainsFunc(config.IndexKeys, func(key string) bool { _, set := r.Config.Last(key); return set })
}

// commonEntries returns the entries of the index of the source that the commit has too and that git would check out as they are.
// same says that the index has the tree of the commit.
func commonEntries(ctx context.Context, r *git.Repo, req Request, x *index.Editable, same bool) ([]index.Entry, error) {
	differ := map[string]bool{}
	at := git.RunOptions{GitDir: req.Source.GitDir, Reading: r.CheckoutReading("comparing the index of " + req.Source.Tree + " with " + req.Commit)}
	if !same {
		out, err := r.RunRead(ctx, at, "diff-index", "--cached", "--name-only", "-z", "--no-renames", "--ignore-submodules=none", req.Commit)
		if err != nil {
			return nil, err
		}
		for _, name := range strings.Split(string(out), "\x00") {
			differ[name] = true
			if IsAttributesFile(name) {
				return nil, nil // the attributes of other files may differ
			}
		}
	}
	symlinks := r.ConfigBool("core.symlinks", true)
	entries := make([]index.Entry, 0, x.Count)
	var rules []index.Entry
	for e := range x.AllEntries() {
		link := e.Mode == object.ModeSymlink
		if e.Stage == 0 && !e.IntentToAdd && IsAttributesFile(string(e.Name)) {
			rules = append(rules, e) // even one that is not to be copied: git reads it, or the text of the link, in the index
		}
		switch {
		case e.Stage != 0 || e.SkipWorktree || e.IntentToAdd || e.Mode == object.ModeGitlink || link && !symlinks:
			continue
		case len(differ) > 0 && differ[string(e.Name)] || index.PathProblem(e.Name, 0, link) != "":
			continue
		}
		entries = append(entries, e)
	}
	return withoutConverted(ctx, r, req.Source, at, x.Format, rules, entries)
}

// IsAttributesFile reports whether git reads attributes from a file of this name.
func IsAttributesFile(name string) bool {
	return name == index.AttributesFile || strings.HasSuffix(name, "/"+index.AttributesFile)
}
