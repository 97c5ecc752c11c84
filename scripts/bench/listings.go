package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// listingComparisons measures every output format of ls. Listing many invocations must not start more git processes than
// listing few.
func (b *bench) listingComparisons(ctx context.Context) (_ []comparison, sound bool, err error) {
	few, err := b.newListingRepo(ctx, "few", 10)
	if err != nil {
		return nil, false, err
	}
	many, err := b.newListingRepo(ctx, "many", 1000)
	if err != nil {
		return nil, false, err
	}
	if sound, err = b.checkProcesses(ctx, few, many); err != nil {
		return nil, false, err
	}
	version := b.timeCommand(b.tool, many.dir, "version") // only starts a process
	var contests []comparison
	for _, form := range [][]string{
		nil,
		{"--color"},
		{"--json"},
		{"--porcelain"},
		{"--porcelain", "-z"},
		{"--format=%(invocation_id) %(status) %(sandbox_path) %(started_at:relative)"},
	} {
		name := strings.Join(form, " ")
		name, _, _ = strings.Cut("ls "+name, "=")
		contests = append(contests, comparison{
			title: strings.TrimSpace(name) + ", 1,000", rounds: 20, promise: promise{extra: 60 * time.Millisecond},
			baseName: processStartName, base: version, tool: b.timeCommand(b.tool, many.dir, append([]string{"ls"}, form...)...),
		})
	}
	contests = append(contests, comparison{
		title: "doctor, 1,000", rounds: 5, promise: promise{extra: time.Second},
		baseName: processStartName, base: version, tool: b.timeCommand(b.tool, many.dir, "doctor"),
	})
	mixed, err := b.newMixedRepo(ctx, "mixed", 1000, func(r *repository) error {
		for range treesListed {
			if _, err := r.startSandbox(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	running, err := b.newMixedRepo(ctx, "running", 1000, func(r *repository) error { return r.runDetached(ctx, treesListed) })
	if err != nil {
		return nil, false, err
	}
	contests = append(contests, comparison{
		title: "ls, 1,000, 50 with trees", rounds: 20, promise: promise{extra: 60 * time.Millisecond},
		baseName: processStartName, base: version, tool: b.timeCommand(b.tool, mixed.dir, "ls"), check: mixed.checkListing,
	}, comparison{
		title: "ls, 1,000, 50 running", rounds: 20, promise: promise{extra: 60 * time.Millisecond},
		baseName: processStartName, base: version, tool: b.timeCommand(b.tool, running.dir, "ls"), check: running.checkRunning,
	})
	return append(contests, comparison{
		title: "ls, 10", rounds: 20,
		baseName: processStartName, base: version, tool: b.timeCommand(b.tool, few.dir, "ls"),
	}), sound, nil
}

// checkProcesses reports whether the listing of many starts no more git processes than that of few.
func (b *bench) checkProcesses(ctx context.Context, few, many *repository) (bool, error) {
	inFew, err := b.countGitProcesses(ctx, few.dir, "ls")
	if err != nil {
		return false, err
	}
	inMany, err := b.countGitProcesses(ctx, many.dir, "ls")
	if err != nil {
		return false, err
	}
	bounded := inMany <= inFew
	printRow("ls, git processes", "with 10", fmt.Sprint(inFew), "with 1,000", fmt.Sprint(inMany), "", "promise: not more", verdict(bounded))
	return bounded, nil
}

// newListingRepo creates a repository with n invocations. One is real; the others are copies of its record, worktree
// registration and branch under other ids, with almost empty trees.
func (b *bench) newListingRepo(ctx context.Context, name string, n int) (*repository, error) {
	r, err := b.newRepository(ctx, name, 200)
	if err != nil {
		return nil, err
	}
	if _, err := r.startSandbox(ctx); err != nil {
		return nil, err
	}
	id := r.sandboxes[0]
	tree, err := r.sandboxPath(ctx, id)
	if err != nil {
		return nil, err
	}
	data := filepath.Dir(filepath.Dir(filepath.Dir(tree))) // repos/<repo_id>
	originals := []string{
		filepath.Join(data, "invocations", id, "meta.json"),
		filepath.Join(tree, ".git"),
		filepath.Join(tree, ".agency", "SANDBOX_MARKER"),
	}
	for _, file := range []string{"HEAD", "commondir", "gitdir"} {
		originals = append(originals, filepath.Join(r.dir, ".git", "worktrees", id, file))
	}

	var branches strings.Builder
	second, _, _ := strings.Cut(id, "-")
	for i := 0; len(r.sandboxes) < n; i++ {
		other := fmt.Sprintf("%s-%04x", second, i)
		if other == id {
			continue
		}
		for _, original := range originals {
			if err := copyWithID(original, id, other); err != nil {
				return nil, fmt.Errorf("make invocation %s: %w", other, err)
			}
		}
		fmt.Fprintf(&branches, "create refs/heads/agency/sandbox-%s %s\n", other, r.base)
		r.sandboxes = append(r.sandboxes, other)
	}
	refs := command{argv: []string{"git", "update-ref", "--stdin"}, dir: r.dir, stdin: strings.NewReader(branches.String())}
	if _, _, err := b.run(ctx, refs); err != nil {
		return nil, err
	}

	listed, _, err := b.agency(ctx, r.dir, "ls", "--porcelain")
	if err != nil {
		return nil, err
	}
	if got := strings.Count("\n"+listed, "\ninvocation "); got != n {
		return nil, fmt.Errorf("ls shows %d of %d invocations", got, n)
	}
	return r, nil
}

// treesListed is the number of invocations with a sandbox in the repositories of newMixedRepo.
const treesListed = 50

// newMixedRepo creates a repository with n invocations, of which treesListed have sandboxes of 200 files, one of them
// changed and one new; the others are discarded.
func (b *bench) newMixedRepo(ctx context.Context, name string, n int, start func(*repository) error) (*repository, error) {
	r, err := b.newRepository(ctx, name, 200)
	if err != nil {
		return nil, err
	}
	if _, err := r.startSandbox(ctx); err != nil {
		return nil, err
	}
	ended := r.sandboxes[0]
	tree, err := r.sandboxPath(ctx, ended)
	if err != nil {
		return nil, err
	}
	if _, _, err := b.agency(ctx, r.dir, "discard", ended); err != nil {
		return nil, err
	}
	meta := filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(tree))), "invocations", ended, "meta.json")
	second, _, _ := strings.Cut(ended, "-")
	for i := range n - treesListed - 1 {
		if err := copyWithID(meta, ended, fmt.Sprintf("%s-%04x", second, i)); err != nil {
			return nil, err
		}
	}
	r.sandboxes = nil
	if err := start(r); err != nil {
		return nil, err
	}
	for _, id := range r.sandboxes {
		tree, err := r.sandboxPath(ctx, id)
		if err != nil {
			return nil, err
		}
		if err := changeFiles(filepath.Join(tree, "src"), 1); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(tree, "new.go"), []byte("package bench\n"), 0o600); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// runDetached starts detached runs of agents that are silent. They end by themselves, should the measurement be killed.
func (r *repository) runDetached(ctx context.Context, n int) error {
	out, _, err := r.b.agency(ctx, r.dir, "run", worktreeName, "--detach", "-n", strconv.Itoa(n), "-p", "task", "--", "sleep", "600")
	r.sandboxes = append(r.sandboxes, strings.Fields(out)...)
	return err
}

// checkRunning makes sure that ls has shown the runs and counted their changed files, and ends them.
func (r *repository) checkRunning(ctx context.Context) error {
	out, _, err := r.b.agency(ctx, r.dir, "ls", "--porcelain")
	if got := strings.Count(out, "\nstate running\n"); err == nil && got != len(r.sandboxes) {
		err = fmt.Errorf("ls shows %d running agents, not %d", got, len(r.sandboxes))
	}
	if err == nil {
		err = r.checkListing(ctx)
	}
	_, _, stopErr := r.b.agency(ctx, r.dir, append([]string{"stop"}, r.sandboxes...)...)
	return errors.Join(err, stopErr)
}

// checkListing makes sure that ls has counted the changed files of the sandboxes.
func (r *repository) checkListing(ctx context.Context) error {
	out, _, err := r.b.agency(ctx, r.dir, "ls", "--porcelain")
	if err != nil {
		return err
	}
	if got, want := strings.Count(out, "\ndirty 2\n"), len(r.sandboxes); got != want {
		return fmt.Errorf("ls shows %d sandboxes with two changed files, not %d", got, want)
	}
	return nil
}

// copyWithID copies a file of one invocation to another and replaces the id in the path and in the content.
func copyWithID(file, id, other string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	copied := strings.ReplaceAll(file, id, other)
	if err := os.MkdirAll(filepath.Dir(copied), 0o700); err != nil {
		return err
	}
	return os.WriteFile(copied, bytes.ReplaceAll(text, []byte(id), []byte(other)), 0o600)
}
