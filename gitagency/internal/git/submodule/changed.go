package submodule

import (
	"context"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
)

// IsChanged reports whether "git status" of the superproject lists the submodule because of its checkout: it is at another
// commit than the index says, or has changed or untracked files. It reads the repository of the checkout as data and,
// unlike IsUnchanged, does not ask whether commits are kept. A repository that cannot be read counts as unchanged.
func (c Checkout) IsChanged(ctx context.Context) (bool, error) {
	if names, err := listBeneath(c.tree, c.Path); err != nil || len(names) == 0 {
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
	if changed, err := status.HasDiskChanges(ctx, c.super, c.Dir(), x, mtime, format); err != nil || changed || c.Source == nil {
		return changed, err
	}
	found, err := c.Source.Lookup(ctx, c.Commit+"^{tree}")
	if err != nil || found[0].Missing() { // a commit of the sandbox
		return false, err
	}
	staged, err := c.stagedTree()
	return staged != found[0].OID, err
}

// head returns the commit at HEAD of the repository of the checkout; empty where no file names it.
func (c Checkout) head() (string, error) {
	for name := "HEAD"; ; {
		data, _, there, err := c.readPrivate(name)
		if err != nil || !there {
			return "", err
		}
		text := strings.TrimSpace(string(data))
		ref, symbolic := strings.CutPrefix(text, "ref: ")
		if object.IsOID(text) || !symbolic || name != "HEAD" || !object.IsValidRef(ref) {
			return text, nil
		}
		name = ref
	}
}
