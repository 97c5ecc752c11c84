package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency"
)

// invocations returns the output of "ls --all --json".
func (l *lab) invocations() []gitagency.Invocation {
	l.t.Helper()
	var all []gitagency.Invocation
	if err := json.Unmarshal([]byte(l.agency("ls", "--all", "--json")), &all); err != nil {
		l.t.Fatal(err)
	}
	return all
}

func TestConcurrentStarts(t *testing.T) {
	t.Parallel()
	n := 64
	if testing.Short() {
		n = 16
	}
	l := newLab(t)
	l.agency("worktree", "create", "wt")

	// ls and doctor run meanwhile: an unfinished sandbox is either not listed or not broken.
	stop := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			time.Sleep(50 * time.Millisecond) // leave the CPU to the starts
			for _, i := range l.invocations() {
				if i.Broken {
					t.Errorf("%s is listed as %s during its start", i.ID, i.BrokenReason)
					return
				}
			}
		}
	})

	watcher.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			time.Sleep(50 * time.Millisecond)
			if found := l.findings(); len(found) > 0 {
				t.Errorf("doctor found %+v", found)
				return
			}
		}
	})

	ids := make([]string, n)
	var starts sync.WaitGroup
	for i := range n {
		starts.Go(func() {
			o := l.try(nil, "git-agency", "start", "wt", "--lock-timeout", "-1")
			if o.code != 0 {
				t.Errorf("start ended with %d: %s", o.code, o.stderr)
			}
			ids[i] = o.line()
		})
	}
	starts.Wait()
	close(stop)
	watcher.Wait()

	unique := map[string]bool{}
	for _, id := range ids {
		unique[id] = true
	}
	if len(unique) != n {
		t.Fatalf("%d different ids for %d starts", len(unique), n)
	}
	trees := map[string]bool{}
	for _, i := range l.invocations() {
		if i.Broken || !unique[i.ID] {
			t.Errorf("%s: broken %q, id printed by start: %v", i.ID, i.BrokenReason, unique[i.ID])
		}
		if status := l.git("-C", i.SandboxPath, "status", "--porcelain"); status != "" {
			t.Errorf("%s is not clean: %s", i.ID, status)
		}
		trees[i.SandboxPath] = true
	}
	if len(trees) != n {
		t.Errorf("%d trees for %d starts", len(trees), n)
	}
	l.checkRepository()
}

func TestConcurrentStartDiscardAndWorktree(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	var workers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() {
			for range rounds {
				start := l.try(nil, "git-agency", "start", "wt", "--lock-timeout", "-1")
				if start.code != 0 {
					t.Errorf("start ended with %d: %s", start.code, start.stderr)
					return
				}
				if o := l.try(nil, "git-agency", "discard", start.line(), "--lock-timeout", "-1"); o.code != 0 {
					t.Errorf("discard ended with %d: %s", o.code, o.stderr)
				}
			}
			name := fmt.Sprintf("wt-%d", w)
			if o := l.try(nil, "git-agency", "worktree", "create", name, "--lock-timeout", "-1"); o.code != 0 {
				t.Errorf("worktree create ended with %d: %s", o.code, o.stderr)
			}
			if o := l.try(nil, "git-agency", "worktree", "rm", name, "--lock-timeout", "-1"); o.code != 0 {
				t.Errorf("worktree rm ended with %d: %s", o.code, o.stderr)
			}
		})
	}
	workers.Wait()
	for _, i := range l.invocations() {
		if i.Landing != "discarded" || i.Broken {
			t.Errorf("%s: landing %q, broken %q", i.ID, i.Landing, i.BrokenReason)
		}
	}
	if trees := strings.Count(l.git("worktree", "list", "--porcelain"), "worktree "); trees != 2 {
		t.Errorf("git lists %d worktrees, want 2", trees)
	}
	l.checkRepository()
}

