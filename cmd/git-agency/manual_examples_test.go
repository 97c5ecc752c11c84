package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/manual"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/sources"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// codeExamples returns the code blocks of a document.
func codeExamples(source string) []string {
	var found []string
	for _, b := range manual.Parse(source) {
		if b.Kind == manual.Code {
			found = append(found, b.Text)
		}
	}
	return found
}

// manualExample returns the only code block of the manual that contains a text. The README must have the same block.
func manualExample(t *testing.T, holds string) string {
	t.Helper()
	var found []string
	for _, source := range []string{manualSource, readmeText(t)} {
		for _, e := range codeExamples(source) {
			if strings.Contains(e, holds) {
				found = append(found, e)
			}
		}
	}
	if len(found) != 2 || found[0] != found[1] {
		t.Fatalf("manual and README do not have the same example with %q: %q", holds, found)
	}
	return found[0]
}

func TestManualAliasesWork(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must("sh", "-ec", manualExample(t, "alias.ag "))
	l.agency("worktree", "create", "payments")
	id := l.git("ags", "payments", "--name", "by-alias")
	if got := l.git("ag", "ls", "--porcelain"); !strings.HasPrefix(got, "invocation "+id+"\n") || !strings.Contains(got, "\nname by-alias\n") {
		t.Errorf("started %q, but ls printed\n%s", id, got)
	}
}

func TestManualHookBlocksSandboxPush(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	remote := filepath.Join(l.dir, "remote.git")
	l.git("init", "-q", "--bare", remote)
	l.git("remote", "add", "origin", remote)
	hook := filepath.Join(l.repo, ".git", "hooks", "pre-push")
	l.write(hook, manualExample(t, "local_ref"))
	if err := os.Chmod(hook, 0o755); err != nil {
		t.Fatal(err)
	}
	tree := l.agency("worktree", "create", "payments")
	id := l.agency("start", "payments")
	sandbox, branch := l.agency("path", id), "agency/sandbox-"+id
	l.write(filepath.Join(sandbox, "work"), "w\n")
	l.git("-C", sandbox, "add", "work")
	l.git("-C", sandbox, "commit", "-q", "-m", "work")

	l.git("push", "-q", "origin", "main")
	for _, push := range [][]string{
		{"push", "origin", branch},
		{"push", "origin", branch + ":refs/heads/feature"},
		{"push", "origin", branch + "^{commit}:refs/heads/" + branch},
		{"push", "--all", "origin"},
		{"push", "--mirror", "origin"},
		{"-C", sandbox, "push", "origin", "HEAD"},
		{"-C", sandbox, "push", "origin", "HEAD:refs/heads/feature"},
		{"push", "origin", branch + "^{commit}:refs/heads/feature"},
	} {
		if o := l.try(nil, append([]string{"git"}, push...)...); o.code == 0 || !strings.Contains(o.stderr, "merge it first") {
			t.Errorf("%q exited with %d: %s", push, o.code, o.stderr)
		}
	}
	if got := l.git("-C", remote, "for-each-ref", "--format=%(refname)"); got != "refs/heads/main" {
		t.Errorf("the refs of the remote are %q", got)
	}

	// Merged commits can be pushed, and a sandbox branch pushed with --no-verify can be deleted from the remote.
	l.git("-C", tree, "merge", "-q", branch)
	l.git("-C", tree, "push", "-q", "origin", "HEAD")
	l.git("-C", sandbox, "push", "-q", "origin", "HEAD:refs/heads/feature")
	l.git("push", "-q", "--no-verify", "origin", branch)
	l.git("push", "-q", "origin", ":"+branch)
	l.agency("discard", id)
	if o := l.try(nil, "git", "push", "origin", "refs/agency/trash/"+id); o.code == 0 {
		t.Error("a trash ref was pushed")
	}
}

func TestManualPutExampleParses(t *testing.T) {
	t.Parallel()
	for _, e := range codeExamples(manualSource) {
		if !strings.Contains(e, "content_base64") {
			continue
		}
		if files, err := sources.ParseJSON([]byte(e)); err != nil || len(files) != 3 || files[1].Mode != 0o755 {
			t.Errorf("%+v, %v", files, err)
		}
		return
	}
	t.Error("the manual has no example for put --json")
}

func TestManualScriptParsesPorcelain(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skipf("bash is not installed: %v", err)
	}
	l := newLabIn(t, mkdirAll(t, filepath.Join(t.TempDir(), "an odd\npath")))
	l.agency("worktree", "create", "payments")
	first := l.agency("start", "payments", "--name", "two words")
	second := l.agency("start", "payments")
	sandbox := l.agency("path", first)
	for _, file := range []string{"one", "two"} {
		l.write(filepath.Join(sandbox, file), file)
		l.git("-C", sandbox, "add", file)
		l.git("-C", sandbox, "commit", "-q", "-m", file)
	}
	got := strings.Split(l.must("bash", "-euc", manualExample(t, "--porcelain -z")), "\n")
	want := map[string]bool{first + "\t2\ttwo words": true, second + "\t0\t": true}
	for _, line := range got {
		if !want[line] {
			t.Errorf("unexpected line: %q", line)
		}
		delete(want, line)
	}
	for line := range want {
		t.Errorf("missing line: %q", line)
	}
}

