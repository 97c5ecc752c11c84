package engine

import (
	"context"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/scripts/fakeslurm"
)

var update = flag.Bool("update", false, "rewrite the scripts in testdata")

func TestCommandLines(t *testing.T) {
	t.Parallel()
	const (
		common = "sbatch --parsable --job-name=j --export=ALL --chdir=/ --input=/dev/null --output=/dev/null --error=/dev/null"
		format = "--Format=JobID:24,State:24,RestartCnt:12,exit_code:12,BatchHost:100,Reason:100,Name:200"
		fields = "--format=JobID,State,ExitCode,NodeList,JobName"
	)
	site := Slurm{Partition: "p", Account: "a", Args: []string{"--qos=low", "--time=5"}}
	full := Job{Name: "j", Argv: []string{"x", "secret"}, TimeLimit: 61 * time.Second, Memory: 3<<20 + 1, Requeue: true}
	ids := []Ref{{Name: "a", ID: "1"}, {Name: "b", ID: "22"}}
	mixed := []Ref{{Name: "a", ID: "1"}, {Name: "b"}}
	for name, c := range map[string]struct {
		got  []string
		want string
	}{
		"sbatch":             {Slurm{}.submitArgs(Job{Name: "j", Argv: []string{"x"}}), common + " --no-requeue"},
		"sbatch, all":        {site.submitArgs(full), common + " --requeue --time=2 --mem=4M --partition=p --account=a --qos=low --time=5"},
		"sbatch, one minute": {Slurm{}.submitArgs(Job{Name: "j", TimeLimit: time.Minute, Memory: 1 << 20}), common + " --no-requeue --time=1 --mem=1M"},
		"squeue by id":       {queueArgs("", ids), "squeue --noheader --states=all --jobs=1,22 " + format},
		"squeue by name":     {queueArgs("", mixed), "squeue --noheader --states=all --me --name=a,b " + format},
		"squeue, cluster":    {queueArgs("c1", []Ref{{Name: "a", ID: "1;c1"}}), "squeue --clusters=c1 --noheader --states=all --jobs=1 " + format},
		"sacct by id":        {accountArgs("", ids), "sacct --noheader --allocations --parsable2 --duplicates --jobs=1,22 " + fields},
		"sacct by name":      {accountArgs("", mixed), "sacct --noheader --allocations --parsable2 --duplicates --starttime=now-30days --name=a,b " + fields},
		"srun": {
			readArgs(slurmID{"7", "c1"}, "j", LogsRequest{Stream: Stderr, Follow: true}, 10),
			"srun --clusters=c1 --jobid=7 --overlap --quiet --nodes=1 --ntasks=1 --input=none --unbuffered --chdir=/ --export=PATH sh -c " + readScript + " sh j stderr 11 -f",
		},
	} {
		if got := strings.Join(c.got, " "); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.want)
		}
	}
}

func TestScripts(t *testing.T) {
	t.Parallel()
	for name, job := range map[string]Job{
		"plain": {Name: "agency-1", Argv: []string{"/opt/tool"}},
		"full": {
			Name: "agency-2", Argv: []string{"/home/it's/tool", "a b", "", "$(x)\n", "@DIR@"}, Programs: []string{"tool"}, LogDir: "/shared/my logs",
		},
	} {
		requireRecorded(t, filepath.Join("testdata", "script-"+name+".sh"), script(job))
	}
}

// requireRecorded compares a text with a file.
func requireRecorded(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		must(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if got != string(want) {
		t.Errorf("%s is now\n%s", path, got)
	}
}

// readRecorded reads an answer of a real Slurm, whose version is in the path.
func readRecorded(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "slurm-22.05.8", name))
	must(t, err)
	return string(text)
}

