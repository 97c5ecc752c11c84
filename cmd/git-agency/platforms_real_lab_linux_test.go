//go:build platforms

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency"
)

// The tests with the tag "platforms" run git-agency on a real Slurm of three nodes and a real podman, which scripts/slurm.sh and
// scripts/podman.sh install on this machine. They are run by "make test-platforms".

// clusterVariable names the slurm.conf of the cluster that a test shares with the test that has started it as another user.
const clusterVariable = "TEST_SLURM_CONF"

// systemPath is a PATH without the programs of the simulated Slurm, which the PATH of the tests has.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// realCluster is a running cluster.
type realCluster struct{ dir string }

func (c realCluster) conf() string { return filepath.Join(c.dir, "slurm.conf") }

// runClusterScript runs a command of scripts/slurm.sh. Daemons keep the output of the script open, so that is a file.
func (c realCluster) runClusterScript(command string, args ...string) error {
	path := filepath.Join(c.dir, "output")
	out, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(filepath.Join("..", "..", "scripts", "slurm.sh"), append([]string{command, c.dir}, args...)...)
	cmd.Env = []string{"PATH=" + systemPath, "HOME=" + os.Getenv("HOME")}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(path) // the error of the script counts
		return errors.New("scripts/slurm.sh " + command + ": " + err.Error() + "\n" + string(text))
	}
	return nil
}

// startRealCluster starts a cluster below /tmp, which its daemons of different users can enter.
func startRealCluster(args ...string) (realCluster, error) {
	dir, err := os.MkdirTemp("/tmp", "slurm-*")
	c := realCluster{dir}
	if err != nil {
		return c, err
	}
	err = c.runClusterScript("start", append([]string{"--kill-wait", "30"}, args...)...)
	if err != nil {
		_ = os.RemoveAll(dir) // below /tmp; the error of the script counts
	}
	return c, err
}

func (c realCluster) stop() error {
	return errors.Join(c.runClusterScript("stop"), os.RemoveAll(c.dir))
}

var clusters struct {
	sync.Mutex
	shared realCluster
	err    error
	users  int
}

// sharedCluster returns a cluster whose daemons no test disturbs. It stops after the last of the tests that use it at the same time.
func sharedCluster(t *testing.T) realCluster {
	t.Helper()
	if conf := os.Getenv(clusterVariable); conf != "" && os.Getenv("TEST_RERUN") != "" {
		return realCluster{filepath.Dir(conf)}
	}
	clusters.Lock()
	defer clusters.Unlock()
	if clusters.users == 0 {
		clusters.shared, clusters.err = startRealCluster()
	}
	requireCluster(t, clusters.err)
	clusters.users++
	t.Cleanup(func() {
		clusters.Lock()
		defer clusters.Unlock()
		if clusters.users--; clusters.users == 0 {
			if err := clusters.shared.stop(); err != nil {
				t.Error(err)
			}
		}
	})
	return clusters.shared
}

