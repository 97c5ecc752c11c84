//go:build platforms

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency"
)

// roundTrip runs an agent on a node and lands its work.
func roundTrip(l *lab) {
	l.t.Helper()
	o := l.try(nil, append([]string{"git-agency"}, l.runArgs(`cat; echo err >&2; echo x >x; git add x; git commit -qm "x made"`, "-p", "the task")...)...)
	if o.code != 0 || !strings.Contains(o.stdout, "the task") || !strings.Contains(o.stderr, "err\n") {
		l.t.Fatalf("%+v", o)
	}
	all := l.listed()
	if len(all) != 1 {
		l.t.Fatalf("%+v", all)
	}
	inv := l.requireEnd(all[0].ID, gitagency.StatusFinished, 0, 1)
	if inv.PlatformNode == "" || inv.PlatformJob == "" {
		l.t.Errorf("%+v", inv)
	}
	l.requireDiff(inv.ID, "A\tx")
	if got := l.agency("logs", inv.ID); got != "the task" {
		l.t.Errorf("the log is %q", got)
	}
	l.agency("land", inv.ID)
	if got := l.git("log", "--format=%s %an", "--branches=agency/wt-*"); !strings.Contains(got, "x made C O Mitter") {
		l.t.Errorf("landed:\n%s", got)
	}
	l.requireNothingLeft()
}

// requireProbed checks that a node of a platform answers the probe of doctor.
func (l *lab) requireProbed(platform string) {
	l.t.Helper()
	o := l.try(nil, "git-agency", "doctor", "--platform", platform)
	if o.code != 0 || !regexp.MustCompile(`(?m)^node +ok .*: git 2\..*isolation os; its clock agrees within `).MatchString(o.stdout) {
		l.t.Errorf("%+v", o)
	}
}

// TestRealRoundTrip lands what an agent made on a node.
func TestRealRoundTrip(t *testing.T) {
	t.Parallel()
	l := newRealLab(t, sharedCluster(t))
	roundTrip(l)
	l.requireProbed("slurm")
	l.requireNothingLeft()
}

// TestRealOrdinaryUserRoundTrip submits as a user other than that of the daemons.
func TestRealOrdinaryUserRoundTrip(t *testing.T) {
	if os.Getenv("TEST_RERUN") == "" {
		t.Parallel()
		if os.Geteuid() != 0 {
			t.Skip("the other tests run as an ordinary user already")
		}
		c := sharedCluster(t)
		if err := os.Setenv(clusterVariable, c.conf()); err != nil { // of no effect on tests that have the cluster
			t.Fatal(err)
		}
		rerunAsNobody(t, t.Name())
		return
	}
	roundTrip(newRealLab(t, sharedCluster(t)))
}