func mkdirAll(t *testing.T, dir string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestManualSessionMatchesOutput(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]string{"manual": manualSource, "README": readmeText(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lines []string
			for _, e := range codeExamples(source) {
				if strings.HasPrefix(e, "$ ") {
					lines = append(lines, strings.Split(strings.TrimSuffix(e, "\n"), "\n")...)
				}
			}
			checkSession(t, lines)
		})
	}
}

// checkSession runs the lines that begin with "$ " as commands and compares the output of each with the lines below it, if
// there are any. Clock and randomness are set for each command so that it gets the id shown in the session; other
// commands, such as ls, run at a later fixed time.
func checkSession(t *testing.T, lines []string) {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skipf("bash is not installed: %v", err)
	}
	l := newLab(t)
	l.git("config", "agency.autoDetach", "false") // otherwise clean-up would continue in the background after the test
	project := filepath.Join(l.dir, "my-project")
	if err := os.Rename(l.repo, project); err != nil {
		t.Fatal(err)
	}
	l.repo = l.dir // the session begins here
	programs := filepath.Join(l.dir, "programs")
	for name, script := range map[string]string{"claude": scriptedClaude, "make": "#!/bin/sh\necho all tests pass\n"} {
		l.write(filepath.Join(programs, name), script)
		if err := os.Chmod(filepath.Join(programs, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	type step struct {
		command string
		shows   []string
	}
	var steps []step
	for _, line := range lines {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			steps = append(steps, step{command: command})
		} else if last := &steps[len(steps)-1]; line != "" {
			last.shows = append(last.shows, line)
		}
	}
	if len(steps) < 5 {
		t.Fatalf("only %d commands in %q", len(steps), lines)
	}
	idPattern := regexp.MustCompile(`\b20260128(..)(..)(..)-(..)(..)\b`)
	const end = "==== the end of a command"
	script := "set -e\nexport ANTHROPIC_API_KEY=of-the-test\nPATH=" + quote.Shell(programs) + ":$PATH\n"
	for i, s := range steps {
		clock, random := "12:09:00", ""
		id := idPattern.FindStringSubmatch(strings.Join(s.shows, "\n"))
		if isRun(s.command) { // a later command shows its id
			for _, later := range steps[i+1:] {
				if id == nil {
					id = idPattern.FindStringSubmatch(strings.Join(later.shows, "\n"))
				}
			}
		}
		if id != nil && !strings.Contains(s.command, "agency ls") {
			clock, random = id[1]+":"+id[2]+":"+id[3], `\x`+id[4]+`\x`+id[5]
		}
		script += "export TEST_NOW=2026-01-28T" + clock + "Z TEST_RAND=$'" + random + "'\n" + s.command + "\necho '" + end + "'\n"
	}
	o := l.try(nil, "bash", "-c", "exec 2>&1\n"+script)
	if o.code != 0 {
		t.Fatalf("the session exited with %d:\n%s", o.code, o.stdout)
	}
	outputs := strings.Split(o.stdout, end+"\n")
	for i, s := range steps {
		if len(s.shows) == 0 || isRun(s.command) { // elsewhere than on a terminal it prints the stream of the agent
			continue
		}
		var pattern []string
		for _, line := range s.shows {
			p := strings.ReplaceAll(line, "/home/me/.local/share/agency", l.data)
			p = regexp.MustCompile(` {2,}`).ReplaceAllString(regexp.QuoteMeta(p), " +")
			p = strings.NewReplacer("789abc0123", "[0-9a-f]{10}", "789abc", "[0-9a-f]+", `\.\.\.`, ".*", "…", ".*").Replace(p)
			if strings.TrimSpace(line) == "..." {
				p = "(?s:.*)" // omitted output
			}
			pattern = append(pattern, p)
		}
		if got := strings.TrimRight(outputs[i], "\n"); !regexp.MustCompile("^" + strings.Join(pattern, "\n") + "$").MatchString(got) {
			t.Errorf("%s\nprinted\n%s\nwant\n%s", s.command, got, strings.Join(s.shows, "\n"))
		}
	}
	if !exists(filepath.Join(project, ".git")) {
		t.Error("the project is gone")
	}
}

func isRun(command string) bool { return strings.Contains(command, "agency run --runner") }

func TestManualSetupOfOneRepositoryRuns(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	examples := slices.DeleteFunc(codeExamples(manualSource), func(e string) bool { return !strings.Contains(e, "includeIf") })
	if len(examples) != 1 {
		t.Fatalf("the manual has %d examples with includeIf", len(examples))
	}
	commands := strings.NewReplacer("gitdir:~/my-project", "gitdir:"+l.repo, "'npm ci'", "'echo prepared'").Replace(examples[0])
	l.must("sh", "-ec", commands)
	if got := l.agency("config", "--json"); !strings.Contains(got, "echo prepared") {
		t.Errorf("in the repository, the settings are\n%s", got)
	}
	other := filepath.Join(l.dir, "other")
	l.git("init", "-q", other)
	if got := l.must("git", "-C", other, "agency", "config", "--json"); strings.Contains(got, "echo prepared") {
		t.Errorf("in another repository, the settings are\n%s", got)
	}
}
