package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/scripts/fakeslurm"
)

// site is a cluster that the suite runs on.
type site struct {
	env     []string
	requeue func(t *testing.T, id string) // makes a running job start again
	down    func(t *testing.T) []string   // an environment in which the controller cannot be reached

	killWait time.Duration // between SIGTERM and SIGKILL
}

// testTimeout bounds every wait. Only a failing test reaches it.
const testTimeout = 3 * time.Minute

// simulatedSite makes a simulated Slurm for one test.
func simulatedSite(t *testing.T) site {
	t.Helper()
	dir := t.TempDir()
	bin, err := fakeslurm.Install(dir)
	must(t, err)
	state := filepath.Join(dir, "state")
	env := []string{
		"PATH=" + bin + ":/usr/bin:/bin", "HOME=" + dir, "TMPDIR=" + dir, fakeslurm.DirVariable + "=" + state,
	}
	must(t, os.Mkdir(state, 0o755))
	must(t, os.WriteFile(filepath.Join(state, fakeslurm.KillWaitFile), []byte("1"), 0o644))
	t.Cleanup(func() { must(t, fakeslurm.KillAll(state)) })
	return site{
		env:     env,
		requeue: func(t *testing.T, id string) { runClient(t, env, "slurmlab", "requeue", id) },
		down:    func(t *testing.T) []string { runClient(t, env, "slurmlab", "down"); return env },

		killWait: time.Second,
	}
}

func TestSimulatedSlurmConforms(t *testing.T) {
	t.Parallel()
	testDriver(t, simulatedSite)
}

// testDriver runs the suite on sites that newSite makes.
func testDriver(t *testing.T, newSite func(t *testing.T) site) {
	for name, test := range map[string]func(*testing.T, *bench){
		"RoundTrip": testRoundTrip, "Signal": testSignal, "ProgramsInOrder": testProgramsInOrder, "NoProgram": testNoProgram,
		"CancelRunning": testCancelRunning, "CancelUntilKilled": testCancelUntilKilled, "CancelWithoutLogDir": testCancelWithoutLogDir,
		"CancelPending": testCancelPending, "ManyJobs": testManyJobs, "Requeue": testRequeue, "UnknownJobs": testUnknownJobs, "Names": testNames,
		"LogsOfLogDir": testLogsOfLogDir, "LogsOfNode": testLogsOfNode, "LogDirOfOtherMachine": testLogDirOfOtherMachine,
		"ClientMissing": testClientMissing, "ControllerDown": testControllerDown, "NoSecret": testNoSecret, "UserDefaults": testUserDefaults,
		"Rejected": testRejected, "Reap": testReap, "Probe": testProbe, "WatchEnds": testWatchEnds, "SSH": testSSH,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newBench(t, newSite(t)))
		})
	}
}

// bench is what one test works with.
type bench struct {
	site
	driver Slurm
	dir    string // LogDir
	prefix string // of names, which are unique in a cluster
}

var benches atomic.Int64

func newBench(t *testing.T, at site) *bench {
	dir := filepath.Join(t.TempDir(), "it's a directory")
	must(t, os.Mkdir(dir, 0o755))
	return &bench{site: at, driver: Slurm{Channel: Channel{Env: at.env}}, dir: dir, prefix: fmt.Sprintf("t%d-%d-", os.Getpid(), benches.Add(1))}
}

// shell returns a job that runs a shell script.
func (b *bench) shell(name, script string) Job {
	return Job{Name: b.prefix + name, Argv: []string{"/bin/sh", "-c", script}, LogDir: b.dir}
}

// submit submits a job that is cancelled when the test ends.
func (b *bench) submit(t *testing.T, job Job) Ref {
	t.Helper()
	id, err := b.driver.Submit(t.Context(), job)
	must(t, err)
	ref := Ref{Name: job.Name, ID: id, Dir: job.LogDir}
	t.Cleanup(func() {
		_ = b.driver.Cancel(context.Background(), ref) // the controller of the test may be down
		if t.Failed() {
			for _, stream := range []Stream{Stdout, Stderr} {
				text, _ := os.ReadFile(logFile(b.dir, job.Name, stream)) // it may have none
				t.Logf("%s of %s: %s", stream, job.Name, text)
			}
		}
	})
	return ref
}

