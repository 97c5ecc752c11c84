package engine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/scripts/fakeslurm"
)

// slurmTests are the tests of what Slurm alone does.
var slurmTests = map[string]func(*testing.T, *bench){
	"Signal": testSignal, "NoProgram": testNoProgram, "CancelWithoutLogDir": testCancelWithoutLogDir, "CancelPending": testCancelPending,
	"Requeue": testRequeue, "NameTwice": testNameTwice, "NumberOfOtherJob": testNumberOfOtherJob, "LogsOfNode": testLogsOfNode, "LogDirOfOtherMachine": testLogDirOfOtherMachine,
	"ControllerDown": testControllerDown, "NoSecret": testNoSecret, "UserDefaults": testUserDefaults, "Rejected": testRejected, "Reap": testReap,
	"Probe": testProbe,
}

// slurmSite returns a site of Slurm.
func slurmSite(env []string) site {
	return site{
		open: func(c Channel) Driver { return Slurm{Channel: c} }, env: env, engine: "Slurm", client: "s", many: 100,
		isNode:  func(name string) bool { return slices.Contains([]string{"n1", "n2", "n3"}, name) },
		unknown: []string{"99999001", "99999002"}, ended: func(s Status) Status { return s },
	}
}

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
	s := slurmSite(env)
	s.requeue = func(t *testing.T, id string) { runClient(t, env, "slurmlab", "requeue", id) }
	s.down = func(t *testing.T) []string { runClient(t, env, "slurmlab", "down"); return env }
	s.killWait = time.Second
	return s
}

func TestSimulatedSlurmConforms(t *testing.T) {
	t.Parallel()
	testDriver(t, simulatedSite, conformance)
}

func TestSimulatedSlurm(t *testing.T) {
	t.Parallel()
	testDriver(t, simulatedSite, slurmTests)
}

func testLogsOfNode(t *testing.T, b *bench) {
	job := b.shell("job", `echo one; printf 'a\0b\r\n'; echo problem >&2; `+b.waits()+`; echo two; printf end`)
	job.LogDir = ""
	ref := b.submit(t, job)
	for deadline := time.Now().Add(testTimeout); b.logs(t, ref, LogsRequest{Stream: Stderr}) != "problem\n"; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the job writes nothing")
		}
	}
	for offset, want := range map[int64]string{0: "one\na\x00b\r\n", 2: "e\na\x00b\r\n", 9: "", 100: ""} {
		if got := b.logs(t, ref, LogsRequest{Stream: Stdout, Offset: offset}); got != want {
			t.Errorf("from %d: %q, want %q", offset, got, want)
		}
	}
	files := nodeFiles(t, ref)
	if len(files) != 2 {
		t.Errorf("files on the node: %v", files)
	}
	for _, f := range append(files, filepath.Dir(files[0])) {
		if fi, err := os.Lstat(f); err != nil || fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%v, %v", fi.Mode(), err)
		}
	}
	got := b.follow(t, ref, LogsRequest{Stream: Stdout, Offset: 4, Follow: true}, "a\x00b", func() { b.release(t) })
	if got != "a\x00b\r\ntwo\nend" {
		t.Errorf("follow copied %q", got)
	}
	requireStatus(t, b.waitForEnd(t, ref), Status{Name: ref.Name, ID: ref.ID, State: Ended, Reason: Exited, Exit: new(0), Attempt: 1})
	requireNoNodeFiles(t, ref)
	requireNoLogs(t, b, ref)
}

// testLogDirOfOtherMachine has a LogDir that exists on the node too, but is another directory there.
func testLogDirOfOtherMachine(t *testing.T, b *bench) {
	go_ := filepath.Join(t.TempDir(), "go")
	b.slurm(func(s *Slurm) { s.Args = []string{"--hold"} })
	ref := b.submit(t, b.shell("job", `echo here; while [ ! -e `+go_+` ]; do sleep 0.05; done`))
	must(t, os.Remove(markerFile(b.dir, ref.Name)))
	runClient(t, b.env, "scontrol", "release", ref.ID)
	got := b.follow(t, ref, LogsRequest{Stream: Stdout, Follow: true}, "here\n", func() { must(t, os.WriteFile(go_, nil, 0o644)) })
	if got != "here\n" {
		t.Errorf("follow copied %q", got)
	}
	b.waitForEnd(t, ref)
	if files, err := os.ReadDir(b.dir); err != nil || len(files) > 0 {
		t.Errorf("the other directory has %v, %v", files, err)
	}
	requireNoNodeFiles(t, ref)
}

