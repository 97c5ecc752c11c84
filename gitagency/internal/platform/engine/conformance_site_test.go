package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func testLogsOfLogDir(t *testing.T, b *bench) {
	go_ := filepath.Join(t.TempDir(), "go")
	ref := b.submit(t, b.shell("job", `echo one; printf 'a\0b'; while [ ! -e `+go_+` ]; do sleep 0.05; done; echo two; echo last >&2`))
	b.waitForOutput(t, ref, "a\x00b")
	for offset, want := range map[int64]string{0: "one\na\x00b", 2: "e\na\x00b", 7: "", 100: ""} {
		if got := b.logs(t, ref, LogsRequest{Stream: Stdout, Offset: offset}); got != want {
			t.Errorf("from %d: %q, want %q", offset, got, want)
		}
	}
	got := b.follow(t, ref, LogsRequest{Stream: Stdout, Offset: 4, Follow: true}, "a\x00b", func() { must(t, os.WriteFile(go_, nil, 0o644)) })
	if got != "a\x00btwo\n" {
		t.Errorf("follow copied %q", got)
	}
	if got := b.logs(t, ref, LogsRequest{Stream: Stderr, Follow: true}); got != "last\n" {
		t.Errorf("stderr is %q", got)
	}
	requireNoNodeFiles(t, ref)
}

// follow follows a stream, calls then when it has copied a text, and returns all that was copied until the job ended.
func (b *bench) follow(t *testing.T, ref Ref, req LogsRequest, text string, then func()) string {
	t.Helper()
	read, write := io.Pipe()
	result := make(chan error, 1)
	go func() {
		_, err := b.driver.Logs(watchContext(t), ref, req, write)
		result <- errors.Join(err, write.Close())
	}()
	var got bytes.Buffer
	buf := make([]byte, 1000)
	for then != nil || got.Len() >= 0 {
		n, err := read.Read(buf)
		got.Write(buf[:n])
		if then != nil && strings.Contains(got.String(), text) {
			then()
			then = nil
		}
		if err == io.EOF {
			break
		}
		must(t, err)
	}
	must(t, <-result)
	return got.String()
}

func testLogsOfNode(t *testing.T, b *bench) {
	go_ := filepath.Join(t.TempDir(), "go")
	job := b.shell("job", `echo one; printf 'a\0b\r\n'; echo problem >&2; while [ ! -e `+go_+` ]; do sleep 0.05; done; echo two; printf end`)
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
	got := b.follow(t, ref, LogsRequest{Stream: Stdout, Offset: 4, Follow: true}, "a\x00b", func() { must(t, os.WriteFile(go_, nil, 0o644)) })
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
	b.driver.Args = []string{"--hold"}
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

// eachCall calls every method that asks the engine.
func (b *bench) eachCall(t *testing.T, ref Ref) map[string]error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	all := map[string]error{}
	_, all["Submit"] = b.driver.Submit(ctx, b.shell("other", "exit 0"))
	_, all["List"] = b.driver.List(ctx, []Ref{ref})
	all["Cancel"] = b.driver.Cancel(ctx, ref)
	all["Cancel by name"] = b.driver.Cancel(ctx, Ref{Name: ref.Name})
	_, all["Probe"] = b.driver.Probe(ctx)
	_, all["Logs"] = b.driver.Logs(ctx, Ref{Name: ref.Name, ID: ref.ID}, LogsRequest{Stream: Stdout}, io.Discard)
	watch, stop := context.WithCancelCause(ctx)
	told := errors.New("told")
	err := b.driver.Watch(watch, []Ref{ref}, func([]Status) bool { return true }, func(err error) { all["Watch"] = err; stop(told) })
	if !errors.Is(err, told) {
		t.Errorf("watch returned %v", err)
	}
	return all
}