// ownCluster starts a cluster for one test.
func ownCluster(t *testing.T, args ...string) realCluster {
	t.Helper()
	c, err := startRealCluster(args...)
	requireCluster(t, err)
	t.Cleanup(func() {
		if err := c.stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// requireCluster skips a test if Slurm is not installed and cannot be. A cluster that does not start fails it.
func requireCluster(t *testing.T, err error) {
	t.Helper()
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "not installed") || strings.Contains(err.Error(), "apt-get failed"):
		t.Skipf("skipped: Slurm cannot be installed: %v", err)
	default:
		t.Fatal(err)
	}
}

// newRealLab returns a lab with an integration worktree "wt" and the profile "p" for a cluster. Agents may write to the directory
// "out" of the lab.
func newRealLab(t *testing.T, c realCluster) *lab {
	t.Helper()
	l := newLab(t)
	l.installCopy()
	l.env = append(l.env, "SLURM_CONF="+c.conf(), "PATH="+l.bin+":"+systemPath)
	for _, name := range []string{"sbatch", "squeue", "scancel", "scontrol"} {
		for dir := range strings.SplitSeq(systemPath, ":") {
			if path := filepath.Join(dir, name); exists(path) && !exists(filepath.Join(l.bin, name)) {
				if err := os.Symlink(path, filepath.Join(l.bin, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := os.Mkdir(l.out(""), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{
		"agency.sandbox.write " + l.out(""), "agency.sandbox.read " + l.dir, "user.name C O Mitter", "user.email committer@example.com",
	} {
		key, value, _ := strings.Cut(setting, " ")
		l.git("config", "--global", "--add", key, value)
	}
	l.agency("worktree", "create", "wt")
	l.git("config", "agency.p.platform", "slurm")
	t.Cleanup(l.endJobs)
	return l
}

// installCopy puts a file in the place of the link to this test binary, so that its jobs find git-agency by the path that it has.
func (l *lab) installCopy() {
	l.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		l.t.Fatal(err)
	}
	path := filepath.Join(l.bin, "git-agency")
	if err := os.Remove(path); err != nil {
		l.t.Fatal(err)
	}
	if os.Link(exe, path) == nil {
		return
	}
	from, err := os.Open(exe)
	if err != nil {
		l.t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err = io.Copy(to, from); err == nil {
		err = to.Close()
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// endJobs waits until no job of the lab is left, whose process may still write to the directory of the test. The context of the
// test has ended.
func (l *lab) endJobs() {
	run := func(argv ...string) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(l.bin, argv[0]), argv[1:]...)
		cmd.Dir, cmd.Env = l.repo, l.env
		out, err := cmd.Output()
		return string(out), err
	}
	text, err := run("git-agency", "ls", "--all", "--json")
	var all []gitagency.Invocation
	if err == nil {
		err = json.Unmarshal([]byte(text), &all)
	}
	if err != nil {
		l.t.Errorf("the jobs of the test are not known: %v", err)
		return
	}
	names := "agency-none"
	for _, inv := range all {
		names += ",agency-" + inv.ID
		if l.t.Failed() && inv.PlatformJob != "" {
			_, _ = run("scancel", inv.PlatformJob) // it may have ended
		}
	}
	left := ""
	if !waitUntil(func() bool {
		left, err = run("squeue", "--noheader", "--states=pending,running,completing,suspended", "--name="+names, "--format=%i %T %r")
		return err == nil && left == ""
	}) {
		l.t.Errorf("jobs are left: %s, %v", left, err)
	}
}

// out returns the path of a file to which agents may write.
func (l *lab) out(name string) string { return filepath.Join(l.dir, "out", name) }

// waitForOut waits until a file is there.
func (l *lab) waitForOut(name string) {
	l.t.Helper()
	if !waitForFile(l.out(name)) {
		l.t.Fatalf("%s is not there; the runs are %+v", name, l.listed())
	}
}

// submit submits a run of a shell script that may use $OUT, and returns its id.
func (l *lab) submit(script string, options ...string) (id string) {
	l.t.Helper()
	return l.agency(l.runArgs(script, append([]string{"--detach"}, options...)...)...)
}

// runArgs returns the arguments of git-agency for a run of a shell script that may use $OUT.
func (l *lab) runArgs(script string, options ...string) []string {
	args := append([]string{"run", "wt", "--profile", "p"}, options...)
	return append(args, "--", "sh", "-c", "OUT="+l.out("")+"; "+script)
}

// shown returns an invocation as show prints it.
func (l *lab) shown(id string) (inv gitagency.Invocation) {
	l.t.Helper()
	if err := json.Unmarshal([]byte(l.agency("show", "--json", id)), &inv); err != nil {
		l.t.Fatal(err)
	}
	return inv
}

// waitForState waits until an invocation is in a state that is wanted.
func (l *lab) waitForState(id string, wanted func(gitagency.Invocation) bool) (inv gitagency.Invocation) {
	l.t.Helper()
	if !waitUntil(func() bool { inv = l.shown(id); return wanted(inv) }) {
		l.t.Fatalf("%s does not change: %+v", id, inv)
	}
	return inv
}

// requireEnd waits for the end of a run, and checks its status, exit code and attempt; an attempt of 0 may be any.
func (l *lab) requireEnd(id, status string, exit, attempt int) gitagency.Invocation {
	l.t.Helper()
	o := l.try(nil, "git-agency", "wait", id)
	inv := l.shown(id)
	if o.line() != id+" "+status || inv.ExitCode == nil || *inv.ExitCode != exit || attempt != 0 && inv.Attempt != attempt {
		l.t.Fatalf("wait printed %q; want %s with exit code %d in attempt %d: %+v", o.stdout+o.stderr, status, exit, attempt, inv)
	}
	return inv
}

// requireDiff checks which files the work of an invocation has changed.
func (l *lab) requireDiff(id string, want ...string) {
	l.t.Helper()
	if got := l.agency("diff", id, "--name-status"); got != strings.Join(want, "\n") {
		l.t.Errorf("the diff of %s is %q, want %q", id, got, want)
	}
}

// requireNothingLeft checks that no ref of a run, and neither a sandbox nor the record of one on a node is left.
func (l *lab) requireNothingLeft() {
	l.t.Helper()
	l.requireNoSandboxes("sandboxes", "invocations")
}

// requireNoSandboxes checks that no ref of a run is left, and nothing in some of the directories of nodes for sandboxes and records.
func (l *lab) requireNoSandboxes(kinds ...string) {
	l.t.Helper()
	if refs := l.git("for-each-ref", "refs/agency/jobs", "refs/agency/results"); refs != "" {
		l.t.Errorf("refs are left:\n%s", refs)
	}
	var left []string
	if !waitUntil(func() bool { // a node removes its sandbox after it has pushed
		left = nil
		for _, kind := range kinds {
			some, _ := filepath.Glob(filepath.Join(l.dir, "home/.cache/agency/nodes/*/*/data/repos/*", kind, "*")) // the pattern is valid
			left = append(left, some...)
		}
		return len(left) == 0
	}) {
		l.t.Errorf("left on the nodes: %q", left)
	}
}
