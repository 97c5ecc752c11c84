package snapshot

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
)

// RestoreHeads moves the worktree's branch and HEAD back to where they were. It never moves another branch: if HEAD
// named one that has moved since, or that another worktree has checked out, HEAD is detached.
func (x *Restoration) RestoreHeads(ctx context.Context, who object.Identity, at time.Time, why string) error {
	r, to := x.repo, x.To
	tip, head := to.BranchTip, "ref: "+x.spec.Branch
	switch to.HeadRef {
	case x.spec.Branch, "":
		tip = to.Head
	case git.DetachedHead:
		head = to.Head
	default:
		free, err := x.canCheckOut(ctx, to.HeadRef)
		if err != nil {
			return err
		}
		if head = "ref: " + to.HeadRef; !free {
			head, x.DetachedFrom = to.Head, to.HeadRef
		}
	}
	now, err := r.Tip(ctx, x.spec.Branch)
	if err != nil {
		return err
	}
	if now != tip {
		if now != "" && now != x.From.BranchTip {
			return fmt.Errorf("branch %s was moved meanwhile", strings.TrimPrefix(x.spec.Branch, "refs/heads/"))
		}
		old := now
		if old == "" {
			old = strings.Repeat("0", len(tip))
		}
		if x.RemoveBranchLock {
			if err := r.RemoveRefLeftovers(ctx, x.spec.Branch); err != nil {
				return err
			}
		}
		if err := r.MoveRef(ctx, x.spec.Branch, tip, old, why); err != nil {
			return err
		}
	}
	if err := git.RemoveDraft(filepath.Join(r.AdminDir(x.spec.Name), "HEAD")); err != nil {
		return err
	}
	was, _ := git.ReadSmallFile(r.AdminDir(x.spec.Name), "HEAD")
	if strings.TrimSpace(string(was)) == head && x.From.Head == to.Head {
		return nil
	}
	if err := git.ReplaceLocked(filepath.Join(r.AdminDir(x.spec.Name), "HEAD"), []byte(head+"\n")); err != nil {
		return err
	}
	return r.AppendHeadReflog(x.spec.Name, x.From.Head, to.Head, who, at, why)
}

// canCheckOut reports whether HEAD may name a branch that is not the worktree's own: it has not moved, and no other
// worktree has it checked out.
func (x *Restoration) canCheckOut(ctx context.Context, branch string) (bool, error) {
	if tip, err := x.repo.Tip(ctx, branch); err != nil || tip != x.To.Head {
		return false, err
	}
	return x.onlyCheckedOutHere(ctx, branch)
}

// onlyCheckedOutHere reports whether no other worktree has a branch checked out.
func (x *Restoration) onlyCheckedOutHere(ctx context.Context, branch string) (bool, error) {
	listing, err := worktree.List(ctx, x.repo)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(listing.Worktrees, func(w worktree.Worktree) bool { return w.Branch == branch && w.Path != x.spec.Dir }), nil
}

// RestoreOperation replaces the state files of an operation in progress in the worktree's real git directory. Where they come from
// was decided when they were captured: what is behind the walls now, an agent may have changed to mislead us.
func (x *Restoration) RestoreOperation() error {
	return writeOperation(x.repo.AdminDir(x.spec.Name), x.operation.HostFiles)
}

// RestoreIndex restores the index. Entries that equal the files on disk get their stat data, without reading the
// files again.
func (x *Restoration) RestoreIndex(ctx context.Context) error {
	r, read := x.repo, []string{"read-tree", "-m", x.To.IndexTree}
	switch {
	case x.To.IndexTree != "":
	case x.operation.MergedTree != "":
		read[2] = x.operation.MergedTree
	case len(x.operation.Conflicts) > 0: // every entry is unmerged
		read = []string{"read-tree", "--empty"}
	default:
		read[2], x.IndexFromHead = x.To.Head+"^{tree}", true
	}
	if _, err := r.RunWrite(ctx, x.scratch, read...); err != nil {
		return err
	}
	if x.To.IndexTree == "" && len(x.operation.Conflicts) > 0 {
		p := x.scratch
		for _, c := range x.operation.Conflicts {
			p.Stdin += fmt.Sprintf("%s %s %s\t%s\x00", c.Mode, c.OID, c.Stage, c.Path)
		}
		if _, err := r.RunWrite(ctx, p, "update-index", "-z", "--index-info"); err != nil {
			return err
		}
	}
	if err := x.restoreIndexFlags(ctx); err != nil {
		return err
	}
	at := filepath.Join(x.scratch.GitDir, "index")
	fi, err := os.Stat(at)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(at)
	if err != nil {
		return err
	}
	if err := x.draft.WriteFile(data, fi.ModTime()); err != nil {
		return err
	}
	return x.draft.Publish()
}

// restoreIndexFlags sets skip-worktree and assume-unchanged again on the entries that had them.
func (x *Restoration) restoreIndexFlags(ctx context.Context) error {
	if len(x.skippedAbsent) == 0 && len(x.skippedPresent) == 0 && len(x.assumeUnchanged) == 0 {
		return nil
	}
	there, err := x.indexTags(ctx)
	if err != nil {
		return err
	}
	for flag, paths := range map[string][]string{"--skip-worktree": slices.Concat(x.skippedAbsent, x.skippedPresent), "--assume-unchanged": x.assumeUnchanged} {
		p := x.scratch
		p.Stdin = strings.Join(slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return there[path] == 0 }), "\x00")
		if p.Stdin == "" {
			continue
		}
		if _, err := x.repo.RunWrite(ctx, p, "update-index", flag, "-z", "--stdin"); err != nil {
			return err
		}
	}
	return nil
}
