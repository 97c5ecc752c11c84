package preflight

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/provision"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// checkInSandbox checks that a new sandbox will have a program at a relative path, and that it can be executed there. A
// sandbox that exists may have any file, and so may one that agency.setup prepares.
func (s *subject) checkInSandbox(ctx context.Context, program string) result {
	looked := passed("%s is looked up in the sandbox", program)
	name := path.Clean(program)
	setup, _, err := s.repo.Settings.ShellCommand(settings.SetupKey)
	if s.req.Existing || setup != "" || err != nil || !filepath.IsLocal(name) || name == "." {
		return looked
	}
	base, err := s.base()
	if err != nil {
		return looked // checkBase reports it
	}
	mode, known, err := entryMode(ctx, s.repo.Git, base.commit, name)
	switch {
	case err != nil:
		return failedBy(err)
	case !known || mode == object.ModeSymlinkText:
		return looked
	case mode == "" && s.mayBeCopied(name):
		return looked
	case mode == "":
		return s.notCommitted(ctx, name)
	case !strings.HasPrefix(mode, "100"): // a directory or a submodule
		return result{
			failed: true, reason: fmt.Sprintf("%s is no file in the commit that the sandbox starts from", quote.Path(name)),
			remedy: "name a program that exists",
		}
	case mode != object.ModeExecutableText:
		return result{
			failed: true, reason: fmt.Sprintf("%s is not executable in the commit that the sandbox starts from", quote.Path(name)),
			remedy: "git update-index --chmod=+x " + quote.Shell(name) + " && git commit",
		}
	}
	return passed("%s, of the commit that the sandbox starts from", program)
}

// notCommitted returns the result for a program that neither the commit nor another source brings into the sandbox.
func (s *subject) notCommitted(ctx context.Context, name string) result {
	res := result{
		failed: true, reason: fmt.Sprintf("%s is not in the commit that the sandbox starts from", quote.Path(name)),
		remedy: "commit it: git add " + quote.Shell(name) + " && git commit; or start with your uncommitted files: --with-changes",
	}
	if ignored, err := s.isIgnored(ctx, name); err != nil {
		res.reason += "; it is unknown whether git ignores it: " + err.Error()
	} else if ignored {
		res.reason += ", and git ignores it"
		res.remedy = "copy it into sandboxes: git config --add agency.copy " + quote.Shell("/"+name) + "; or commit it: git add -f " + quote.Shell(name) + " && git commit"
	}
	return res
}

// isIgnored reports whether git ignores a file of the integration worktree.
func (s *subject) isIgnored(ctx context.Context, name string) (bool, error) {
	wt, err := s.repo.WithWarn(nil).Worktree(s.req.Start.Worktree)
	if err != nil {
		return false, err
	}
	gitDir, err := core.GitDirOf(s.repo.Git, wt.TreePath)
	if err != nil {
		return false, err
	}
	run := git.RunOptions{
		GitDir: gitDir, WorkTree: wt.TreePath, Stdin: name + "\x00",
		Reading: s.repo.Git.ReadingOf("evaluating the ignore rules of " + wt.TreePath),
	}
	_, err = s.repo.Git.RunRead(ctx, run, "check-ignore", "-z", "--stdin")
	if git.ExitedWith(err, 1, 128) { // 1: not ignored; 128: a path beyond a symbolic link
		return false, nil
	}
	return err == nil, err
}

// mayBeCopied reports whether --with-changes or agency.copy may put a file of the integration worktree into the sandbox.
func (s *subject) mayBeCopied(name string) bool {
	wt, err := s.repo.WithWarn(nil).Worktree(s.req.Start.Worktree)
	if err != nil || wt.TreePath == "" {
		return true // checkBase reports it
	}
	if _, err := os.Stat(filepath.Join(wt.TreePath, name)); err != nil {
		return false
	}
	patterns, err := s.repo.Settings.CopyPatterns()
	return err != nil || s.req.Start.WithChanges || provision.Selects(patterns, name)
}

// pathInWorktree returns the path of a file relative to the integration worktree, if it is in there.
func (s *subject) pathInWorktree(file string) (name string, isIn bool) {
	wt, err := s.repo.WithWarn(nil).Worktree(s.req.Start.Worktree)
	if err != nil || wt.TreePath == "" {
		return "", false
	}
	name, err = filepath.Rel(wt.TreePath, file)
	return name, err == nil && filepath.IsLocal(name)
}

// entryMode returns the mode of a path in the tree of a commit; empty if the tree has no such path. known is false if a
// symbolic link or a submodule is on the way to it.
func entryMode(ctx context.Context, repo *git.Repo, commit, name string) (mode string, known bool, err error) {
	args := []string{"--literal-pathspecs", "ls-tree", "-z", "--full-tree", commit, "--", name}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		args = append(args, dir)
	}
	out, err := repo.RunRead(ctx, git.RunOptions{Reading: repo.ReadingOf("listing files of " + commit)}, args...)
	if err != nil {
		return "", false, err
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		is, rest, _ := strings.Cut(line, " ")
		_, at, _ := strings.Cut(rest, "\t")
		switch {
		case at == name:
			return is, true, nil
		case is == object.ModeSymlinkText || is == object.ModeGitlinkText:
			return "", false, nil
		}
	}
	return "", true, nil
}
