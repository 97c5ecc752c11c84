package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/git-agency/git-agency/gitagency"
	"github.com/git-agency/git-agency/scripts/fakepodman"
	"github.com/git-agency/git-agency/scripts/fakeslurm"
)

// newSlurmLab returns a lab with an integration worktree "wt" and a simulated Slurm of its own.
func newSlurmLab(t *testing.T) *lab {
	t.Helper()
	l := newLab(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name := range fakeslurm.Programs() {
		if err := os.Symlink(self, filepath.Join(l.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(l.dir, ".slurm")
	l.write(filepath.Join(dir, fakeslurm.EnvironmentFile), strings.Join(l.env, "\n"))
	l.env = append(l.env, fakeslurm.DirVariable+"="+dir)
	t.Cleanup(func() {
		if err := fakeslurm.KillAll(dir); err != nil {
			t.Error(err)
		}
	})
	l.agency("worktree", "create", "wt")
	l.git("config", "agency.p.platform", "slurm")
	return l
}

// listed returns the invocations that ls lists.
func (l *lab) listed() (all []gitagency.Invocation) {
	l.t.Helper()
	if err := json.Unmarshal([]byte(l.agency("ls", "--json")), &all); err != nil {
		l.t.Fatal(err)
	}
	return all
}

// TestResultImportKilledAtAnyChange kills the command that imports the result of a run before its system calls that change the
// disk. The next command finishes the import.
func TestResultImportKilledAtAnyChange(t *testing.T) {
	t.Parallel()
	l := newSlurmLab(t)
	id := l.agency("run", "wt", "--profile", "p", "--detach", "--", "sh", "-c", "echo new >new; git add new; git commit -qm new; echo left >left; echo said; exit 3")
	l.must("slurmlab", "wait", "1")
	restore := l.save()
	check := func(point string) {
		t.Helper()
		all := l.listed()
		if len(all) != 1 || all[0].Status != gitagency.StatusFailed || *all[0].ExitCode != 3 || *all[0].Ahead != 1 || *all[0].Dirty != 1 || all[0].IsRunning() {
			t.Fatalf("%s: %+v", point, all)
		}
		if got := l.agency("diff", id, "--name-status"); got != "A\tleft\nA\tnew" {
			t.Fatalf("%s: the diff is %q", point, got)
		}
		if got := l.agency("logs", id); got != "said" {
			t.Fatalf("%s: the log is %q", point, got)
		}
		l.fixAll(point) // temporary files
	}
	for n := 1; ; n += killStep(15, 3) {
		done, last := l.runKilledWithEnv(nil, n, "git-agency", "ls")
		check(strconv.Itoa(n) + ", before " + last)
		restore()
		if done {
			t.Logf("%d kill points", n-1)
			return
		}
	}
}

// TestSubmitKilledAtAnyChange kills a command that submits a run before its system calls that change the disk. The run goes on
// if Slurm has its job, and else has failed and can be resumed.
func TestSubmitKilledAtAnyChange(t *testing.T) {
	t.Parallel()
	l := newSlurmLab(t)
	hold := func() { l.git("config", "agency.platform.slurm.args", "--hold") } // or killat would kill the job as well
	hold()
	restore := l.save()
	seen := map[string]int{}
	for n := 1; ; n += killStep(15, 3) {
		done, last := l.runKilledWithEnv(nil, n, "git-agency", "run", "wt", "--profile", "p", "--detach", "--", "sh", "-c", "echo new >new; git add new; git commit -qm new")
		point := strconv.Itoa(n) + ", before " + last
		l.git("config", "--unset", "agency.platform.slurm.args")
		for _, inv := range l.listed() {
			switch {
			case inv.HasOpenJob():
				seen["goes on"]++
				l.must("scontrol", "release", inv.PlatformJob)
			case inv.Status == gitagency.StatusFailed || inv.Status == gitagency.StatusStarting:
				seen[inv.Status]++
				l.agency("resume", inv.ID, "--detach")
			default:
				t.Fatalf("%s: %+v", point, inv)
			}
			l.agency("wait", inv.ID)
			if got := l.agency("diff", inv.ID, "--name-status"); got != "A\tnew" {
				t.Fatalf("%s: the diff is %q", point, got)
			}
			l.agency("discard", inv.ID)
		}
		l.fixAll(point) // a creation that was interrupted
		if refs := l.git("for-each-ref", "refs/agency/jobs", "refs/agency/results"); refs != "" {
			t.Fatalf("%s: left in the hub:\n%s", point, refs)
		}
		if left, _ := filepath.Glob(filepath.Join(l.data, "repos", "*", "invocations", "*", "environment")); len(left) > 0 {
			t.Fatalf("%s: left: %q", point, left)
		}
		restore()
		if done {
			t.Logf("%d kill points: %v", n-1, seen)
			if seen["goes on"] == 0 || seen[gitagency.StatusFailed] == 0 {
				t.Error("not every outcome was seen")
			}
			return
		}
	}
}

// TestProbeKilledAtAnyChange kills doctor before its system calls that change the disk while it probes a node. Doctor names what is left,
// and prune removes it.
func TestProbeKilledAtAnyChange(t *testing.T) {
	t.Parallel()
	l := newSlurmLab(t)
	l.git("config", "agency.platform.slurm.args", "--hold") // or killat would kill the job as well
	restore := l.save()
	named := 0
	for n := 1; ; n += killStep(20, 3) {
		done, last := l.runKilledWithEnv(nil, n, "git-agency", "doctor", "--platform", "slurm", "--timeout", "10ms")
		point := strconv.Itoa(n) + ", before " + last
		if o := l.try(nil, "git-agency", "doctor", "--porcelain"); strings.Contains(o.stdout, "finding interrupted-probe\n") {
			named++
		}
		l.fixPackedRefsLock()
		l.agency("prune")
		l.fixAll(point)
		if refs := l.git("for-each-ref", "refs/agency/jobs", "refs/agency/results"); refs != "" {
			t.Fatalf("%s: left in the hub:\n%s", point, refs)
		}
		if left, _ := filepath.Glob(filepath.Join(l.data, "repos", "*", "probes", "*")); len(left) > 0 {
			t.Fatalf("%s: left: %q", point, left)
		}
		if jobs := l.must("squeue", "--noheader", "--states=all", "--Format=State:20"); strings.Contains(jobs, "PENDING") {
			t.Fatalf("%s: a job is left:\n%s", point, jobs)
		}
		restore()
		if done {
			t.Logf("%d kill points, after %d of which something was left", n-1, named)
			if named == 0 {
				t.Error("nothing was ever left")
			}
			return
		}
	}
}

// TestManyNodesMakeOneResultEach has twenty nodes execute ten runs at once, two for each, without Slurm. Each run gets one result.
func TestManyNodesMakeOneResultEach(t *testing.T) {
	t.Parallel()
	const runs = 10
	l := newSlurmLab(t)
	l.git("config", "agency.platform.slurm.args", "--hold") // no job begins
	ids := strings.Fields(l.agency("run", "wt", "--profile", "p", "--detach", "-n", strconv.Itoa(runs), "--", "sh", "-c", "echo $AGENCY_INVOCATION_ID >id; git add id; git commit -qm id; exit 4"))
	if len(ids) != runs {
		t.Fatalf("ids: %q", ids)
	}
	var nodes sync.WaitGroup
	outcomes := make([][2]outcome, runs)
	for i, id := range ids {
		for attempt := range 2 {
			nodes.Go(func() { // the second attempts have repositories of their own, as on another machine
				outcomes[i][attempt] = l.try([]string{"SLURM_RESTART_COUNT=" + strconv.Itoa(attempt), "SLURMD_NODENAME=node" + strconv.Itoa(attempt)},
					"git-agency", "node", "--hub", filepath.Join(l.repo, ".git"), "--job", l.git("rev-parse", "refs/agency/jobs/"+id),
					"--dir", filepath.Join(l.dir, "nodes"+strconv.Itoa(attempt)), id)
			})
		}
	}
	nodes.Wait()
	for i, both := range outcomes {
		codes := []int{both[0].code, both[1].code}
		slices.Sort(codes)
		if !slices.Equal(codes, []int{0, 4}) {
			t.Errorf("%s: the attempts ended with %d\n%s%s", ids[i], codes, both[0].stderr, both[1].stderr)
		}
	}
	for _, inv := range l.listed() {
		winner := slices.IndexFunc(outcomes[slices.Index(ids, inv.ID)][:], func(o outcome) bool { return o.code == 4 })
		if inv.Status != gitagency.StatusFailed || *inv.ExitCode != 4 || inv.Attempt != winner+1 || inv.PlatformNode != "node"+strconv.Itoa(winner) {
			t.Errorf("the winner is %d: %+v", winner, inv)
		}
		if got := l.agency("exec", inv.ID, "--", "cat", "id"); got != inv.ID {
			t.Errorf("%s was called %s on the node", inv.ID, got)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(l.dir, "nodes*", "*", "data", "repos", "*", "*", "*", "tree")); len(left) != 2 { // the integration worktrees
		t.Errorf("left on the nodes: %q", left)
	}
}

// TestHostileResultsAreRefused puts results into the hub that no node would have pushed. The run fails, and nothing of them gets into
// the sandbox, or to a ref.
func TestHostileResultsAreRefused(t *testing.T) {
	t.Parallel()
	l := newSlurmLab(t)
	l.git("config", "agency.platform.slurm.args", "--hold")
	base := l.git("rev-parse", "HEAD")
	blob := l.must("sh", "-c", "echo hostile | git hash-object -w --stdin")
	record := l.must("sh", "-c", `git commit-tree -m record $(printf '100644 blob %s\trecord.json\n' $(echo '{"status":"finished","was_run":true}' | git hash-object -w --stdin) | git mktree)`)
	gitTree := l.must("sh", "-c", "printf '100644 blob "+blob+"\\tconfig\\n' | git mktree | sed 's/^/040000 tree /; s/$/\\t.git/' | git mktree")
	missing := l.must("sh", "-c", "printf '100644 blob 1234567890123456789012345678901234567890\\tx\\n' | git mktree --missing")
	plain := l.git("rev-parse", "HEAD^{tree}")
	for _, tt := range []struct {
		name, tree, record string
		invocation, head   string
		want               string
	}{
		{"git directory", gitTree, record, "", base, "refused: .*\\.git"},
		{"missing object", missing, record, "", base, "refused: .*12345678"},
		{"other invocation", plain, record, "20260128120500-b7c9", base, "refused: .*20260128120500-b7c9"},
		{"record without a file", plain, base, "", base, "refused: .*record.json"},
		{"head that does not exist", plain, record, "", "1234567890123456789012345678901234567890", "refused: .*12345678"},
	} {
		id := l.agency("run", "wt", "--profile", "p", "--detach", "--", "true")
		if tt.invocation == "" {
			tt.invocation = id
		}
		message := strings.Join([]string{
			"result\n", "Agency-Invocation: " + tt.invocation, "Agency-Base: " + base, "Agency-Head: " + tt.head, "Agency-On: refs/heads/agency/sandbox-" + id,
			"Agency-Exit: 0", "Agency-Reason: finished", "Agency-Node: n1", "Agency-Attempt: 1", "Agency-Run: 1", "Agency-Record: " + tt.record,
		}, "\n")
		args := []string{"commit-tree", "-m", message, "-p", base}
		if tt.record != base {
			args = append(args, "-p", tt.record)
		}
		l.git("update-ref", "refs/agency/results/"+id, l.git(append(args, tt.tree)...))
		l.must("scancel", l.field(id, "platform_job"))
		o := l.try(nil, "git-agency", "show", "--json", id)
		if status := l.field(id, "status"); status != gitagency.StatusFailed || !regexp.MustCompile(tt.want).MatchString(o.stdout) {
			t.Errorf("%s: the status is %s\n%s%s", tt.name, status, o.stdout, o.stderr)
		}
		if got := l.agency("exec", id, "--", "git", "status", "--porcelain"); got != "" || l.git("rev-parse", "agency/sandbox-"+id) != base {
			t.Errorf("%s: the sandbox has %q", tt.name, got)
		}
		l.agency("discard", id)
		if refs := l.git("for-each-ref", "--contains", tt.record, "--format=%(refname)"); tt.record != base && refs != "" {
			t.Errorf("%s: kept by %s", tt.name, refs)
		}
	}
}

// TestSecondInterruptDoesNotWaitForTheEnd interrupts run twice. The first tells the agent to end; after the second, run does not wait for
// its end. That the second comes before Slurm has been told changes nothing.
func TestSecondInterruptDoesNotWaitForTheEnd(t *testing.T) {
	t.Parallel()
	for _, slow := range []bool{false, true} {
		t.Run("slow="+strconv.FormatBool(slow), func(t *testing.T) {
			t.Parallel()
			l := newSlurmLab(t)
			out := filepath.Join(l.dir, "out")
			if err := os.Mkdir(out, 0o700); err != nil {
				t.Fatal(err)
			}
			l.git("config", "--global", "agency.sandbox.write", out)
			told := filepath.Join(out, "told")
			if slow { // scancel waits until it may go on
				told = filepath.Join(out, "cancelling")
				program := filepath.Join(l.bin, "scancel")
				if err := errors.Join(os.Mkdir(filepath.Join(l.bin, "real"), 0o700), os.Rename(program, filepath.Join(l.bin, "real", "scancel"))); err != nil {
					t.Fatal(err)
				}
				l.writeProgram(program, "touch "+told+"; until test -e "+out+"/cancel; do sleep 0.02; done; exec "+filepath.Join(l.bin, "real", "scancel")+` "$@"`)
			}
			script := `echo part >part; trap ': >"$1/told"' TERM; : >"$1/begun"; until test -e "$1/go"; do sleep 0.02; done`
			cmd := exec.CommandContext(t.Context(), filepath.Join(l.bin, "git-agency"), "run", "wt", "--profile", "p", "--", "sh", "-c", script, "sh", out)
			var stderr bytes.Buffer
			cmd.Dir, cmd.Env, cmd.Stderr = l.repo, l.env, &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				file string
				sig  os.Signal // the same one again would be taken for a copy
			}{{filepath.Join(out, "begun"), syscall.SIGINT}, {told, syscall.SIGTERM}} {
				if !waitForFile(c.file) {
					t.Fatalf("there is no %s: %s", c.file, stderr.String())
				}
				if err := cmd.Process.Signal(c.sig); err != nil {
					t.Fatal(err)
				}
			}
			l.write(filepath.Join(out, "cancel"), "")
			_ = cmd.Wait() // the exit code is checked below
			if code := cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGINT) || !strings.Contains(stderr.String(), "was told to end, and its end is not known yet") {
				t.Errorf("it ended with %d: %s", code, stderr.String())
			}
			inv := l.listed()[0]
			if !inv.HasOpenJob() {
				t.Errorf("got %+v", inv)
			}
			l.write(filepath.Join(out, "go"), "")
			if o := l.try(nil, "git-agency", "wait", inv.ID); o.stdout != inv.ID+" stopped\n" {
				t.Errorf("got %+v", o)
			}
			if got := l.agency("diff", inv.ID, "--name-status"); got != "A\tpart" {
				t.Errorf("the diff is %q", got)
			}
		})
	}
}

// field returns a field of an invocation.
func (l *lab) field(id, name string) string {
	l.t.Helper()
	for line := range strings.Lines(l.agency("ls", "--format", "%(invocation_id) %("+name+")")) {
		if value, is := strings.CutPrefix(line, id+" "); is {
			return strings.TrimSpace(value)
		}
	}
	l.t.Fatalf("ls does not list %s", id)
	return ""
}

// TestEndThatAnotherProcessRecords has wait record the end of a run while run itself asks Slurm. run reports the end all the same.
func TestEndThatAnotherProcessRecords(t *testing.T) {
	t.Parallel()
	l := newSlurmLab(t)
	out, bin := filepath.Join(l.dir, "out"), filepath.Join(l.dir, "slow")
	if err := errors.Join(os.Mkdir(out, 0o700), os.Mkdir(bin, 0o700)); err != nil {
		t.Fatal(err)
	}
	l.git("config", "--global", "agency.sandbox.write", out)
	l.writeProgram(filepath.Join(bin, "squeue"), `cd `+out+`; if test -e begun; then : >asked; until test -e answer; do sleep 0.02; done; fi; exec `+filepath.Join(l.bin, "squeue")+` "$@"`)
	script := `: >"$1/begun"; until test -e "$1/go"; do sleep 0.02; done; exit 4`
	cmd := exec.CommandContext(t.Context(), filepath.Join(l.bin, "git-agency"), "run", "wt", "--profile", "p", "--", "sh", "-c", script, "sh", out)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stderr = l.repo, append(slices.Clone(l.env), "PATH="+strings.Join([]string{bin, l.bin, os.Getenv("PATH")}, ":")), &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !waitForFile(filepath.Join(out, "asked")) {
		t.Fatalf("run did not ask Slurm: %s", stderr.String())
	}
	l.write(filepath.Join(out, "go"), "")
	id := l.listed()[0].ID
	if o := l.try(nil, "git-agency", "wait", id); o.stdout != id+" failed\n" {
		t.Errorf("got %+v", o)
	}
	l.write(filepath.Join(out, "answer"), "")
	_ = cmd.Wait() // the exit code is checked below
	if code := cmd.ProcessState.ExitCode(); code != 4 || !strings.Contains(stderr.String(), "'git agency logs "+id+"' shows its output") {
		t.Errorf("it ended with %d: %s", code, stderr.String())
	}
}

// newFakePodmanLab returns a lab with an integration worktree "wt" and a simulated podman of its own, and the directory with the state of that.
func newFakePodmanLab(t *testing.T) (l *lab, dir string) {
	t.Helper()
	l = newLab(t)
	bin, err := fakepodman.Install(l.dir)
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(l.dir, ".podman")
	l.write(filepath.Join(dir, fakepodman.EnvironmentFile), strings.Join(l.env, "\n"))
	l.env = append(l.env, fakepodman.DirVariable+"="+dir, "PATH="+bin+":"+l.bin+":"+os.Getenv("PATH"))
	t.Cleanup(func() {
		if err := fakepodman.KillAll(dir); err != nil {
			t.Error(err)
		}
	})
	l.agency("worktree", "create", "wt")
	l.git("config", "agency.p.platform", "podman")
	l.git("config", "agency.platform.podman.image", fakepodman.Image)
	l.git("config", "agency.platform.podman.dir", t.TempDir()) // which restore leaves alone
	return l, dir
}

// TestContainerImportKilledAtAnyChange kills the command that imports the result of a container. After the landing or the discard of
// the sandbox, the container is gone.
func TestContainerImportKilledAtAnyChange(t *testing.T) {
	t.Parallel()
	l, dir := newFakePodmanLab(t)
	id := l.agency("run", "wt", "--profile", "p", "--detach", "--", "sh", "-c", "echo new >new; git add new; git commit -qm new")
	if !waitUntil(func() bool {
		return strings.Contains(l.read(filepath.Join(dir, "containers", "agency-"+id, "state")), `"exited"`)
	}) {
		t.Fatal("the container does not end")
	}
	restore := l.save()
	for n := 1; ; n += killStep(15, 3) {
		done, last := l.runKilledWithEnv(nil, n, "git-agency", "ls")
		point := strconv.Itoa(n) + ", before " + last
		if n%2 == 0 {
			l.agency("discard", id)
		} else {
			l.agency("land", id)
		}
		if left, err := os.ReadDir(filepath.Join(dir, "containers")); err != nil || len(left) > 0 {
			t.Fatalf("%s: containers are left: %v, %v", point, left, err)
		}
		l.fixAll(point) // temporary files
		restore()
		if done {
			t.Logf("%d kill points", n-1)
			return
		}
	}
}
