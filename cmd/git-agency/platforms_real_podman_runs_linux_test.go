//go:build platforms

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency"
)

// newPodmanRunLab returns a lab in which runs of the profile "p" are executed in containers, with the programs of this machine. Agents
// may write to the directory "out".
func newPodmanRunLab(t *testing.T) podmanLab {
	t.Helper()
	l := newPodmanLab(t)
	l.installCopy()
	for _, dir := range []string{l.out(""), l.nodes()} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l.script("image", "localhost/tools:1")
	config := filepath.Join(l.dir, "node.gitconfig")
	l.write(config, "[agency \"sandbox\"]\n\twrite = "+l.out("")+"\n")
	options := append(strings.Fields(l.script("options")), "--volume="+l.out("")+":"+l.out(""), "--volume="+config+":"+config+":ro", "--env=GIT_CONFIG_GLOBAL="+config)
	for _, option := range options {
		l.git("config", "--add", "agency.platform.podman.args", option)
	}
	l.git("config", "agency.platform.podman.image", "localhost/tools:1")
	l.git("config", "agency.platform.podman.dir", l.nodes())
	l.git("config", "agency.p.platform", "podman")
	l.git("config", "--global", "user.name", "C O Mitter")
	l.git("config", "--global", "user.email", "committer@example.com")
	return l
}

// nodes returns the directory in which containers keep repositories and sandboxes.
func (l podmanLab) nodes() string { return filepath.Join(l.dir, "nodes") }

// requireNothingLeft checks that neither a container nor a ref, nor a sandbox in one of the directories of containers is left.
func (l podmanLab) requireNothingLeft() {
	l.t.Helper()
	l.requireNoContainers()
	if refs := l.git("for-each-ref", "refs/agency/jobs", "refs/agency/results"); refs != "" {
		l.t.Errorf("refs are left:\n%s", refs)
	}
	left, err := filepath.Glob(filepath.Join(l.nodes(), "*/data/repos/*/sandboxes/*"))
	if err != nil || len(left) > 0 {
		l.t.Errorf("left in the directory of containers: %q, %v", left, err)
	}
}

// TestRealPodmanRuns runs agents in containers.
func TestRealPodmanRuns(t *testing.T) {
	tests := map[string]func(l podmanLab){
		"round trip": testPodmanRoundTrip, "walls": testPodmanWalls, "ends": testPodmanEnds, "client killed": testPodmanClientKilled, "many": testPodmanManyRuns,
		"container killed": testPodmanContainerKilled, "volume": testPodmanVolume,
	}
	if os.Getenv("TEST_RERUN") == "" { // an ordinary user may have no shell to log in with
		t.Parallel()
		tests["ssh"] = testPodmanOverSSH
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(newPodmanRunLab(t)) })
	}
}

// TestRealPodmanRunsUnprivileged runs them without root.
func TestRealPodmanRunsUnprivileged(t *testing.T) {
	if err := os.Setenv(podmanScriptVariable, podmanScript(t)); err != nil { // of no effect on other tests
		t.Fatal(err)
	}
	rerunUnprivileged(t, "TestRealPodmanRuns")
}

func testPodmanRoundTrip(l podmanLab) {
	if o := l.try(nil, "git", "agency", "preflight", "wt", "--profile", "p", "--", "sh"); o.code != 0 || !strings.Contains(o.stdout, "podman ") {
		l.t.Errorf("%+v", o)
	}
	roundTrip(l.lab)
	l.requireProbed("podman")
	l.requireNothingLeft()
	l.git("config", "--add", "agency.platform.podman.args", "--no-such-option")
	if o := l.try(nil, "git", "agency", "doctor", "--platform", "podman"); o.code != 4 || !strings.Contains(o.stdout, "--no-such-option") {
		l.t.Errorf("%+v", o)
	}
	l.requireNothingLeft()
}

