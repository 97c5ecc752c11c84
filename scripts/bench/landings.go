package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// landingComparisons measures git's merge and cherry-pick against a landing, which also checks every file of the
// sandbox before, and ends the sandbox.
func (b *bench) landingComparisons(ctx context.Context) (_ []comparison, sound bool, err error) {
	large, err := b.newLandingRepo(ctx, "land-10000", 10_000)
	if err != nil {
		return nil, false, err
	}
	huge, err := b.newLandingRepo(ctx, "land-100000", 100_000)
	if err != nil {
		return nil, false, err
	}
	long, err := b.newLandingRepo(ctx, "land-many", 10_000) // leaves many packs, which would slow down the others
	if err != nil {
		return nil, false, err
	}
	return []comparison{
		{
			title: "land one commit, 10,000 files", rounds: 12, promise: promise{ratio: 0.8},
			baseName: "merge", base: large.merge, tool: large.land(1), check: large.checkLanded,
		},
		{
			title: "land one commit, 100,000 files", rounds: 6, promise: promise{ratio: 0.8},
			baseName: "merge", base: huge.merge, tool: huge.land(1), check: huge.checkLanded,
		},
		{
			title: "land 100 commits by rebase, 10,000 files", rounds: 4, promise: promise{ratio: 0.3},
			baseName: "cherry-pick", base: long.cherryPick, tool: long.land(100, "--strategy", "rebase"), check: long.checkLanded,
		},
		{
			title: "land on a branch without a checkout, 10,000 files", rounds: 12, promise: promise{extra: 25 * time.Millisecond},
			baseName: "status", base: large.statusOfSandbox, tool: large.landWithoutCheckout,
		},
		{
			title: "land on a branch without a checkout, 100,000 files", rounds: 4, promise: promise{extra: 25 * time.Millisecond},
			baseName: "status", base: huge.statusOfSandbox, tool: huge.landWithoutCheckout,
		},
	}, true, nil
}

// landingRepo is a repository with two worktrees: one for plain git, and the integration worktree that sandboxes land
// on.
type landingRepo struct {
	*repository
	integrationTree, gitWorktree string // paths
	topics                       int
	idleSandbox                  string // path of a sandbox that only statusOfSandbox uses
	files                        []string
}

