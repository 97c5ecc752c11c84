package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite what the scripts expect to what they got")

// TestScripts runs testdata/script/<verb>_<scenario>.txtar, the specification of the program, and without -short those in
// the subdirectory long: they take seconds each, for rare situations.
func TestScripts(t *testing.T) {
	t.Parallel()
	files := listScripts(t, "*.txtar")
	if !testing.Short() {
		files = append(files, listScripts(t, "long", "*.txtar")...)
	}
	for _, file := range files { // each in a directory of its own; see scripts/tmpdir.sh
		runScript(t, file)
	}
}

// runScript runs one script as a parallel subtest.
func runScript(t *testing.T, file string) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Files:               []string{file},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Setup: func(env *testscript.Env) error {
			env.Vars = append(env.Vars, isolatedEnv(env.WorkDir)...)
			if err := makeGitTemplate(env.WorkDir); err != nil {
				return err
			}
			if err := makeEngines(env); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(env.WorkDir, "home", ".gitconfig"), []byte(withoutDetach), 0o644)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"rc":       cmdRC,
			"repo":     cmdRepo,
			"result":   cmdResult,
			"rootfs":   cmdRootfs,
			"world":    cmdWorld,
			"waitfile": cmdWaitfile,
		},
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Geteuid() == 0, nil
			}
			if cond == "memory-cgroup" { // the memory controller of cgroup v2 is available
				return slices.ContainsFunc([]string{"", "unified"}, func(mount string) bool {
					data, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", mount, "cgroup.controllers"))
					return err == nil && slices.Contains(strings.Fields(string(data)), "memory")
				}), nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
	})
}

// listScripts lists the scripts that match a pattern below testdata/script.
func listScripts(t *testing.T, pattern ...string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(append([]string{"..", "..", "testdata", "script"}, pattern...)...))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts match %q: %v", pattern, err)
	}
	return files
}

// withoutDetach is the git configuration of tests: otherwise the removal of ended sandboxes would continue in the background
// after a test. Each git commit would start a gc, which never has anything to do.
const withoutDetach = "[agency]\n\tautoDetach = false\n[maintenance]\n\tauto = false\n"

// isolatedEnv returns variables that keep the git configuration of the machine and user out of the tests.
func isolatedEnv(dir string) []string {
	return []string{
		"HOME=" + filepath.Join(dir, "home"),
		"XDG_DATA_HOME=",
		"AGENCY_DATA_DIR=" + filepath.Join(dir, "data"),
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=" + filepath.Join(dir, "home", ".gitconfig"),
		"GIT_CEILING_DIRECTORIES=" + dir,
		"GIT_TEMPLATE_DIR=" + gitTemplate(dir),
		"GIT_AUTHOR_NAME=A U Thor", "GIT_AUTHOR_EMAIL=author@example.com", "GIT_AUTHOR_DATE=2026-01-28T12:00:00Z",
		"GIT_COMMITTER_NAME=C O Mitter", "GIT_COMMITTER_EMAIL=committer@example.com", "GIT_COMMITTER_DATE=2026-01-28T12:00:00Z",
		"GIT_PAGER=cat", "GIT_EDITOR=false", "GIT_TERMINAL_PROMPT=0", "NO_COLOR=1", "TZ=UTC", "LC_ALL=C",
	}
}

// gitTemplate returns the directory that git copies into new repositories of a test in dir; see makeGitTemplate.
func gitTemplate(dir string) string { return filepath.Join(dir, "home", ".git-template") }

// makeGitTemplate makes a template without the sample hooks of git's own: to copy them takes almost half of the time of git
// init.
func makeGitTemplate(dir string) error {
	for _, name := range []string{"hooks", "info"} {
		if err := os.MkdirAll(filepath.Join(gitTemplate(dir), name), 0o755); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(gitTemplate(dir), "info", "exclude"), nil, 0o644)
}

// cmdRC implements rc <code> <command> [args…]: it runs a command that must exit with exactly that code.
func cmdRC(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: rc <code> <command> [args…]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("%s exited with %d, not %d", strings.Join(args[1:], " "), got, want)
	}
}

// cmdRepo implements repo <dir>: it creates a repository with a few executable files and one commit on main.
func cmdRepo(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: repo <dir>")
	}
	dir := ts.MkAbs(args[0])
	for name, content := range map[string]string{"readme": "hello\n", "sub/one": "1\n", "sub/two": "2\n", "run.sh": "#!/bin/sh\n"} {
		ts.Check(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		ts.Check(os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755))
	}
	for _, argv := range [][]string{
		{"init", "-q", "-b", "main", dir},
		{"-C", dir, "add", "."},
		{"-C", dir, "commit", "-q", "-m", "first"},
	} {
		ts.Check(ts.Exec("git", argv...))
	}
}

// cmdResult implements result <variable>: it stores the output of the last command in a variable.
func cmdResult(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: result <variable>")
	}
	ts.Setenv(args[0], strings.TrimSuffix(ts.ReadFile("stdout"), "\n"))
}

// cmdWorld implements world <file>: it writes the dump of all files below $WORK to a file. Two of these are equal only
// if no file changed in between.
func cmdWorld(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: world <file>")
	}
	text, err := dumpFiles(ts.Getenv("WORK"))
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

// cmdWaitfile implements waitfile <file>: it waits until a file exists.
func cmdWaitfile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitfile <file>")
	}
	if !waitForFile(ts.MkAbs(args[0])) {
		ts.Fatalf("%s did not appear", args[0])
	}
}

// dumpFiles lists every file below dir with its mode and the hash of its content or the target of the link. It leaves
// out directories, the files of the repository lock, files named world-* and modification times.
func dumpFiles(dir string) (string, error) {
	var lines []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, walkErr error) error {
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if errors.Is(walkErr, fs.ErrPermission) && d.IsDir() {
			lines = append(lines, fmt.Sprintf("%q unreadable\n", rel))
			return nil
		}
		if walkErr != nil {
			return walkErr
		}
		if d.IsDir() || isLockFile(rel) || strings.HasPrefix(filepath.Base(rel), "world-") {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			if content, err = os.Readlink(path); err != nil {
				return err
			}
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = fmt.Sprintf("%x", sha256.Sum256(data))
		}
		lines = append(lines, fmt.Sprintf("%q %s %s\n", rel, info.Mode(), content))
		return nil
	})
	sort.Strings(lines)
	return strings.Join(lines, ""), err
}

func isLockFile(rel string) bool {
	dir, base := filepath.Split(rel)
	return filepath.Base(filepath.Clean(dir)) == "agency" && (base == "lock" || strings.HasPrefix(base, "lock."))
}
