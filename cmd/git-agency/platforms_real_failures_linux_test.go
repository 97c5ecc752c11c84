//go:build platforms

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency"
)

// twice is a script that leaves partial work in its first attempt, and waits until that is ended. The second makes the commit.
const twice = `if test -e $OUT/first; then echo 2 >second; git add second; git commit -qm second; exit; fi; echo 1 >first; touch $OUT/first; exec sleep 1000`

// runsOn waits until a run is known to run, and returns its node and its job.
func (l *lab) runsOn(id string) (node, job string) {
	l.t.Helper()
	inv := l.waitForState(id, func(inv gitagency.Invocation) bool { return inv.PlatformState == "running" && inv.PlatformNode != "" })
	return inv.PlatformNode, inv.PlatformJob
}

// TestRealPreemption has a job of another partition take the node of a run, which begins again.
func TestRealPreemption(t *testing.T) {
	t.Parallel()
	l := newRealLab(t, ownCluster(t))
	id := l.submit(twice)
	l.waitForOut("first")
	node, _ := l.runsOn(id)
	l.must("sbatch", "--partition=high", "--exclusive", "--nodelist="+node, "--output=/dev/null", "--wrap=true")
	l.requireEnd(id, gitagency.StatusFinished, 0, 2)
	l.requireDiff(id, "A\tsecond")
	// The record of the result that counts descends from the result that was replaced.
	record := l.git("log", "-1", "--format=%(trailers:key=Agency-Record,valueonly,separator=)", "refs/agency/results/"+id)
	before := l.git("rev-parse", record+"^")
	if got := l.git("log", "-1", "--format=%(trailers:key=Agency-Attempt,valueonly,separator=) %(trailers:key=Agency-Reason,valueonly,separator=)", before); got != "1 stopped" {
		t.Errorf("the replaced result is that of %q", got)
	}
	if got := l.git("show", before+":first"); got != "1" {
		t.Errorf("the partial work is %q", got)
	}
	l.agency("land", id)
	l.requireNothingLeft()
}

// TestRealNodeLost kills a node with all of its processes.
func TestRealNodeLost(t *testing.T) {
	t.Parallel()
	for name, requeue := range map[string]string{"not requeued": "false", "requeued": "true"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := ownCluster(t)
			l := newRealLab(t, c)
			l.git("config", "agency.platform.slurm.requeue", requeue)
			id := l.submit(twice)
			l.waitForOut("first")
			node, _ := l.runsOn(id)
			if err := c.runClusterScript("lose", node); err != nil {
				t.Fatal(err)
			}
			if requeue == "false" {
				inv := l.requireEnd(id, gitagency.StatusFailed, 1, 1)
				if want := "its node was lost on " + node + ", and it left no result; work that it did not push may still be there"; inv.StatusReason != want {
					t.Errorf("the reason is %q, want %q", inv.StatusReason, want)
				}
				return
			}
			if inv := l.requireEnd(id, gitagency.StatusFinished, 0, 2); inv.PlatformNode == node {
				t.Errorf("it ran on %s again", node)
			}
			l.requireDiff(id, "A\tsecond")
			l.agency("land", id)
			if got := l.git("log", "--format=%s", "--branches=agency/wt-*"); strings.Count(got, "second") != 1 {
				t.Errorf("landed:\n%s", got)
			}
			l.requireNoSandboxes("sandboxes") // what the first attempt had done is in the trash of the node
		})
	}
}

// TestRealAttemptsAtOnce kills the slurmd of a node alone. The run goes on there, and Slurm begins it again on another node. The
// attempt that ends first has the result.
func TestRealAttemptsAtOnce(t *testing.T) {
	t.Parallel()
	c := ownCluster(t)
	l := newRealLab(t, c)
	id := l.submit(`n=one; if test -e $OUT/one; then n=two; fi; touch $OUT/$n; until test -e $OUT/go-$n; do sleep 0.1; done; echo $n >$n; git add $n; git commit -qm $n`)
	l.waitForOut("one")
	node, job := l.runsOn(id)
	if err := c.runClusterScript("orphan", node); err != nil {
		t.Fatal(err)
	}
	l.waitForOut("two")
	l.write(l.out("go-one"), "")
	if inv := l.requireEnd(id, gitagency.StatusFinished, 0, 1); inv.PlatformNode != node {
		t.Errorf("the result is that of %s, want %s", inv.PlatformNode, node)
	}
	result := l.git("rev-parse", "refs/agency/results/"+id)
	l.write(l.out("go-two"), "")
	state := ""
	if !waitUntil(func() bool {
		state = l.must("squeue", "--noheader", "--states=all", "--jobs="+job, "--format=%T")
		return state == "COMPLETED" || state == "FAILED"
	}) || state != "COMPLETED" {
		t.Errorf("the second attempt is %s", state)
	}
	if got := l.git("rev-parse", "refs/agency/results/"+id); got != result {
		t.Errorf("the second attempt has replaced the result")
	}
	l.requireDiff(id, "A\tone")
	l.agency("land", id)
	l.requireNothingLeft()
}