func (b *bench) newLandingRepo(ctx context.Context, name string, files int) (*landingRepo, error) {
	r, err := b.newRepository(ctx, name, files)
	if err != nil {
		return nil, err
	}
	f := &landingRepo{repository: r}
	if _, err := r.addWorktree(ctx); err != nil {
		return nil, err
	}
	f.gitWorktree = r.rawWorktrees[0].path
	mine, _, err := b.agency(ctx, r.dir, "worktree", "path", worktreeName)
	if err != nil {
		return nil, err
	}
	f.integrationTree = strings.TrimSpace(mine)
	listed, _, err := b.git(ctx, r.dir, "ls-tree", "-r", "--name-only", "HEAD")
	if err != nil {
		return nil, err
	}
	f.files = strings.Fields(listed)
	for range 2 { // files as new as the index are racy: git would read them again
		for _, tree := range []string{f.integrationTree, f.gitWorktree} {
			if _, _, err := b.git(ctx, tree, "status"); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

// makeTopic creates a branch with commits that change three files each.
func (f *landingRepo) makeTopic(ctx context.Context, on string, commits int) (string, error) {
	f.topics++
	branch := fmt.Sprintf("topic-%d", f.topics)
	var stream strings.Builder
	for n := range commits {
		fmt.Fprintf(&stream, "commit refs/heads/%s\ncommitter bench <bench@localhost> %d +0000\ndata 5\ntopic\n", branch, 1_700_000_000+n)
		if n == 0 {
			fmt.Fprintf(&stream, "from %s\n", on)
		}
		for i := range 3 {
			name := f.files[(f.topics*7919+n*104_729+i*len(f.files)/3)%len(f.files)]
			text := fmt.Sprintf("topic %d, commit %d, file %d\n", f.topics, n, i)
			fmt.Fprintf(&stream, "M 100644 inline %s\ndata %d\n%s\n", name, len(text), text)
		}
	}
	_, _, err := f.b.run(ctx, command{argv: []string{"git", "fast-import", "--quiet", "--force"}, dir: f.dir, stdin: strings.NewReader(stream.String())})
	return branch, err
}

// merge merges with git, in the worktree that has the branch checked out.
func (f *landingRepo) merge(ctx context.Context) (time.Duration, error) {
	topic, err := f.makeTopic(ctx, f.base, 1)
	if err != nil {
		return 0, err
	}
	_, took, err := f.b.git(ctx, f.gitWorktree, "merge", "--quiet", "--no-ff", "-m", "merge", "-X", "theirs", topic)
	return took, err
}

func (f *landingRepo) cherryPick(ctx context.Context) (time.Duration, error) {
	head, _, err := f.b.git(ctx, f.gitWorktree, "rev-parse", "HEAD")
	if err != nil {
		return 0, err
	}
	topic, err := f.makeTopic(ctx, strings.TrimSpace(head), 100)
	if err != nil {
		return 0, err
	}
	// The branch must have moved, or cherry-pick would only fast-forward.
	if _, _, err := f.b.git(ctx, f.gitWorktree, "commit", "--quiet", "--allow-empty", "-m", "meanwhile"); err != nil {
		return 0, err
	}
	_, took, err := f.b.git(ctx, f.gitWorktree, "cherry-pick", strings.TrimSpace(head)+".."+topic)
	return took, err
}

// land lands a sandbox that has this many commits and no other changes.
func (f *landingRepo) land(commits int, how ...string) timedRun {
	return func(ctx context.Context) (time.Duration, error) {
		id, err := f.startWithCommits(ctx, commits)
		if err != nil {
			return 0, err
		}
		if commits > 1 {
			if _, _, err := f.b.git(ctx, f.integrationTree, "commit", "--quiet", "--allow-empty", "-m", "meanwhile"); err != nil {
				return 0, err
			}
		}
		_, took, err := f.b.agency(ctx, f.dir, append([]string{"land", id}, how...)...)
		if err != nil {
			return 0, err
		}
		// The removal of the sandbox's files would slow down the next measurement.
		data := filepath.Dir(filepath.Dir(filepath.Dir(f.integrationTree))) // repos/<repo_id>
		return took, waitRemoved(ctx, filepath.Join(data, "sandboxes", id))
	}
}

// startWithCommits starts a sandbox and adds commits to it.
func (f *landingRepo) startWithCommits(ctx context.Context, commits int) (string, error) {
	if _, err := f.startSandbox(ctx); err != nil {
		return "", err
	}
	id := f.sandboxes[len(f.sandboxes)-1]
	tree, err := f.sandboxPath(ctx, id)
	if err != nil {
		return "", err
	}
	topic, err := f.makeTopic(ctx, "refs/heads/agency/sandbox-"+id, commits)
	if err != nil {
		return "", err
	}
	if _, _, err := f.b.git(ctx, tree, "merge", "--quiet", "--ff-only", topic); err != nil {
		return "", err
	}
	for range 2 {
		if _, _, err := f.b.git(ctx, tree, "status"); err != nil {
			return "", err
		}
	}
	return id, nil
}

// statusOfSandbox measures how long git takes to see that a sandbox has no uncommitted changes.
func (f *landingRepo) statusOfSandbox(ctx context.Context) (time.Duration, error) {
	if f.idleSandbox == "" {
		id, err := f.startWithCommits(ctx, 1)
		if err != nil {
			return 0, err
		}
		if f.idleSandbox, err = f.sandboxPath(ctx, id); err != nil {
			return 0, err
		}
	}
	_, took, err := f.b.git(ctx, f.idleSandbox, "status", "--porcelain")
	return took, err
}

// landWithoutCheckout is land while no worktree has the integration branch checked out.
func (f *landingRepo) landWithoutCheckout(ctx context.Context) (time.Duration, error) {
	if _, _, err := f.b.git(ctx, f.integrationTree, "checkout", "--quiet", "--detach"); err != nil {
		return 0, err
	}
	return f.land(1)(ctx)
}

// checkLanded makes sure that the files of the integration worktree match the landed commits.
func (f *landingRepo) checkLanded(ctx context.Context) error {
	status, _, err := f.b.git(ctx, f.integrationTree, "status", "--porcelain")
	if err == nil && status != "" {
		err = fmt.Errorf("the integration worktree differs from the landed commit:\n%s", status)
	}
	return err
}
