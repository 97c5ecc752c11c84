package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// cloneLab returns a lab whose repository is a clone of from, with an integration worktree and a data directory of its
// own.
func (l *lab) cloneLab(from, name string) *lab {
	l.t.Helper()
	c := *l
	c.repo, c.data = filepath.Join(l.dir, name), filepath.Join(l.dir, name+".data")
	c.env = append(append([]string{}, l.env...), "AGENCY_DATA_DIR="+c.data)
	l.git("clone", "-q", from, c.repo)
	c.agency("worktree", "adopt")
	return &c
}

// startWithFile starts a sandbox, writes a file there, and returns its id.
func (l *lab) startWithFile(file string) string {
	l.t.Helper()
	id := l.agency("start", "main")
	boxes, err := filepath.Glob(filepath.Join(l.data, "repos", "*", "sandboxes", id, "tree"))
	if err != nil || len(boxes) != 1 {
		l.t.Fatalf("found sandbox trees %q, %v; want one", boxes, err)
	}
	l.write(filepath.Join(boxes[0], file), file+"\n")
	return id
}

func TestConcurrentPushesFromClones(t *testing.T) {
	t.Parallel()
	n := 20
	if testing.Short() {
		n = 5
	}
	l := newLab(t)
	hub := filepath.Join(l.dir, "hub.git")
	l.git("clone", "-q", "--bare", l.repo, hub)
	l.git("config", "--global", "agency.pushTimeout", "-1") // no limit, for a loaded machine
	clones, ids := make([]*lab, n), make([]string, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			clones[i] = l.cloneLab(hub, fmt.Sprintf("clone-%d", i))
			ids[i] = clones[i].startWithFile(fmt.Sprintf("file-%d", i))
		})
	}
	group.Wait()
	if t.Failed() {
		return
	}
	began, tries := time.Now(), make([]int, n)
	for i, c := range clones {
		group.Go(func() {
			o := c.try(nil, "git-agency", "land", ids[i], "--commit-all", "-m", fmt.Sprintf("file-%d", i), "--push", "--json")
			var landed []struct {
				Pushed    bool `json:"pushed"`
				PushTries int  `json:"push_tries"`
			}
			if err := json.Unmarshal([]byte(o.stdout), &landed); err != nil || o.code != 0 || len(landed) != 1 || !landed[0].Pushed {
				t.Errorf("land %s --push ended with %d: %v\n%s%s", ids[i], o.code, err, o.stdout, o.stderr)
				return
			}
			tries[i] = landed[0].PushTries
		})
	}
	group.Wait()
	all, most := 0, 0
	for _, k := range tries {
		all, most = all+k, max(most, k)
	}
	t.Logf("%d pushes for %d clones, %d at most, in %s", all, n, most, time.Since(began).Round(time.Millisecond))
	for i := range n {
		if got := l.git("-C", hub, "log", "--format=%s", "main", "--", fmt.Sprintf("file-%d", i)); got != fmt.Sprintf("file-%d", i) {
			t.Errorf("the commits of file-%d in the hub are %q", i, got)
		}
		if got := l.git("-C", hub, "log", "--format=%s", "--grep", "^Land "+ids[i], "main"); strings.Count(got, "\n") != 0 || got == "" {
			t.Errorf("the landings of %s in the hub are %q, want one", ids[i], got)
		}
	}
	l.git("-C", hub, "fsck", "--strict", "--no-dangling")
	for _, c := range clones {
		if status := c.git("status", "--porcelain"); status != "" || exists(filepath.Join(c.repo, ".git", "index.lock")) {
			t.Errorf("%s is not clean or locked: %s", c.repo, status)
		}
	}
	l.git("-C", clones[0].repo, "fsck", "--strict", "--no-dangling")
}

// TestInterruptedPushReportsUnknownOutcome interrupts a push while the remote runs its hook. The tool must not wait
// longer or undo the landing, and must report that the outcome of the push is unknown.
func TestInterruptedPushReportsUnknownOutcome(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	hub := filepath.Join(l.dir, "hub.git")
	l.git("clone", "-q", "--bare", l.repo, hub)
	here, hook := filepath.Join(l.dir, "here"), filepath.Join(hub, "hooks", "pre-receive")
	l.must("mkfifo", here+".pipe")
	l.write(hook, fmt.Sprintf("#!/bin/sh\n: >%s\nread x <%s.pipe\n", here, here))
	if err := os.Chmod(hook, 0o755); err != nil {
		t.Fatal(err)
	}
	c := l.cloneLab(hub, "clone")
	id := c.startWithFile("file")
	cmd := exec.CommandContext(t.Context(), filepath.Join(l.bin, "git-agency"), "land", id, "--commit-all", "-m", "file", "--push")
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.repo, c.env, &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !waitForFile(here) {
		t.Error("the hook was not run")
	}
	// The detached clean-up after the landing may hold the lock for a moment; the push must not hold it.
	if held := c.try(nil, "git-agency", "start", "main", "--lock-timeout", "20s"); held.code != 0 {
		t.Errorf("the repository is locked during the push: %s", held.stderr)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the exit code is checked below
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("ended with %d", code)
	}
	if want := "the landing on main stands; whether it was pushed to origin is not known: git push: interrupted"; !strings.Contains(stderr.String(), want) {
		t.Errorf("stderr is %q", stderr.String())
	}
	if got := c.git("rev-parse", "main") + "\n"; got != stdout.String() {
		t.Errorf("main is at %q, land printed %q", got, stdout.String())
	}
}