func TestParseRecordedQueue(t *testing.T) {
	t.Parallel()
	got := map[string]Status{}
	for _, j := range parseQueue(readRecorded(t, "squeue.txt")) {
		s := j.status("")
		s.ID = ""
		got[s.Name] = s
	}
	want := map[string]Status{}
	for _, s := range []Status{
		{Name: "ok", State: Ended, Reason: Exited, Exit: new(0), Node: "n1", Attempt: 1, Detail: "COMPLETED"},
		{Name: "--", State: Ended, Reason: Exited, Exit: new(0), Node: "n2", Attempt: 1, Detail: "COMPLETED"},
		{Name: "exit-7", State: Ended, Reason: Exited, Exit: new(7), Node: "n1", Attempt: 1, Detail: "FAILED (NonZeroExitCode)"},
		{Name: "odd|name with space  é", State: Ended, Reason: Exited, Exit: new(3), Node: "n1", Attempt: 1, Detail: "FAILED (NonZeroExitCode)"},
		{Name: "segv", State: Ended, Reason: Signaled, Node: "n1", Attempt: 1, Detail: "FAILED (JobLaunchFailure)"},
		{Name: "kill9", State: Ended, Reason: Signaled, Node: "n1", Attempt: 1, Detail: "FAILED (JobLaunchFailure)"},
		{Name: "requeued", State: Ended, Reason: Exited, Exit: new(4), Node: "n2", Attempt: 2, Detail: "FAILED (NonZeroExitCode)"},
		{Name: "held", State: Queued, Attempt: 1, Detail: "PENDING (JobHeldUser)"},
		{Name: "bigdep", State: Queued, Attempt: 1, Detail: "PENDING (BeginTime)"},
		{Name: "too-many", State: Queued, Attempt: 1, Detail: "PENDING (Resources)"},
		{Name: "running", State: Running, Node: "n1", Attempt: 1, Detail: "RUNNING"},
		{Name: "held-cancelled", State: Ended, Reason: Cancelled, Attempt: 1, Detail: "CANCELLED (JobHeldUser)"},
		{Name: "term-143", State: Ended, Reason: Cancelled, Exit: new(143), Node: "n1", Attempt: 1, Detail: "CANCELLED"},
		{Name: "term-0", State: Ended, Reason: Cancelled, Node: "n1", Attempt: 1, Detail: "CANCELLED"},
		{Name: "term-killed", State: Ended, Reason: Cancelled, Node: "n2", Attempt: 1, Detail: "CANCELLED"},
		{Name: "limit", State: Ended, Reason: TimedOut, Node: "n2", Attempt: 1, Detail: "TIMEOUT (TimeLimit)"},
		{Name: "limit-code", State: Ended, Reason: TimedOut, Exit: new(5), Node: "n2", Attempt: 1, Detail: "TIMEOUT (TimeLimit)"},
	} {
		want[s.Name] = s
	}
	requireStatuses(t, got, want)
	if got := parseQueue(readRecorded(t, "squeue-clusters.txt")); len(got) != 2 || got[1].status("lab").ID != "2;lab" {
		t.Errorf("%+v", got)
	}
}

func TestParseRecordedAccounts(t *testing.T) {
	t.Parallel()
	got := map[string]Status{}
	for _, j := range parseAccounts(readRecorded(t, "sacct.txt")) {
		s := j.status("")
		s.ID = ""
		got[s.Name] = s
	}
	want := map[string]Status{}
	for _, s := range []Status{
		{Name: "ok", State: Ended, Reason: Exited, Exit: new(0), Node: "n1", Attempt: 1, Detail: "COMPLETED"},
		{Name: "--", State: Ended, Reason: Exited, Exit: new(0), Node: "n2", Attempt: 1, Detail: "COMPLETED"},
		{Name: "exit-7", State: Ended, Reason: Exited, Exit: new(7), Node: "n1", Attempt: 1, Detail: "FAILED"},
		{Name: "odd|name with space  é", State: Ended, Reason: Exited, Exit: new(3), Node: "n1", Attempt: 1, Detail: "FAILED"},
		{Name: "segv", State: Ended, Reason: Signaled, Node: "n1", Attempt: 1, Detail: "FAILED"},
		{Name: "kill9", State: Ended, Reason: Signaled, Node: "n1", Attempt: 1, Detail: "FAILED"},
		{Name: "requeued", State: Ended, Reason: Exited, Exit: new(4), Node: "n2", Attempt: 2, Detail: "FAILED"},
		{Name: "held", State: Queued, Attempt: 1, Detail: "PENDING"},
		{Name: "bigdep", State: Queued, Attempt: 1, Detail: "PENDING"},
		{Name: "too-many", State: Queued, Attempt: 1, Detail: "PENDING"},
		{Name: "running", State: Running, Node: "n1", Attempt: 1, Detail: "RUNNING"},
		{Name: "held-cancelled", State: Ended, Reason: Cancelled, Attempt: 1, Detail: "CANCELLED"},
		{Name: "term-143", State: Ended, Reason: Cancelled, Node: "n1", Attempt: 1, Detail: "CANCELLED"}, // 22.05 keeps no code
		{Name: "term-0", State: Ended, Reason: Cancelled, Node: "n1", Attempt: 1, Detail: "CANCELLED"},
		{Name: "term-killed", State: Ended, Reason: Cancelled, Node: "n2", Attempt: 1, Detail: "CANCELLED"},
		{Name: "limit", State: Ended, Reason: TimedOut, Node: "n2", Attempt: 1, Detail: "TIMEOUT"},
		{Name: "limit-code", State: Ended, Reason: TimedOut, Node: "n2", Attempt: 1, Detail: "TIMEOUT"},
	} {
		want[s.Name] = s
	}
	requireStatuses(t, got, want)
}

