package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/scripts/fakepodman"
	"github.com/git-agency/git-agency/scripts/shellscript"
)

// podmanTests are the tests of what podman alone does.
var podmanTests = map[string]func(*testing.T, *bench){
	"Ends": testContainerEnds, "NoProgram": testNoProgramInImage, "NameTwice": testContainerNameTwice, "Rejected": testContainerRejected,
	"CancelWithoutTemp": testCancelWithoutTemp, "NoProgramOverSSH": testNoProgramOverSSH, "Reap": testReapContainer, "ReapRunning": testReapRunningContainer, "Probe": testProbePodman, "NoSecret": testNoSecretInContainer,
}

// podmanSite returns a site of podman.
func podmanSite(env []string, image string, args ...string) site {
	host, _ := os.Hostname() // as the driver tells it
	return site{
		open: func(c Channel) Driver {
			return Podman{Channel: c, Client: "podman", Image: image, Args: args, killWait: time.Second}
		},
		env: env, engine: "podman", client: "podman", many: 20,
		isNode:  func(name string) bool { return name == host },
		unknown: []string{strings.Repeat("a", 64), strings.Repeat("b", 64)},
		ended: func(s Status) Status { // it does not know what was meant
			s.Reason = Exited
			if s.Exit == nil {
				s.Exit = new(137)
			}
			return s
		},
		killWait: time.Second,
	}
}

// simulatedPodman makes a simulated podman for one test.
func simulatedPodman(t *testing.T) site {
	t.Helper()
	dir := t.TempDir()
	bin, err := fakepodman.Install(dir)
	must(t, err)
	state := filepath.Join(dir, "state")
	t.Cleanup(func() { must(t, fakepodman.KillAll(state)) })
	return podmanSite([]string{"PATH=" + bin + ":/usr/bin:/bin", "HOME=" + dir, fakepodman.DirVariable + "=" + state}, fakepodman.Image)
}

func TestSimulatedPodmanConforms(t *testing.T) {
	t.Parallel()
	testDriver(t, simulatedPodman, conformance)
}

func TestSimulatedPodman(t *testing.T) {
	t.Parallel()
	testDriver(t, simulatedPodman, podmanTests)
}

// podman changes the driver of a site of podman.
func (b *bench) podman(change func(*Podman)) {
	driver := b.driver.(Podman)
	change(&driver)
	b.driver = driver
}

func testContainerEnds(t *testing.T, b *bench) {
	for script, exit := range map[string]int{"exit 0": 0, "exit 255": 255, "kill -SEGV $$; sleep 600": 139} {
		job := b.shell("job"+strings.Map(keepDigit, script), "sh -c '"+script+"'")
		ref := b.submit(t, job)
		requireStatus(t, b.waitForEnd(t, ref), Status{Name: ref.Name, ID: ref.ID, State: Ended, Reason: Exited, Exit: &exit, Attempt: 1})
	}
}

func keepDigit(r rune) rune {
	if r < '0' || r > '9' {
		return -1
	}
	return r
}

// testNoProgramInImage checks that no container is left whose program does not exist.
func testNoProgramInImage(t *testing.T, b *bench) {
	job := b.shell("job", "")
	job.Argv, job.Programs = []string{"/no/such"}, []string{"no-such-program"}
	_, err := b.driver.Submit(t.Context(), job)
	var rejected *RejectedError
	if !errors.As(err, &rejected) || !strings.Contains(rejected.Detail, "there is no program no-such-program on ") {
		t.Errorf("%v", err)
	}
	requireUnknown(t, b, Ref{Name: job.Name})
}

// testNoProgramOverSSH checks that the exit code of the client is not taken for that of a missing client.
func testNoProgramOverSSH(t *testing.T, b *bench) {
	bin := t.TempDir()
	must(t, shellscript.Write(filepath.Join(bin, "ssh"), "#!/bin/sh\nshift 4\nexec sh -c \"$*\"\n"))
	env := slices.Clone(b.env)
	for i, kv := range env {
		if path, is := strings.CutPrefix(kv, "PATH="); is {
			env[i] = "PATH=" + bin + ":" + path
		}
	}
	b.driver = b.open(Channel{SSH: "box", Env: env})
	testNoProgramInImage(t, b)
}