// waitFor waits until a job is in a state that is wanted, and returns that.
func (b *bench) waitFor(t *testing.T, ref Ref, wanted func(Status) bool) Status {
	t.Helper()
	var last []Status
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		got, err := b.driver.List(t.Context(), []Ref{ref})
		must(t, err)
		if last = got; len(got) == 1 && wanted(got[0]) {
			return got[0]
		}
	}
	t.Fatalf("job %+v is %+v", ref, last)
	return Status{}
}

func (b *bench) waitForEnd(t *testing.T, ref Ref) Status {
	t.Helper()
	return b.waitFor(t, ref, func(s Status) bool { return s.State == Ended })
}

// waitForOutput waits until a job has written a text to its LogDir.
func (b *bench) waitForOutput(t *testing.T, ref Ref, want string) string {
	t.Helper()
	var got []byte
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		got, _ = os.ReadFile(logFile(ref.Dir, ref.Name, Stdout)) // not there yet
		if strings.Contains(string(got), want) {
			return string(got)
		}
	}
	t.Fatalf("job %s wrote %q", ref.Name, got)
	return ""
}

func (b *bench) logs(t *testing.T, ref Ref, req LogsRequest) string {
	t.Helper()
	var out bytes.Buffer
	n, err := b.driver.Logs(t.Context(), ref, req, &out)
	must(t, err)
	if n != int64(out.Len()) {
		t.Errorf("%d bytes were copied, but %d counted", out.Len(), n)
	}
	return out.String()
}

func testRoundTrip(t *testing.T, b *bench) {
	job := b.shell("job", `echo "$1"; echo problem >&2; umask; pwd; cat; exit 7`)
	job.Argv = append(job.Argv, "sh", "a 'quoted' $(word)\n#SBATCH --hold")
	job.Stdin = "it's\\n %s \x00\x01\r\n\té\xff\n" + strings.Repeat("long line ", 20_000) + "end"
	job.TimeLimit, job.Memory, job.Requeue = 90*time.Second, 1<<20+1, true
	ref := b.submit(t, job)
	got := b.waitForEnd(t, ref)
	if !slices.Contains([]string{"n1", "n2", "n3"}, got.Node) {
		t.Errorf("it ran on %q", got.Node)
	}
	requireStatus(t, got, Status{Name: job.Name, ID: ref.ID, State: Ended, Reason: Exited, Exit: new(7), Attempt: 1})
	if got, want := b.logs(t, ref, LogsRequest{Stream: Stdout}), "a 'quoted' $(word)\n#SBATCH --hold\n0022\n/\n"+job.Stdin; got != want {
		t.Errorf("it wrote %.300q, want %.300q", got, want)
	}
	if got := b.logs(t, ref, LogsRequest{Stream: Stderr}); got != "problem\n" {
		t.Errorf("stderr is %q", got)
	}
}

func testSignal(t *testing.T, b *bench) {
	ref := b.submit(t, b.shell("job", "kill -SEGV $$"))
	requireStatus(t, b.waitForEnd(t, ref), Status{Name: ref.Name, ID: ref.ID, State: Ended, Reason: Signaled, Attempt: 1})
	job := b.shell("kept", "kill -SEGV $$") // the shell that keeps its output tells the signal as a code
	job.LogDir = ""
	ref = b.submit(t, job)
	requireStatus(t, b.waitForEnd(t, ref), Status{Name: ref.Name, ID: ref.ID, State: Ended, Reason: Exited, Exit: new(139), Attempt: 1})
}

func testProgramsInOrder(t *testing.T, b *bench) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "data"), nil, 0o644))
	job := Job{
		Name: b.prefix + "job", LogDir: b.dir, Argv: []string{filepath.Join(dir, "none"), "-c", "echo $0", "sh"},
		Programs: []string{"no-such-program", dir, filepath.Join(dir, "data"), "sh", "/bin/false"},
	}
	ref := b.submit(t, job)
	requireStatus(t, b.waitForEnd(t, ref), Status{Name: ref.Name, ID: ref.ID, State: Ended, Reason: Exited, Exit: new(0), Attempt: 1})
	if got := b.logs(t, ref, LogsRequest{Stream: Stdout}); got != "sh\n" {
		t.Errorf("it wrote %q", got)
	}
}