func requireStatuses(t *testing.T, got, want map[string]Status) {
	t.Helper()
	if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
		t.Errorf("jobs are %q", slices.Sorted(maps.Keys(got)))
	}
	for name, w := range want {
		if g := got[name]; !reflect.DeepEqual(g, w) {
			t.Errorf("got  %+v\nwant %+v", g, w)
		}
	}
}

// The states that could not be recorded are from the manual of squeue.
func TestStatesOfManual(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state, reason string
		wait          int
		want          State
		end           string
		exit          int // -1 for none
	}{
		{"CONFIGURING", "None", 0, Queued, "", -1},
		{"REQUEUED", "None", 0, Queued, "", -1},
		{"REQUEUE_HOLD", "job_requeued_in_held_state", 0, Queued, "", -1},
		{"SPECIAL_EXIT", "None", 1 << 8, Queued, "", -1},
		{"SUSPENDED", "None", 0, Running, "", -1},
		{"STOPPED", "None", 0, Running, "", -1},
		{"COMPLETING", "None", 0, Running, "", -1},
		{"REVOKED", "None", 0, Running, "", -1},
		{"STATE_OF_LATER_VERSION", "None", 0, Running, "", -1},
		{"PREEMPTED", "None", 15, Ended, Preempted, -1},
		{"PREEMPTED", "None", 9 << 8, Ended, Preempted, 9},
		{"NODE_FAIL", "NodeDown", 1 << 8, Ended, NodeLost, -1},
		{"BOOT_FAIL", "None", 0, Ended, NotBegun, -1},
		{"OUT_OF_MEMORY", "OutOfMemory", 125, Ended, NoMemory, -1},
		{"DEADLINE", "DeadLine", 0, Ended, TimedOut, -1},
		{"FAILED", "BadConstraints", 0, Ended, NotBegun, -1},
	} {
		s := slurmJob{number: "1", name: "j", state: c.state, reason: c.reason, wait: c.wait}.status("")
		exit := -1
		if s.Exit != nil {
			exit = *s.Exit
		}
		if s.State != c.want || s.Reason != c.end || exit != c.exit {
			t.Errorf("%+v: got %+v with exit code %d", c, s, exit)
		}
	}
}

func TestParseSubmitted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"231\n": "231", "23;lab\n": "23;lab", "site: welcome 12\n 77 \n": "77", "": "", "Submitted batch job 1\n": "", "-1\n": "", "1;-x\n": "", "1;a;b\n": "",
	} {
		if got, ok := parseSubmitted(text); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %t", text, got, ok)
		}
	}
}

