package resolve

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
)

// checkResolution says what is wrong with the commits of an agent that has ended and left nothing uncommitted; empty if
// nothing is.
func (t *attempt) checkResolution(ctx context.Context, s *sandbox.Sandbox) string {
	head, err := t.repo.Git.Head(ctx, s.SnapshotSubject(t.record.BaseCommit, ""))
	if err != nil {
		return "its resolution cannot be read: " + err.Error()
	}
	merged, err := t.repo.Git.IsAncestor(ctx, t.synced.Commit, head)
	if err == nil && !merged {
		return "it did not complete the merge"
	}
	var marked []string
	if err == nil {
		marked, err = filesWithMarkers(ctx, t.repo.Git, t.synced, head)
	}
	if err != nil {
		return "its resolution cannot be read: " + err.Error()
	}
	if len(marked) > 0 {
		return "it left conflict markers in:\n" + fault.ListPaths(marked)
	}
	return ""
}

// resolvedMarkers are the markers of which none may be left. The line of equals signs between two sides is also an underline
// in text files, and no conflict has it alone.
const resolvedMarkers = "<>|"

// filesWithMarkers lists the files that were in conflict and have conflict markers in a commit that no side of the conflict
// has.
func filesWithMarkers(ctx context.Context, repo *git.Repo, synced sandbox.SyncResult, commit string) (_ []string, err error) {
	changes, err := repo.TreeChanges(ctx, git.RunOptions{}, synced.Commit, commit)
	if err != nil {
		return nil, err
	}
	resolved := map[string]string{} // path to object, of the files that differ from the integration branch
	for _, c := range changes {
		if c.NewMode != object.ModeGitlinkText && c.Status != 'D' {
			resolved[c.Path] = c.NewOID
		}
	}
	cat, err := repo.OpenCatFileAt(ctx, git.RunOptions{Reading: repo.ReadingOf("the files that were in conflict")})
	if err != nil {
		return nil, err
	}
	defer func() {
		_, endErr := cat.End()
		err = errors.Join(err, endErr)
	}()
	var marked []string
	for _, c := range synced.Conflicts {
		oid, is := resolved[c.Path]
		if !is {
			continue
		}
		oids := []string{oid}
		for _, side := range c.Stages {
			if side.Mode != object.ModeGitlinkText && side.OID != oid {
				oids = append(oids, side.OID)
			}
		}
		var own []string
		known := map[string]bool{}
		if err := cat.QueryEach(ctx, "contents", oids, func(i int, a git.CatFileAnswer) error {
			if err := errors.Join(a.Err, a.CheckKnown()); err != nil {
				return err
			}
			lines, err := merge.MarkerLines(a.Body, resolvedMarkers)
			if i == 0 {
				own = lines
			}
			for _, line := range lines {
				known[line] = known[line] || i > 0
			}
			return err
		}); err != nil {
			return nil, fmt.Errorf("read %q: %w", c.Path, err)
		}
		if slices.ContainsFunc(own, func(line string) bool { return !known[line] }) {
			marked = append(marked, c.Path)
		}
	}
	return marked, nil
}
