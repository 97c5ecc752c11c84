package setup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// newInstallRequest makes an empty home directory and a request to install below it.
func newInstallRequest(t *testing.T) (home string, req Request) {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return home, Request{
		Prefix: filepath.Join(home, "go"),
		Env:    []string{"HOME=" + home},
		Files: map[string][]byte{
			"manual": []byte(".TH GIT-AGENCY 1\n"), "bash": []byte("_git_agency() { :; }\n"),
			"zsh": []byte("#compdef git-agency\n"), "fish": []byte("complete -c git -a agency\n"),
		},
	}
}

func mustInstall(t *testing.T, req Request) Result {
	t.Helper()
	got, err := Install(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// listTree maps the paths below a directory to file contents, link targets or "directory".
func listTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			found[rel] = "directory"
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			found[rel] = "-> " + target
			return err
		default:
			data, err := os.ReadFile(path)
			found[rel] = string(data)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func checkSameTree(t *testing.T, before, after map[string]string) {
	t.Helper()
	for name, was := range before {
		if now, there := after[name]; !there {
			t.Errorf("%s is gone", name)
		} else if now != was {
			t.Errorf("%s changed from %q to %q", name, was, now)
		}
	}
	for name := range after {
		if _, was := before[name]; !was {
			t.Errorf("%s is new", name)
		}
	}
}

func actionsByKind(i Result) map[string]Action {
	found := map[string]Action{}
	for _, f := range i.Files {
		found[f.Kind] = f.Action
	}
	return found
}

func allActions(action Action) map[string]Action {
	return map[string]Action{"manual": action, "bash": action, "zsh": action, "fish": action}
}

func writeText(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestInstallPaths(t *testing.T) {
	t.Parallel()
	const manual, zsh = "share/man/man1/git-agency.1", "share/zsh/site-functions/_git-agency"
	const bash, fish = "share/bash-completion/completions/git-agency", "share/fish/vendor_conf.d/git-agency.fish"
	for _, tt := range []struct {
		name, prefix string
		env          []string
		staged       bool
		want         map[string]string
	}{
		{"system prefix", "/usr/local", []string{"HOME=/home/me"}, false, map[string]string{
			"manual": "/usr/local/" + manual, "bash": "/usr/local/" + bash, "zsh": "/usr/local/" + zsh, "fish": "/usr/local/" + fish,
		}},
		{"prefix in the home directory", "/home/me/go", []string{"HOME=/home/me"}, false, map[string]string{
			"manual": "/home/me/go/" + manual, "bash": "/home/me/.local/" + bash,
			"zsh": "/home/me/go/" + zsh, "fish": "/home/me/.config/fish/conf.d/git-agency.fish",
		}},
		{
			"XDG directories", "/home/me/go",
			[]string{"HOME=/home/me", "XDG_DATA_HOME=/d", "XDG_CONFIG_HOME=/c"},
			false,
			map[string]string{
				"manual": "/home/me/go/" + manual, "bash": "/d/bash-completion/completions/git-agency",
				"zsh": "/home/me/go/" + zsh, "fish": "/c/fish/conf.d/git-agency.fish",
			},
		},
		{
			"relative XDG directories are ignored", "/home/me/go",
			[]string{"HOME=/home/me", "XDG_DATA_HOME=d", "XDG_CONFIG_HOME=c"},
			false,
			map[string]string{"bash": "/home/me/.local/" + bash, "fish": "/home/me/.config/fish/conf.d/git-agency.fish"},
		},
		{"staged installs stay below the prefix", "/home/me/stage/usr", []string{"HOME=/home/me"}, true, map[string]string{
			"manual": "/home/me/stage/usr/" + manual, "bash": "/home/me/stage/usr/" + bash, "fish": "/home/me/stage/usr/" + fish,
		}},
		{"root as home directory", "/opt/x", []string{"HOME=/"}, false, map[string]string{"fish": "/opt/x/" + fish}},
		{"home directory as name prefix", "/home/meg/go", []string{"HOME=/home/me"}, false, map[string]string{"fish": "/home/meg/go/" + fish}},
		{"no HOME", "/opt/x", []string{"PATH=/bin"}, false, map[string]string{"bash": "/opt/x/" + bash}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, req := newInstallRequest(t)
			req.Prefix, req.Env, req.Staged, req.DryRun = tt.prefix, tt.env, tt.staged, true
			req.Undo = true // gives the same paths, and does not need them to be writable
			got := map[string]string{}
			for _, f := range mustInstall(t, req).Files {
				got[f.Kind] = f.Path
			}
			for kind, want := range tt.want {
				if got[kind] != want {
					t.Errorf("%s goes to %s, not to %s", kind, got[kind], want)
				}
			}
		})
	}
}

func TestInstallTwiceWritesNothing(t *testing.T) {
	t.Parallel()
	home, req := newInstallRequest(t)
	if got := actionsByKind(mustInstall(t, req)); !maps.Equal(got, allActions(FileWritten)) {
		t.Errorf("the first time: %v", got)
	}
	before := listTree(t, home)
	got := mustInstall(t, req)
	if !maps.Equal(actionsByKind(got), allActions(FileUnchanged)) || len(got.Directories) != 0 {
		t.Errorf("the second time: %+v", got)
	}
	checkSameTree(t, before, listTree(t, home))
	for kind, data := range req.Files {
		found := false
		for _, content := range before {
			found = found || strings.HasPrefix(content, string(data)) && strings.Count(content, "\n") == 2
		}
		if !found {
			t.Errorf("%s is missing or incomplete", kind)
		}
	}
}

func TestInstallUndoRestoresTree(t *testing.T) {
	t.Parallel()
	home, req := newInstallRequest(t)
	// Directories that existed before the installation stay, even empty ones.
	for _, dir := range []string{".local/share/bash-completion/completions", "go/share/man"} {
		if err := os.MkdirAll(filepath.Join(home, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	before := listTree(t, home)
	mustInstall(t, req)
	req.Undo = true
	got := mustInstall(t, req)
	if !maps.Equal(actionsByKind(got), allActions(FileRemoved)) {
		t.Errorf("%+v", got)
	}
	checkSameTree(t, before, listTree(t, home))
	if again := actionsByKind(mustInstall(t, req)); !maps.Equal(again, allActions(FileAbsent)) {
		t.Errorf("the second time: %v", again)
	}
	checkSameTree(t, before, listTree(t, home))
}

func TestInstallUndoAfterUpgrade(t *testing.T) {
	t.Parallel()
	home, req := newInstallRequest(t)
	mustInstall(t, req)
	req.Files["manual"], req.Files["fish"] = []byte(".TH NEW 1\n"), []byte("# without a newline at its end")
	got := actionsByKind(mustInstall(t, req))
	want := map[string]Action{"manual": FileReplaced, "bash": FileUnchanged, "zsh": FileUnchanged, "fish": FileReplaced}
	if !maps.Equal(got, want) {
		t.Errorf("the upgrade: %v", got)
	}
	if again := actionsByKind(mustInstall(t, req)); !maps.Equal(again, allActions(FileUnchanged)) {
		t.Errorf("after the upgrade: %v", again)
	}
	req.Undo, req.Files = true, nil // undo uses only the paths
	mustInstall(t, req)
	checkSameTree(t, nil, listTree(t, home))
}

func TestInstallUndoKeepsNonEmptyDirectories(t *testing.T) {
	t.Parallel()
	home, req := newInstallRequest(t)
	mustInstall(t, req)
	writeText(t, filepath.Join(home, "go/share/man/man1/other.1"), "theirs")
	elsewhere := filepath.Join(home, "elsewhere")
	if err := errors.Join(os.Rename(filepath.Join(home, "go/share/zsh"), elsewhere), os.Symlink(elsewhere, filepath.Join(home, "go/share/zsh"))); err != nil {
		t.Fatal(err)
	}
	req.Undo = true
	mustInstall(t, req)
	after := listTree(t, home)
	if after["go/share/man/man1/other.1"] != "theirs" {
		t.Error("a foreign page was removed")
	}
	if after["go/share/zsh"] != "-> "+elsewhere {
		t.Error("a foreign symlink was removed")
	}
	if after["go/share/zsh/site-functions"] != "" || after["elsewhere/site-functions"] != "" {
		t.Error("our directory behind the symlink was not removed")
	}
}

func TestInstallDryRunAgreesWithInstall(t *testing.T) {
	t.Parallel()
	home, req := newInstallRequest(t)
	writeText(t, filepath.Join(home, "go/share/man/man1/other.1"), "theirs")
	rehearse := func(what string) {
		t.Helper()
		before := listTree(t, home)
		req.DryRun = true
		said := mustInstall(t, req)
		checkSameTree(t, before, listTree(t, home))
		req.DryRun = false
		did := mustInstall(t, req)
		if !said.DryRun || did.DryRun {
			t.Errorf("%s: dry runs: %v, then %v", what, said.DryRun, did.DryRun)
		}
		if !slices.Equal(said.Files, did.Files) || !slices.Equal(said.Directories, did.Directories) {
			t.Errorf("%s: the dry run reports\n%+v\nand the real run\n%+v", what, said, did)
		}
		changed := map[string]bool{}
		for name := range before {
			changed[name] = true
		}
		for name := range listTree(t, home) {
			if changed[name] {
				delete(changed, name)
			} else {
				changed[name] = true
			}
		}
		for _, name := range slices.Concat(did.Directories, installedPaths(did)) {
			rel, _ := filepath.Rel(home, name)
			delete(changed, rel)
		}
		if len(changed) > 0 {
			t.Errorf("%s: not reported: %v", what, changed)
		}
	}
	rehearse("install")
	rehearse("install again")
	req.Files["zsh"] = []byte("#compdef git-agency\n# new\n")
	rehearse("upgrade")
	writeText(t, filepath.Join(home, "go/share/man/man1/.tmp-git-agency.1-123"), "half a page")
	req.Undo = true
	rehearse("undo")
	rehearse("undo again")
}

func installedPaths(i Result) []string {
	var found []string
	for _, f := range i.Files {
		found = append(found, f.Path)
	}
	return append(found, filepath.Join(i.Prefix, "share/man/man1/.tmp-git-agency.1-123"))
}

// foreignFiles create files that must be neither overwritten nor removed.
var foreignFiles = map[string]func(t *testing.T, path string){
	"a foreign file": func(t *testing.T, path string) { writeText(t, path, "# theirs\n") },
	"an empty file":  func(t *testing.T, path string) { writeText(t, path, "") },
	"a file of ours that was edited": func(t *testing.T, path string) {
		writeText(t, path, "# edited\n"+string(withFooter([]byte("# ours\n"), "#", 0, installationID("/x"))))
	},
	"a file with a wrong checksum": func(t *testing.T, path string) {
		writeText(t, path, strings.Replace(string(withFooter([]byte("# ours\n"), "#", 0, installationID("/x"))), "# ours", "# theirs", 1))
	},
	"a huge file": func(t *testing.T, path string) { writeText(t, path, strings.Repeat("#\n", maxInstalledSize)) },
	"a symlink to a file of ours": func(t *testing.T, path string) {
		writeText(t, path+".real", string(withFooter([]byte("# ours\n"), "#", 0, installationID("/x"))))
		if err := os.Symlink(path+".real", path); err != nil {
			t.Fatal(err)
		}
	},
	"a dangling symlink": func(t *testing.T, path string) {
		writeText(t, path+".other", "")
		if err := os.Symlink("nowhere", path); err != nil {
			t.Fatal(err)
		}
	},
	"a directory": func(t *testing.T, path string) {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	},
}

func TestInstallKeepsForeignFiles(t *testing.T) {
	t.Parallel()
	for name, lay := range foreignFiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home, req := newInstallRequest(t)
			path := filepath.Join(home, ".config/fish/conf.d/git-agency.fish")
			lay(t, path)
			before := listTree(t, home)
			_, err := Install(t.Context(), req)
			var foreign *ForeignFileError
			if !errors.As(err, &foreign) || foreign.Path != path {
				t.Errorf("install: %v", err)
			}
			checkSameTree(t, before, listTree(t, home))

			req.Undo = true
			got := mustInstall(t, req)
			if f := got.Files[len(got.Files)-1]; f.Path != path || f.Action != FileLeft || f.Why == "" {
				t.Errorf("undo: %+v", f)
			}
			checkSameTree(t, before, listTree(t, home))
		})
	}
}

func TestInstallReportsAllForeignFiles(t *testing.T) {
	t.Parallel()
	home, req := newInstallRequest(t)
	writeText(t, filepath.Join(home, ".config/fish/conf.d/git-agency.fish"), "theirs")
	writeText(t, filepath.Join(home, "go/share/man/man1/git-agency.1"), "theirs")
	_, err := Install(t.Context(), req)
	for _, want := range []string{"git-agency.fish", "git-agency.1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

func TestInstallRefusesFileInPlaceOfDirectory(t *testing.T) {
	t.Parallel()
	home, req := newInstallRequest(t)
	writeText(t, filepath.Join(home, ".config/fish"), "a file")
	before := listTree(t, home)
	for _, req.DryRun = range []bool{true, false} {
		if _, err := Install(t.Context(), req); err == nil || !strings.Contains(err.Error(), filepath.Join(home, ".config/fish")) {
			t.Errorf("got %v", err)
		}
		checkSameTree(t, before, listTree(t, home))
	}
	req.Undo = true
	if got := actionsByKind(mustInstall(t, req)); !maps.Equal(got, allActions(FileAbsent)) {
		t.Errorf("undo: %v", got)
	}
}

func TestInstallKeepsManuallyInstalledFile(t *testing.T) {
	t.Parallel()
	home, req := newInstallRequest(t)
	path := filepath.Join(home, "go/share/zsh/site-functions/_git-agency")
	writeText(t, path, string(req.Files["zsh"]))
	if got := actionsByKind(mustInstall(t, req)); got["zsh"] != FileUnchanged || got["bash"] != FileWritten {
		t.Errorf("got %v", got)
	}
	req.Undo = true
	if got := actionsByKind(mustInstall(t, req)); got["zsh"] != FileLeft || got["bash"] != FileRemoved {
		t.Errorf("got %v", got)
	}
	if data, err := os.ReadFile(path); err != nil || !bytes.Equal(data, req.Files["zsh"]) {
		t.Errorf("the file now holds %q (%v)", data, err)
	}
}

func TestInstallFailureRestoresFiles(t *testing.T) {
	t.Parallel()
	for _, upgrade := range []bool{false, true} {
		for _, kind := range []string{"manual", "bash", "zsh", "fish"} {
			for _, when := range []string{"before", "after"} {
				t.Run(fmt.Sprintf("%s %s, upgrade %v", when, kind, upgrade), func(t *testing.T) {
					t.Parallel()
					home, req := newInstallRequest(t)
					if upgrade {
						mustInstall(t, req)
						for kind := range req.Files {
							req.Files[kind] = []byte("# new\n")
						}
					}
					before := listTree(t, home)
					point, failure := "setup/"+kind+":"+when, errors.New("on purpose")
					req.Fault = func(_ context.Context, at string) error {
						if at == point {
							return failure
						}
						return nil
					}
					if _, err := Install(t.Context(), req); !errors.Is(err, failure) {
						t.Errorf("got %v", err)
					}
					checkSameTree(t, before, listTree(t, home))
				})
			}
		}
	}
}

func TestInstallRollbackKeepsForeignChanges(t *testing.T) {
	t.Parallel()
	home, req := newInstallRequest(t)
	page := filepath.Join(home, "go/share/man/man1/git-agency.1")
	req.Fault = func(_ context.Context, at string) error {
		if at == "setup/bash:before" {
			writeText(t, page, "theirs")
			return errors.New("on purpose")
		}
		return nil
	}
	if _, err := Install(t.Context(), req); err == nil {
		t.Error("Install did not fail")
	}
	checkSameTree(t, map[string]string{
		"go": "directory", "go/share": "directory", "go/share/man": "directory", "go/share/man/man1": "directory",
		"go/share/man/man1/git-agency.1": "theirs",
	}, listTree(t, home))
}

func TestInstallKeepsFileCreatedMeanwhile(t *testing.T) {
	t.Parallel()
	home, req := newInstallRequest(t)
	script := filepath.Join(home, "go/share/zsh/site-functions/_git-agency")
	req.Fault = func(_ context.Context, at string) error {
		if at == "setup/zsh:before" {
			writeText(t, script, "theirs")
		}
		return nil
	}
	var foreign *ForeignFileError
	if _, err := Install(t.Context(), req); !errors.As(err, &foreign) || foreign.Path != script {
		t.Errorf("got %v", err)
	}
	if data, err := os.ReadFile(script); err != nil || string(data) != "theirs" {
		t.Errorf("the file holds %q (%v)", data, err)
	}
}

func TestConcurrentInstalls(t *testing.T) {
	t.Parallel()
	home, req := newInstallRequest(t)
	other := req
	req.Fault = func(_ context.Context, at string) error {
		if at == "setup/zsh:before" {
			mustInstall(t, other)
		}
		return nil
	}
	mustInstall(t, req)
	if got := actionsByKind(mustInstall(t, other)); !maps.Equal(got, allActions(FileUnchanged)) {
		t.Errorf("got %v", got)
	}
	other.Undo = true
	mustInstall(t, other)
	checkSameTree(t, map[string]string{}, listTree(t, home))
}

func TestInstallUndoContinuesAfterError(t *testing.T) {
	t.Parallel()
	home, req := newInstallRequest(t)
	mustInstall(t, req)
	failure := errors.New("on purpose")
	req.Undo = true
	req.Fault = func(_ context.Context, at string) error {
		if at == "setup/bash:before" {
			return failure
		}
		return nil
	}
	got, err := Install(t.Context(), req)
	if !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	want := allActions(FileRemoved)
	want["bash"] = FileLeft
	if !maps.Equal(actionsByKind(got), want) {
		t.Errorf("got %+v", got)
	}
	req.Fault = nil
	mustInstall(t, req)
	checkSameTree(t, nil, listTree(t, home))
}

func TestInstallRefusesInvalidRequest(t *testing.T) {
	t.Parallel()
	_, req := newInstallRequest(t)
	for _, prefix := range []string{"", "relative", "~/x"} {
		req.Prefix = prefix
		if _, err := Install(t.Context(), req); err == nil || !strings.Contains(err.Error(), "absolute path") {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
	_, req = newInstallRequest(t)
	req.Files["tcsh"] = nil
	if _, err := Install(t.Context(), req); err == nil || !strings.Contains(err.Error(), "tcsh") {
		t.Errorf("tcsh: %v", err)
	}
}

func FuzzParseFooter(f *testing.F) {
	f.Add([]byte("# a script\n"), 3, 4, byte('x'))
	f.Add([]byte(""), 0, 0, byte(0))
	f.Add([]byte("\n\n"), 99, 1, byte('\n'))
	f.Fuzz(func(t *testing.T, data []byte, made, at int, change byte) {
		if made < 0 || made > 99 {
			return
		}
		if len(data) > 0 && !bytes.HasSuffix(data, []byte("\n")) {
			data = append(bytes.Clone(data), '\n')
		}
		for _, comment := range []string{"#", `.\"`} {
			raw := withFooter(data, comment, made, installationID("/x"))
			got := parseFooter(raw, comment)
			if !bytes.Equal(got.data, data) || got.madeDirs != made || got.owner != installationID("/x") || got.foreignReason != "" {
				t.Fatalf("parseFooter(%q) = %+v", raw, got)
			}
			if at < 0 || at >= len(data) || data[at] == change {
				continue
			}
			raw[at] = change
			if parseFooter(raw, comment).foreignReason == "" {
				t.Fatalf("parseFooter accepts %q", raw)
			}
		}
		parseFooter(data, "#")
	})
}