func testControllerDown(t *testing.T, b *bench) {
	b.driver = b.open(Channel{Env: b.down(t)})
	for call, err := range b.eachCall(t, Ref{Name: b.prefix + "job", ID: b.unknown[0]}) {
		var unreachable *UnreachableError
		if !errors.As(err, &unreachable) || unreachable.Missing || !strings.Contains(unreachable.Detail, "Unable to contact slurm controller") {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// testNoSecret checks that the engine gets no variable of the client but the listed ones, and loads none from a login shell.
func testNoSecret(t *testing.T, b *bench) {
	b.driver = b.open(Channel{Env: append(slices.Clone(b.env), "SOME_API_KEY=secret-1", "SLURM_SECRET=secret-2", "SPANK_SECRET=secret-3", "SBATCH_SECRET=secret-4",
		"SBATCH_EXPORT=NONE", "SBATCH_GET_USER_ENV=1", "SLURM_EXPORT_ENV=NONE", "LANG=C.UTF-8", "LC_ALL=C", "SBATCH_COMMENT=secret-5")})
	for name, dir := range map[string]string{"shared": b.dir, "kept": ""} {
		seen := filepath.Join(t.TempDir(), "seen")
		job := b.shell(name, "env >"+seen+".new; mv "+seen+".new "+seen)
		job.LogDir = dir
		b.waitForEnd(t, b.submit(t, job))
		text, err := os.ReadFile(seen)
		must(t, err)
		if strings.Contains(string(text), "secret") || !strings.Contains(string(text), "LC_ALL=C\n") || !strings.Contains(string(text), "SLURM_JOB_ID=") ||
			strings.Contains(string(text), "GET_USER_ENV") { // Slurm would load the environment of the login shell
			t.Errorf("the environment of a job with LogDir %q is %s", dir, text)
		}
	}
}

// testUserDefaults checks that variables by which users change the output of Slurm's commands do not confuse the driver.
func testUserDefaults(t *testing.T, b *bench) {
	b.driver = b.open(Channel{Env: append(slices.Clone(b.env), "SBATCH_ARRAY_INX=1-3", "SBATCH_WAIT=1", "SQUEUE_FORMAT=%i", "SQUEUE_STATES=PENDING", "SQUEUE_PARTITION=high",
		"SQUEUE_USERS=nobody", "SQUEUE_SORT=P", "SCANCEL_STATE=PENDING", "SCANCEL_INTERACTIVE=1", "SLURM_JOB_ID=1", "SLURM_PARTITION=high", "SINFO_FORMAT=%D")})
	ref := b.submit(t, b.shell("job", "echo ready; exec sleep 600"))
	b.waitForOutput(t, ref, "ready")
	b.waitFor(t, ref, func(s Status) bool { return s.State == Running })
	must(t, b.driver.Cancel(t.Context(), Ref{Name: ref.Name}))
	requireStatus(t, b.waitForEnd(t, ref), Status{Name: ref.Name, ID: ref.ID, State: Ended, Reason: Cancelled, Attempt: 1})
	_, err := b.driver.Probe(t.Context())
	must(t, err)
}

func testProbe(t *testing.T, b *bench) {
	caps, err := b.driver.Probe(t.Context())
	must(t, err)
	if caps.Version == "" || caps.Accounting || caps.KillWait != b.killWait || caps.Memory != 300*time.Second {
		t.Errorf("%+v", caps)
	}
	for _, want := range []string{"the site has no accounting", "given up after 10s", "those that may be requeued", "(KillWait)"} {
		if !slices.ContainsFunc(caps.Notes, func(n string) bool { return strings.Contains(n, want) }) {
			t.Errorf("no note has %q: %q", want, caps.Notes)
		}
	}
	for partition, want := range map[string]string{"high": "", "none": "there is no partition none: there are "} {
		b.slurm(func(s *Slurm) { s.Partition = partition })
		caps, err := b.driver.Probe(t.Context())
		if err != nil || (want == "") != (caps.Problem == "") || !strings.HasPrefix(caps.Problem, want) {
			t.Errorf("partition %s: %q, %v", partition, caps.Problem, err)
		}
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
	b.slurm(func(s *Slurm) { s.Args = []string{"--hold"} })
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

// testNameTwice submits a job with the name of another, which should not be, and must not confuse.
func testNameTwice(t *testing.T, b *bench) {
	first := b.submit(t, b.shell("first", "exit 1"))
	b.waitForEnd(t, first)
	again := b.submit(t, b.shell("first", "exit 2"))
	b.waitForEnd(t, again)
	if got := b.byName(t, first); len(got) != 1 || got[first.Name].ID != again.ID {
		t.Errorf("%+v", got)
	}
	if got := b.waitForEnd(t, first); got.ID != first.ID || *got.Exit != 1 {
		t.Errorf("%+v", got)
	}
}

func testRejected(t *testing.T, b *bench) {
	b.slurm(func(s *Slurm) { s.Partition = "no-such-partition" })
	job := b.shell("job", "exit 0")
	_, err := b.driver.Submit(t.Context(), job)
	var rejected *RejectedError
	if !errors.As(err, &rejected) || !strings.Contains(rejected.Detail, "invalid partition specified: no-such-partition") {
		t.Errorf("%v", err)
	}
	if files, err := os.ReadDir(b.dir); err != nil || len(files) > 0 {
		t.Errorf("a rejected job left %v, %v", files, err)
	}
	b.slurm(func(s *Slurm) { s.Partition = "" })
	job.LogDir += "/none"
	if id, err := b.driver.Submit(t.Context(), job); err == nil {
		t.Errorf("job %s was submitted without its LogDir", id)
	}
}

func testReap(t *testing.T, b *bench) {
	ref, other := b.submit(t, b.shell("job", "exit 0")), b.submit(t, b.shell("job-2", "exit 0"))
	b.waitForEnd(t, ref)
	b.waitForEnd(t, other)
	must(t, b.driver.Reap(t.Context(), ref))
	must(t, b.driver.Reap(t.Context(), ref))
	files, err := os.ReadDir(b.dir)
	must(t, err)
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimPrefix(f.Name(), b.prefix))
	}
	if want := []string{"job-2.job", "job-2.stderr", "job-2.stdout"}; !slices.Equal(names, want) {
		t.Errorf("left are %v, want %v", names, want)
	}
	requireNoLogs(t, b, ref)
}

// testNumberOfOtherJob looks for a job whose number belongs to another by now: the controller has lost its state.
func testNumberOfOtherJob(t *testing.T, b *bench) {
	known := b.submit(t, b.shell("known", "exit 0"))
	other := known
	other.Name = b.prefix + "other"
	if got, err := b.driver.List(t.Context(), []Ref{other}); len(got) > 0 || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}