// TestKilledStartLeavesDiscardableState kills only the git-agency process at a random moment; its git child may
// continue. Discard must be able to remove each remainder.
func TestKilledStartLeavesDiscardableState(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	before := l.git("for-each-ref")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var killers sync.WaitGroup
	for range 24 {
		cmd := exec.Command(filepath.Join(l.bin, "git-agency"), "start", "wt", "--lock-timeout", "-1")
		cmd.Dir, cmd.Env = l.repo, l.env
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		spins := random.IntN(40_000)
		killers.Go(func() {
			for range spins {
				_, _ = os.Stat(l.repo) // a random delay without a timer
				syscall.Kill(cmd.Process.Pid, 0)
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	killers.Wait()
	left := map[string]int{}
	for _, i := range l.invocations() {
		left[i.BrokenReason]++
		if o := l.try(nil, "git-agency", "discard", i.ID, "--lock-timeout", "-1"); o.code != 0 {
			t.Errorf("%s (%s): %s", i.ID, i.BrokenReason, o.stderr)
		}
	}
	t.Logf("left behind: %v", left)
	after := l.git("for-each-ref", "refs/heads", "refs/tags")
	if before != after {
		t.Errorf("refs before:\n%s\nafter:\n%s", before, after)
	}
	l.checkRepository()
}

// TestOrphanedGitKeepsCreation kills the tool while its git still writes files. Other commands must go on, and take the
// creation for one in progress until that git has ended.
func TestOrphanedGitKeepsCreation(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	hold, started := filepath.Join(l.dir, "home", "hold"), filepath.Join(l.dir, "home", "started")
	l.write(hold, "")
	l.write(filepath.Join(l.integrationTree(), ".gitattributes"), "readme filter=slow\n")
	l.git("-C", l.integrationTree(), "add", ".gitattributes")
	l.git("-C", l.integrationTree(), "commit", "-q", "-m", "attributes")
	l.git("config", "filter.slow.smudge", fmt.Sprintf("touch %s; n=0; while test -e %s && test $n -lt 6000; do n=$((n+1)); sleep 0.01; done; cat", started, hold)) // waits at most a minute

	cmd := exec.Command(filepath.Join(l.bin, "git-agency"), "start", "wt", "--name", "victim")
	cmd.Dir, cmd.Env = l.repo, l.env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !waitForFile(started) {
		t.Fatal("the smudge filter did not run")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()

	if o := l.try(nil, "git-agency", "worktree", "create", "other", "--lock-timeout", "0"); o.code != 0 {
		t.Errorf("the repository is locked: %s", o.stderr)
	}
	if listed := l.invocations(); len(listed) != 0 {
		t.Errorf("listed while a git writes its files: %+v", listed)
	}
	if o := l.try(nil, "git-agency", "doctor"); o.code != 0 {
		t.Errorf("doctor ended with %d: %s%s", o.code, o.stdout, o.stderr)
	}
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	broken := l.invocations()
	for end := time.Now().Add(time.Minute); len(broken) == 0 && time.Now().Before(end); broken = l.invocations() {
		time.Sleep(10 * time.Millisecond)
	}
	if len(broken) != 1 || broken[0].BrokenReason != "missing-meta" {
		t.Fatalf("%+v", broken)
	}
	if o := l.try(nil, "git-agency", "discard", broken[0].ID); o.code != 0 {
		t.Errorf("discard: %s", o.stderr)
	}
	if left := l.invocations(); len(left) != 0 {
		t.Errorf("%+v", left)
	}
	l.checkRepository()
}

// integrationTree returns the path of the integration worktree wt.
func (l *lab) integrationTree() string {
	l.t.Helper()
	return l.agency("worktree", "path", "wt")
}

// checkRepository checks that git fsck passes, the main worktree is clean, no worktree can be pruned, and no
// ref lock is left.
func (l *lab) checkRepository() {
	l.t.Helper()
	if o := l.try(nil, "git", "fsck", "--no-dangling"); o.code != 0 {
		l.t.Errorf("git fsck: %s", o.stderr)
	}
	if status := l.git("status", "--porcelain"); status != "" {
		l.t.Errorf("the main worktree changed: %s", status)
	}
	if prunable := l.git("worktree", "prune", "--dry-run", "-v"); prunable != "" {
		l.t.Errorf("git worktree prune would remove: %s", prunable)
	}
	found, err := filepath.Glob(filepath.Join(l.repo, ".git", "refs", "heads", "agency", "*.lock"))
	if err != nil || len(found) > 0 {
		l.t.Errorf("stale locks: %v, %v", found, err)
	}
}