func testNoProgram(t *testing.T, b *bench) {
	for name, dir := range map[string]string{"shared": b.dir, "kept": ""} {
		ref := b.submit(t, Job{Name: b.prefix + name, LogDir: dir, Argv: []string{"/no/such", "x"}, Programs: []string{"it's-none"}})
		requireStatus(t, b.waitForEnd(t, ref), Status{Name: ref.Name, ID: ref.ID, State: Ended, Reason: Exited, Exit: new(127), Attempt: 1})
		if dir != "" {
			got := b.logs(t, ref, LogsRequest{Stream: Stderr})
			if !strings.Contains(got, "no such program") || !strings.Contains(got, "/no/such, it's-none") {
				t.Errorf("stderr is %q", got)
			}
		}
	}
}

// writesOn is a program that writes on for a while after SIGTERM, and counts the signals.
const writesOn = `n=0; trap 'n=$((n + 1))' TERM; echo ready $$; while [ $n -eq 0 ]; do sleep 0.1; done; echo working on
	for i in 1 2 3 4 5; do sleep 0.1; done; echo signals: $n, process: $$; exit 9`

func testCancelRunning(t *testing.T, b *bench) {
	ref := b.submit(t, b.shell("job", writesOn))
	b.waitForOutput(t, ref, "ready")
	running := b.waitFor(t, ref, func(s Status) bool { return s.State == Running })
	requireStatus(t, running, Status{Name: ref.Name, ID: ref.ID, State: Running, Attempt: 1})
	must(t, b.driver.Cancel(t.Context(), ref))
	must(t, b.driver.Cancel(t.Context(), ref))
	got := b.waitForEnd(t, ref)
	requireStatus(t, got, Status{Name: ref.Name, ID: ref.ID, State: Ended, Reason: Cancelled, Exit: new(9), Attempt: 1})
	if out := b.logs(t, ref, LogsRequest{Stream: Stdout}); !strings.Contains(out, "working on\nsignals: 1,") {
		t.Errorf("it wrote %q", out)
	}
	must(t, b.driver.Cancel(t.Context(), ref))
}

func testCancelUntilKilled(t *testing.T, b *bench) {
	ref := b.submit(t, b.shell("job", `trap "echo ignored" TERM; echo ready; while :; do sleep 0.1; done`))
	b.waitForOutput(t, ref, "ready")
	must(t, b.driver.Cancel(t.Context(), ref))
	requireStatus(t, b.waitForEnd(t, ref), Status{Name: ref.Name, ID: ref.ID, State: Ended, Reason: Cancelled, Attempt: 1})
	b.waitForOutput(t, ref, "ignored")
}

// testCancelWithoutLogDir checks the shell that stays between Slurm and the program.
func testCancelWithoutLogDir(t *testing.T, b *bench) {
	seen := filepath.Join(t.TempDir(), "seen") // the cluster has this machine's files
	job := b.shell("job", "exec >"+seen+"; "+writesOn)
	job.LogDir = ""
	ref := b.submit(t, job)
	waitForText(t, seen, "ready")
	must(t, b.driver.Cancel(t.Context(), ref))
	requireStatus(t, b.waitForEnd(t, ref), Status{Name: ref.Name, ID: ref.ID, State: Ended, Reason: Cancelled, Exit: new(9), Attempt: 1})
	waitForText(t, seen, "working on\nsignals: 1,")
	requireNoNodeFiles(t, ref)
}