func testClientMissing(t *testing.T, b *bench) {
	b.driver.Env = []string{"PATH=" + t.TempDir()}
	for call, err := range b.eachCall(t, Ref{Name: b.prefix + "job", ID: "1"}) {
		var unreachable *UnreachableError
		if !errors.As(err, &unreachable) || !unreachable.Missing || !strings.HasPrefix(err.Error(), "Slurm cannot be used: there is no program s") {
			t.Errorf("%s: %v", call, err)
		}
	}
}

func testControllerDown(t *testing.T, b *bench) {
	b.driver.Env = b.down(t)
	for call, err := range b.eachCall(t, Ref{Name: b.prefix + "job", ID: "1"}) {
		var unreachable *UnreachableError
		if !errors.As(err, &unreachable) || unreachable.Missing || !strings.Contains(unreachable.Detail, "Unable to contact slurm controller") {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// testNoSecret checks that the engine gets no variable of the client but the listed ones, and loads none from a login shell.
func testNoSecret(t *testing.T, b *bench) {
	b.driver.Env = append(slices.Clone(b.env), "SOME_API_KEY=secret-1", "SLURM_SECRET=secret-2", "SPANK_SECRET=secret-3", "SBATCH_SECRET=secret-4",
		"SBATCH_EXPORT=NONE", "SBATCH_GET_USER_ENV=1", "SLURM_EXPORT_ENV=NONE", "LANG=C.UTF-8", "LC_ALL=C", "SBATCH_COMMENT=secret-5")
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
	b.driver.Env = append(slices.Clone(b.env), "SBATCH_ARRAY_INX=1-3", "SBATCH_WAIT=1", "SQUEUE_FORMAT=%i", "SQUEUE_STATES=PENDING", "SQUEUE_PARTITION=high",
		"SQUEUE_USERS=nobody", "SQUEUE_SORT=P", "SCANCEL_STATE=PENDING", "SCANCEL_INTERACTIVE=1", "SLURM_JOB_ID=1", "SLURM_PARTITION=high", "SINFO_FORMAT=%D")
	ref := b.submit(t, b.shell("job", "echo ready; exec sleep 600"))
	b.waitForOutput(t, ref, "ready")
	b.waitFor(t, ref, func(s Status) bool { return s.State == Running })
	must(t, b.driver.Cancel(t.Context(), Ref{Name: ref.Name}))
	requireStatus(t, b.waitForEnd(t, ref), Status{Name: ref.Name, ID: ref.ID, State: Ended, Reason: Cancelled, Attempt: 1})
	_, err := b.driver.Probe(t.Context())
	must(t, err)
}

func testRejected(t *testing.T, b *bench) {
	b.driver.Partition = "no-such-partition"
	job := b.shell("job", "exit 0")
	_, err := b.driver.Submit(t.Context(), job)
	var rejected *RejectedError
	if !errors.As(err, &rejected) || !strings.Contains(rejected.Detail, "invalid partition specified: no-such-partition") {
		t.Errorf("%v", err)
	}
	if files, err := os.ReadDir(b.dir); err != nil || len(files) > 0 {
		t.Errorf("a rejected job left %v, %v", files, err)
	}
	b.driver.Partition = ""
	for what, change := range map[string]func(*Job){
		"name": func(j *Job) { j.Name = "a b" }, "no name": func(j *Job) { j.Name = "" }, "no program": func(j *Job) { j.Argv = nil },
		"relative LogDir": func(j *Job) { j.LogDir = "logs" }, "no LogDir": func(j *Job) { j.LogDir += "/none" },
		"control character": func(j *Job) { j.Argv = append(slices.Clone(j.Argv), "a\rb") }, "empty program": func(j *Job) { j.Programs = []string{""} },
	} {
		bad := job
		change(&bad)
		if id, err := b.driver.Submit(t.Context(), bad); err == nil {
			t.Errorf("%s: job %s was submitted", what, id)
		}
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
		b.driver.Partition = partition
		caps, err := b.driver.Probe(t.Context())
		if err != nil || (want == "") != (caps.Problem == "") || !strings.HasPrefix(caps.Problem, want) {
			t.Errorf("partition %s: %q, %v", partition, caps.Problem, err)
		}
	}
}

func testWatchEnds(t *testing.T, b *bench) {
	b.driver.Args = []string{"--hold"}
	ref := b.submit(t, b.shell("job", "exit 4"))
	var states []State
	must(t, b.driver.Watch(watchContext(t), []Ref{ref, {Name: b.prefix + "unknown"}}, func(all []Status) bool {
		if len(all) != 1 {
			t.Errorf("%+v", all)
		}
		if len(states) == 0 {
			runClient(t, b.env, "scontrol", "release", ref.ID)
		}
		states = append(states, all[0].State)
		return all[0].State != Ended
	}, func(err error) { t.Error(err) }))
	if states[0] != Queued || states[len(states)-1] != Ended {
		t.Errorf("states: %v", states)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	calls := 0
	err := b.driver.Watch(ctx, []Ref{{Name: b.prefix + "unknown"}}, func(all []Status) bool { calls += 1 + len(all); cancel(cause); return true }, nil)
	if !errors.Is(err, cause) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// testSSH runs the clients through a program in place of ssh, which runs them with a shell as sshd does.
func testSSH(t *testing.T, b *bench) {
	bin := t.TempDir()
	must(t, os.WriteFile(filepath.Join(bin, "ssh"), []byte(`#!/bin/sh
[ "$1 $2 $3 $4" = "-o BatchMode=yes login.example --" ] || { echo "ssh: $*" >&2; exit 255; }
shift 4
. "`+bin+`/environment"
exec sh -c "$*"
`), 0o755))
	var exports strings.Builder
	for _, entry := range append(slices.Clone(b.env), "LOGIN_KEY=secret", "SBATCH_EXPORT=NONE") {
		name, value, _ := strings.Cut(entry, "=")
		exports.WriteString("export " + name + "=" + shellWord(value) + "\n")
	}
	must(t, os.WriteFile(filepath.Join(bin, "environment"), []byte(exports.String()), 0o644))
	b.driver.SSH, b.driver.Env = "login.example", []string{"PATH=" + bin + ":/usr/bin:/bin", "SSH_AUTH_SOCK=secret"}
	go_ := filepath.Join(t.TempDir(), "go")
	job := b.shell("job", `echo "it's $1 and ${LOGIN_KEY-no key}"; while [ ! -e `+go_+` ]; do sleep 0.05; done; exit 6`)
	job.Argv, job.LogDir = append(job.Argv, "sh", "$HOME"), ""
	ref := b.submit(t, job)
	got := b.follow(t, ref, LogsRequest{Stream: Stdout, Follow: true}, "no key\n", func() { must(t, os.WriteFile(go_, nil, 0o644)) })
	if got != "it's $HOME and no key\n" {
		t.Errorf("follow copied %q", got)
	}
	requireStatus(t, b.waitForEnd(t, ref), Status{Name: ref.Name, ID: ref.ID, State: Ended, Reason: Exited, Exit: new(6), Attempt: 1})
	var unreachable *UnreachableError
	b.driver.SSH = "other.example"
	if _, err := b.driver.List(t.Context(), []Ref{ref}); !errors.As(err, &unreachable) || unreachable.Missing {
		t.Errorf("%v", err)
	}
	for _, bad := range []string{"-oProxyCommand=touch x", "a b", "a\nb"} {
		b.driver.SSH = bad
		if _, err := b.driver.List(t.Context(), []Ref{ref}); err == nil || errors.As(err, &unreachable) && unreachable.Missing {
			t.Errorf("%q: %v", bad, err)
		}
	}
	b.driver.SSH = "login.example"
	must(t, os.WriteFile(filepath.Join(bin, "environment"), []byte("PATH=/none\n"), 0o644))
	if _, err := b.driver.List(t.Context(), []Ref{ref}); !errors.As(err, &unreachable) || !unreachable.Missing {
		t.Errorf("%v", err)
	}
}
