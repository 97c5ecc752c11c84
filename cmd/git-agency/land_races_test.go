package main

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/hints"
	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/gitagency/reason"
)

// landingCount returns the number of concurrent landings.
func landingCount() int {
	if testing.Short() {
		return 6
	}
	return 20
}

// TestConcurrentLandings lands many sandboxes at the same time, each in its own process, while the user has
// uncommitted changes of every kind in the target worktree.
func TestConcurrentLandings(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	tree := l.integrationTree()
	l.runShell(tree, `
for f in dirty staged both; do echo 1 >$f; done; printf '*.log\nbuild/\n' >.gitignore
git add .; git commit -qm ground`)
	ids := make([]string, landingCount())
	for i := range ids {
		ids[i] = l.agency("start", "wt", "--isolation", "none")
		// Two commits each: a file of its own, and another in a directory that all sandboxes share.
		l.runShell(l.agency("path", ids[i]), fmt.Sprintf(`
echo %[1]s >%[1]s; git add .; git commit -qm "one of %[1]s"
mkdir -p all; echo %[1]s >all/%[1]s; git add .; git commit -qm "two of %[1]s"`, ids[i]))
	}
	l.runShell(tree, `
echo 2 >>dirty; echo 2 >>staged; git add staged; echo 2 >>both; git add both; echo 3 >>both
echo a >added; git add added; echo u >loose; echo l >a.log; mkdir -p build all; echo o >build/out; echo u >all/loose`)
	restore := l.save()

	for _, c := range thin([]struct {
		name, strategy string
		later          bool // the sandboxes are removed in the background
		commits        int  // number of commits that the user makes meanwhile
	}{
		{name: "merge", strategy: "merge"},
		{name: "squash", strategy: "squash"},
		{name: "rebase", strategy: "rebase"},
		{name: "detached clean-up", strategy: "merge", later: true},
		{name: "while the user commits", strategy: "merge", commits: 40},
	}) {
		restore()
		t.Run(c.name, func(t *testing.T) {
			l := *l
			l.t = t
			l.git("config", "agency.autoDetach", fmt.Sprint(c.later))
			l.git("-C", tree, "update-index", "-q", "--refresh")
			status, own := l.git("-C", tree, "status", "--porcelain=v2", "-uall"), l.readTree(tree)
			var all sync.WaitGroup
			for _, id := range ids {
				all.Go(func() { l.landWithRetry(id, c.strategy) })
			}
			made, refused := 0, 0
			if c.commits > 0 {
				made, refused = l.commitRepeatedly(tree, c.commits)
			}
			all.Wait()
			t.Logf("the user made %d commits and was refused %d times", made, refused)
			if c.later && !waitUntil(func() bool {
				left, err := filepath.Glob(filepath.Join(l.repoData(), "sandboxes", "*"))
				ended := exec.Command("pgrep", "-f", strings.Join(ids, "|")).Run() != nil // the next case restores the repository
				return err == nil && len(left) == 0 && ended
			}) {
				t.Error("the sandboxes are not removed")
			}
			l.checkAllLanded(tree, ids, c.strategy)
			if got := l.git("-C", tree, "status", "--porcelain=v2", "-uall"); got != status {
				t.Errorf("git status is\n%s\nwant\n%s", got, status)
			}
			now := l.readTree(tree)
			for name, content := range own {
				if now[name] != content {
					t.Errorf("the user's file %s is %q", name, now[name])
				}
			}
			for _, id := range ids {
				if now[id] != "644 "+id+"\n" && !strings.HasSuffix(now[id], " "+id+"\n") || now["all/"+id] != now[id] {
					t.Errorf("the files of %s are missing: %q", id, now[id])
				}
			}
			l.checkUserCommits(tree, made)
		})
	}
}

// landWithRetry lands an invocation. It retries when land refuses because the user writes the index or commits at the
// same moment.
func (l *lab) landWithRetry(id, strategy string) {
	l.t.Helper()
	for range 50 {
		o := l.try(nil, "git-agency", "land", id, "--strategy", strategy, "--lock-timeout", "-1")
		if o.code == 0 {
			return
		}
		if o.code != 1 || !strings.Contains(o.stderr, "index") {
			l.t.Errorf("%s ended with %d: %s", id, o.code, o.stderr)
			return
		}
	}
	l.t.Errorf("land %s was refused 50 times", id)
}

