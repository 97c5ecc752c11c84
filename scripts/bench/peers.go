package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// peers are other tools that create worktrees, with their command lines up to the name of a new branch.
var peers = []struct {
	program string
	argv    []string
}{
	{"gwq", []string{"gwq", "add", "-b"}},
	{"wtp", []string{"wtp", "add", "-b"}},
	{"git-gtr", []string{"git", "gtr", "new", "--yes", "--no-fetch", "--from", "main"}},
}

// peerComparisons compares start with the peers that are installed. They promise nothing to each other.
func (b *bench) peerComparisons(ctx context.Context) (contests []comparison, sound bool, err error) {
	for _, peer := range peers {
		if _, err := exec.LookPath(peer.program); err != nil {
			printRow("start", peer.program, "-", "git-agency", "-", "", "", "SKIPPED: "+peer.program+" is not installed")
			continue
		}
		for _, size := range []struct{ files, rounds int }{{200, 10}, {10_000, 3}} {
			r, err := b.newRepository(ctx, fmt.Sprintf("%s-%d", peer.program, size.files), size.files)
			if err != nil {
				return nil, false, err
			}
			// Some choose the path of a worktree by the address of the remote. None of these commands connects to it.
			if _, _, err := b.git(ctx, r.dir, "remote", "add", "origin", fmt.Sprintf("https://example.invalid/bench/files-%d.git", size.files)); err != nil {
				return nil, false, err
			}
			contests = append(contests, comparison{
				title: "start, " + groupThousands(size.files) + " files", rounds: size.rounds,
				baseName: peer.program, base: r.runPeer(peer.argv), tool: r.startSandbox, check: r.checkSandbox,
			})
		}
	}
	return contests, true, nil
}

// runPeer returns a timedRun of a peer that creates a worktree, which it checks.
func (r *repository) runPeer(argv []string) timedRun {
	return func(ctx context.Context) (time.Duration, error) {
		r.made++
		branch := fmt.Sprintf("peer-%d", r.made)
		_, took, err := r.b.run(ctx, command{argv: append(slices.Clone(argv), branch), dir: r.dir})
		if err != nil {
			return 0, err
		}
		list, _, err := r.b.git(ctx, r.dir, "worktree", "list", "--porcelain")
		if err != nil {
			return 0, err
		}
		if !strings.Contains(list, "branch refs/heads/"+branch+"\n") {
			return 0, fmt.Errorf("%s has created no worktree of %s", argv[0], branch)
		}
		return took, nil
	}
}
