package gitagency

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

// anInstallation is a home directory with nothing in it, and a request to install below it.
func anInstallation(t *testing.T) (home string, req InstallRequest) {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return home, InstallRequest{
		Prefix: filepath.Join(home, "go"),
		Env:    []string{"HOME=" + home},
		Files: map[string][]byte{
			"manual": []byte(".TH GIT-AGENCY 1\n"), "bash": []byte("_git_agency() { :; }\n"),
			"zsh": []byte("#compdef git-agency\n"), "fish": []byte("complete -c git -a agency\n"),
		},
	}
}

func mustInstall(t *testing.T, req InstallRequest) InstallResult {
	t.Helper()
	got, err := Install(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// tree lists everything below a directory, directories too, with what it holds.
func tree(t *testing.T, dir string) map[string]string {
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

func compareTrees(t *testing.T, before, after map[string]string) {
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

func actions(i InstallResult) map[string]InstallAction {
	found := map[string]InstallAction{}
	for _, f := range i.Files {
		found[f.Kind] = f.Action
	}
	return found
}

func allOf(action InstallAction) map[string]InstallAction {
	return map[string]InstallAction{"manual": action, "bash": action, "zsh": action, "fish": action}
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFilesGoWhereTheProgramsThatWantThemLook(t *testing.T) {
	t.Parallel()
	const manual, zsh = "share/man/man1/git-agency.1", "share/zsh/site-functions/_git-agency"
	const bash, fish = "share/bash-completion/completions/git-agency", "share/fish/vendor_conf.d/git-agency.fish"
	for _, tt := range []struct {
		name, prefix string
		env          []string
		staged       bool
		want         map[string]string
	}{
		{"for everybody, all is below the prefix", "/usr/local", []string{"HOME=/home/me"}, false, map[string]string{
			"manual": "/usr/local/" + manual, "bash": "/usr/local/" + bash, "zsh": "/usr/local/" + zsh, "fish": "/usr/local/" + fish,
		}},
		{"in a home directory, bash and fish look elsewhere", "/home/me/go", []string{"HOME=/home/me"}, false, map[string]string{
			"manual": "/home/me/go/" + manual, "bash": "/home/me/.local/" + bash,
			"zsh": "/home/me/go/" + zsh, "fish": "/home/me/.config/fish/conf.d/git-agency.fish",
		}},
		{
			"and where the user says they look", "/home/me/go",
			[]string{"HOME=/home/me", "XDG_DATA_HOME=/d", "XDG_CONFIG_HOME=/c"},
			false,
			map[string]string{
				"manual": "/home/me/go/" + manual, "bash": "/d/bash-completion/completions/git-agency",
				"zsh": "/home/me/go/" + zsh, "fish": "/c/fish/conf.d/git-agency.fish",
			},
		},
		{
			"a relative XDG directory does not count", "/home/me/go",
			[]string{"HOME=/home/me", "XDG_DATA_HOME=d", "XDG_CONFIG_HOME=c"},
			false,
			map[string]string{"bash": "/home/me/.local/" + bash, "fish": "/home/me/.config/fish/conf.d/git-agency.fish"},
		},
		{"what is staged never leaves the prefix", "/home/me/stage/usr", []string{"HOME=/home/me"}, true, map[string]string{
			"manual": "/home/me/stage/usr/" + manual, "bash": "/home/me/stage/usr/" + bash, "fish": "/home/me/stage/usr/" + fish,
		}},
		{"a home that is the root is nobody's", "/opt/x", []string{"HOME=/"}, false, map[string]string{"fish": "/opt/x/" + fish}},
		{"a neighbour's home is not mine", "/home/meg/go", []string{"HOME=/home/me"}, false, map[string]string{"fish": "/home/meg/go/" + fish}},
		{"no home at all", "/opt/x", []string{"PATH=/bin"}, false, map[string]string{"bash": "/opt/x/" + bash}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, req := anInstallation(t)
			req.Prefix, req.Env, req.Staged, req.DryRun = tt.prefix, tt.env, tt.staged, true
			req.Undo = true // asks for the same places, and needs nothing to be writable
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

func TestInstallingTwiceWritesNothingTheSecondTime(t *testing.T) {
	t.Parallel()
	home, req := anInstallation(t)
	if got := actions(mustInstall(t, req)); !maps.Equal(got, allOf(FileWritten)) {
		t.Errorf("the first time: %v", got)
	}
	before := tree(t, home)
	got := mustInstall(t, req)
	if !maps.Equal(actions(got), allOf(FileUnchanged)) || len(got.Directories) != 0 {
		t.Errorf("the second time: %+v", got)
	}
	compareTrees(t, before, tree(t, home))
	for kind, data := range req.Files {
		found := false
		for _, content := range before {
			found = found || strings.HasPrefix(content, string(data)) && strings.Count(content, "\n") == 2
		}
		if !found {
			t.Errorf("%s is nowhere, or not whole", kind)
		}
	}
}

func TestUndoingLeavesNoTrace(t *testing.T) {
	t.Parallel()
	home, req := anInstallation(t)
	// Of the directories on the way, some were there before, and also empty ones stay.
	for _, dir := range []string{".local/share/bash-completion/completions", "go/share/man"} {
		if err := os.MkdirAll(filepath.Join(home, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	before := tree(t, home)
	mustInstall(t, req)
	req.Undo = true
	got := mustInstall(t, req)
	if !maps.Equal(actions(got), allOf(FileRemoved)) {
		t.Errorf("%+v", got)
	}
	compareTrees(t, before, tree(t, home))
	if again := actions(mustInstall(t, req)); !maps.Equal(again, allOf(FileAbsent)) {
		t.Errorf("the second time: %v", again)
	}
	compareTrees(t, before, tree(t, home))
}

func TestUndoingAfterAnUpgradeStillKnowsWhatWasMade(t *testing.T) {
	t.Parallel()
	home, req := anInstallation(t)
	mustInstall(t, req)
	req.Files["manual"], req.Files["fish"] = []byte(".TH NEW 1\n"), []byte("# without a newline at its end")
	got := actions(mustInstall(t, req))
	want := map[string]InstallAction{"manual": FileReplaced, "bash": FileUnchanged, "zsh": FileUnchanged, "fish": FileReplaced}
	if !maps.Equal(got, want) {
		t.Errorf("the upgrade: %v", got)
	}
	if again := actions(mustInstall(t, req)); !maps.Equal(again, allOf(FileUnchanged)) {
		t.Errorf("after the upgrade: %v", again)
	}
	req.Undo, req.Files = true, nil // an undo needs to know no file, only places
	mustInstall(t, req)
	compareTrees(t, nil, tree(t, home))
}

func TestUndoingRemovesOnlyDirectoriesThatAreEmpty(t *testing.T) {
	t.Parallel()
	home, req := anInstallation(t)
	mustInstall(t, req)
	put(t, filepath.Join(home, "go/share/man/man1/other.1"), "theirs")
	elsewhere := filepath.Join(home, "elsewhere")
	if err := errors.Join(os.Rename(filepath.Join(home, "go/share/zsh"), elsewhere), os.Symlink(elsewhere, filepath.Join(home, "go/share/zsh"))); err != nil {
		t.Fatal(err)
	}
	req.Undo = true
	mustInstall(t, req)
	after := tree(t, home)
	if after["go/share/man/man1/other.1"] != "theirs" {
		t.Error("somebody else's page is gone")
	}
	if after["go/share/zsh"] != "-> "+elsewhere {
		t.Error("somebody else's link is gone")
	}
	if after["go/share/zsh/site-functions"] != "" || after["elsewhere/site-functions"] != "" {
		t.Error("our directory behind the link stayed")
	}
}

func TestADryRunSaysExactlyWhatHappensThen(t *testing.T) {
	t.Parallel()
	home, req := anInstallation(t)
	put(t, filepath.Join(home, "go/share/man/man1/other.1"), "theirs")
	rehearse := func(what string) {
		t.Helper()
		before := tree(t, home)
		req.DryRun = true
		said := mustInstall(t, req)
		compareTrees(t, before, tree(t, home))
		req.DryRun = false
		did := mustInstall(t, req)
		if !said.DryRun || did.DryRun {
			t.Errorf("%s: dry runs: %v, then %v", what, said.DryRun, did.DryRun)
		}
		if !slices.Equal(said.Files, did.Files) || !slices.Equal(said.Directories, did.Directories) {
			t.Errorf("%s: said\n%+v\ndid\n%+v", what, said, did)
		}
		changed := map[string]bool{}
		for name := range before {
			changed[name] = true
		}
		for name := range tree(t, home) {
			if changed[name] {
				delete(changed, name)
			} else {
				changed[name] = true
			}
		}
		for _, name := range slices.Concat(did.Directories, paths(did)) {
			rel, _ := filepath.Rel(home, name)
			delete(changed, rel)
		}
		if len(changed) > 0 {
			t.Errorf("%s: did not say %v", what, changed)
		}
	}
	rehearse("install")
	rehearse("install again")
	req.Files["zsh"] = []byte("#compdef git-agency\n# new\n")
	rehearse("upgrade")
	put(t, filepath.Join(home, "go/share/man/man1/.tmp-git-agency.1-123"), "half a page")
	req.Undo = true
	rehearse("undo")
	rehearse("undo again")
}

func paths(i InstallResult) []string {
	var found []string
	for _, f := range i.Files {
		found = append(found, f.Path)
	}
	return append(found, filepath.Join(i.Prefix, "share/man/man1/.tmp-git-agency.1-123"))
}

// inTheWay are the things that are not ours to overwrite or remove.
var inTheWay = map[string]func(t *testing.T, path string){
	"a file of somebody else's": func(t *testing.T, path string) { put(t, path, "# theirs\n") },
	"an empty file":             func(t *testing.T, path string) { put(t, path, "") },
	"a file of ours that was edited": func(t *testing.T, path string) {
		put(t, path, "# edited\n"+string(withFooter([]byte("# ours\n"), "#", 0, installationID("/x"))))
	},
	"a file that only claims to be ours": func(t *testing.T, path string) {
		put(t, path, strings.Replace(string(withFooter([]byte("# ours\n"), "#", 0, installationID("/x"))), "# ours", "# theirs", 1))
	},
	"a huge file": func(t *testing.T, path string) { put(t, path, strings.Repeat("#\n", maxInstalledSize)) },
	"a link to a file of ours": func(t *testing.T, path string) {
		put(t, path+".real", string(withFooter([]byte("# ours\n"), "#", 0, installationID("/x"))))
		if err := os.Symlink(path+".real", path); err != nil {
			t.Fatal(err)
		}
	},
	"a link to nowhere": func(t *testing.T, path string) {
		put(t, path+".other", "")
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

func TestWhatIsNotOursIsNeitherOverwrittenNorRemoved(t *testing.T) {
	t.Parallel()
	for name, lay := range inTheWay {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home, req := anInstallation(t)
			path := filepath.Join(home, ".config/fish/conf.d/git-agency.fish")
			lay(t, path)
			before := tree(t, home)
			_, err := Install(t.Context(), req)
			var foreign *ForeignFileError
			if !errors.As(err, &foreign) || foreign.Path != path {
				t.Errorf("installing ended with %v", err)
			}
			compareTrees(t, before, tree(t, home))

			req.Undo = true
			got := mustInstall(t, req)
			if f := got.Files[len(got.Files)-1]; f.Path != path || f.Action != FileLeft || f.Why == "" {
				t.Errorf("undoing did %+v", f)
			}
			compareTrees(t, before, tree(t, home))
		})
	}
}

func TestEverythingThatIsInTheWayIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	home, req := anInstallation(t)
	put(t, filepath.Join(home, ".config/fish/conf.d/git-agency.fish"), "theirs")
	put(t, filepath.Join(home, "go/share/man/man1/git-agency.1"), "theirs")
	_, err := Install(t.Context(), req)
	for _, want := range []string{"git-agency.fish", "git-agency.1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

func TestAFileInTheWayOfADirectoryStopsItBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	home, req := anInstallation(t)
	put(t, filepath.Join(home, ".config/fish"), "a file")
	before := tree(t, home)
	for _, req.DryRun = range []bool{true, false} {
		if _, err := Install(t.Context(), req); err == nil || !strings.Contains(err.Error(), filepath.Join(home, ".config/fish")) {
			t.Errorf("got %v", err)
		}
		compareTrees(t, before, tree(t, home))
	}
	req.Undo = true
	if got := actions(mustInstall(t, req)); !maps.Equal(got, allOf(FileAbsent)) {
		t.Errorf("undo: %v", got)
	}
}

func TestWhatWasPutThereByHandIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	home, req := anInstallation(t)
	path := filepath.Join(home, "go/share/zsh/site-functions/_git-agency")
	put(t, path, string(req.Files["zsh"]))
	if got := actions(mustInstall(t, req)); got["zsh"] != FileUnchanged || got["bash"] != FileWritten {
		t.Errorf("got %v", got)
	}
	req.Undo = true
	if got := actions(mustInstall(t, req)); got["zsh"] != FileLeft || got["bash"] != FileRemoved {
		t.Errorf("got %v", got)
	}
	if data, err := os.ReadFile(path); err != nil || !bytes.Equal(data, req.Files["zsh"]) {
		t.Errorf("it holds %q now (%v)", data, err)
	}
}

func TestAFailureAtAnyStepTakesBackWhatWasWritten(t *testing.T) {
	t.Parallel()
	for _, upgrade := range []bool{false, true} {
		for _, kind := range []string{"manual", "bash", "zsh", "fish"} {
			for _, when := range []string{"before", "after"} {
				t.Run(fmt.Sprintf("%s %s, upgrade %v", when, kind, upgrade), func(t *testing.T) {
					t.Parallel()
					home, req := anInstallation(t)
					if upgrade {
						mustInstall(t, req)
						for kind := range req.Files {
							req.Files[kind] = []byte("# new\n")
						}
					}
					before := tree(t, home)
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
					compareTrees(t, before, tree(t, home))
				})
			}
		}
	}
}

func TestTakingBackLeavesWhatSomebodyElseWroteMeanwhile(t *testing.T) {
	t.Parallel()
	home, req := anInstallation(t)
	page := filepath.Join(home, "go/share/man/man1/git-agency.1")
	req.Fault = func(_ context.Context, at string) error {
		if at == "setup/bash:before" {
			put(t, page, "theirs")
			return errors.New("on purpose")
		}
		return nil
	}
	if _, err := Install(t.Context(), req); err == nil {
		t.Error("it did not fail")
	}
	compareTrees(t, map[string]string{
		"go": "directory", "go/share": "directory", "go/share/man": "directory", "go/share/man/man1": "directory",
		"go/share/man/man1/git-agency.1": "theirs",
	}, tree(t, home))
}

func TestAFileThatAppearsMeanwhileIsNotOverwritten(t *testing.T) {
	t.Parallel()
	home, req := anInstallation(t)
	script := filepath.Join(home, "go/share/zsh/site-functions/_git-agency")
	req.Fault = func(_ context.Context, at string) error {
		if at == "setup/zsh:before" {
			put(t, script, "theirs")
		}
		return nil
	}
	var foreign *ForeignFileError
	if _, err := Install(t.Context(), req); !errors.As(err, &foreign) || foreign.Path != script {
		t.Errorf("got %v", err)
	}
	if data, err := os.ReadFile(script); err != nil || string(data) != "theirs" {
		t.Errorf("it holds %q (%v)", data, err)
	}
}

func TestTwoThatInstallTheSameAtOnceDoNotTakeBackWhatTheOtherNeeds(t *testing.T) {
	t.Parallel()
	home, req := anInstallation(t)
	other := req
	req.Fault = func(_ context.Context, at string) error {
		if at == "setup/zsh:before" {
			mustInstall(t, other)
		}
		return nil
	}
	mustInstall(t, req)
	if got := actions(mustInstall(t, other)); !maps.Equal(got, allOf(FileUnchanged)) {
		t.Errorf("got %v", got)
	}
	other.Undo = true
	mustInstall(t, other)
	compareTrees(t, map[string]string{}, tree(t, home))
}

func TestUndoingGoesOnWhereAFileCannotBeRemoved(t *testing.T) {
	t.Parallel()
	home, req := anInstallation(t)
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
	want := allOf(FileRemoved)
	want["bash"] = FileLeft
	if !maps.Equal(actions(got), want) {
		t.Errorf("got %+v", got)
	}
	req.Fault = nil
	mustInstall(t, req)
	compareTrees(t, nil, tree(t, home))
}

func TestARequestThatCannotBeMeantIsRefused(t *testing.T) {
	t.Parallel()
	_, req := anInstallation(t)
	for _, prefix := range []string{"", "relative", "~/x"} {
		req.Prefix = prefix
		if _, err := Install(t.Context(), req); !is[*InvalidError](err) {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
	_, req = anInstallation(t)
	req.Files["tcsh"] = nil
	if _, err := Install(t.Context(), req); !is[*InvalidError](err) {
		t.Errorf("tcsh: %v", err)
	}
}

func FuzzAMarkIsBelievedOnlyOnWhatItWasMadeFor(f *testing.F) {
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
				t.Fatalf("%q came back as %+v", raw, got)
			}
			if at < 0 || at >= len(data) || data[at] == change {
				continue
			}
			raw[at] = change
			if parseFooter(raw, comment).foreignReason == "" {
				t.Fatalf("%q is believed", raw)
			}
		}
		parseFooter(data, "#")
	})
}