// testPodmanWalls checks that the agent is behind walls of git-agency inside of the container.
func testPodmanWalls(l podmanLab) {
	hub := filepath.Join(l.repo, ".git")
	id := l.submit(`{ touch `+hub+`/stolen; ls `+l.nodes()+`/*/data/repos/*; kill -9 1; ls /proc | grep -c '^[0-9]'; ls /sys/class/net; } >report 2>&1; git add report; git commit -qm report`, "--outputs", "none")
	l.requireEnd(id, gitagency.StatusFinished, 0, 1)
	if exists(filepath.Join(hub, "stolen")) {
		l.t.Error("the agent has written to the hub")
	}
	report := l.agency("exec", id, "--", "cat", "report")
	if !strings.HasSuffix(report, "\nlo") || strings.Contains(report, "invocations") { // no network but the loopback, and no records
		l.t.Errorf("the agent saw:\n%s", report)
	}
	l.agency("discard", id)
	l.requireNothingLeft()
}

// testPodmanEnds checks the ways in which a run ends.
func testPodmanEnds(l podmanLab) {
	for name, test := range map[string]func(){
		"exit code": func() {
			id := l.submit(`echo x >x; git add x; git commit -qm x; exit 5`)
			l.requireEnd(id, gitagency.StatusFailed, 5, 1)
			l.requireDiff(id, "A\tx")
		},
		"signal": func() {
			id := l.submit(`echo x >x; kill -SEGV $$`)
			l.requireEnd(id, gitagency.StatusFailed, 139, 1)
			l.requireDiff(id, "A\tx")
		},
		"time limit": func() {
			id := l.submit(`echo x >x; exec sleep 1000`, "--timeout", "2s")
			l.requireEnd(id, gitagency.StatusTimedOut, 124, 1)
			l.requireDiff(id, "A\tx")
		},
		"stop": func() {
			id := l.submit(`echo x >x; touch $OUT/$AGENCY_INVOCATION_ID; exec sleep 1000`)
			l.waitForOut(id)
			l.agency("stop", id)
			l.requireEnd(id, gitagency.StatusStopped, 143, 1)
			l.requireDiff(id, "A\tx")
		},
		"podman stop": func() {
			id := l.submit(`echo x >x; touch $OUT/$AGENCY_INVOCATION_ID; exec sleep 1000`)
			l.waitForOut(id)
			l.podman("stop", "-t", "20", "agency-"+id)
			l.requireEnd(id, gitagency.StatusStopped, 143, 1)
			l.requireDiff(id, "A\tx")
		},
	} {
		l.t.Log(name)
		test()
	}
	for _, inv := range l.listed() {
		l.agency("discard", inv.ID)
	}
	l.requireNothingLeft()
}

// testPodmanClientKilled kills the process that follows a run. The run goes on.
func testPodmanClientKilled(l podmanLab) {
	client := exec.CommandContext(l.t.Context(), filepath.Join(l.bin, "git-agency"),
		l.runArgs(`echo x >x; git add x; git commit -qm x; touch $OUT/begun; until test -e $OUT/go; do sleep 0.1; done`)...)
	client.Dir, client.Env = l.repo, l.env
	if err := client.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.waitForOut("begun")
	if err := client.Process.Kill(); err != nil {
		l.t.Fatal(err)
	}
	_ = client.Wait() // it was killed
	all := l.listed()
	if len(all) != 1 || !all[0].HasOpenJob() {
		l.t.Fatalf("%+v", all)
	}
	l.write(l.out("go"), "")
	l.requireEnd(all[0].ID, gitagency.StatusFinished, 0, 1)
	l.requireDiff(all[0].ID, "A\tx")
	l.agency("land", all[0].ID)
	l.requireNothingLeft()
}

// testPodmanManyRuns runs containers at once, and others in the directories that those have left.
func testPodmanManyRuns(l podmanLab) {
	const count = 6
	for range 2 {
		ids := strings.Fields(l.submit(`echo $AGENCY_INVOCATION_ID >id; git add id; git commit -qm id; touch $OUT/$AGENCY_INVOCATION_ID; until test -e $OUT/go; do sleep 0.1; done`, "-n", strconv.Itoa(count)))
		for _, id := range ids {
			l.waitForOut(id)
		}
		if dirs, err := filepath.Glob(filepath.Join(l.nodes(), "*")); err != nil || len(dirs) != count {
			l.t.Errorf("the containers use %q, %v", dirs, err)
		}
		l.write(l.out("go"), "")
		for _, id := range ids {
			l.requireEnd(id, gitagency.StatusFinished, 0, 1)
			if got := l.agency("exec", id, "--", "cat", "id"); got != id {
				l.t.Errorf("the work of %s is that of %s", id, got)
			}
			l.agency("discard", id)
		}
		if err := os.Remove(l.out("go")); err != nil {
			l.t.Fatal(err)
		}
	}
	l.requireNothingLeft()
}