func testCancelPending(t *testing.T, b *bench) {
	b.driver.Args = []string{"--hold"}
	ref := b.submit(t, b.shell("job", "echo began"))
	got := b.waitFor(t, ref, func(Status) bool { return true })
	if got.State != Queued || got.Node != "" || !strings.Contains(got.Detail, "PENDING (JobHeldUser)") {
		t.Errorf("it is %+v", got)
	}
	if out := b.logs(t, ref, LogsRequest{Stream: Stdout}); out != "" {
		t.Errorf("it wrote %q", out)
	}
	must(t, b.driver.Cancel(t.Context(), ref))
	got = b.waitForEnd(t, ref)
	requireStatus(t, got, Status{Name: ref.Name, ID: ref.ID, State: Ended, Reason: Cancelled, Attempt: 1})
	if _, err := os.Stat(logFile(b.dir, ref.Name, Stdout)); err == nil {
		t.Error("it has written")
	}
	requireNoLogs(t, b, ref)
}

func testManyJobs(t *testing.T, b *bench) {
	count := 100
	if testing.Short() {
		count = 20
	}
	refs := make([]Ref, count)
	var submits sync.WaitGroup
	began := time.Now()
	for i := range refs {
		job := b.shell("job-"+strconv.Itoa(i), "exit "+strconv.Itoa(i))
		submits.Go(func() {
			id, err := b.driver.Submit(t.Context(), job)
			if err != nil {
				t.Error(err)
			}
			refs[i] = Ref{Name: job.Name, ID: id, Dir: b.dir}
		})
	}
	submits.Wait()
	submitted := time.Since(began)
	if t.Failed() {
		return
	}
	ended := map[string]Status{}
	must(t, b.driver.Watch(watchContext(t), refs, func(all []Status) bool {
		for _, s := range all {
			if s.State == Ended {
				ended[s.Name] = s
			}
		}
		return len(ended) < count
	}, func(err error) { t.Error(err) }))
	t.Logf("%d jobs: submitted in %s, ended after %s", count, submitted.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	for i, ref := range refs {
		requireStatus(t, ended[ref.Name], Status{Name: ref.Name, ID: ref.ID, State: Ended, Reason: Exited, Exit: &i, Attempt: 1})
	}
}

func testRequeue(t *testing.T, b *bench) {
	job := b.shell("job", `echo "restarts: ${SLURM_RESTART_COUNT:-none}"; [ -n "$SLURM_RESTART_COUNT" ] || sleep 600; exit 3`)
	job.Requeue = true
	ref := b.submit(t, job)
	b.waitForOutput(t, ref, "restarts: none\n")
	b.requeue(t, ref.ID)
	requireStatus(t, b.waitForEnd(t, ref), Status{Name: ref.Name, ID: ref.ID, State: Ended, Reason: Exited, Exit: new(3), Attempt: 2})
	if out := b.logs(t, ref, LogsRequest{Stream: Stdout}); out != "restarts: none\nrestarts: 1\n" {
		t.Errorf("it wrote %q", out)
	}
}

func testUnknownJobs(t *testing.T, b *bench) {
	known := b.submit(t, b.shell("known", "exit 0"))
	unknown := []Ref{{Name: b.prefix + "a", ID: "99999001"}, {Name: b.prefix + "b", ID: "99999002", Dir: b.dir}, {Name: b.prefix + "c"}}
	for i, refs := range [][]Ref{unknown[:1], unknown[:2], unknown, append(slices.Clone(unknown), known), {known, unknown[0]}} {
		got, err := b.driver.List(t.Context(), refs)
		if want := slices.Contains(refs, known); err != nil || want != (len(got) == 1 && got[0].ID == known.ID) || !want && len(got) > 0 {
			t.Errorf("query %d: %+v, %v", i, got, err)
		}
	}
	for _, ref := range unknown {
		must(t, b.driver.Cancel(t.Context(), ref))
		must(t, b.driver.Reap(t.Context(), ref))
		requireNoLogs(t, b, ref)
	}
	other := known
	other.Name = b.prefix + "other" // its number now belongs to another job
	if got, err := b.driver.List(t.Context(), []Ref{other}); len(got) > 0 || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	for _, id := range []string{"--help", "1,2", "x", "1;--help", "1;", "-1"} {
		bad := Ref{Name: b.prefix + "bad", ID: id}
		if got, err := b.driver.List(t.Context(), []Ref{bad}); err == nil {
			t.Errorf("id %q: %+v", id, got)
		}
		if err := b.driver.Cancel(t.Context(), bad); err == nil {
			t.Errorf("job %q was cancelled", id)
		}
	}
	if got, err := b.driver.List(t.Context(), nil); len(got) > 0 || err != nil {
		t.Errorf("no jobs: %+v, %v", got, err)
	}
}

func testNames(t *testing.T, b *bench) {
	first, second := b.submit(t, b.shell("first", "exit 1")), b.submit(t, b.shell("second", "sleep 600"))
	b.waitForEnd(t, first)
	b.waitFor(t, second, func(s Status) bool { return s.State == Running })
	byName := func(refs ...Ref) map[string]Status {
		for i := range refs {
			refs[i].ID = ""
		}
		got, err := b.driver.List(t.Context(), refs)
		must(t, err)
		all := map[string]Status{}
		for _, s := range got {
			all[s.Name] = s
		}
		return all
	}
	got := byName(first, second, Ref{Name: b.prefix + "third"})
	if len(got) != 2 || got[first.Name].ID != first.ID || got[second.Name].ID != second.ID || got[second.Name].State != Running {
		t.Errorf("%+v", got)
	}
	must(t, b.driver.Cancel(t.Context(), Ref{Name: second.Name}))
	if got := b.waitForEnd(t, second); got.Reason != Cancelled {
		t.Errorf("%+v", got)
	}
	again := b.submit(t, b.shell("first", "exit 2")) // should not be, and must not confuse
	b.waitForEnd(t, again)
	if got := byName(first); len(got) != 1 || got[first.Name].ID != again.ID {
		t.Errorf("%+v", got)
	}
	if got := b.waitForEnd(t, first); got.ID != first.ID || *got.Exit != 1 {
		t.Errorf("%+v", got)
	}
}

func requireStatus(t *testing.T, got, want Status) {
	t.Helper()
	got.Detail, want.Detail = "", ""
	if want.Node == "" {
		got.Node = ""
	}
	if !reflect.DeepEqual(got, want) {
		exit := func(s Status) string {
			if s.Exit == nil {
				return "none"
			}
			return strconv.Itoa(*s.Exit)
		}
		t.Errorf("the job is %+v with exit code %s, want %+v with %s", got, exit(got), want, exit(want))
	}
}

// requireNoLogs checks that the output of a job cannot be read, in the words for that.
func requireNoLogs(t *testing.T, b *bench, ref Ref) {
	t.Helper()
	for _, follow := range []bool{false, true} {
		n, err := b.driver.Logs(t.Context(), ref, LogsRequest{Stream: Stdout, Follow: follow}, &bytes.Buffer{})
		var none *NoLogsError
		if !errors.As(err, &none) || n != 0 {
			t.Errorf("output of %+v with follow %t: %d bytes, %v", ref, follow, n, err)
		}
	}
}

// nodeFiles returns the files of a job on its node, which is this machine.
func nodeFiles(t *testing.T, ref Ref) []string {
	t.Helper()
	files, err := filepath.Glob("/tmp/job-output-*/" + ref.Name + ".*")
	must(t, err)
	return files
}

func requireNoNodeFiles(t *testing.T, ref Ref) {
	t.Helper()
	if files := nodeFiles(t, ref); len(files) > 0 {
		t.Errorf("the job left %v", files)
	}
}

func waitForText(t *testing.T, path, want string) {
	t.Helper()
	var got []byte
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if got, _ = os.ReadFile(path); strings.Contains(string(got), want) { // not there yet
			return
		}
	}
	t.Fatalf("%s holds %q", path, got)
}

// watchContext returns a context that ends a watch that would go on for ever.
func watchContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// runClient runs a program of a site.
func runClient(t *testing.T, env []string, argv ...string) string {
	t.Helper()
	path, err := proc.LookPath(env, argv[0])
	must(t, err)
	cmd := exec.CommandContext(t.Context(), path, argv[1:]...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v: %s", argv, err, out)
	}
	return string(out)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
