package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/scripts/shellscript"
)

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
	for {
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

// goFile is the file for which jobs of waits wait.
func (b *bench) goFile() string { return filepath.Join(b.dir, "go") }

// waits returns the shell command of a job that waits for release.
func (b *bench) waits() string {
	return "while [ ! -e " + shellWord(b.goFile()) + " ]; do sleep 0.05; done"
}

func (b *bench) release(t *testing.T) { must(t, os.WriteFile(b.goFile(), nil, 0o644)) }

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

func testLogs(t *testing.T, b *bench) {
	ref := b.submit(t, b.shell("job", `echo one; printf 'a\0b'; `+b.waits()+`; echo two; echo last >&2`))
	b.waitForOutput(t, ref, "a\x00b")
	for offset, want := range map[int64]string{0: "one\na\x00b", 2: "e\na\x00b", 7: "", 100: ""} {
		if got := b.logs(t, ref, LogsRequest{Stream: Stdout, Offset: offset}); got != want {
			t.Errorf("from %d: %q, want %q", offset, got, want)
		}
	}
	got := b.follow(t, ref, LogsRequest{Stream: Stdout, Offset: 4, Follow: true}, "a\x00b", func() { b.release(t) })
	if got != "a\x00btwo\n" {
		t.Errorf("follow copied %q", got)
	}
	if got := b.logs(t, ref, LogsRequest{Stream: Stderr, Follow: true}); got != "last\n" {
		t.Errorf("stderr is %q", got)
	}
	requireNoNodeFiles(t, ref)
}

func testClientMissing(t *testing.T, b *bench) {
	empty := t.TempDir()
	shell, err := exec.LookPath("sh")
	must(t, err)
	must(t, os.Symlink(shell, filepath.Join(empty, "sh")))
	b.driver = b.open(Channel{Env: []string{"PATH=" + empty}})
	for call, err := range b.eachCall(t, Ref{Name: b.prefix + "job", ID: b.unknown[0]}) {
		var unreachable *UnreachableError
		if !errors.As(err, &unreachable) || !unreachable.Missing || !strings.HasPrefix(err.Error(), b.engine+" cannot be used: there is no program "+b.client) {
			t.Errorf("%s: %v", call, err)
		}
	}
}

func testWatchEnds(t *testing.T, b *bench) {
	ref := b.submit(t, b.shell("job", b.waits()+"; exit 4"))
	var states []State
	must(t, b.driver.Watch(watchContext(t), []Ref{ref, {Name: b.prefix + "unknown"}}, func(all []Status) bool {
		if len(all) != 1 {
			t.Errorf("%+v", all)
		}
		if len(states) == 0 {
			b.release(t)
		}
		states = append(states, all[0].State)
		return all[0].State != Ended
	}, func(err error) { t.Error(err) }))
	if states[0] == Ended || states[len(states)-1] != Ended {
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
	must(t, shellscript.Write(filepath.Join(bin, "ssh"), `#!/bin/sh
[ "$1 $2 $3 $4" = "-o BatchMode=yes login.example --" ] || { echo "ssh: $*" >&2; exit 255; }
shift 4
. "`+bin+`/environment"
exec sh -c "$*"
`))
	var exports strings.Builder
	for _, entry := range append(slices.Clone(b.env), "LOGIN_KEY=secret", "SBATCH_EXPORT=NONE") {
		name, value, _ := strings.Cut(entry, "=")
		exports.WriteString("export " + name + "=" + shellWord(value) + "\n")
	}
	must(t, os.WriteFile(filepath.Join(bin, "environment"), []byte(exports.String()), 0o644))
	at := func(login string) Driver {
		return b.open(Channel{SSH: login, Env: []string{"PATH=" + bin + ":/usr/bin:/bin", "SSH_AUTH_SOCK=secret"}})
	}
	b.driver = at("login.example")
	job := b.shell("job", `echo "it's $1 and ${LOGIN_KEY-no key}"; `+b.waits()+`; exit 6`)
	job.Argv, job.LogDir = append(job.Argv, "sh", "$HOME"), ""
	ref := b.submit(t, job)
	got := b.follow(t, ref, LogsRequest{Stream: Stdout, Follow: true}, "no key\n", func() { b.release(t) })
	if got != "it's $HOME and no key\n" {
		t.Errorf("follow copied %q", got)
	}
	requireStatus(t, b.waitForEnd(t, ref), Status{Name: ref.Name, ID: ref.ID, State: Ended, Reason: Exited, Exit: new(6), Attempt: 1})
	var unreachable *UnreachableError
	if _, err := at("other.example").List(t.Context(), []Ref{ref}); !errors.As(err, &unreachable) || unreachable.Missing {
		t.Errorf("%v", err)
	}
	for _, bad := range []string{"-oProxyCommand=touch x", "a b", "a\nb"} {
		if _, err := at(bad).List(t.Context(), []Ref{ref}); err == nil || errors.As(err, &unreachable) && unreachable.Missing {
			t.Errorf("%q: %v", bad, err)
		}
	}
	must(t, os.WriteFile(filepath.Join(bin, "environment"), []byte("PATH=/none\n"), 0o644))
	if _, err := b.driver.List(t.Context(), []Ref{ref}); !errors.As(err, &unreachable) || !unreachable.Missing {
		t.Errorf("%v", err)
	}
}

// testInvalidJobs submits what no engine can run.
func testInvalidJobs(t *testing.T, b *bench) {
	for what, change := range map[string]func(*Job){
		"name": func(j *Job) { j.Name = "a b" }, "no name": func(j *Job) { j.Name = "" }, "option": func(j *Job) { j.Name = "-n" },
		"no program": func(j *Job) { j.Argv = nil }, "relative LogDir": func(j *Job) { j.LogDir = "logs" },
		"control character": func(j *Job) { j.Argv = append(slices.Clone(j.Argv), "a\rb") }, "empty program": func(j *Job) { j.Programs = []string{""} },
		"control character in a path": func(j *Job) { j.Paths = append(j.Paths, Path{Source: "/a\nb", Target: "/a\rb"}) },
	} {
		bad := b.shell("job", "exit 0")
		change(&bad)
		if id, err := b.driver.Submit(t.Context(), bad); err == nil {
			t.Errorf("%s: job %s was submitted", what, id)
		}
	}
	for _, bad := range []LogsRequest{{Stream: "stdin"}, {}, {Stream: Stdout, Offset: -1}} {
		if _, err := b.driver.Logs(t.Context(), Ref{Name: b.prefix + "job"}, bad, io.Discard); err == nil || errors.As(err, new(*NoLogsError)) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
