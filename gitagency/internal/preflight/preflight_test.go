package preflight

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/confine"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/coretest"
	"github.com/git-agency/git-agency/gitagency/internal/creation"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"github.com/git-agency/git-agency/gitagency/internal/runner"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// fixture is a repository with the integration worktree wt, and a table with one agent.
type fixture struct {
	t    *testing.T
	repo *core.Repository
	home string
	git  func(args ...string) string // runs git in the repository
	spec runner.Spec
	req  Request
}

// newFixture makes a fixture in which every check passes. config are settings of the user.
func newFixture(t *testing.T, config ...string) *fixture {
	t.Helper()
	opts := core.Options{}
	repo, gitIn := coretest.Open(t, opts)
	f := &fixture{t: t, repo: repo, home: proc.Getenv(repo.Opts.Env, "HOME"), git: gitIn(repo.Opts.Dir)}
	f.writeFile("bin/robot", "#!/bin/sh\necho 1.2.3\n", 0o755)
	f.setenv("PATH=" + f.home + "/bin:" + proc.Getenv(repo.Opts.Env, "PATH"))
	f.spec = runner.Spec{
		Name: "robot", Program: "robot", Tried: "1.2.0", Keys: []string{"ROBOT_KEY"}, Logins: []string{".robot/login"}, Seeds: []runner.Seed{{From: ".robot/login", Moved: "login", To: "login"}}, HomeEnv: "ROBOT_HOME",
		Hosts: func([]string) []string { return []string{"api.robot.example"} },
	}
	f.setenv("ROBOT_KEY=x")
	f.req = Request{Start: creation.Request{Worktree: "wt", Runner: "robot"}, Headless: true}
	f.configure(config...)
	return f
}

// configure sets settings of the user, as with git -c.
func (f *fixture) configure(config ...string) {
	f.t.Helper()
	for i := 0; i < len(config); i += 2 {
		cmd := exec.CommandContext(f.t.Context(), "git", "config", "--file", f.home+"/.gitconfig", "--add", config[i], config[i+1])
		if out, err := cmd.CombinedOutput(); err != nil {
			f.t.Fatalf("%v: %s", err, out)
		}
	}
	f.setenv("GIT_CONFIG_GLOBAL=" + f.home + "/.gitconfig")
}

// setenv changes the environment of the caller and opens the repository again.
func (f *fixture) setenv(pairs ...string) {
	f.t.Helper()
	opts := f.repo.Opts
	opts.Env = settings.DedupeEnv(slices.Concat(opts.Env, pairs))
	repo, err := core.Open(f.t.Context(), opts)
	if err != nil {
		f.t.Fatal(err)
	}
	f.repo = repo
}

func (f *fixture) writeFile(name, content string, mode os.FileMode) {
	f.t.Helper()
	path := filepath.Join(f.home, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), mode)); err != nil {
		f.t.Fatal(err)
	}
}

// run runs all checks and requires that only the named ones fail.
func (f *fixture) run(failing ...string) map[string]Check {
	f.t.Helper()
	report, err := run(f.t.Context(), f.repo, f.req, func(name string) (runner.Spec, bool) { return f.spec, name == f.spec.Name })
	if err != nil {
		f.t.Fatal(err)
	}
	found, failed := map[string]Check{}, []string{}
	for _, c := range report.Checks {
		found[c.Name] = c
		if !c.OK {
			failed = append(failed, c.Name)
		}
		if c.Reason == "" || c.OK && c.Remedy != "" || !c.OK && c.Remedy == "" && c.Err == nil {
			f.t.Errorf("incomplete: %+v", c)
		}
	}
	if !slices.Equal(failed, failing) || report.OK != (len(failing) == 0) {
		f.t.Errorf("failed: %q, want %q: %+v", failed, failing, report)
	}
	return found
}

func TestRunPassesWhereAllIsWell(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	before := listFiles(t, f.home)
	found := f.run()
	if after := listFiles(t, f.home); after != before {
		t.Errorf("files before:\n%s\nafter:\n%s", before, after)
	}
	names := []string{"base", "walls", "limits", "paths", "runner", "login", "hosts", "prompts", "identity", "disk"}
	if len(found) != len(names) {
		t.Errorf("got %+v", found)
	}
	for _, name := range names {
		if found[name].Name == "" {
			t.Errorf("there is no check %s", name)
		}
	}
	if strings.Contains(found["runner"].Reason, "1.2") {
		t.Errorf("the program was run: %+v", found["runner"])
	}
}

