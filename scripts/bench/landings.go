package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// landingComparisons measures git's merge and cherry-pick against a landing, which also checks every file of the
// sandbox before, and ends the sandbox.
func (b *bench) landings(ctx context.Context) (_ []contest, sound bool, err error) {
	large, err := b.newLanding(ctx, "land-10000", 10_000)
	if err != nil {
		return nil, false, err
	}
	huge, err := b.newLanding(ctx, "land-100000", 100_000)
	if err != nil {
		return nil, false, err
	}
	long, err := b.newLanding(ctx, "land-many", 10_000) // leaves many packs, which would slow down the others
	if err != nil {
		return nil, false, err
	}
	return []contest{
		{
			what: "land one commit, 10,000 files", rounds: 12, promise: promise{ratio: 0.8},
			baseName: "merge", base: large.merge, tool: large.land(1), check: large.check,
		},
		{
			what: "land one commit, 100,000 files", rounds: 6, promise: promise{ratio: 0.8},
			baseName: "merge", base: huge.merge, tool: huge.land(1), check: huge.check,
		},
		{
			what: "land 100 commits by rebase, 10,000 files", rounds: 4, promise: promise{ratio: 0.3},
			baseName: "cherry-pick", base: long.cherryPick, tool: long.land(100, "--strategy", "rebase"), check: long.check,
		},
		{
			what: "land where nobody has it checked out, 10,000 files", rounds: 12, promise: promise{extra: 25 * time.Millisecond},
			baseName: "a look at the sandbox", base: large.look, tool: large.landElsewhere,
		},
		{
			what: "land where nobody has it checked out, 100,000 files", rounds: 4, promise: promise{extra: 25 * time.Millisecond},
			baseName: "a look at the sandbox", base: huge.look, tool: huge.landElsewhere,
		},
	}, true, nil
}

// landingRepo is a repository with two worktrees: one for plain git, and the integration worktree that sandboxes land
// on.
type field struct {
	*repository
	mine, theirs string // paths
	topics       int
	kept         string // path of a sandbox that only statusOfSandbox uses
	files        []string
}

func (b *bench) newLanding(ctx context.Context, name string, files int) (*field, error) {
	r, err := b.newRepository(ctx, name, files)
	if err != nil {
		return nil, err
	}
	f := &field{repository: r}
	if _, err := r.add(ctx); err != nil {
		return nil, err
	}
	f.theirs = r.raw[0].path
	mine, _, err := b.agency(ctx, r.dir, "worktree", "path", worktreeName)
	if err != nil {
		return nil, err
	}
	f.mine = strings.TrimSpace(mine)
	listed, _, err := b.git(ctx, r.dir, "ls-tree", "-r", "--name-only", "HEAD")
	if err != nil {
		return nil, err
	}
	f.files = strings.Fields(listed)
	for range 2 { // files as new as the index are racy: git would read them again
		for _, tree := range []string{f.mine, f.theirs} {
			if _, _, err := b.git(ctx, tree, "status"); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

// makeTopic creates a branch with commits that change three files each.
func (f *field) topic(ctx context.Context, on string, commits int) (string, error) {
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
func (f *field) merge(ctx context.Context) (time.Duration, error) {
	topic, err := f.topic(ctx, f.base, 1)
	if err != nil {
		return 0, err
	}
	_, took, err := f.b.git(ctx, f.theirs, "merge", "--quiet", "--no-ff", "-m", "merge", "-X", "theirs", topic)
	return took, err
}

func (f *field) cherryPick(ctx context.Context) (time.Duration, error) {
	head, _, err := f.b.git(ctx, f.theirs, "rev-parse", "HEAD")
	if err != nil {
		return 0, err
	}
	topic, err := f.topic(ctx, strings.TrimSpace(head), 100)
	if err != nil {
		return 0, err
	}
	// The branch must have moved, or cherry-pick would only fast-forward.
	if _, _, err := f.b.git(ctx, f.theirs, "commit", "--quiet", "--allow-empty", "-m", "meanwhile"); err != nil {
		return 0, err
	}
	_, took, err := f.b.git(ctx, f.theirs, "cherry-pick", strings.TrimSpace(head)+".."+topic)
	return took, err
}

// land lands a sandbox that has this many commits and no other changes.
func (f *field) land(commits int, how ...string) variant {
	return func(ctx context.Context) (time.Duration, error) {
		id, err := f.sandbox(ctx, commits)
		if err != nil {
			return 0, err
		}
		if commits > 1 {
			if _, _, err := f.b.git(ctx, f.mine, "commit", "--quiet", "--allow-empty", "-m", "meanwhile"); err != nil {
				return 0, err
			}
		}
		_, took, err := f.b.agency(ctx, f.dir, append([]string{"land", id}, how...)...)
		if err != nil {
			return 0, err
		}
		return took, f.tidied(ctx, id)
	}
}

// startWithCommits starts a sandbox and adds commits to it.
func (f *field) sandbox(ctx context.Context, commits int) (string, error) {
	if _, err := f.start(ctx); err != nil {
		return "", err
	}
	id := f.sandboxes[len(f.sandboxes)-1]
	tree, err := f.sandboxPath(ctx, id)
	if err != nil {
		return "", err
	}
	topic, err := f.topic(ctx, "refs/heads/agency/sandbox-"+id, commits)
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

// waitRemoved waits until the sandbox's files are removed; otherwise their removal would slow down the next
// measurement.
func (f *field) tidied(ctx context.Context, id string) error {
	data := filepath.Dir(filepath.Dir(filepath.Dir(f.mine))) // repos/<repo_id>
	for {
		if _, err := os.Lstat(filepath.Join(data, "sandboxes", id)); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// statusOfSandbox measures how long git takes to see that a sandbox has no uncommitted changes.
func (f *field) look(ctx context.Context) (time.Duration, error) {
	if f.kept == "" {
		id, err := f.sandbox(ctx, 1)
		if err != nil {
			return 0, err
		}
		if f.kept, err = f.sandboxPath(ctx, id); err != nil {
			return 0, err
		}
	}
	_, took, err := f.b.git(ctx, f.kept, "status", "--porcelain")
	return took, err
}

// landWithoutCheckout is land while no worktree has the integration branch checked out.
func (f *field) landElsewhere(ctx context.Context) (time.Duration, error) {
	if _, _, err := f.b.git(ctx, f.mine, "checkout", "--quiet", "--detach"); err != nil {
		return 0, err
	}
	return f.land(1)(ctx)
}

// checkLanded makes sure that the files of the integration worktree match the landed commits.
func (f *field) check(ctx context.Context) error {
	status, _, err := f.b.git(ctx, f.mine, "status", "--porcelain")
	if err == nil && status != "" {
		err = fmt.Errorf("the integration tree is not what has landed:\n%s", status)
	}
	return err
}