// TestRealEnds checks the ways in which a run ends.
func TestRealEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(l *lab){
		"exit code": func(l *lab) {
			id := l.submit(`echo x >x; git add x; git commit -qm x; exit 5`)
			l.requireEnd(id, gitagency.StatusFailed, 5, 1)
			l.requireDiff(id, "A\tx")
		},
		"signal": func(l *lab) {
			id := l.submit(`echo x >x; kill -SEGV $$`)
			if inv := l.requireEnd(id, gitagency.StatusFailed, 139, 1); !strings.Contains(inv.StatusReason, "SIGSEGV") {
				l.t.Errorf("the reason is %q", inv.StatusReason)
			}
			l.requireDiff(id, "A\tx")
		},
		"time limit": func(l *lab) { // Slurm counts minutes
			began := time.Now()
			id := l.submit(`echo x >x; exec sleep 1000`, "--timeout", "2s")
			l.requireEnd(id, gitagency.StatusTimedOut, 124, 1)
			l.requireDiff(id, "A\tx")
			l.t.Logf("timed out after %s", time.Since(began).Round(time.Millisecond))
		},
		"stop": func(l *lab) {
			id := l.submit(`echo x >x; touch $OUT/begun; exec sleep 1000`)
			l.waitForOut("begun")
			l.agency("stop", id)
			l.requireEnd(id, gitagency.StatusStopped, 143, 1)
			l.requireDiff(id, "A\tx")
		},
		"scancel": func(l *lab) { // of several runs, since Slurm signals the agent as well as git-agency, and either may be first
			ids := strings.Fields(l.submit(`echo x >x; touch $OUT/$AGENCY_INVOCATION_ID; exec sleep 1000`, "-n", "8"))
			cancel := []string{"scancel"}
			for _, id := range ids {
				l.waitForOut(id)
				cancel = append(cancel, l.shown(id).PlatformJob)
			}
			l.must(cancel...)
			for _, id := range ids {
				if inv := l.requireEnd(id, gitagency.StatusStopped, 143, 1); inv.StatusReason != "its job was cancelled; what it had done is kept" {
					l.t.Errorf("the reason is %q", inv.StatusReason)
				}
				l.requireDiff(id, "A\tx")
			}
		},
		"scancel before it begins": func(l *lab) {
			l.git("config", "agency.platform.slurm.args", "--hold")
			id := l.submit(`echo x >x`)
			l.must("scancel", l.shown(id).PlatformJob)
			if inv := l.requireEnd(id, gitagency.StatusStopped, 143, 0); inv.StatusReason != "its job was cancelled, and it left no result" {
				l.t.Errorf("the reason is %q", inv.StatusReason)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newRealLab(t, sharedCluster(t))
			test(l)
			for _, inv := range l.listed() {
				l.agency("discard", inv.ID)
			}
			l.requireNothingLeft()
		})
	}
}

// TestRealManyRuns submits many runs at once. Each gets the result of its own.
func TestRealManyRuns(t *testing.T) {
	t.Parallel()
	const runs = 100
	l := newRealLab(t, sharedCluster(t))
	began := time.Now()
	ids := strings.Fields(l.agency(l.runArgs(`echo $AGENCY_INVOCATION_ID >id; git add id; git commit -qm id`, "--detach", "-n", strconv.Itoa(runs))...))
	submitted := time.Since(began)
	if len(ids) != runs {
		t.Fatalf("%d ids: %q", len(ids), ids)
	}
	l.agency(append([]string{"wait"}, ids...)...)
	t.Logf("%d runs: submitted in %s, ended after %s", runs, submitted.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	all := l.listed()
	if len(all) != runs {
		t.Errorf("%d invocations", len(all))
	}
	for _, inv := range all {
		if inv.Status != gitagency.StatusFinished || inv.Attempt != 1 || *inv.Ahead != 1 {
			t.Errorf("%+v", inv)
		}
	}
	results := map[string]bool{}
	for line := range strings.Lines(l.git("for-each-ref", "--format=%(refname:lstrip=3) %(objectname)", "refs/agency/results")) {
		id, commit, _ := strings.Cut(strings.TrimSpace(line), " ")
		if got := l.git("show", commit+":id"); got != id {
			t.Errorf("the result of %s is that of %s", id, got)
		}
		results[id] = true
	}
	if len(results) != runs {
		t.Errorf("%d results", len(results))
	}
	for _, id := range ids {
		l.agency("discard", id)
	}
	l.requireNothingLeft()
}

// TestRealClientKilled kills the process that has submitted a run and follows it. Other commands find the run.
func TestRealClientKilled(t *testing.T) {
	t.Parallel()
	l := newRealLab(t, sharedCluster(t))
	client := exec.CommandContext(t.Context(), filepath.Join(l.bin, "git-agency"),
		l.runArgs(`echo x >x; git add x; git commit -qm x; touch $OUT/begun; until test -e $OUT/go; do sleep 0.1; done`)...)
	client.Dir, client.Env = l.repo, l.env
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	l.waitForOut("begun")
	if err := client.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = client.Wait() // it was killed
	all := l.listed()
	if len(all) != 1 || !all[0].HasOpenJob() {
		t.Fatalf("%+v", all)
	}
	l.write(l.out("go"), "")
	l.requireEnd(all[0].ID, gitagency.StatusFinished, 0, 1)
	l.requireDiff(all[0].ID, "A\tx")
}