// testCancelWithoutTemp cancels where no directory can mark the container, and where one is left of a process that was killed.
func testCancelWithoutTemp(t *testing.T, b *bench) {
	for name, temp := range map[string]string{"none": filepath.Join(b.dir, "none"), "old": t.TempDir()} {
		ref := b.submit(t, b.shell(name, writesOn))
		b.waitForOutput(t, ref, "ready")
		if name == "old" {
			mark, past := filepath.Join(temp, "cancelled-"+ref.ID), time.Now().Add(-time.Hour)
			must(t, errors.Join(os.Mkdir(mark, 0o700), os.Chtimes(mark, past, past)))
		}
		must(t, b.open(Channel{Env: append(slices.Clone(b.env), "TMPDIR="+temp)}).Cancel(t.Context(), ref))
		requireStatus(t, b.waitForEnd(t, ref), Status{Name: ref.Name, ID: ref.ID, State: Ended, Reason: Exited, Exit: new(9), Attempt: 1})
	}
}

func requireUnknown(t *testing.T, b *bench, ref Ref) {
	t.Helper()
	if got, err := b.driver.List(t.Context(), []Ref{ref}); len(got) > 0 || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// testContainerNameTwice checks that a job whose name is in use changes nothing.
func testContainerNameTwice(t *testing.T, b *bench) {
	for name, script := range map[string]string{"runs": "sleep 600", "ended": "exit 3"} {
		ref := b.submit(t, b.shell(name, script))
		if name == "ended" {
			b.waitForEnd(t, ref)
		}
		var rejected *RejectedError
		if _, err := b.driver.Submit(t.Context(), b.shell(name, "exit 4")); !errors.As(err, &rejected) || !strings.Contains(rejected.Detail, "already in use") {
			t.Errorf("%s: %v", name, err)
		}
		got := b.waitFor(t, ref, func(Status) bool { return true })
		if got.ID != ref.ID || (got.State == Running) != (name == "runs") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func testContainerRejected(t *testing.T, b *bench) {
	job := b.shell("job", "exit 0")
	for what, c := range map[string]struct {
		change func(*Podman, *Job)
		want   string
	}{
		"no such image":     {func(p *Podman, _ *Job) { p.Image = "localhost/none:1" }, "localhost/none:1: image not known"},
		"no image":          {func(p *Podman, _ *Job) { p.Image = "" }, "has no image"},
		"path with a comma": {func(_ *Podman, j *Job) { j.Paths = []Path{{Source: "/a,b", Target: "/a,b"}} }, "has a comma"},
		"no such path":      {func(_ *Podman, j *Job) { j.Paths = []Path{{Source: "/no/such", Target: "/no/such"}} }, "/no/such: no such file"},
		"unknown option":    {func(p *Podman, _ *Job) { p.Args = append(slices.Clone(p.Args), "--no-such-option") }, "unknown flag: --no-such-option"},
	} {
		driver, bad := b.driver.(Podman), job
		c.change(&driver, &bad)
		if _, err := driver.Submit(t.Context(), bad); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
		requireUnknown(t, b, Ref{Name: job.Name})
	}
}

func testReapContainer(t *testing.T, b *bench) {
	ref, other := b.submit(t, b.shell("job", "exit 0")), b.submit(t, b.shell("job-2", "exit 0"))
	b.waitForEnd(t, ref)
	b.waitForEnd(t, other)
	must(t, b.driver.Reap(t.Context(), Ref{Name: ref.Name}))
	must(t, b.driver.Reap(t.Context(), ref))
	requireUnknown(t, b, ref)
	requireNoLogs(t, b, ref)
	if got := b.waitForEnd(t, other); got.ID != other.ID {
		t.Errorf("%+v", got)
	}
}

// testReapRunningContainer reaps a job that has done its work, and still cleans up.
func testReapRunningContainer(t *testing.T, b *bench) {
	file := filepath.Join(b.dir, "cleaned")
	ref := b.submit(t, b.shell("job", "trap : TERM; echo ready; "+b.waits()+" & wait; sleep 0.2; echo yes >"+shellWord(file)))
	b.waitForOutput(t, ref, "ready")
	must(t, b.driver.Reap(t.Context(), ref))
	requireUnknown(t, b, ref)
	if text, err := os.ReadFile(file); string(text) != "yes\n" {
		t.Errorf("it did not clean up: %q, %v", text, err)
	}
}

func testProbePodman(t *testing.T, b *bench) {
	caps, err := b.driver.Probe(t.Context())
	must(t, err)
	if caps.Version == "" || caps.Problem != "" || caps.MissingImage != "" {
		t.Errorf("%+v", caps)
	}
	for image, want := range map[string]string{"": "no image is chosen", "localhost/none:1": "podman has no image localhost/none:1"} {
		b.podman(func(p *Podman) { p.Image = image })
		for _, brief := range []bool{false, true} {
			b.podman(func(p *Podman) { p.Brief = brief })
			caps, err := b.driver.Probe(t.Context())
			if err != nil || !strings.HasPrefix(caps.Problem, want) || caps.MissingImage != image || (caps.Version == "") != (brief && image != "") {
				t.Errorf("%q, brief %v: %+v, %v", image, brief, caps, err)
			}
		}
	}
}

// testNoSecretInContainer checks that a job gets no variable of its user.
func testNoSecretInContainer(t *testing.T, b *bench) {
	b.driver = b.open(Channel{Env: append(slices.Clone(b.env), "SOME_API_KEY=secret-1")})
	ref := b.submit(t, b.shell("job", "env; echo end"))
	if text := b.waitForOutput(t, ref, "end\n"); strings.Contains(text, "secret") {
		t.Errorf("the environment is %s", text)
	}
}

// TestContainerScripts compares scripts with recorded ones.
func TestContainerScripts(t *testing.T) {
	t.Parallel()
	full := Job{
		Name: "agency-2", Argv: []string{"/home/it's/tool", "a b", "", "$(x)\n", "@NAME@"}, Programs: []string{"tool"}, LogDir: "/shared",
		Paths: []Path{{Source: "/srv/my hub", Target: "/srv/my hub", Write: true}, {Source: "cache", Target: "/var/lib/cache", Write: true}, {Source: "/etc/it's", Target: "/etc/it's"}},
	}
	for name, c := range map[string]struct {
		driver Podman
		job    Job
	}{
		"podman": {Podman{Client: "podman", Image: "debian:12"}, Job{Name: "agency-1", Argv: []string{"/opt/tool"}}},
		"docker": {Podman{Client: "docker", Image: "debian:12", Args: []string{"--network=host", "--env=A=b c"}}, full},
	} {
		requireRecorded(t, filepath.Join("testdata", "container-"+name+".sh"), c.driver.submitScript(c.job))
	}
}

func TestParseContainers(t *testing.T) {
	t.Parallel()
	id := func(c string) string { return strings.Repeat(c, 64) }
	began := "|2026-11-19 17:59:31.382011213 +0000 UTC|"
	text := strings.Join([]string{ // of podman 4.3.1 and docker 24
		id("1") + "|ok|exited|0|false" + began + `box|""`,
		id("2") + "|/docker|exited|7|false|2026-11-19T17:59:31.38Z|box|\"\"",
		id("3") + "|oom|exited|137|true" + began + `box|""`,
		id("4") + "|runs|running|0|false" + began + `box|""`,
		id("5") + "|never|created|0|false|0001-01-01 00:00:00 +0000 UTC|box|\"\"",
		id("6") + "|rebooted|created|0|false" + began + `box|""`,
		id("7") + `|bad|exited|127|false|0001-01-01T00:00:00Z|box|"no \"tool\"\nhere | there"`,
		id("8") + "|unknown|exited|-1|false" + began + `box|null`,
		id("9") + "|paused|paused|0|false" + began + `box|""`,
		"not a line", "x|y|running|0|false|z|box|\"\"", "",
	}, "\n")
	got := parseContainers(text)
	for i, want := range []Status{
		{Name: "ok", State: Ended, Reason: Exited, Exit: new(0), Detail: "exited"},
		{Name: "docker", State: Ended, Reason: Exited, Exit: new(7), Detail: "exited"},
		{Name: "oom", State: Ended, Reason: NoMemory, Exit: new(137), Detail: "exited"},
		{Name: "runs", State: Running, Detail: "running"},
		{Name: "never", State: Queued, Detail: "created"},
		{Name: "rebooted", State: Ended, Reason: NodeLost, Detail: "created"},
		{Name: "bad", State: Ended, Reason: NotBegun, Exit: new(127), Detail: `exited; no "tool"; here | there`},
		{Name: "unknown", State: Ended, Reason: Exited, Detail: "exited"},
		{Name: "paused", State: Running, Detail: "paused"},
	} {
		if i >= len(got) {
			t.Fatalf("%d of the lines were read", len(got))
		}
		want.Attempt, want.Node, want.ID = 1, "box", id(string(rune('1'+i)))
		if got[i].Detail != want.Detail {
			t.Errorf("%s: the detail is %q", want.Name, got[i].Detail)
		}
		requireStatus(t, got[i], want)
	}
	if len(got) != 9 {
		t.Errorf("%d states", len(got))
	}
}

// TestListTakesOnlyNoSuchContainerAsRemoved checks which answers of a client mean that a container does not exist. After any other
// answer, List is an error.
func TestListTakesOnlyNoSuchContainerAsRemoved(t *testing.T) {
	t.Parallel()
	line := strings.Repeat("1", 64) + "|renamed|running|0|false|2026-11-19 17:59:31 +0000 UTC|box|\"\"\n"
	for _, c := range []struct {
		stdout, stderr string
		exit           int
		want           string // names of jobs; "error" for one
	}{
		{"", "Error: inspecting object: no such container b\nerror inspecting object: no such container " + strings.Repeat("1", 64) + "\n", 125, ""},
		{"", "Welcome to box\nError: No such container: b\nError: No such container: " + strings.Repeat("1", 64) + "\n", 1, ""},
		{line, "Error: no such container b\n", 125, "a"},
		{line, "", 0, "error"},
		{"", "", 0, "error"},
		{"", "Error: no such container b\n", 125, "error"},
		{line, "Error: short read\n", 125, "error"},
		{"", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n", 1, "error"},
	} {
		bin := t.TempDir()
		must(t, shellscript.Write(filepath.Join(bin, "podman"), "#!/bin/sh\nprintf %s "+shellWord(c.stdout)+"\nprintf %s "+shellWord(c.stderr)+" >&2\nexit "+strconv.Itoa(c.exit)+"\n"))
		p := Podman{Channel: Channel{Env: []string{"PATH=" + bin + ":/usr/bin:/bin"}}, Client: "podman"}
		got, err := p.List(t.Context(), []Ref{{Name: "a", ID: strings.Repeat("1", 64)}, {Name: "b"}})
		names := ""
		for _, st := range got {
			names += st.Name
		}
		if err != nil {
			names = "error"
		}
		if names != c.want {
			t.Errorf("%+v: %q, %v", c, names, err)
		}
	}
}

// TestSubmitRemovesContainerOfHungClient has a client hang while it starts a container, which therefore may never begin.
func TestSubmitRemovesContainerOfHungClient(t *testing.T) {
	t.Parallel()
	bin, removed := t.TempDir(), filepath.Join(t.TempDir(), "removed")
	must(t, shellscript.Write(filepath.Join(bin, "podman"), `#!/bin/sh
case $1 in
run) exec sleep 1000 ;;
rm) echo "$@" >`+removed+` ;;
esac
`))
	p := Podman{Channel: Channel{Env: []string{"PATH=" + bin + ":/usr/bin:/bin"}}, Client: "podman", Image: "i", submitWait: 100 * time.Millisecond}
	id, err := p.Submit(t.Context(), Job{Name: "job", Argv: []string{"tool"}})
	var unreachable *UnreachableError
	if !errors.As(err, &unreachable) || !strings.Contains(unreachable.Detail, "no answer after 100ms") {
		t.Errorf("%q, %v", id, err)
	}
	requireRemoved := func() {
		t.Helper()
		if text, err := os.ReadFile(removed); string(text) != "rm --force job\n" {
			t.Errorf("removed: %q, %v", text, err)
		}
		_ = os.Remove(removed)
	}
	requireRemoved()

	p.submitWait, p.interruptWait = 0, time.Millisecond
	ctx, interrupt := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	time.AfterFunc(100*time.Millisecond, func() { interrupt(interrupted) })
	if id, err := p.Submit(ctx, Job{Name: "job", Argv: []string{"tool"}}); !errors.Is(err, interrupted) {
		t.Errorf("after an interrupt: %q, %v", id, err)
	}
	requireRemoved()
}

// TestSubmitIsNotInterrupted interrupts a submission while the client starts the container. A client that ended then could leave one that
// never begins.
func TestSubmitIsNotInterrupted(t *testing.T) {
	t.Parallel()
	bin, dir := t.TempDir(), t.TempDir()
	id := strings.Repeat("1", 64)
	must(t, shellscript.Write(filepath.Join(bin, "podman"), `#!/bin/sh
echo >`+dir+`/starting
until [ -e `+dir+`/go ]; do sleep 0.01; done
echo `+id+`
`))
	p := Podman{Channel: Channel{Env: []string{"PATH=" + bin + ":/usr/bin:/bin"}}, Client: "podman", Image: "i"}
	ctx, interrupt := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	go func() {
		for _, err := os.Stat(filepath.Join(dir, "starting")); err != nil; _, err = os.Stat(filepath.Join(dir, "starting")) {
			time.Sleep(time.Millisecond)
		}
		interrupt(interrupted)
		if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
			t.Error(err)
		}
	}()
	job := Job{Name: "job", Argv: []string{"tool"}}
	if got, err := p.Submit(ctx, job); got != id || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := p.Submit(ctx, job); !errors.Is(err, interrupted) {
		t.Errorf("after an interrupt: %q, %v", got, err)
	}
}

// TestCancelAgainAfterFailure checks that a second Cancel signals where the first could not.
func TestCancelAgainAfterFailure(t *testing.T) {
	t.Parallel()
	bin, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	id := strings.Repeat("1", 64)
	must(t, shellscript.Write(filepath.Join(bin, "podman"), `#!/bin/sh
case "$1 $2" in
"container inspect") echo '`+id+`|job|running|0|false|2026-11-19 17:59:31 +0000 UTC|box|""'; exit ;;
esac
echo "$*" >>`+log+`
[ "$(grep -c TERM `+log+`)" -gt 1 ]
`))
	p := Podman{Channel: Channel{Env: []string{"PATH=" + bin + ":/usr/bin:/bin", "TMPDIR=" + t.TempDir()}}, Client: "podman", killWait: time.Millisecond}
	if err := p.Cancel(t.Context(), Ref{Name: "job", ID: id}); err == nil {
		t.Error("a signal that could not be sent is no error")
	}
	must(t, p.Cancel(t.Context(), Ref{Name: "job", ID: id}))
	waitForText(t, log, "kill --signal=TERM "+id+"\nkill --signal=TERM "+id+"\nkill --signal=KILL "+id+"\n")
}

// TestDockerDaemonDown checks that no state is told where the daemon cannot be asked.
func TestDockerDaemonDown(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	must(t, shellscript.Write(filepath.Join(bin, "docker"), "#!/bin/sh\necho 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?' >&2\nexit 1\n"))
	s := podmanSite([]string{"PATH=" + bin + ":/usr/bin:/bin"}, "i")
	b := newBench(t, s)
	b.driver = Podman{Channel: Channel{Env: s.env}, Client: "docker", Image: "i"}
	for call, err := range b.eachCall(t, Ref{Name: b.prefix + "job", ID: s.unknown[0]}) {
		var unreachable *UnreachableError
		if !errors.As(err, &unreachable) || unreachable.Missing || !strings.Contains(unreachable.Detail, "Cannot connect to the Docker daemon") {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// TestContainerClient checks which client is used where none is configured.
func TestContainerClient(t *testing.T) {
	t.Parallel()
	bin := map[string]string{}
	for _, names := range []string{"", "podman", "docker", "podman docker"} {
		dir := t.TempDir()
		for name := range strings.FieldsSeq(names) {
			must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o755))
		}
		bin[names] = dir
	}
	for _, c := range []struct{ installed, client, ssh, want string }{
		{"", "", "", "podman"},
		{"docker", "", "", "docker"},
		{"podman docker", "", "", "podman"},
		{"podman docker", "docker", "", "docker"},
		{"docker", "", "box", "podman"},
	} {
		config := Config{Name: "podman", Client: c.client, SSH: c.ssh, Env: []string{"PATH=" + bin[c.installed]}}
		if got := config.ContainerClient(); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestRestWriter(t *testing.T) {
	t.Parallel()
	for skip, want := range map[int64]string{0: "abcdef", 1: "bcdef", 3: "def", 4: "ef", 6: "", 9: ""} {
		var out strings.Builder
		w := &restWriter{to: &out, skip: skip}
		for _, part := range []string{"abc", "", "de", "f"} {
			if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
				t.Errorf("skip %d: %d, %v", skip, n, err)
			}
		}
		if out.String() != want || w.copied != int64(len(want)) {
			t.Errorf("skip %d: %q, %d", skip, out.String(), w.copied)
		}
	}
}
