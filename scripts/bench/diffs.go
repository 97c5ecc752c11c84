package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// diffComparisons measures diffs of two snapshots of a large tree, and of a file so long and so changed that go-diff
// alone gives up on it after five seconds. With --color, changed words are highlighted as well.
func (b *bench) diffComparisons(ctx context.Context) (_ []comparison, sound bool, err error) {
	many, err := b.newDiffRepo(ctx, "states", 10_000, func(tree string) error { return changeFiles(filepath.Join(tree, "src"), 10) })
	if err != nil {
		return nil, false, err
	}
	before, after := longText()
	long, err := b.newDiffRepo(ctx, "long", 1, func(tree string) error { return os.WriteFile(filepath.Join(tree, "long"), before, 0o600) })
	if err != nil {
		return nil, false, err
	}
	if err := long.takeSnapshot(ctx, func(tree string) error { return os.WriteFile(filepath.Join(tree, "long"), after, 0o600) }); err != nil {
		return nil, false, err
	}
	work, err := b.newDiffRepo(ctx, "work", 30_000, func(tree string) error { return changeFiles(filepath.Join(tree, "src"), 10) })
	if err != nil {
		return nil, false, err
	}
	if _, _, err := b.git(ctx, work.tree, "status"); err != nil { // writes the index, so that git reads no unchanged file
		return nil, false, err
	}
	const sensible = 2 * time.Second
	return []comparison{
		{
			title: "diff of a sandbox, 30,000", rounds: 20, promise: promise{ratio: 1.5}, baseName: "diff + status",
			base: work.gitDiffAndStatus, tool: b.timeCommand(b.tool, work.dir, "diff", work.id), check: work.checkWork, useFastest: true,
		},
		{
			title: "diff of two snapshots, 10,000", rounds: 30, promise: promise{ratio: 1.3, extra: 20 * time.Millisecond},
			base: many.gitDiff(), tool: many.diff(), check: many.checkDiff(10), useFastest: true,
		},
		{
			title: "diff --color of the same", rounds: 30, promise: promise{ratio: 1.3, extra: 20 * time.Millisecond},
			base: many.gitDiff("--color"), tool: many.diff("--color"), useFastest: true,
		},
		{
			title: "diff, 60,000 lines, 30 %", rounds: 6, promise: promise{limit: sensible},
			base: long.gitDiff(), tool: long.diff(), check: long.checkDiff(1),
		},
		{
			title: "diff --color of the same", rounds: 6, promise: promise{limit: sensible},
			base: long.gitDiff("--color", "--word-diff=color"), tool: long.diff("--color"),
		},
	}, true, nil
}

// diffRepo is a repository with a sandbox that has snapshots.
type diffRepo struct {
	*repository
	id, tree  string
	snapshots []string // commit ids
}

// newDiffRepo takes a snapshot of a new sandbox, and another one after a change.
func (b *bench) newDiffRepo(ctx context.Context, name string, files int, change func(tree string) error) (*diffRepo, error) {
	repository, err := b.newRepository(ctx, name, files)
	if err != nil {
		return nil, err
	}
	id, _, err := b.agency(ctx, repository.dir, "start", worktreeName, "--isolation", "none")
	if err != nil {
		return nil, err
	}
	s := &diffRepo{repository: repository, id: strings.TrimSpace(id)}
	if s.tree, err = repository.sandboxPath(ctx, s.id); err != nil {
		return nil, err
	}
	if err := s.takeSnapshot(ctx, func(string) error { return nil }); err != nil {
		return nil, err
	}
	return s, s.takeSnapshot(ctx, change)
}

// takeSnapshot applies a change and takes a snapshot.
func (s *diffRepo) takeSnapshot(ctx context.Context, change func(tree string) error) error {
	if err := change(s.tree); err != nil {
		return err
	}
	commit, _, err := s.b.agency(ctx, s.dir, "snapshot", "create", s.id)
	s.snapshots = append(s.snapshots, strings.TrimSpace(commit))
	return err
}