// testPodmanContainerKilled kills a container. The next one discards what that has left.
func testPodmanContainerKilled(l podmanLab) {
	id := l.submit(`echo x >x; touch $OUT/begun; exec sleep 1000`)
	l.waitForOut("begun")
	l.podman("kill", "--signal", "KILL", "agency-"+id)
	if inv := l.requireEnd(id, gitagency.StatusFailed, 1, 0); !strings.Contains(inv.StatusReason, "with exit code 137, and left no result") {
		l.t.Errorf("the reason is %q", inv.StatusReason)
	}
	l.agency("discard", id)
	next := l.submit(`exit 0`)
	l.requireEnd(next, gitagency.StatusFinished, 0, 1)
	l.agency("discard", next)
	l.requireNothingLeft()
}

// testPodmanOverSSH runs podman by ssh, as on another machine.
func testPodmanOverSSH(l podmanLab) {
	startSSHServer(l.lab)
	config := filepath.Join(l.dir, "sshd", "config")
	l.write(config, l.read(config)+"SetEnv "+strings.Join(l.variables, " ")+" PATH="+l.bin+":"+systemPath+"\n")
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		l.t.Fatal(err)
	}
	l.write(filepath.Join(l.bin, "ssh"), "#!/bin/sh\nexec "+ssh+" -F "+filepath.Join(l.dir, "home", ".ssh", "config")+` "$@"`+"\n")
	if err := os.Chmod(filepath.Join(l.bin, "ssh"), 0o755); err != nil {
		l.t.Fatal(err)
	}
	l.git("config", "agency.platform.podman.ssh", "allowed")
	l.env = append(l.env, "CONTAINERS_STORAGE_CONF=/none") // podman on this side would fail
	roundTrip(l.lab)
	l.requireProbed("podman")
	id := l.submit(`echo y >y; touch $OUT/begun; exec sleep 1000`)
	l.waitForOut("begun")
	l.agency("stop", id)
	l.requireEnd(id, gitagency.StatusStopped, 143, 1)
	l.requireDiff(id, "A\ty")
	l.agency("discard", id)
	if o := l.try(nil, "git", "agency", "preflight", "wt", "--profile", "p", "--software", "example.com/none:1", "--", "sh"); o.code != 6 || !strings.Contains(o.stdout, "ssh allowed podman pull example.com/none:1") {
		l.t.Errorf("%+v", o)
	}
	l.env = append(l.env, l.variables...)
	l.requireNothingLeft()
}

// testPodmanVolume keeps repositories in a volume, the default. The hub borrows its objects from a repository that the container has to see.
func testPodmanVolume(l podmanLab) {
	l.git("config", "--unset", "agency.platform.podman.dir")
	bare := filepath.Join(l.dir, "hub.git")
	l.git("clone", "-q", "--bare", "--shared", ".", bare)
	l.git("config", "agency.hub", bare)
	roundTrip(l.lab)
	l.requireProbed("podman")
	l.requireNothingLeft()
	volume := l.podman("volume", "inspect", "--format", "{{.Mountpoint}}", "git-agency")
	if repositories, err := filepath.Glob(filepath.Join(volume, "*/data/repos/*")); err != nil || len(repositories) == 0 {
		l.t.Errorf("the volume has no repository: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(volume, "*/data/repos/*/sandboxes/*")); err != nil || len(left) > 0 {
		l.t.Errorf("left in the volume: %q, %v", left, err)
	}
	if got := l.podman("volume", "ls", "--quiet"); got != "git-agency" {
		l.t.Errorf("the volumes are %q", got)
	}
}