func listFiles(t *testing.T, dir string) string {
	t.Helper()
	var names []string
	if err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		names = append(names, path)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, "\n")
}

func TestRunReportsAllFailures(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "agency.preflight.cloud", "echo no account >&2; exit 3")
	f.setenv("ROBOT_KEY=", "PATH=/usr/bin:/bin")
	f.req.Start.Primitives.Outputs = "none"
	f.run("runner", "login", "hosts", "cloud")

	report, err := run(t.Context(), f.repo, f.req, func(string) (runner.Spec, bool) { return f.spec, true })
	var failed *FailedError
	if err != nil || !errors.As(report.Err(), &failed) || len(failed.Checks) != 4 || !strings.Contains(failed.Error(), "cloud (exit code 3: no account)") {
		t.Errorf("got %v, %v", report.Err(), err)
	}
	if err := (Report{OK: true}).Err(); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestRunReturnsErrorsOfTheRequest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, c := range map[string]struct {
		start creation.Request
		want  func(error) bool
	}{
		"worktree":  {creation.Request{Worktree: "nosuch"}, fault.Is[*fault.NotFoundError]},
		"snapshot":  {creation.Request{Worktree: "wt", FromSnapshot: "deadbeef"}, fault.Is[*fault.NotFoundError]},
		"profile":   {creation.Request{Worktree: "wt", Profile: "nosuch"}, fault.Is[*fault.InvalidError]},
		"isolation": {creation.Request{Worktree: "wt", Primitives: store.Primitives{Isolation: "thick"}}, fault.Is[*fault.InvalidError]},
		"outputs":   {creation.Request{Worktree: "wt", Primitives: store.Primitives{Outputs: "hosts:"}}, fault.Is[*fault.InvalidError]},
		"limit":     {creation.Request{Worktree: "wt", Limits: confine.Limits{Nice: 99}}, fault.Is[*fault.InvalidError]},
		"name":      {creation.Request{Worktree: "wt", Name: "@"}, fault.Is[*fault.InvalidError]},
	} {
		if report, err := Run(t.Context(), f.repo, Request{Start: c.start}); err == nil || !c.want(err) {
			t.Errorf("%s: got %+v, %v", name, report, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := errors.New("ended")
	cancel(ended)
	if _, err := Run(ctx, f.repo, f.req); !errors.Is(err, ended) {
		t.Errorf("got %v", err)
	}
}

func TestBaseFails(t *testing.T) {
	t.Parallel()
	t.Run("marker", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		wt, err := f.repo.Worktree("wt")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(wt.TreePath, ".agency")); err != nil {
			t.Fatal(err)
		}
		if c := f.run("base")["base"]; !fault.Is[*fault.NotIntegrationError](c.Err) {
			t.Errorf("got %+v", c)
		}
	})
	t.Run("branch", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		wt, err := f.repo.Worktree("wt")
		if err != nil {
			t.Fatal(err)
		}
		f.git("update-ref", "-d", "refs/heads/"+wt.Branch)
		if c := f.run("base")["base"]; !strings.Contains(c.Reason, wt.Branch) {
			t.Errorf("got %+v", c)
		}
	})
	t.Run("commit", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.req.Start.From = "nosuch"
		if c := f.run("base")["base"]; !fault.Is[*fault.NoCommitError](c.Err) {
			t.Errorf("got %+v", c)
		}
	})
	t.Run("no worktree here", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.req.Start.Worktree = ""
		f.run("base")
	})
}

// Warnings of a start belong to the reason of base; the fixture fails on a warning.
func TestBaseHasWarningsOfStart(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	wt, err := f.repo.Worktree("wt")
	if err != nil {
		t.Fatal(err)
	}
	f.git("-C", wt.TreePath, "checkout", "-q", "--detach")
	if c := f.run()["base"]; !strings.Contains(c.Reason, "does not have its branch checked out") {
		t.Errorf("got %+v", c)
	}
}

