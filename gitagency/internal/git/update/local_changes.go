package update

import (
	"context"
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// localChangesError returns a *LocalChangesError if there are overlaps.
func (co *checkout) localChangesError(ctx context.Context) error {
	if len(co.overlaps) == 0 {
		return nil
	}
	err := newLocalChangesError(ctx, co.repo, co.spec, co.overlaps)
	var changes *LocalChangesError
	if !errors.As(err, &changes) {
		return err
	}
	atStart := co.startVersions(ctx)
	changes.AlreadyNew, changes.AsStarted = true, true
	for _, o := range changes.Paths {
		t := co.changeByPath[o.Path]
		isNew := t != nil && co.hasVersion(o.Path, t.TreeChange)
		changes.AlreadyNew = changes.AlreadyNew && isNew
		changes.AsStarted = changes.AsStarted && (isNew || t != nil && co.hasVersion(o.Path, atStart[o.Path]))
	}
	return err
}

// startVersions returns the files that Update.StartFiles has in another version than the old commit. It returns none if
// git gc has removed that commit, which no ref keeps.
func (co *checkout) startVersions(ctx context.Context) map[string]git.TreeChange {
	files := map[string]git.TreeChange{}
	if co.spec.StartFiles == "" {
		return files
	}
	changes, err := co.repo.TreeChanges(ctx, git.RunOptions{}, co.spec.Old, co.spec.StartFiles)
	if err != nil {
		return files
	}
	for _, c := range changes {
		files[c.Path] = c
	}
	return files
}

// hasVersion reports whether a changed or untracked file has the content and mode that a change of trees would give it.
// Files that a filter converts do not count.
func (co *checkout) hasVersion(name string, c git.TreeChange) bool {
	if co.overlaps[name] == OverlapStaged || c.NewMode != "100644" && c.NewMode != "100755" {
		return false
	}
	file := filepath.Join(co.spec.Worktree, filepath.FromSlash(name))
	st, err := os.Lstat(file)
	const largest = 16 << 20
	if err != nil || !st.Mode().IsRegular() || st.Size() > largest || (st.Mode()&0o100 != 0) != (c.NewMode == "100755") {
		return false
	}
	content, err := os.ReadFile(file)
	return err == nil && hex.EncodeToString(object.HashObject(co.format, "blob", content)) == c.NewOID
}

// newLocalChangesError returns a *LocalChangesError, and asks git which of the untracked paths are ignored.
func newLocalChangesError(ctx context.Context, r *git.Repo, u Update, overlaps map[string]string) error {
	var unknown []string
	for name, why := range overlaps {
		if why == OverlapUntracked {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		p := git.RunOptions{GitDir: u.GitDir, WorkTree: u.Worktree, Stdin: strings.Join(unknown, "\x00") + "\x00", Reading: r.ReadingOf("evaluating the ignore rules of " + u.Worktree)}
		out, err := r.RunRead(ctx, p, "check-ignore", "-z", "--stdin")
		if err != nil && !git.ExitedWith(err, 1, 128) { // 1: none is ignored; 128: a path beyond a symlink
			return err
		}
		for name := range strings.SplitSeq(string(out), "\x00") {
			if overlaps[name] != "" {
				overlaps[name] = OverlapIgnored
			}
		}
	}
	e := &LocalChangesError{Worktree: u.Worktree}
	for _, name := range slices.Sorted(maps.Keys(overlaps)) {
		e.Paths = append(e.Paths, Overlap{Path: name, Reason: overlaps[name]})
	}
	return e
}
