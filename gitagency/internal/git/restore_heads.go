package git

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// RestoreHeads moves the worktree's branch and HEAD back to where they were. It never moves another branch: if HEAD
// named one that has moved since, or that another worktree has checked out, HEAD is detached.
func (x *Restoration) Heads(ctx context.Context, who Identity, at time.Time, why string) error {
	r, to := x.repo, x.To
	tip, head := to.Tip, "ref: "+x.s.Branch
	switch to.On {
	case x.s.Branch, "":
		tip = to.Head
	case Detached:
		head = to.Head
	default:
		free, err := x.free(ctx, to.On)
		if err != nil {
			return err
		}
		if head = "ref: " + to.On; !free {
			head, x.Strayed = to.Head, to.On
		}
	}
	now, err := r.Tip(ctx, x.s.Branch)
	if err != nil {
		return err
	}
	if now != tip {
		if now != "" && now != x.From.Tip {
			return fmt.Errorf("branch %s was moved meanwhile", strings.TrimPrefix(x.s.Branch, "refs/heads/"))
		}
		old := now
		if old == "" {
			old = strings.Repeat("0", len(tip))
		}
		if x.Again {
			if err := r.SweepRef(ctx, x.s.Branch); err != nil {
				return err
			}
		}
		if err := r.MoveRef(ctx, x.s.Branch, tip, old, why); err != nil {
			return err
		}
	}
	if err := dropDraft(filepath.Join(r.AdminDir(x.s.Name), "HEAD")); err != nil {
		return err
	}
	was, _ := readSmall(r.AdminDir(x.s.Name), "HEAD")
	if strings.TrimSpace(string(was)) == head && x.From.Head == to.Head {
		return nil
	}
	if err := writeLocked(filepath.Join(r.AdminDir(x.s.Name), "HEAD"), []byte(head+"\n")); err != nil {
		return err
	}
	return r.LogHead(x.s.Name, x.From.Head, to.Head, who, at, why)
}

// canCheckOut reports whether HEAD may name a branch that is not the worktree's own: it has not moved, and no other
// worktree has it checked out.
func (x *Restoration) free(ctx context.Context, branch string) (bool, error) {
	if tip, err := x.repo.Tip(ctx, branch); err != nil || tip != x.To.Head {
		return false, err
	}
	return x.nobodyElseHas(ctx, branch)
}

// onlyCheckedOutHere reports whether no other worktree has a branch checked out.
func (x *Restoration) nobodyElseHas(ctx context.Context, branch string) (bool, error) {
	listing, err := x.repo.Worktrees(ctx)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(listing.Worktrees, func(w Worktree) bool { return w.Branch == branch && w.Path != x.s.Tree }), nil
}

// RestoreOperation replaces the state files of an operation in progress in the worktree's git directory.
func (x *Restoration) Underway() error {
	files := x.under.Files
	if LayeredEntry(x.s.Layer, x.s.Name) != "" { // then Files are those behind the walls
		files = x.under.Outside
	}
	return writeUnderway(x.repo.AdminDir(x.s.Name), files)
}

// RestoreIndex restores the index. Entries that equal the files on disk get their stat data, without reading the
// files again.
func (x *Restoration) Index(ctx context.Context) error {
	r, read := x.repo, []string{"read-tree", "-m", x.To.Index}
	switch {
	case x.To.Index != "":
	case x.under.Rest != "":
		read[2] = x.under.Rest
	case len(x.under.Conflicts) > 0: // every entry is unmerged
		read = []string{"read-tree", "--empty"}
	default:
		read[2], x.Unstaged = x.To.Head+"^{tree}", true
	}
	if _, err := r.change(ctx, x.p, read...); err != nil {
		return err
	}
	if x.To.Index == "" && len(x.under.Conflicts) > 0 {
		p := x.p
		for _, c := range x.under.Conflicts {
			p.stdin += fmt.Sprintf("%s %s %s\t%s\x00", c.Mode, c.OID, c.Stage, c.Path)
		}
		if _, err := r.change(ctx, p, "update-index", "-z", "--index-info"); err != nil {
			return err
		}
	}
	if err := x.mark(ctx); err != nil {
		return err
	}
	at := filepath.Join(x.p.gitDir, "index")
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
func (x *Restoration) mark(ctx context.Context) error {
	if len(x.skipped) == 0 && len(x.present) == 0 && len(x.assumed) == 0 {
		return nil
	}
	there, err := x.entries(ctx)
	if err != nil {
		return err
	}
	for flag, paths := range map[string][]string{"--skip-worktree": slices.Concat(x.skipped, x.present), "--assume-unchanged": x.assumed} {
		p := x.p
		p.stdin = strings.Join(slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return there[path] == 0 }), "\x00")
		if p.stdin == "" {
			continue
		}
		if _, err := x.repo.change(ctx, p, "update-index", flag, "-z", "--stdin"); err != nil {
			return err
		}
	}
	return nil
}
