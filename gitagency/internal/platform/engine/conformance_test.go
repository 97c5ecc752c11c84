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
)

// site is an engine that the suite runs on.
type site struct {
	open    func(Channel) Driver
	env     []string
	engine  string              // name in messages
	client  string              // begin of the name of the program that testClientMissing misses
	isNode  func(string) bool   // reports whether a name is that of a node
	unknown []string            // ids of no job
	many    int                 // jobs to run at once
	ended   func(Status) Status // converts the end that Slurm reports to what this engine reports

	requeue func(t *testing.T, id string) // makes a running job start again; Slurm only
	down    func(t *testing.T) []string   // an environment in which the controller cannot be reached; Slurm only

	killWait time.Duration // between SIGTERM and SIGKILL
}

// testTimeout bounds every wait. Only a failing test reaches it.
const testTimeout = 3 * time.Minute

// testDriver runs tests on sites that newSite makes.
func testDriver(t *testing.T, newSite func(t *testing.T) site, tests map[string]func(*testing.T, *bench)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newBench(t, newSite(t)))
		})
	}
}

// conformance are the tests that every driver passes.
var conformance = map[string]func(*testing.T, *bench){
	"RoundTrip": testRoundTrip, "ProgramsInOrder": testProgramsInOrder, "CancelRunning": testCancelRunning, "CancelUntilKilled": testCancelUntilKilled,
	"ManyJobs": testManyJobs, "UnknownJobs": testUnknownJobs, "Names": testNames, "Logs": testLogs, "ClientMissing": testClientMissing,
	"InvalidJobs": testInvalidJobs, "WatchEnds": testWatchEnds, "SSH": testSSH,
}

// bench is what one test works with.
type bench struct {
	site
	driver Driver
	dir    string // LogDir; jobs may write to it
	prefix string // of names, which are unique in a cluster
}

var benches atomic.Int64

func newBench(t *testing.T, at site) *bench {
	dir := filepath.Join(t.TempDir(), "it's a directory")
	must(t, os.Mkdir(dir, 0o755))
	return &bench{site: at, driver: at.open(Channel{Env: at.env}), dir: dir, prefix: fmt.Sprintf("t%d-%d-", os.Getpid(), benches.Add(1))}
}

// shell returns a job that runs a shell script.
func (b *bench) shell(name, script string) Job {
	return Job{
		Name: b.prefix + name, Argv: []string{"/bin/sh", "-c", script}, LogDir: b.dir,
		Paths: []Path{{Source: b.dir, Target: b.dir, Write: true}},
	}
}

// slurm changes the driver of a site of Slurm.
func (b *bench) slurm(change func(*Slurm)) {
	driver := b.driver.(Slurm)
	change(&driver)
	b.driver = driver
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
				var text bytes.Buffer
				_, err := b.driver.Logs(context.Background(), ref, LogsRequest{Stream: stream}, &text)
				t.Logf("%s of %s: %s, %v", stream, job.Name, text.String(), err)
			}
		}
		_ = b.driver.Reap(context.Background(), ref) // the engine of the test may be down
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

// waitForOutput waits until a job has written a text.
func (b *bench) waitForOutput(t *testing.T, ref Ref, want string) string {
	t.Helper()
	var got bytes.Buffer
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		got.Reset()
		if _, err := b.driver.Logs(t.Context(), ref, LogsRequest{Stream: Stdout}, &got); err == nil && strings.Contains(got.String(), want) { // else not there yet
			return got.String()
		}
	}
	t.Fatalf("job %s wrote %q", ref.Name, got.String())
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
	job := b.shell("job", `echo "$1"; echo problem >&2; umask; pwd; cat; head -c 200000 /dev/zero; exit 7`)
	job.Argv = append(job.Argv, "sh", "a 'quoted' $(word)\n#SBATCH --hold")
	job.TimeLimit, job.Memory, job.Requeue = 90*time.Second, 1<<20+1, true
	ref := b.submit(t, job)
	got := b.waitForEnd(t, ref)
	if !b.isNode(got.Node) {
		t.Errorf("it ran on %q", got.Node)
	}
	requireStatus(t, got, Status{Name: job.Name, ID: ref.ID, State: Ended, Reason: Exited, Exit: new(7), Attempt: 1})
	if got, want := b.logs(t, ref, LogsRequest{Stream: Stdout}), "a 'quoted' $(word)\n#SBATCH --hold\n0022\n/\n"+strings.Repeat("\x00", 200_000); got != want {
		t.Errorf("it wrote %.300q, want %.300q", got, want)
	}
	if got := b.logs(t, ref, LogsRequest{Stream: Stderr}); got != "problem\n" {
		t.Errorf("stderr is %q", got)
	}
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
	requireStatus(t, got, b.ended(Status{Name: ref.Name, ID: ref.ID, State: Ended, Reason: Cancelled, Exit: new(9), Attempt: 1}))
	if out := b.logs(t, ref, LogsRequest{Stream: Stdout}); !strings.Contains(out, "working on\nsignals: 1,") {
		t.Errorf("it wrote %q", out)
	}
	must(t, b.driver.Cancel(t.Context(), ref))
}

func testCancelUntilKilled(t *testing.T, b *bench) {
	ref := b.submit(t, b.shell("job", `trap "echo ignored" TERM; echo ready; while :; do sleep 0.1; done`))
	b.waitForOutput(t, ref, "ready")
	must(t, b.driver.Cancel(t.Context(), ref))
	requireStatus(t, b.waitForEnd(t, ref), b.ended(Status{Name: ref.Name, ID: ref.ID, State: Ended, Reason: Cancelled, Attempt: 1}))
	b.waitForOutput(t, ref, "ignored")
}

func testManyJobs(t *testing.T, b *bench) {
	count := b.many
	if testing.Short() {
		count /= 5
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
	t.Cleanup(func() {
		for _, ref := range refs {
			_ = b.driver.Reap(context.Background(), ref) // those that were not submitted do not exist
		}
	})
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

func testUnknownJobs(t *testing.T, b *bench) {
	known := b.submit(t, b.shell("known", "exit 0"))
	unknown := []Ref{{Name: b.prefix + "a", ID: b.unknown[0]}, {Name: b.prefix + "b", ID: b.unknown[1], Dir: b.dir}, {Name: b.prefix + "c"}}
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

// byName lists jobs by their names alone.
func (b *bench) byName(t *testing.T, refs ...Ref) map[string]Status {
	t.Helper()
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

func testNames(t *testing.T, b *bench) {
	first, second := b.submit(t, b.shell("first", "exit 1")), b.submit(t, b.shell("second", "sleep 600"))
	b.waitForEnd(t, first)
	b.waitFor(t, second, func(s Status) bool { return s.State == Running })
	got := b.byName(t, first, second, Ref{Name: b.prefix + "third"})
	if len(got) != 2 || got[first.Name].ID != first.ID || got[second.Name].ID != second.ID || got[second.Name].State != Running {
		t.Errorf("%+v", got)
	}
	must(t, b.driver.Cancel(t.Context(), Ref{Name: second.Name}))
	if got, want := b.waitForEnd(t, second), b.ended(Status{Reason: Cancelled}); got.Reason != want.Reason {
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
