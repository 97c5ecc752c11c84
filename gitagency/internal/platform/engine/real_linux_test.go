//go:build platforms

package engine

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// The tests of this file need a real Slurm, which scripts/slurm.sh installs and starts. They are run by
// "make test-platforms".

// realSite returns the cluster that most tests use.
func realSite(t *testing.T) site {
	t.Helper()
	conf, err := sharedCluster()
	must(t, err)
	return clusterSite(conf)
}

// ownSite returns a new cluster, for a test that would disturb others.
func ownSite(t *testing.T) site {
	t.Helper()
	dir, err := newClusterDir()
	must(t, err)
	t.Cleanup(func() { must(t, errors.Join(stopCluster(dir), os.RemoveAll(dir))) })
	conf, err := startCluster(dir)
	must(t, err)
	return clusterSite(conf)
}

// clusterSite returns the cluster of a configuration.
func clusterSite(conf string) site {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + os.Getenv("HOME"), "SLURM_CONF=" + conf}
	s := slurmSite(env)
	s.requeue = func(t *testing.T, id string) { runClient(t, env, "scontrol", "requeue", id) }
	s.down = func(t *testing.T) []string {
		text, err := os.ReadFile(conf)
		must(t, err)
		other := filepath.Join(t.TempDir(), "slurm.conf")
		text = regexp.MustCompile(`(?m)^SlurmctldPort=.*$`).ReplaceAll(text, []byte("SlurmctldPort=1\nMessageTimeout=2"))
		must(t, os.WriteFile(other, text, 0o644))
		return append(env[:len(env)-1:len(env)-1], "SLURM_CONF="+other)
	}
	s.killWait = 5 * time.Second
	return s
}

var sharedCluster = sync.OnceValues(func() (conf string, err error) {
	dir, err := newClusterDir()
	if err != nil {
		return "", err
	}
	afterTests = append(afterTests, func() {
		if stopCluster(dir) == nil {
			_ = os.RemoveAll(dir) // of the user's temporary directory
		}
	})
	return startCluster(dir)
})

// newClusterDir makes a directory for a cluster. The daemons of different users enter it, so it is not below t.TempDir.
func newClusterDir() (string, error) { return os.MkdirTemp("/tmp", "slurm-*") }

const clusterScript = "../../../../scripts/slurm.sh"

// startCluster starts a cluster in a directory. Its daemons keep the output of the script open, so that is a file.
func startCluster(dir string) (conf string, err error) {
	out, err := os.Create(filepath.Join(dir, "environment"))
	if err != nil {
		return "", err
	}
	defer out.Close()
	start := exec.Command(clusterScript, "start", dir)
	start.Stdout, start.Stderr = out, os.Stderr
	if err := start.Run(); err != nil {
		return "", err
	}
	text, err := os.ReadFile(out.Name())
	conf, _ = strings.CutPrefix(strings.TrimSpace(string(text)), "SLURM_CONF=")
	return conf, err
}

func stopCluster(dir string) error {
	stop := exec.Command(clusterScript, "stop", dir)
	stop.Stdout, stop.Stderr = os.Stderr, os.Stderr
	return stop.Run()
}

func TestRealSlurmConforms(t *testing.T) {
	t.Parallel()
	testDriver(t, realSite, conformance)
}

func TestRealSlurm(t *testing.T) {
	t.Parallel()
	testDriver(t, realSite, slurmTests)
}

func TestRealSlurmEndsJobAfterTimeLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t, realSite(t))
	job := b.shell("job", writesOn)
	job.TimeLimit = time.Second // Slurm counts minutes
	ref := b.submit(t, job)
	got := b.waitForEnd(t, ref)
	requireStatus(t, got, Status{Name: ref.Name, ID: ref.ID, State: Ended, Reason: TimedOut, Exit: new(9), Attempt: 1})
	b.waitForOutput(t, ref, "working on\nsignals: 1,")
}

func TestRealSlurmPreempts(t *testing.T) {
	t.Parallel()
	b := newBench(t, ownSite(t))
	for _, requeue := range []bool{true, false} {
		low := b.shell(map[bool]string{true: "low-requeued", false: "low"}[requeue], `echo "restarts: ${SLURM_RESTART_COUNT:-none}"; [ -n "$SLURM_RESTART_COUNT" ] || sleep 600`)
		low.Requeue = requeue
		ref := b.submit(t, low)
		b.waitForOutput(t, ref, "none\n")
		node := b.waitFor(t, ref, func(s Status) bool { return s.State == Running }).Node
		b.slurm(func(s *Slurm) { s.Partition, s.Args = "high", []string{"--exclusive", "--nodelist=" + node} })
		high := b.submit(t, b.shell("high-"+low.Name[len(b.prefix):], "exit 0"))
		b.slurm(func(s *Slurm) { s.Partition, s.Args = "", nil })
		b.waitForEnd(t, high)
		want := Status{Name: ref.Name, ID: ref.ID, State: Ended, Reason: Exited, Exit: new(0), Attempt: 2}
		if !requeue {
			want.Reason, want.Exit, want.Attempt = Preempted, nil, 1
		}
		requireStatus(t, b.waitForEnd(t, ref), want)
	}
}