func TestWallsFail(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.req.Start.Primitives.Isolation = "vm"
	if c := f.run("walls")["walls"]; !fault.Is[*fault.UnsupportedError](c.Err) {
		t.Errorf("got %+v", c)
	}
	f.req.Start.Primitives.Isolation = settings.IsolationNone
	if c := f.run()["walls"]; !strings.Contains(c.Reason, "none are set up") {
		t.Errorf("got %+v", c)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.req.Start.Limits = confine.Limits{FileSize: 1 << 20}
	if c := f.run()["limits"]; c.Reason != "they can be enforced" {
		t.Errorf("got %+v", c)
	}
	limits := confine.Limits{Memory: 1 << 30}
	_, unenforceable := sandbox.EnforceableLimits(t.Context(), f.repo, limits)
	f.req.Start.Limits = limits
	if unenforceable == nil {
		f.run()
		return
	}
	if c := f.run("limits")["limits"]; !strings.Contains(c.Remedy, "--best-effort-limits") {
		t.Errorf("got %+v", c)
	}
	f.req.Start.Limits.BestEffort = true
	f.run()
}

func TestPaths(t *testing.T) {
	t.Parallel()
	needWalls(t)
	f := newFixture(t)
	f.configure("agency.sandbox.read", f.home+"/gone", "agency.sandbox.read", f.home+"/bin")
	if c := f.run()["paths"]; !strings.Contains(c.Reason, f.home+"/gone") {
		t.Errorf("a path that does not exist is not mentioned: %+v", c)
	}
	f.configure("agency.sandbox.write", f.home)
	if c := f.run("paths")["paths"]; !strings.Contains(c.Reason, settings.WriteKey) || c.Err == nil {
		t.Errorf("got %+v", c)
	}
	f.configure("agency.sandbox.write", "", "agency.copy", "/")
	if c := f.run("paths")["paths"]; !strings.Contains(c.Reason, "agency.copy") || c.Err == nil {
		t.Errorf("got %+v", c)
	}
}

func needWalls(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("skipped: walls need Linux")
	}
}

func TestRunner(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		argv    []string
		runner  string
		config  string // agency.mine.command
		fails   bool
		reason  string
		version bool
	}{
		"table":                {runner: "robot", reason: "/bin/robot"},
		"version":              {runner: "robot", version: true, reason: "version 1.2.3; tried with 1.2.0"},
		"table, no command":    {runner: "aider", fails: true, reason: "not known how to run aider"},
		"command":              {runner: "mine", config: "~/bin/robot -x", reason: "/bin/robot"},
		"command on PATH":      {runner: "mine", config: "KEY=1 robot", reason: "/bin/robot"},
		"command missing":      {runner: "mine", config: "nosuch -x", fails: true, reason: "nosuch is not on PATH"},
		"command unterminated": {runner: "mine", config: "'robot", fails: true, reason: "unterminated quote"},
		"command blank":        {runner: "mine", config: "  ", fails: true, reason: "empty"},
		"shell word":           {runner: "mine", config: "cd sub && robot", reason: "a line for the shell"},
		"expansion":            {runner: "mine", config: "$AGENT -x", reason: "a line for the shell"},
		"argv":                 {argv: []string{"robot", "-x"}, reason: "/bin/robot"},
		"argv missing":         {argv: []string{"nosuch"}, fails: true, reason: "nosuch is not on PATH"},
		"argv not executable":  {argv: []string{"HOME/data"}, fails: true, reason: "not executable"},
		"argv in the tree":     {argv: []string{"./agent.sh"}, fails: true, reason: "agent.sh is not in the commit"},
		"argv outside":         {argv: []string{"../agent.sh"}, reason: "in the sandbox"},
		"none":                 {reason: "none is named"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.writeFile("data", "", 0o644)
			if c.config != "" {
				f.configure("agency.mine.command", c.config)
			}
			for _, w := range c.argv {
				f.req.Argv = append(f.req.Argv, strings.ReplaceAll(w, "HOME", f.home))
			}
			f.req.Start.Runner, f.req.Version = c.runner, c.version
			failing := []string{}
			if c.fails {
				failing = append(failing, "runner")
			}
			if got := f.run(failing...)["runner"]; !strings.Contains(got.Reason, c.reason) {
				t.Errorf("got %+v, want %q", got, c.reason)
			}
		})
	}
}

