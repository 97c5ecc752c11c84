package git

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// HeadRefOrCommit returns the full ref or the commit that HEAD of a worktree names; where HEAD is malformed, the
// worktree's own branch.
func (r *Repo) HeadRefOrCommit(s WorktreeSpec) (string, error) {
	head, err := ReadHead(r.AdminDir(s.Name))
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "", err // HEAD exists, and may name a commit that is nowhere else
	case object.IsOID(head.Commit):
		return head.Commit, nil
	case strings.HasPrefix(head.Branch, "refs/"):
		return head.Branch, nil
	}
	return s.Branch, nil
}

// HeadFromFiles returns the commit of HEAD as read from HEAD and the loose ref, without git. It is not ok where only
// git can tell; whether the commit exists is not checked.
func (r *Repo) HeadFromFiles(s WorktreeSpec) (commit string, ok bool) {
	head, err := ReadHead(r.AdminDir(s.Name))
	if err != nil || s.IndexCache != "" {
		return "", false
	}
	if object.IsOID(head.Commit) {
		return head.Commit, true
	}
	commit, ok = r.ReadRefFile(head.Branch)
	return commit, ok && commit != ""
}

// operationHeads are the files in the git directory of a worktree that name commits of an operation in progress (merge,
// cherry-pick, revert, rebase), which may be reachable from nothing else.
var operationHeads = []string{
	"MERGE_HEAD", "MERGE_AUTOSTASH", "CHERRY_PICK_HEAD", "REVERT_HEAD",
	"rebase-merge/orig-head", "rebase-merge/autostash", "rebase-apply/orig-head", "rebase-apply/autostash",
}

// CapturedParents lists the parents of a captured state: first, and those of the tips and of the commits of an
// operation in progress that are not reachable from it. For the other commits in the log of HEAD it writes one more
// parent, which has all of them as parents and tree, that of first, as its tree. It lists none if first is empty.
func (r *Repo) CapturedParents(ctx context.Context, s WorktreeSpec, first, tree string, tips ...string) ([]string, error) {
	if first == "" {
		return nil, nil
	}
	parents, err := r.AddIndependent(ctx, []string{first}, append(tips, r.operationCommits(s)...))
	if err != nil {
		return nil, err
	}
	// Commits that were amended or reset away become parents of one additional commit.
	kept := len(parents)
	forgotten, err := r.AddIndependent(ctx, parents, r.ReflogCommits(s))
	if err != nil {
		return nil, err
	}
	if len(forgotten) > kept {
		commit, err := r.CommitTree(ctx, s, tree, forgotten[kept:], "what only the log of HEAD remembered")
		if err != nil {
			return nil, err
		}
		parents = append(parents, commit)
	}
	return parents, nil
}

// operationCommits lists the commits that a merge or rebase in progress needs.
func (r *Repo) operationCommits(s WorktreeSpec) []string {
	var commits []string
	for _, name := range operationHeads {
		if data, err := ReadSmallFile(r.AdminDir(s.Name), name); err == nil {
			commits = append(commits, strings.Fields(string(data))...)
		}
	}
	return commits
}

// ReflogCommits lists the commits in the log of HEAD of a worktree, the newest first. An unreadable log is empty.
func (r *Repo) ReflogCommits(s WorktreeSpec) []string {
	data, err := durable.ReadFile(filepath.Join(r.AdminDir(s.Name), "logs", "HEAD"), 1<<22)
	if err != nil {
		return nil // a reflog is optional
	}
	const most = 5000 // they become command line arguments
	var commits []string
	seen := map[string]bool{}
	for _, line := range slices.Backward(strings.Split(string(data), "\n")) {
		if fields := strings.Fields(line); len(fields) > 1 && object.IsOID(fields[1]) && !seen[fields[1]] && len(commits) < most {
			seen[fields[1]] = true
			commits = append(commits, fields[1])
		}
	}
	return commits
}

