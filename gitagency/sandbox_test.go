package gitagency_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency"
)

// adoptedRepo is a repository whose main worktree is adopted, seen by a program that uses the library.
type adoptedRepo struct {
	dir      string
	env      []string
	repo     *gitagency.Repository
	warnings []string // warnings
}

func newAdoptedRepo(t *testing.T) *adoptedRepo {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	p := &adoptedRepo{dir: filepath.Join(dir, "repo"), env: append(os.Environ(),
		"HOME="+dir, "AGENCY_DATA_DIR="+filepath.Join(dir, "data"), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com",
	)}
	must(t, os.Mkdir(p.dir, 0o755))
	p.git(t, "init", "-q")
	p.git(t, "commit", "-q", "--allow-empty", "-m", "first")
	p.repo, err = gitagency.Open(t.Context(), gitagency.Options{
		Dir: p.dir, Env: p.env, Warn: func(message string) { p.warnings = append(p.warnings, message) },
	})
	must(t, err)
	_, err = p.repo.AdoptWorktree(t.Context(), gitagency.AdoptWorktreeRequest{Name: "mine"})
	must(t, err)
	return p
}

func (p *adoptedRepo) git(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir, cmd.Env = p.dir, p.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// startSandbox starts a sandbox.
func (p *adoptedRepo) startSandbox(t *testing.T) *gitagency.Sandbox {
	t.Helper()
	inv, err := p.repo.Start(t.Context(), gitagency.StartRequest{Worktree: "mine"})
	must(t, err)
	s, err := p.repo.Sandbox(inv.ID)
	must(t, err)
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Checks the twelve criteria of the specification of sandboxes in order.
func TestSandboxSpecification(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	p := newAdoptedRepo(t)
	s := p.startSandbox(t)
	run := func(opts gitagency.ExecOptions) (gitagency.ExecResult, error) { return s.Exec(ctx, opts) }

	if !strings.Contains(p.git(t, "worktree", "list", "--porcelain"), "worktree "+s.WorkDir()+"\n") {
		t.Error("1: git does not know the sandbox as a worktree")
	}
	if !filepath.IsAbs(s.WorkDir()) || !strings.HasPrefix(s.WorkDir(), filepath.Dir(p.dir)+"/data/") {
		t.Errorf("2: the sandbox is at %s", s.WorkDir())
	}
	if res, err := run(gitagency.ExecOptions{Argv: []string{"pwd"}, Timeout: time.Minute}); err != nil || res.Stdout != s.WorkDir()+"\n" || res.ExitCode != 0 {
		t.Errorf("3: got %+v, %v", res, err)
	}
	for _, cwd := range []string{"/tmp", "..", "../..", p.dir} {
		var confined *gitagency.ConfinementError
		if _, err := run(gitagency.ExecOptions{Argv: []string{"ls"}, Cwd: cwd}); !errors.As(err, &confined) || !strings.Contains(err.Error(), "path confinement") {
			t.Errorf("4: in %s: %v", cwd, err)
		}
	}
	if res, err := run(gitagency.ExecOptions{Argv: []string{"sleep", "1000"}, Timeout: 20 * time.Millisecond}); err != nil || !res.TimedOut || res.ExitCode != 124 || res.Signal != "SIGTERM" {
		t.Errorf("5: got %+v, %v", res, err)
	}
	must(t, s.UploadFiles(ctx, []gitagency.File{{Path: "deep/er/test.txt", Content: []byte("hello")}}))
	if res, err := run(gitagency.ExecOptions{Argv: []string{"cat", "deep/er/test.txt"}}); err != nil || res.Stdout != "hello" {
		t.Errorf("6: got %+v, %v", res, err)
	}
	for _, path := range []string{"../escape.txt", "deep/../../escape.txt", "/tmp/escape.txt"} {
		err := s.UploadFiles(ctx, []gitagency.File{{Path: "fine.txt"}, {Path: path, Content: []byte("bad")}})
		if err == nil || !strings.Contains(err.Error(), "path confinement") {
			t.Errorf("7: %s: %v", path, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(s.WorkDir(), "fine.txt")); err == nil {
		t.Error("7: a refused upload wrote a file")
	}
	if commit, err := s.Snapshot(ctx); err != nil || p.git(t, "show", commit+":deep/er/test.txt") != "hello" {
		t.Errorf("8: got %q, %v", commit, err)
	}
	must(t, s.Teardown(ctx))
	if _, err := os.Lstat(s.WorkDir()); err == nil {
		t.Error("9: the sandbox still exists")
	}
	if p.git(t, "show", "refs/agency/trash/"+s.ID+":deep/er/test.txt") != "hello" {
		t.Error("9: the content is not in the trash")
	}
	if err := s.Teardown(ctx); err != nil {
		t.Errorf("10: %v", err)
	}
	if _, err := run(gitagency.ExecOptions{Argv: []string{"true"}}); err == nil {
		t.Error("10: a command runs in a removed sandbox")
	}
	before := p.git(t, "for-each-ref")
	_, err := p.repo.Start(ctx, gitagency.StartRequest{Worktree: "mine", Primitives: gitagency.Primitives{Platform: "daytona"}})
	if err == nil || !strings.Contains(err.Error(), "Daytona sandbox not yet implemented") || p.git(t, "for-each-ref") != before {
		t.Errorf("11: %v", err)
	}
	s = p.startSandbox(t)
	words := []string{"printf", "%s|", "$HOME", "a b", "*", ";", "`id`", "$(id)", "&&", ">out", "|", "\\", "'", "\"", "\n", ""}
	if res, err := run(gitagency.ExecOptions{Argv: words}); err != nil || res.Stdout != strings.Join(words[2:], "|")+"|" {
		t.Errorf("12: got %+v, %v", res, err)
	}
}

func TestTeardownIgnoresMissingParts(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, p *adoptedRepo, s *gitagency.Sandbox){
		"nothing": func(*testing.T, *adoptedRepo, *gitagency.Sandbox) {},
		"tree":    func(t *testing.T, _ *adoptedRepo, s *gitagency.Sandbox) { must(t, os.RemoveAll(s.WorkDir())) },
		"git's entry": func(t *testing.T, p *adoptedRepo, s *gitagency.Sandbox) {
			must(t, os.RemoveAll(filepath.Join(p.repo.CommonDir, "worktrees", s.ID)))
		},
		"worktree": func(t *testing.T, p *adoptedRepo, s *gitagency.Sandbox) {
			p.git(t, "worktree", "remove", "--force", s.WorkDir())
		},
		"branch": func(t *testing.T, p *adoptedRepo, s *gitagency.Sandbox) {
			p.git(t, "update-ref", "-d", "refs/heads/agency/sandbox-"+s.ID)
		},
		"record": func(t *testing.T, p *adoptedRepo, s *gitagency.Sandbox) { must(t, os.Remove(recordPath(p, s))) },
		"record dir": func(t *testing.T, p *adoptedRepo, s *gitagency.Sandbox) {
			must(t, os.RemoveAll(filepath.Dir(recordPath(p, s))))
		},
		"truncated record": func(t *testing.T, p *adoptedRepo, s *gitagency.Sandbox) {
			must(t, os.WriteFile(recordPath(p, s), []byte(`{"sch`), 0o600))
		},
		"everything": func(t *testing.T, p *adoptedRepo, s *gitagency.Sandbox) {
			must(t, os.RemoveAll(filepath.Dir(s.WorkDir())))
			must(t, os.RemoveAll(filepath.Dir(recordPath(p, s))))
		},
		"everything, by discard": func(t *testing.T, p *adoptedRepo, s *gitagency.Sandbox) {
			_, err := p.repo.Discard(t.Context(), s.ID)
			must(t, err)
		},
		"everything, by prune": func(t *testing.T, p *adoptedRepo, s *gitagency.Sandbox) {
			_, err := p.repo.Discard(t.Context(), s.ID)
			must(t, err)
			_, err = p.repo.Prune(t.Context(), gitagency.PruneRequest{Expire: "now"})
			must(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newAdoptedRepo(t)
			s := p.startSandbox(t)
			must(t, os.WriteFile(filepath.Join(s.WorkDir(), "work"), []byte("work"), 0o644))
			lose(t, p, s)
			_, statErr := os.Lstat(filepath.Join(s.WorkDir(), "work"))
			for range 2 {
				if err := s.Teardown(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if _, err := os.Lstat(s.WorkDir()); err == nil {
				t.Error("the tree still exists")
			}
			if statErr == nil && p.git(t, "show", "refs/agency/trash/"+s.ID+":work") != "work" {
				t.Error("the content is not in the trash")
			}
		})
	}
}

// recordPath returns the path of the record of an invocation.
func recordPath(p *adoptedRepo, s *gitagency.Sandbox) string {
	return filepath.Join(p.repo.DataDir, "repos", p.repo.ID, "invocations", s.ID, "meta.json")
}

func TestExecEndsWithContext(t *testing.T) {
	t.Parallel()
	s := newAdoptedRepo(t).startSandbox(t)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	var stdout bytes.Buffer
	res, err := s.Exec(ctx, gitagency.ExecOptions{
		Argv: []string{"sh", "-c", "echo begun; exec sleep 1000"}, Timeout: -1,
		Stdout: writerFunc(func(p []byte) (int, error) { cancel(enough); return stdout.Write(p) }),
	})
	if !errors.Is(err, enough) || res.Signal != "SIGTERM" || stdout.String() != "begun\n" {
		t.Errorf("got %+v, %v and %q", res, err, &stdout)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestExecTruncatesOutputBetweenCharacters(t *testing.T) {
	t.Parallel()
	s := newAdoptedRepo(t).startSandbox(t)
	// One byte, then characters of three bytes each: the capture limit falls inside one of them.
	res, err := s.Exec(t.Context(), gitagency.ExecOptions{Argv: []string{"sh", "-c", `printf x; yes "€€€€€€€€" | tr -d '\n' | head -c 17000000; yes | head -c 17000000 >&2`}})
	if err != nil || !res.Truncated || res.ExitCode != 0 {
		t.Fatalf("got %d, %v, %v", res.ExitCode, res.Truncated, err)
	}
	if strings.ToValidUTF8(res.Stdout, "") != res.Stdout || len(res.Stdout) > gitagency.CaptureLimit || len(res.Stdout) < gitagency.CaptureLimit-2 {
		t.Errorf("stdout has %d bytes and ends in %q", len(res.Stdout), res.Stdout[len(res.Stdout)-8:])
	}
	if len(res.Stderr) != gitagency.CaptureLimit {
		t.Errorf("stderr has %d bytes", len(res.Stderr))
	}
}
