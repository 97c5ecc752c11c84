package creation

import (
	"context"
	"fmt"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/provision"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// CopyProgress is the progress of copying the files of agency.copy.
type CopyProgress struct {
	Files int   // number of files copied
	Bytes int64 // their size
	Done  bool  // the last call; warnings may follow
}

// prepareCopy begins to look for the ignored files of the integration worktree that agency.copy names. The function
// copyFiles copies them into the tree of a new sandbox; it is nil if there is nothing to copy. A sandbox in which a landing
// is verified gets them too, since tests need what they need in other sandboxes; a restored one does not, since its trash
// is all that it had. The caller calls stop at the end.
func prepareCopy(ctx context.Context, r *core.Repository, repo *git.Repo, plan Plan, wt core.Worktree, id string) (copyFiles func() error, stop func(), err error) {
	stop = func() {}
	patterns, err := r.Settings.CopyPatterns()
	if err != nil || len(patterns) == 0 || plan.restores != "" {
		return nil, stop, err
	}
	gitDir, err := core.GitDirOf(repo, wt.TreePath)
	if err != nil {
		return nil, stop, err
	}
	// Commands of a sandbox without walls can write the repository's configuration: see core.TrustsRepoConfig.
	trusted := plan.prims.Isolation == settings.IsolationOS && r.TrustsRepoConfig(wt.ID)
	finding, cancel := context.WithCancel(ctx)
	found := proc.Async(func() (provision.Selection, error) { // while the files are checked out
		return provision.Find(finding, repo, provision.Request{Tree: wt.TreePath, GitDir: gitDir, Patterns: patterns, TrustConfig: trusted})
	})
	stop = func() { cancel(); _, _ = found() }
	return func() error {
		selection, err := found()
		if err != nil {
			return fmt.Errorf("find the files of agency.copy in %s: %w", wt.TreePath, err)
		}
		to := provision.Destination{Tree: r.Store.SandboxTreePath(r.ID, id), TrustConfig: trusted}
		if to.Overlay, err = r.OverlayTree(id); err != nil {
			return err
		}
		last := CopyProgress{}
		if plan.Progress != nil {
			to.Progress = func(p provision.Progress) {
				last = CopyProgress{Files: p.Files, Bytes: p.Bytes}
				plan.Progress(last)
			}
		}
		result, err := selection.CopyTo(ctx, repo, to)
		if last.Done = true; plan.Progress != nil {
			plan.Progress(last)
		}
		if err == nil && plan.verifies == "" {
			if plan.WithChanges { // the sandbox has them, but for credentials, of which a warning tells
				selection.NotIgnored = nil
			}
			warnNotCopied(r, selection, result)
		}
		return err
	}, stop, nil
}

// warnNotCopied warns about files that agency.copy names and that are not copied.
func warnNotCopied(r *core.Repository, selection provision.Selection, result provision.Result) {
	for _, w := range []struct {
		names []string
		why   string
	}{
		{selection.NotIgnored, "they are not ignored in the integration worktree"},
		{result.NotIgnored, "they are not ignored in the commit of the sandbox"},
		{result.InTheWay, "the sandbox has something else in their place"},
		{result.Special, "they are named pipes, sockets or devices"},
	} {
		if len(w.names) > 0 {
			r.Warn("files of agency.copy are not in the sandbox, because %s: %s", w.why, firstPaths(w.names))
		}
	}
	warnUnmatched(r, selection.Unmatched)
}

// warnUnmatched warns about patterns that match no file and are meant for this repository. One with a space is, in any
// configuration, most likely a list of patterns.
func warnUnmatched(r *core.Repository, patterns []string) {
	for _, pattern := range patterns {
		switch {
		case strings.Contains(pattern, " "):
			r.Warn("agency.copy: no file matches the pattern '%s'; each value is one pattern: git config --add agency.copy '<pattern>'", pattern)
		case !r.Settings.IsSharedCopyPattern(pattern):
			r.Warn("agency.copy: no file matches the pattern '%s'", pattern)
		}
	}
}

// firstPaths lists the first of some paths on one line.
func firstPaths(paths []string) string {
	const most = 3
	var shown []string
	for _, p := range paths[:min(len(paths), most)] {
		shown = append(shown, quote.Path(p))
	}
	text := strings.Join(shown, ", ")
	if more := len(paths) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
