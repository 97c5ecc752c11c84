package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency"
)

// examples lists the code blocks of a document.
func examples(source string) []string {
	var found []string
	for _, b := range parseManual(source) {
		if b.kind == codeBlock {
			found = append(found, b.text)
		}
	}
	return found
}

// recipe is the one example of the manual that holds a text. The README has the very same.
func recipe(t *testing.T, holds string) string {
	t.Helper()
	var found []string
	for _, source := range []string{manualSource, readmeText(t)} {
		for _, e := range examples(source) {
			if strings.Contains(e, holds) {
				found = append(found, e)
			}
		}
	}
	if len(found) != 2 || found[0] != found[1] {
		t.Fatalf("manual and README do not have the same recipe with %q: %q", holds, found)
	}
	return found[0]
}

func TestTheAliasesOfTheManualWork(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must("sh", "-ec", recipe(t, "alias.ag "))
	l.agency("worktree", "create", "payments")
	id := l.git("ags", "payments", "--name", "by-alias")
	if got := l.git("ag", "ls", "--porcelain"); !strings.HasPrefix(got, "invocation "+id+"\n") || !strings.Contains(got, "\nname by-alias\n") {
		t.Errorf("started %q, and listed\n%s", id, got)
	}
}

func TestTheHookOfTheManualKeepsSandboxesFromBeingPushed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	remote := filepath.Join(l.dir, "remote.git")
	l.git("init", "-q", "--bare", remote)
	l.git("remote", "add", "origin", remote)
	hook := filepath.Join(l.repo, ".git", "hooks", "pre-push")
	l.write(hook, recipe(t, "local_ref"))
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
			t.Errorf("%q ended with %d: %s", push, o.code, o.stderr)
		}
	}
	if got := l.git("-C", remote, "for-each-ref", "--format=%(refname)"); got != "refs/heads/main" {
		t.Errorf("the remote has %q", got)
	}

	// Merged work leaves, and what was pushed all the same can be taken back.
	l.git("-C", tree, "merge", "-q", branch)
	l.git("-C", tree, "push", "-q", "origin", "HEAD")
	l.git("-C", sandbox, "push", "-q", "origin", "HEAD:refs/heads/feature")
	l.git("push", "-q", "--no-verify", "origin", branch)
	l.git("push", "-q", "origin", ":"+branch)
	l.agency("discard", id)
	if o := l.try(nil, "git", "push", "origin", "refs/agency/trash/"+id); o.code == 0 {
		t.Error("discarded work was pushed")
	}
}

func TestThePutOfTheManualCanBeRead(t *testing.T) {
	t.Parallel()
	for _, e := range examples(manualSource) {
		if !strings.Contains(e, "content_base64") {
			continue
		}
		if files, err := parseJSONFiles([]byte(e)); err != nil || len(files) != 3 || files[1].Mode != 0o755 {
			t.Errorf("%+v, %v", files, err)
		}
		return
	}
	t.Error("there is no example of what put reads")
}

func TestTheScriptOfTheManualReadsWhatLsPrints(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skipf("there is no bash: %v", err)
	}
	l := newLabIn(t, mkdir(t, filepath.Join(t.TempDir(), "an odd\npath")))
	l.agency("worktree", "create", "payments")
	first := l.agency("start", "payments", "--name", "two words")
	second := l.agency("start", "payments")
	sandbox := l.agency("path", first)
	for _, file := range []string{"one", "two"} {
		l.write(filepath.Join(sandbox, file), file)
		l.git("-C", sandbox, "add", file)
		l.git("-C", sandbox, "commit", "-q", "-m", file)
	}
	got := strings.Split(l.must("bash", "-euc", recipe(t, "--porcelain -z")), "\n")
	want := map[string]bool{first + "\t2\ttwo words": true, second + "\t0\t": true}
	for _, line := range got {
		if !want[line] {
			t.Errorf("unexpected: %q", line)
		}
		delete(want, line)
	}
	for line := range want {
		t.Errorf("missing: %q", line)
	}
}

func mkdir(t *testing.T, dir string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestTheFirstSessionIsWhatHappens(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]string{"of the manual": manualSource, "of the README": readmeText(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lines []string
			for _, e := range examples(source) {
				if strings.HasPrefix(e, "$ ") {
					lines = append(lines, strings.Split(strings.TrimSuffix(e, "\n"), "\n")...)
				}
			}
			runSession(t, lines)
		})
	}
}

// runSession types what stands behind "$ " and compares what comes with the lines below, where there are
// any. The ids are those of the session, because the clock and the dice are;
// who lists them does so a little later.
func runSession(t *testing.T, lines []string) {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skipf("there is no bash: %v", err)
	}
	l := newLab(t)
	l.git("config", "agency.autoDetach", "false") // else somebody goes on tidying up when the test is over
	project := filepath.Join(l.dir, "my-project")
	if err := os.Rename(l.repo, project); err != nil {
		t.Fatal(err)
	}
	l.repo = l.dir // where the session begins
	programs := filepath.Join(l.dir, "programs")
	for name, does := range map[string]string{
		"claude": "echo work >refunds && git add refunds && git commit -q -m refunds",
		"make":   "echo all tests pass",
	} {
		l.write(filepath.Join(programs, name), "#!/bin/sh\n"+does+"\n")
		if err := os.Chmod(filepath.Join(programs, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l.write(filepath.Join(project, "TASK.md"), "Add refunds.\n")

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
		t.Fatalf("there are only %d commands in %q", len(steps), lines)
	}
	made := regexp.MustCompile(`\b20260128(..)(..)(..)-(..)(..)\b`)
	const end = "==== the end of a command"
	script := "set -e\nPATH=" + gitagency.ShellQuote(programs) + ":$PATH\n"
	for _, s := range steps {
		moment, dice := "12:09:00", ""
		id := made.FindStringSubmatch(strings.Join(s.shows, "\n"))
		if id != nil && !strings.Contains(s.command, "agency ls") {
			moment, dice = id[1]+":"+id[2]+":"+id[3], `\x`+id[4]+`\x`+id[5]
		}
		script += "export TEST_NOW=2026-01-28T" + moment + "Z TEST_RAND=$'" + dice + "'\n" + s.command + "\necho '" + end + "'\n"
	}
	o := l.try(nil, "bash", "-c", "exec 2>&1\n"+script)
	if o.code != 0 {
		t.Fatalf("it ended with %d:\n%s", o.code, o.stdout)
	}
	outputs := strings.Split(o.stdout, end+"\n")
	for i, s := range steps {
		if len(s.shows) == 0 {
			continue
		}
		var pattern []string
		for _, line := range s.shows {
			p := strings.ReplaceAll(line, "/home/me/.local/share/agency", l.data)
			p = regexp.MustCompile(` {2,}`).ReplaceAllString(regexp.QuoteMeta(p), " +")
			p = strings.NewReplacer("789abc0123", "[0-9a-f]{10}", "789abc", "[0-9a-f]+", `\.\.\.`, ".*", "…", ".*").Replace(p)
			if strings.TrimSpace(line) == "..." {
				p = "(?s:.*)" // what is left out
			}
			pattern = append(pattern, p)
		}
		if got := strings.TrimRight(outputs[i], "\n"); !regexp.MustCompile("^" + strings.Join(pattern, "\n") + "$").MatchString(got) {
			t.Errorf("%s\nshows\n%s\nnot\n%s", s.command, got, strings.Join(s.shows, "\n"))
		}
	}
	if !exists(filepath.Join(project, ".git")) {
		t.Error("the project is gone")
	}
}