// TestRealControllerRestarted restarts slurmctld while one run waits and another goes on.
func TestRealControllerRestarted(t *testing.T) {
	t.Parallel()
	c := ownCluster(t)
	l := newRealLab(t, c)
	const script = `echo x >x; git add x; git commit -qm x; touch $OUT/$AGENCY_INVOCATION_ID; until test -e $OUT/go; do sleep 0.1; done`
	running := l.submit(script)
	l.waitForOut(running)
	l.git("config", "agency.platform.slurm.args", "--hold")
	held := l.submit(script)
	waiting := l.shown(held).PlatformJob
	if err := c.runClusterScript("restart"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{running, held} {
		if inv := l.shown(id); !inv.HasOpenJob() {
			t.Errorf("after the restart: %+v", inv)
		}
	}
	l.must("scontrol", "release", waiting)
	l.waitForOut(held)
	l.write(l.out("go"), "")
	for _, id := range []string{running, held} {
		l.requireEnd(id, gitagency.StatusFinished, 0, 1)
		l.requireDiff(id, "A\tx")
		l.agency("discard", id)
	}
	l.requireNothingLeft()
}

// TestRealJobForgotten has Slurm forget jobs that have ended, on a site without accounting. A result counts; a run without one
// has failed.
func TestRealJobForgotten(t *testing.T) {
	t.Parallel()
	l := newRealLab(t, ownCluster(t, "--min-job-age", "2"))
	done := l.submit(`echo x >x; git add x; git commit -qm x; touch $OUT/done; exit 3`)
	l.git("config", "agency.platform.slurm.args", "--hold")
	cancelled := l.submit(`true`)
	l.must("scancel", l.shown(cancelled).PlatformJob) // show records the job, which is not asked about until it is forgotten
	jobs := ""
	l.waitForOut("done")
	if !waitUntil(func() bool {
		jobs = l.must("squeue", "--noheader", "--states=all", "--format=%i %T")
		return jobs == ""
	}) {
		t.Fatalf("Slurm knows these jobs: %s", jobs)
	}
	l.requireEnd(done, gitagency.StatusFailed, 3, 1)
	l.requireDiff(done, "A\tx")
	if inv := l.requireEnd(cancelled, gitagency.StatusFailed, 1, 0); !strings.Contains(inv.StatusReason, "does not know its job") {
		t.Errorf("the reason is %q", inv.StatusReason)
	}
	l.agency("discard", done)
	l.agency("discard", cancelled)
	l.requireNothingLeft()
}

// TestRealHubOverSSH has the node push by a key that may change one ref of the hub. The client has another key.
func TestRealHubOverSSH(t *testing.T) {
	t.Parallel()
	l := newRealLab(t, sharedCluster(t))
	requirePrograms(t, "git-shell")
	startSSHServer(l)
	ssh := filepath.Join(l.dir, "home", ".ssh")
	bare := filepath.Join(l.dir, "hub.git")
	l.git("init", "-q", "--bare", bare)
	l.write(filepath.Join(bare, "hooks", "update"), "#!/bin/sh\ntest -z \"$AGENCY_ONLY\" || test \"$1\" = \"refs/agency/results/$AGENCY_ONLY\" || { echo refused $1 >&2; exit 1; }\n")
	if err := os.Chmod(filepath.Join(bare, "hooks", "update"), 0o755); err != nil {
		t.Fatal(err)
	}
	l.git("config", "agency.hub", "ssh://allowed"+bare)
	// The file of GIT_CONFIG_GLOBAL is that of the client; the node, which does not get this variable, has ~/.gitconfig.
	global, node := filepath.Join(l.dir, "client.gitconfig"), filepath.Join(l.dir, "home", ".gitconfig")
	l.write(global, l.read(node))
	l.env = append(l.env, "GIT_CONFIG_GLOBAL="+global)
	l.git("config", "--file", global, "core.sshCommand", "ssh -F "+ssh+"/config")
	l.git("config", "--file", node, "core.sshCommand", "ssh -F "+ssh+"/config-node")
	l.write(ssh+"/config-node", strings.ReplaceAll(l.read(ssh+"/config"), ssh+"/id\n", ssh+"/id-node\n\tIdentitiesOnly yes\n"))
	l.must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ssh+"/id-node")

	l.git("config", "agency.platform.slurm.args", "--hold") // the key is made for the id of the run
	id := l.submit(`echo x >x; git add x; git commit -qm x`)
	keys := filepath.Join(l.dir, "sshd", "authorized_keys")
	l.write(keys, l.read(keys)+`restrict,command="AGENCY_ONLY=`+id+` git-shell -c \"$SSH_ORIGINAL_COMMAND\"" `+l.read(ssh+"/id-node.pub"))
	asNode := []string{"GIT_CONFIG_GLOBAL=" + node}
	if o := l.try(asNode, "git", "push", "-q", "ssh://allowed"+bare, "HEAD:refs/heads/main"); o.code == 0 || !strings.Contains(o.stderr, "refused refs/heads/main") {
		t.Errorf("a push of another ref by the key of the node: %+v", o)
	}
	l.must("scontrol", "release", l.shown(id).PlatformJob)
	l.requireEnd(id, gitagency.StatusFinished, 0, 1)
	l.requireDiff(id, "A\tx")
	l.agency("land", id)
	if refs := l.git("-C", bare, "for-each-ref"); refs != "" {
		t.Errorf("left in the hub:\n%s", refs)
	}
	l.requireNothingLeft()
}