// gitDiff compares the last two snapshots with git.
func (s *diffRepo) gitDiff(options ...string) timedRun {
	args := append([]string{"diff"}, options...)
	return s.b.timeCommand("git", s.dir, append(args, s.snapshots[len(s.snapshots)-2], s.snapshots[len(s.snapshots)-1])...)
}

// diff compares them with git-agency.
func (s *diffRepo) diff(options ...string) timedRun {
	args := append([]string{"diff", s.id, "--from", s.snapshotName(len(s.snapshots) - 1), "--to", s.snapshotName(len(s.snapshots))}, options...)
	return s.b.timeCommand(s.b.tool, s.dir, args...)
}

// gitDiffAndStatus shows the uncommitted changes of the sandbox, and its untracked files, with git. It leaves the index as it
// is: the first of several runs would else save the others their work.
func (s *diffRepo) gitDiffAndStatus(ctx context.Context) (time.Duration, error) {
	_, diff, err := s.b.git(ctx, s.tree, "--no-optional-locks", "diff", "HEAD")
	if err != nil {
		return 0, err
	}
	_, status, err := s.b.git(ctx, s.tree, "--no-optional-locks", "status", "--porcelain")
	return diff + status, err
}

// checkWork makes sure that the diff of the sandbox is the one that git shows.
func (s *diffRepo) checkWork(ctx context.Context) error {
	want, _, err := s.b.git(ctx, s.tree, "--no-optional-locks", "diff", "--shortstat", "HEAD")
	if err != nil {
		return err
	}
	out, _, err := s.b.agency(ctx, s.dir, "diff", s.id)
	if err == nil && !strings.HasPrefix(out, want) {
		err = fmt.Errorf("git says %q, and the tool %q", want, strings.SplitN(out, "\n", 2)[0])
	}
	return err
}

func (s *diffRepo) snapshotName(n int) string { return fmt.Sprintf("%s/%d", s.id, n) }

// checkDiff makes sure that the diff has the same number of changed lines as git's, and the expected number of files.
func (s *diffRepo) checkDiff(files int) func(context.Context) error {
	return func(ctx context.Context) error {
		stat, _, err := s.b.git(ctx, s.dir, "diff", "--shortstat", s.snapshots[len(s.snapshots)-2], s.snapshots[len(s.snapshots)-1])
		if err != nil {
			return err
		}
		out, _, err := s.b.agency(ctx, s.dir, "diff", s.id, "--from", s.snapshotName(len(s.snapshots)-1), "--to", s.snapshotName(len(s.snapshots)))
		if err == nil && (!strings.HasPrefix(out, stat) || strings.Count(out, "\ndiff --git ") != files) {
			err = fmt.Errorf("git says %q, and the tool %q", stat, strings.SplitN(out, "\n", 2)[0])
		}
		return err
	}
}

// changeFiles changes one line in each of the first files below a directory.
func changeFiles(dir string, files int) error {
	enough := errors.New("enough")
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if files == 0 {
			return enough
		}
		files--
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines := bytes.SplitAfter(text, []byte("\n"))
		lines[len(lines)/2] = []byte("touched up\n")
		return os.WriteFile(path, bytes.Join(lines, nil), 0o600)
	})
	if errors.Is(err, enough) {
		return nil
	}
	return err
}

// longText returns 60,000 lines, and the same with small changes in 30 % of them.
func longText() (before, after []byte) {
	const n = 60_000
	seed := uint64(1)
	for i := range n {
		seed = seed*6364136223846793005 + 1442695040888963407
		line := fmt.Sprintf("\tvalue_%d := compute(%d, %q)\n", i, seed>>40, "some words in a line")
		before = append(before, line...)
		if seed>>33%10 < 3 {
			line = strings.Replace(line, "compute", "recompute", 1)
		}
		after = append(after, line...)
	}
	return before, after
}