// commitRepeatedly commits the user's file many times. Git refuses while a landing holds the index lock.
func (l *lab) commitRepeatedly(tree string, commits int) (made, refused int) {
	l.t.Helper()
	for i := range commits {
		l.write(filepath.Join(tree, "mine"), fmt.Sprintln(i))
		for range 2000 {
			o := l.try(nil, "git", "-C", tree, "add", "mine")
			if o.code == 0 {
				o = l.try(nil, "git", "-C", tree, "commit", "-qm", fmt.Sprintf("mine %d", i), "--only", "mine")
			}
			if o.code == 0 {
				made++
				break
			}
			refused++
			if !strings.Contains(o.stderr, ".lock") && !strings.Contains(o.stderr, "cannot lock ref") {
				l.t.Errorf("the user's commit ended with %d: %s", o.code, o.stderr)
				return made, refused
			}
		}
	}
	return made, refused
}

// checkUserCommits checks that the branch has all commits of commitRepeatedly in order, each with the user's file only.
func (l *lab) checkUserCommits(tree string, made int) {
	l.t.Helper()
	want := ""
	for i := range made {
		status := "M"
		if i == 0 {
			status = "A"
		}
		want += fmt.Sprintf("mine %d\n\n%s\tmine\n", i, status)
	}
	if got := l.git("-C", tree, "log", "--reverse", "--format=%s", "--name-status", "--grep=^mine "); got != strings.TrimSuffix(want, "\n") {
		l.t.Errorf("the user's commits are\n%s", got)
	}
}

// checkAllLanded checks that each invocation landed exactly once and that no sandbox or temporary file is left.
func (l *lab) checkAllLanded(tree string, ids []string, strategy string) {
	l.t.Helper()
	each := 1
	if strategy == "rebase" {
		each = 2
	}
	landed := map[string]int{}
	for _, id := range regexp.MustCompile(`(?m)^Agency-Invocation: (.*)$`).FindAllStringSubmatch(l.git("-C", tree, "log", "--format=%B"), -1) {
		landed[id[1]]++
	}
	for _, id := range ids {
		if landed[id] != each {
			l.t.Errorf("%s landed in %d commits, want %d", id, landed[id], each)
		}
	}
	for _, inv := range l.invocations() {
		if inv.Landing != "landed" || inv.Broken {
			l.t.Errorf("the record of %s says %q, broken %q", inv.ID, inv.Landing, inv.BrokenReason)
		}
	}
	if o := l.try(nil, "git", "fsck", "--strict", "--no-dangling", "--no-progress"); o.code != 0 || o.stdout+o.stderr != "" {
		l.t.Errorf("git fsck: %s%s", o.stdout, o.stderr)
	}
	left, err := filepath.Glob(filepath.Join(l.repoData(), "sandboxes", "*"))
	if left = slices.Concat(left, l.landingLeftovers()); err != nil || len(left) > 0 {
		l.t.Errorf("left behind: %q, %v", left, err)
	}
	if refs := l.git("for-each-ref", "refs/heads/agency/sandbox-*"); refs != "" {
		l.t.Errorf("left behind: %s", refs)
	}
}

func TestMovingErrorHintsRetry(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"git agency land 2026 --strategy squash -m 'a b'": &gitagency.StateError{Reason: reason.KeepsMoving, Branch: "main", Err: errors.New("moved")},
		"git agency unland 2026":                          &gitagency.StateError{Reason: reason.KeepsMoving, Branch: "main", Err: errors.New("moved")},
	} {
		words := []string{"unland", "2026"}
		if strings.Contains(want, " land ") {
			words = []string{"land", "2026", "--strategy", "squash", "-m", "a b"}
		}
		tool := newTool(io.Discard, io.Discard, gitagency.Options{})
		tool.Args = append([]string{"git-agency"}, words...)
		err = tool.WithArgv(err)
		if got := hintsFor(err); len(got) != 1 || !strings.HasSuffix(got[0], want) || exitCode(err) != hints.ExitFailed {
			t.Errorf("%v: %q, %d", err, got, exitCode(err))
		}
	}
}