func TestCapabilitiesOfRecordedConfig(t *testing.T) {
	t.Parallel()
	got := capabilities(parseConfig(readRecorded(t, "scontrol-show-config.txt")))
	want := Capabilities{
		Version: "22.05.8", Accounting: true, KillWait: 5 * time.Second, Memory: 5 * time.Minute,
		Notes: []string{
			"a node that does not answer is given up after 10s",
			"Slurm kills a job 5s after SIGTERM (KillWait), which can be too soon for the work of an agent that does not end by itself",
			"jobs can be preempted by others; those that may be requeued begin again",
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	all := parsePartitions(readRecorded(t, "sinfo.txt"))
	if want := []partition{{"normal", true, true, 3}, {"high", false, true, 3}}; !reflect.DeepEqual(all, want) {
		t.Errorf("%+v", all)
	}
}

func TestNoteOfPartition(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{ // of the manual of sinfo
		"a*|up|2|idle\nb|up|3|down*\nb|up|1|drained\nc|down|1|idle\n": "no node of partition b can be reached",
		"b*|down|2|idle\n":                "partition b is not up",
		"a*|up|2|idle\n":                  "there is no partition b: there are a",
		"b|up|1|down\nb|up|1|mixed\n":     "",
		"b|up|1|idle*\nb|up|1|allocated*": "no node of partition b can be reached",
	} {
		all := parsePartitions(text)
		if got := (Slurm{Partition: "b"}).partitionProblem(all) + (Slurm{Partition: "b"}).partitionNote(all); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := (Slurm{}).partitionProblem(parsePartitions("b|up|1|idle\n")); !strings.Contains(got, "no default partition") {
		t.Error(got)
	}
}

// The words are those of Slurm 22.05.8.
func TestWordsOfUnreachableController(t *testing.T) {
	t.Parallel()
	for _, words := range []string{
		"sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
		"sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\nsbatch: fatal: Could not establish a configuration source",
		"squeue: error: ClusterName needs to be specified\nsqueue: fatal: Unable to process configuration file",
		"sbatch: error: Batch job submission failed: Protocol authentication error",
	} {
		var unreachable *UnreachableError
		if err := (answer{argv: []string{"sbatch"}, stderr: words, exit: 1}).unreachable(); !errors.As(err, &unreachable) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", words, err)
		}
	}
	words := "sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission failed: Invalid partition name specified"
	if err := (answer{argv: []string{"sbatch"}, stderr: words, exit: 1}).unreachable(); err != nil {
		t.Error(err)
	}
}

func TestEnvironmentOfClients(t *testing.T) {
	t.Parallel()
	env := []string{
		"PATH=/bin", "SLURM_CONF=/c", "SLURM_JOB_ID=1", "SQUEUE_STATES=x", "SPANK_X=1",
		"SACCT_FORMAT=x", "SCANCEL_USER=x", "SINFO_SORT=x", "ODD", "SLURM_CLUSTERS=c", "API_KEY=k",
	}
	want := []string{"PATH=/bin", "SLURM_CONF=/c", "ODD", "SLURM_CLUSTERS=c", "API_KEY=k"}
	if got := (Slurm{Channel: Channel{Env: env}}).channel().Env; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := (Slurm{Channel: Channel{SSH: "x", Env: env}}).channel().Env; !slices.Equal(got, env) {
		t.Errorf("ssh gets %q", got)
	}
}

// TestListAsksAccounting checks that a job that the controller forgot is found in the accounting, if there is one.
func TestListAsksAccounting(t *testing.T) {
	t.Parallel()
	b := newBench(t, simulatedSite(t))
	job := b.shell("job", "exit 6")
	ref, other := b.submit(t, job), b.submit(t, b.shell("other", "exit 0"))
	b.waitForEnd(t, ref)
	b.waitForEnd(t, other)
	runClient(t, b.env, "slurmlab", "forget", ref.ID)
	refs := []Ref{ref, other}
	if got, err := b.driver.List(t.Context(), refs); err != nil || len(got) != 1 || got[0].Name != other.Name {
		t.Errorf("without accounting: %+v, %v", got, err)
	}
	runClient(t, b.env, "slurmlab", "accounting")
	for range 2 {
		got, err := b.driver.List(t.Context(), refs)
		must(t, err)
		if len(got) != 2 || got[1].Name != ref.Name || got[1].Reason != Exited || *got[1].Exit != 6 {
			t.Errorf("with accounting: %+v", got)
		}
		refs[0].ID, refs[1].ID = "", "" // by name
	}
	caps, err := b.driver.Probe(t.Context())
	if err != nil || !caps.Accounting {
		t.Errorf("%+v, %v", caps, err)
	}
}

// TestWatchPauses checks that Watch asks less often while nothing changes, and at once again after a change.
func TestWatchPauses(t *testing.T) {
	t.Parallel()
	b := newBench(t, simulatedSite(t))
	b.slurm(func(s *Slurm) { s.Args = []string{"--hold"} })
	ref := b.submit(t, b.shell("job", "exit 0"))
	var pauses []time.Duration
	expired := make(chan time.Time)
	close(expired)
	after := func(d time.Duration) <-chan time.Time {
		if pauses = append(pauses, d); len(pauses) == 8 {
			must(t, b.driver.Cancel(context.Background(), ref))
		}
		return expired
	}
	b.slurm(func(s *Slurm) { s.after = after })
	must(t, b.driver.Watch(watchContext(t), []Ref{ref}, func(all []Status) bool { return all[0].State != Ended || len(pauses) < 8 }, nil))
	if pauses[0] != firstPause || pauses[7] != lastPause || !slices.IsSorted(pauses) || len(pauses) != 8 {
		t.Errorf("pauses were %v", pauses)
	}
}

// TestWatchGoesOnWhileControllerIsDown checks that errors are told, and that a state that did not change is not told again.
func TestWatchGoesOnWhileControllerIsDown(t *testing.T) {
	t.Parallel()
	b := newBench(t, simulatedSite(t))
	ref := b.submit(t, b.shell("job", "exit 0"))
	b.waitForEnd(t, ref)
	other := b.submit(t, b.shell("other", "exec sleep 600"))
	told, failed := 0, 0
	pauses := 0
	expired := make(chan time.Time)
	close(expired)
	after := func(time.Duration) <-chan time.Time {
		switch pauses++; pauses {
		case 1:
			runClient(t, b.env, "slurmlab", "down")
		case 3:
			runClient(t, b.env, "slurmlab", "up")
		case 5:
			runClient(t, b.env, "slurmlab", "lose", other.ID)
		}
		return expired
	}
	b.slurm(func(s *Slurm) { s.after = after })
	must(t, b.driver.Watch(watchContext(t), []Ref{ref, other}, func(all []Status) bool {
		told++
		return !slices.ContainsFunc(all, func(s Status) bool { return s.Reason == NodeLost })
	}, func(error) { failed++ }))
	if told != 2 || failed != 2 {
		t.Errorf("told %d states and %d failures", told, failed)
	}
}

// TestOrphanGoesOn checks the node failure in which a program runs twice.
func TestOrphanGoesOn(t *testing.T) {
	t.Parallel()
	b := newBench(t, simulatedSite(t))
	end := filepath.Join(t.TempDir(), "end")
	ref := b.submit(t, b.shell("job", `echo "start ${SLURM_RESTART_COUNT:-0}"; while [ ! -e `+end+` ]; do sleep 0.02; done; echo "end ${SLURM_RESTART_COUNT:-0}"; exit ${SLURM_RESTART_COUNT:-0}`))
	b.waitForOutput(t, ref, "start 0\n")
	first := b.waitFor(t, ref, func(Status) bool { return true })
	runClient(t, b.env, "slurmlab", "orphan", ref.ID)
	b.waitForOutput(t, ref, "start 1\n")
	second := b.waitFor(t, ref, func(Status) bool { return true })
	if second.Attempt != 2 || second.State != Running || second.Node == first.Node {
		t.Errorf("%+v after %+v", second, first)
	}
	must(t, os.WriteFile(end, nil, 0o644))
	b.waitForOutput(t, ref, "end 0\n")
	b.waitForOutput(t, ref, "end 1\n")
	if got := b.waitForEnd(t, ref); *got.Exit != 1 {
		t.Errorf("%+v", got)
	}
}

// TestKillAllEndsDescendants checks that no process of a job outlives a test, in whatever session it is.
func TestKillAllEndsDescendants(t *testing.T) {
	t.Parallel()
	b := newBench(t, simulatedSite(t))
	file := filepath.Join(t.TempDir(), "lock")
	held := b.shell("job", `trap "" TERM; setsid sh -c 'trap "" TERM; exec 9>`+file+`; flock 9; echo ready; while :; do sleep 0.1; done' & wait`)
	ref := b.submit(t, held)
	b.waitForOutput(t, ref, "ready")
	must(t, fakeslurm.KillAll(proc.Getenv(b.env, fakeslurm.DirVariable)))
	runClient(t, b.env, "flock", "--nonblock", file, "true")
	if _, err := b.driver.Submit(t.Context(), b.shell("late", "exit 0")); err != nil {
		t.Error(err)
	}
}

// TestMatchNeedsNameAndNumber checks jobs with the name or the number of another.
func TestMatchNeedsNameAndNumber(t *testing.T) {
	t.Parallel()
	told := []slurmJob{{number: "9", name: "a"}, {number: "10", name: "a"}, {number: "8", name: "a"}, {number: "10", name: "b"}}
	found, missing := match("c", []Ref{{Name: "a"}, {Name: "a", ID: "8;c"}, {Name: "a", ID: "8"}, {Name: "b", ID: "9;c"}, {Name: "x"}}, told)
	var ids []string
	for _, s := range found {
		ids = append(ids, s.ID)
	}
	if want := []string{"10;c", "8;c"}; !slices.Equal(ids, want) || len(missing) != 3 {
		t.Errorf("%q, %+v", ids, missing)
	}
}

func TestShellWord(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{"": "''", "a-b/c_1.2:@%+,": "a-b/c_1.2:@%+,", "a b": "'a b'", "it's": `'it'\''s'`, "~": "'~'", "a=b": "'a=b'", "$x\n": "'$x\n'"} {
		if got := shellWord(word); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