// OnlyKnownCommits reports whether the log of HEAD, an operation in progress and, in a sandbox, the refs and logs of
// its upper directory name no commit but known ones. Then these hold all that a capture would add as history.
// It is false where that cannot be read from outside of the sandbox.
func (r *Repo) OnlyKnownCommits(s WorktreeSpec, known map[string]bool) bool {
	unknown := func(oid string) bool { return object.IsOID(oid) && !known[oid] && strings.Trim(oid, "0") != "" }
	if slices.ContainsFunc(slices.Concat(r.ReflogCommits(s), r.operationCommits(s)), unknown) {
		return false
	}
	if s.UpperDir == "" {
		return true
	}
	whole := true
	for _, top := range []string{"refs", "logs", "worktrees", "packed-refs"} {
		err := filepath.WalkDir(filepath.Join(s.UpperDir, top), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil && IsNotExist(err):
				return nil
			case err != nil:
				return err
			case d.IsDir() || !d.Type().IsRegular() || d.Name() == "index":
				return nil
			}
			data, err := durable.ReadFile(path, 1<<22)
			if err != nil {
				return err
			}
			whole = whole && !slices.ContainsFunc(strings.Fields(string(data)), unknown)
			return nil
		})
		if err != nil {
			return false
		}
	}
	return whole
}

// ReflogCommitsElsewhere lists the commits in all reflogs of the repository, except those of the worktree of a name and
// that of one ref. Unreadable logs are skipped.
func (r *Repo) ReflogCommitsElsewhere(name, ref string) []string {
	const most = 64 << 20 // of one log
	seen := map[string]bool{}
	read := func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || path == filepath.Join(r.CommonDir, "logs", ref) {
			return nil // a reflog is optional
		}
		data, err := durable.ReadFile(path, most)
		if err != nil {
			return nil
		}
		for line := range strings.Lines(string(data)) {
			for _, oid := range strings.SplitN(line, " ", 3)[:min(2, strings.Count(line, " "))] {
				if object.IsOID(oid) && strings.Trim(oid, "0") != "" {
					seen[oid] = true
				}
			}
		}
		return nil
	}
	_ = filepath.WalkDir(filepath.Join(r.CommonDir, "logs"), read)
	worktrees, _ := os.ReadDir(filepath.Join(r.CommonDir, "worktrees"))
	for _, w := range worktrees {
		if w.IsDir() && w.Name() != name {
			_ = filepath.WalkDir(filepath.Join(r.AdminDir(w.Name()), "logs"), read)
		}
	}
	return slices.Collect(maps.Keys(seen))
}

// AddIndependent returns have and those of the candidates that exist and are not reachable from have, nor from each
// other.
func (r *Repo) AddIndependent(ctx context.Context, have, candidates []string) ([]string, error) {
	var names []string
	for _, c := range candidates {
		if object.IsOID(c) && !slices.Contains(have, c) {
			names = append(names, c+"^{commit}")
		}
	}
	if len(names) == 0 {
		return have, nil
	}
	found, err := r.Lookup(ctx, names...)
	if err != nil {
		return nil, err
	}
	var there []string
	for _, o := range found {
		if !o.Missing() {
			there = append(there, o.OID)
		}
	}
	if len(there) == 0 {
		return have, nil
	}
	out, err := r.RunRead(ctx, RunOptions{}, slices.Concat([]string{"merge-base", "--independent"}, have, there)...)
	if err != nil {
		return nil, err
	}
	all := slices.Clone(have)
	for _, c := range strings.Fields(string(out)) {
		if !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	return all, nil
}

// MergeBase returns a merge base of two commits; empty: none, or a commit is missing.
func (r *Repo) MergeBase(ctx context.Context, a, b string) (string, error) {
	out, err := r.RunRead(ctx, RunOptions{Env: []string{"GIT_NO_REPLACE_OBJECTS=1"}}, "merge-base", a, b)
	if ExitedWith(err, 1, 128) { // 1: no merge base; 128: a commit is missing
		return "", nil
	}
	return strings.TrimSpace(string(out)), err
}
