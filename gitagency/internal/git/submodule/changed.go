package submodule

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
)

// IsChanged reports whether "git status" of the superproject lists the submodule because of its checkout: it is at another
// commit than the index says, or has changed or untracked files. It reads the repository of the checkout as data and,
// unlike IsUnchanged, does not ask whether commits are kept. A repository that cannot be read counts as unchanged.
func (c Checkout) IsChanged(ctx context.Context) (bool, error) {
	if names, err := listBeneath(c.files, c.Path); err != nil || len(names) == 0 {
		return false, err
	}
	if head, err := c.head(); err != nil || head != "" && head != c.Commit {
		return err == nil, err
	}
	data, mtime, there, err := c.readPrivate("index")
	if err != nil || !there {
		return false, err
	}
	format := object.FormatOf(c.Commit)
	x, err := index.Read(data, format)
	if err != nil {
		return false, nil // not the index that a plain git would write
	}
	if changed, err := status.HasDiskChanges(ctx, c.super, c.dir(), x, mtime, format); err != nil || changed {
		return changed, err
	}
	tree, err := c.commitTree(ctx)
	if err != nil || tree == "" {
		return false, err
	}
	staged, _, err := c.stagedTree()
	return staged != tree, err
}

// IsUnadded reports whether the checkout is at another commit than the index of the superproject says, and everything in it
// is committed: only "git add" in the superproject is missing. It reads what IsChanged reads. A commit that cannot be read
// counts as false.
func (c Checkout) IsUnadded(ctx context.Context) (bool, error) {
	head, err := c.head()
	if err != nil || head == c.Commit || !object.IsOID(head) {
		return false, err
	}
	c.Commit = head
	tree, err := c.commitTree(ctx)
	if err != nil || tree == "" {
		return false, err
	}
	if staged, _, err := c.stagedTree(); err != nil || staged != tree {
		return false, err
	}
	changed, err := c.IsChanged(ctx)
	return err == nil && !changed, err
}

// IsClean reports whether the checkout is nothing but the commit in the index of the superproject: HEAD is at that commit, and
// the index and the files have its tree. Unlike IsUnchanged, it does not ask whether commits are kept; unlike IsChanged, it
// hashes the files. A repository that cannot be read is not clean, nor one with repositories of submodules in it. trust is
// that of IsUnchanged.
func (c Checkout) IsClean(ctx context.Context, trust bool) (bool, error) {
	if _, _, there, err := c.readPrivate("HEAD"); err != nil {
		return false, err
	} else if !there {
		return c.IsUnchanged(ctx, trust)
	}
	if head, err := c.head(); err != nil || head != c.Commit || c.Source == nil {
		return false, err
	}
	if nested, err := c.HasNested(); err != nil || nested {
		return false, err
	}
	tree, err := c.commitTree(ctx)
	if err != nil || tree == "" {
		return false, err
	}
	staged, paths, err := c.stagedTree()
	if err != nil || staged != tree {
		return false, err
	}
	return c.hasFiles(ctx, tree, paths, trust)
}

// commitTree returns the tree of c.Commit; empty where neither the user's repository of the
// submodule nor a loose object in the repository of the checkout is that commit.
func (c Checkout) commitTree(ctx context.Context) (string, error) {
	if c.Source != nil {
		found, err := c.Source.Lookup(ctx, c.Commit+"^{tree}")
		if err != nil {
			return "", err
		}
		if !found[0].Missing() {
			return found[0].OID, nil
		}
	}
	data, _, there, err := c.readPrivate(filepath.Join("objects", c.Commit[:2], c.Commit[2:]))
	if err != nil || !there {
		return "", err
	}
	const maxSize = 1 << 20
	reader := object.LooseReader{Format: object.FormatOf(c.Commit)}
	if size, why := reader.Check(data, c.Commit, "commit", maxSize); size < 0 || why != "" {
		return "", nil
	}
	_, _, content, err := object.DecodeLoose(bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(content)
	tree, _, _, _ := object.ParseCommitHeader(string(text))
	return tree, err
}

// head returns the commit at HEAD of the repository of the checkout; empty where no file names it.
func (c Checkout) head() (string, error) {
	data, _, there, err := c.readPrivate("HEAD")
	if err != nil || !there {
		return "", err
	}
	text := strings.TrimSpace(string(data))
	ref, symbolic := strings.CutPrefix(text, "ref: ")
	if !symbolic || !object.IsValidRef(ref) {
		return text, nil
	}
	if data, _, there, err = c.readPrivate(ref); err != nil || there {
		return strings.TrimSpace(string(data)), err
	}
	data, _, _, err = c.readPrivate("packed-refs")
	for line := range strings.Lines(string(data)) {
		if oid, name, _ := strings.Cut(strings.TrimSpace(line), " "); name == ref {
			return oid, err
		}
	}
	return "", err
}