func TestRunnerVersionFails(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.req.Version = true
	for script, reason := range map[string]string{
		"echo its library is missing >&2\nexit 1": "its library is missing",
		"exit 0":                     "prints nothing",
		"read -r line && echo $line": "exit code 1", // standard input is empty
	} {
		f.writeFile("bin/robot", "#!/bin/sh\n"+script+"\n", 0o755)
		if c := f.run("runner")["runner"]; !strings.Contains(c.Reason, reason) {
			t.Errorf("%s: got %+v", script, c)
		}
	}
}

func TestRunnerHiddenByWalls(t *testing.T) {
	t.Parallel()
	needWalls(t)
	f := newFixture(t)
	f.writeFile("private/robot", "#!/bin/sh\n", 0o755)
	f.req.Argv = []string{f.home + "/private/robot"}
	c := f.run("runner")["runner"]
	if want := "git config --global --add agency.sandbox.read " + f.home + "/private/robot"; !strings.Contains(c.Reason, "the walls hide") || c.Remedy != want {
		t.Errorf("got %+v, want %q", c, want)
	}
	f.configure("agency.sandbox.read", f.home+"/private/robot")
	f.run()
	f.configure("agency.sandbox.read", "")
	f.req.Start.Primitives.Isolation = settings.IsolationNone
	f.run()
}

func TestLogin(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.setenv("ROBOT_KEY=")
	c := f.run("login")["login"]
	if !strings.Contains(c.Remedy, "ROBOT_KEY") {
		t.Errorf("got %+v", c)
	}
	f.writeFile(".robot/login", "secret", 0o600)
	f.run()
	f.setenv("ROBOT_HOME=" + f.home + "/elsewhere")
	f.run("login")
	f.writeFile("elsewhere/login", "secret", 0o600)
	f.run()
	f.req.Argv = []string{"robot"}
	if c := f.run()["login"]; !strings.Contains(c.Reason, "not known") {
		t.Errorf("got %+v", c)
	}
}

func TestHosts(t *testing.T) {
	t.Parallel()
	needWalls(t)
	f := newFixture(t)
	for outputs, reason := range map[string]string{
		"open":                        "the outputs do not restrict them",
		"hosts:api.robot.example":     "api.robot.example can be reached",
		"hosts:*.robot.example:443":   "api.robot.example can be reached",
		"hosts:other.example":         "a run adds api.robot.example to the outputs",
		"hosts:api.robot.example:444": "a run adds api.robot.example to the outputs",
	} {
		f.req.Start.Primitives.Outputs = outputs
		if c := f.run()["hosts"]; c.Reason != reason {
			t.Errorf("%s: got %+v, want %q", outputs, c, reason)
		}
	}
	f.req.Start.Primitives.Outputs = "none"
	if c := f.run("hosts")["hosts"]; c.Remedy != "--outputs hosts:api.robot.example" {
		t.Errorf("got %+v", c)
	}
	f.req.Start.Primitives.Outputs, f.req.Argv = "none", []string{"robot"}
	f.run()
}

func TestOnlineConnects(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	f.spec.Hosts = func([]string) []string { return []string{address} }
	f.req.Online = true
	if c := f.run()["online"]; !strings.Contains(c.Reason, address) {
		t.Errorf("got %+v", c)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	// Not the port of the listener: it may have another one by now, or be the source port of the connection itself.
	f.spec.Hosts = func([]string) []string { return []string{"127.0.0.1:1"} }
	if c := f.run("online")["online"]; !strings.Contains(c.Reason, "127.0.0.1:1: ") {
		t.Errorf("got %+v", c)
	}
	f.req.Online = false
	f.run()
}

func TestPrompts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if c := f.run()["prompts"]; !strings.Contains(c.Reason, "switched off") {
		t.Errorf("got %+v", c)
	}
	f.req.Argv = []string{"robot"}
	if c := f.run()["prompts"]; !strings.Contains(c.Reason, "no terminal") {
		t.Errorf("got %+v", c)
	}
	f.req.Headless = false
	if c := f.run()["prompts"]; !strings.Contains(c.Reason, "a person") {
		t.Errorf("got %+v", c)
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "user.useConfigOnly", "true")
	f.run()
	var without []string
	for _, kv := range f.repo.Opts.Env {
		if !strings.HasPrefix(kv, "GIT_AUTHOR_") && !strings.HasPrefix(kv, "GIT_COMMITTER_") {
			without = append(without, kv)
		}
	}
	f.repo.Opts.Env = without
	if c := f.run("identity")["identity"]; !strings.Contains(c.Remedy, "git config --global user.name") {
		t.Errorf("got %+v", c)
	}
}

func TestDiskComparesFreeSpace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		free         freeSpace
		bytes, files uint64
		failed       bool
	}{
		{freeSpace{bytes: 256 << 20, inodes: 1000}, 0, 0, false},
		{freeSpace{bytes: 256<<20 - 1, inodes: 1000}, 0, 0, true},
		{freeSpace{bytes: 256 << 20, inodes: 999}, 0, 0, true},
		{freeSpace{bytes: 256 << 20, anyInodes: true}, 0, 0, false},
		{freeSpace{bytes: 2 << 30, inodes: 3000}, 1 << 30, 1000, false},
		{freeSpace{bytes: 2<<30 - 1, inodes: 3000}, 1 << 30, 1000, true},
		{freeSpace{bytes: 2 << 30, inodes: 2999}, 1 << 30, 1000, true},
		{freeSpace{notMeasured: true}, 1 << 30, 1000, false},
	} {
		if res := judgeSpace("/data", c.free, c.bytes, c.files); res.failed != c.failed || res.failed != (res.remedy != "") {
			t.Errorf("%+v: got %+v", c, res)
		}
	}
}

func TestCheckoutSizeIsThatOfTheIndex(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	wt, err := f.repo.Worktree("wt")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(wt.TreePath, "file"), make([]byte, 12345), 0o644); err != nil {
		t.Fatal(err)
	}
	f.git("-C", wt.TreePath, "add", "file")
	s, err := newSubject(f.repo, f.req, func(string) (runner.Spec, bool) { return f.spec, true })
	if err != nil {
		t.Fatal(err)
	}
	if bytes, files, err := s.checkoutSize(); bytes != 12345 || files != 1 || err != nil {
		t.Errorf("got %d bytes in %d files, %v", bytes, files, err)
	}
}

func TestOwnChecks(t *testing.T) {
	t.Parallel()
	f := newFixture(t,
		"agency.preflight.good", "test -d .git && ! read -r line",
		"agency.preflight.bad", "echo first; echo \"last\tline\"; echo; exit 7",
		"agency.preflight.silent", "exit 1",
		"agency.preflight.long", "head -c 100000 /dev/zero | tr '\\0' x; exit 1",
		"agency.preflight.blank", " ",
		"agency.preflight.removed", "exit 1", "agency.preflight.removed", "",
	)
	found := f.run("bad", "blank", "long", "silent")
	if c := found["bad"]; c.Reason != "exit code 7: last\tline" || c.Remedy != "git config --get agency.preflight.bad prints the command" {
		t.Errorf("got %+v", c)
	}
	if c := found["silent"]; c.Reason != "exit code 1" {
		t.Errorf("got %+v", c)
	}
	if c := found["long"]; len(c.Reason) > maxReason+20 {
		t.Errorf("got %d bytes", len(c.Reason))
	}
	if _, is := found["removed"]; is || !found["good"].OK {
		t.Errorf("got %+v", found)
	}
}

func TestOwnCheckTimesOut(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "agency.preflight.slow", "sleep 600", "agency.operationTimeout", "100ms")
	begin := time.Now()
	if c := f.run("slow")["slow"]; !strings.Contains(c.Reason, "100ms") {
		t.Errorf("got %+v", c)
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("took %s", took)
	}
}

// A check that the repository's own configuration sets could have been written by an agent.
func TestOwnChecksOfRepositoryAreIgnored(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.git("config", "agency.preflight.evil", "touch "+f.home+"/ran; exit 1")
	var warnings []string
	f.repo.Opts.Warn = func(message string) { warnings = append(warnings, message) }
	f.setenv()
	f.run()
	if _, err := os.Lstat(f.home + "/ran"); err == nil {
		t.Error("it was run")
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "ignoring agency.preflight.evil") {
		t.Errorf("got %q", warnings)
	}
}
