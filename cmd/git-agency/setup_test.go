package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/complete"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/setup"
)

// setupUser is a test repository of a user whose home directory holds nothing but the program.
type setupUser struct {
	*lab
	home string
}

// newSetupUser creates a user with the program in the directory bin of the home directory.
func newSetupUser(t *testing.T, bin string) setupUser {
	t.Helper()
	l := newLab(t)
	home := filepath.Join(l.dir, "home")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l.bin = mkdirAll(t, filepath.Join(home, bin))
	if err := os.Symlink(exe, filepath.Join(l.bin, "git-agency")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"MANPATH", "XDG_DATA_DIRS", "XDG_CONFIG_HOME"} {
		l.env = append(l.env, name+"=")
	}
	l.env = append(l.env, "PATH="+l.bin+string(os.PathListSeparator)+os.Getenv("PATH"), "MANPAGER=cat")
	return setupUser{l, home}
}

func TestSetupInstallsManualAndUndoRemovesIt(t *testing.T) {
	t.Parallel()
	for _, bin := range []string{".local/bin", "go/bin"} {
		t.Run(bin, func(t *testing.T) {
			t.Parallel()
			requireProgram(t, "man")
			u := newSetupUser(t, bin)
			before := u.listHome()
			if o := u.try(nil, "man", "-w", "git-agency"); o.code == 0 {
				t.Skipf("a manual page is installed on this machine: %s", o.line())
			}
			u.git("agency", "setup")
			want := filepath.Join(filepath.Dir(u.bin), "share", "man", "man1", "git-agency.1")
			if got := u.must("man", "-w", "git-agency"); got != want {
				t.Errorf("man finds %q, not %q", got, want)
			}
			for _, argv := range [][]string{{"git", "agency", "--help"}, {"git", "help", "agency"}} {
				if got := u.must(argv...); !strings.Contains(got, "GIT-AGENCY(1)") || !strings.Contains(got, "EXIT STATUS") {
					t.Errorf("%q shows\n%.300s", argv, got)
				}
			}
			u.git("agency", "setup", "--undo")
			if d := dumpDiff(before, u.listHome()); d != "" {
				t.Errorf("files differ after setup --undo:\n%s", d)
			}
		})
	}
}

// listHome lists all files and directories of the home directory.
func (u setupUser) listHome() string {
	u.t.Helper()
	return u.must("sh", "-c", `cd "$1" && find . | sort`, "sh", u.home)
}

// placeholderCompletions are completion scripts that define functions, which show whether a shell has loaded them.
var placeholderCompletions = map[string][]byte{
	"bash": []byte("_git_agency() { echo placeholder for bash; }\n"),
	"zsh":  []byte("#compdef git-agency\n_git-agency() { echo placeholder for zsh; }\n"),
	"fish": []byte("function __git_agency_placeholder\n    echo placeholder for fish\nend\n"),
}

// installPlaceholders installs the placeholders below a prefix and returns the startup hints by program.
func (u setupUser) installPlaceholders(prefix string, staged bool) map[string]setup.StartupHint {
	u.t.Helper()
	installed, err := setup.Install(u.t.Context(), setup.Request{Prefix: prefix, Files: placeholderCompletions, Staged: staged, Env: u.env})
	if err != nil {
		u.t.Fatal(err)
	}
	hints := map[string]setup.StartupHint{}
	for _, h := range setup.StartupHints(installed, u.getenv) {
		hints[h.Program] = h
	}
	return hints
}

// getenv returns the value of a variable in the environment of the user; the last setting counts.
func (u setupUser) getenv(name string) string {
	value := ""
	for _, kv := range u.env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	return value
}

// installPrefixes are the usual prefixes: the default, that of 'go install', and a system-wide one.
var installPrefixes = map[string]func(setupUser) (prefix string, staged bool){
	"~/.local":         func(u setupUser) (string, bool) { return filepath.Join(u.home, ".local"), false },
	"~/.local, staged": func(u setupUser) (string, bool) { return filepath.Join(u.home, ".local"), true },
	"~/go":             func(u setupUser) (string, bool) { return filepath.Join(u.home, "go"), false },
	"system-wide":      func(u setupUser) (string, bool) { return filepath.Join(u.dir, "usr"), true },
}

func TestBashLoadsInstalledCompletion(t *testing.T) {
	t.Parallel()
	loader, gits := bashCompletionLibrary(t), gitBashCompletion(t)
	for name, place := range installPrefixes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newSetupUser(t, "bin")
			prefix, staged := place(u)
			u.env = append(u.env, "XDG_DATA_DIRS="+filepath.Join(u.dir, "usr", "share")+":/usr/local/share:/usr/share")
			if hint, ok := u.installPlaceholders(prefix, staged)["bash"]; ok {
				t.Errorf("unexpected startup hint: %+v", hint)
			}
			script := `. "$1" && . "$2" && __git_complete_command agency`
			if got := u.must("bash", "--noprofile", "--norc", "-c", script, "bash", loader, gits); got != "placeholder for bash" {
				t.Errorf("the completion of git printed %q", got)
			}
		})
	}
}

func TestSetupHintLoadsBashCompletion(t *testing.T) {
	t.Parallel()
	requireProgram(t, "bash")
	for name, data := range map[string]string{"directory not searched": "/usr/share", "no bash-completion": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newSetupUser(t, "bin")
			prefix := filepath.Join(u.dir, "odd $(prefix) `it` \"is\"")
			if data == "" {
				data = filepath.Join(prefix, "share")
			}
			u.env = append(u.env, "XDG_DATA_DIRS="+data)
			hint, ok := u.installPlaceholders(prefix, true)["bash"]
			if !ok {
				t.Fatal("no startup hint")
			}
			if got := u.must("bash", "--noprofile", "--norc", "-ec", hint.Line+"\n_git_agency"); got != "placeholder for bash" {
				t.Errorf("%s loads %q", hint.Line, got)
			}
		})
	}
}

func TestSetupHintLoadsZshCompletion(t *testing.T) {
	t.Parallel()
	requireProgram(t, "zsh")
	for name, place := range installPrefixes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newSetupUser(t, "bin")
			hint, ok := u.installPlaceholders(place(u))["zsh"]
			if !ok {
				t.Fatal("no startup hint, although zsh searches no directory below a home")
			}
			script := hint.Line + "\nautoload -U compinit && compinit -D -u && print -r -- ${_comps[git-agency]} && autoload -U _git-agency && _git-agency"
			if got := u.must("zsh", "-f", "-c", script); !strings.HasPrefix(got, "_git-agency") {
				t.Errorf("with %s, zsh completes git-agency with %q", hint.Line, got)
			}
		})
	}
}

func TestSetupHasNoZshHintForUsrLocal(t *testing.T) {
	t.Parallel()
	requireProgram(t, "zsh")
	u := newSetupUser(t, "bin")
	const dir = "/usr/local/share/zsh/site-functions"
	if got := strings.Split(u.must("zsh", "-f", "-c", "print -l $fpath"), "\n"); !slices.Contains(got, dir) {
		t.Skipf("the fpath of this zsh is %q", got)
	}
	installed := setup.Result{Prefix: "/usr/local", Files: []setup.InstalledFile{{Kind: "zsh", Path: dir + "/_git-agency"}}}
	for _, h := range setup.StartupHints(installed, u.getenv) {
		if h.Program == "zsh" {
			t.Errorf("unexpected startup hint: %+v", h)
		}
	}
}

func TestFishLoadsInstalledCompletion(t *testing.T) {
	t.Parallel()
	requireProgram(t, "fish")
	for name, place := range installPrefixes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newSetupUser(t, "bin")
			prefix, staged := place(u)
			u.env = append(u.env, "XDG_DATA_DIRS="+filepath.Join(u.dir, "usr", "share")+":/usr/local/share:/usr/share")
			if hint, ok := u.installPlaceholders(prefix, staged)["fish"]; ok {
				t.Errorf("unexpected startup hint: %+v", hint)
			}
			if got := u.must("fish", "-c", "__git_agency_placeholder"); got != "placeholder for fish" {
				t.Errorf("the placeholder printed %q", got)
			}
		})
	}
}

func TestSetupHintLoadsFishCompletion(t *testing.T) {
	t.Parallel()
	requireProgram(t, "fish")
	u := newSetupUser(t, "bin")
	hint, ok := u.installPlaceholders(filepath.Join(u.dir, `odd $prefix "is"`), true)["fish"]
	if !ok {
		t.Fatal("no startup hint")
	}
	if got := u.must("fish", "-c", hint.Line+"\n__git_agency_placeholder"); got != "placeholder for fish" {
		t.Errorf("%s loads %q", hint.Line, got)
	}
}

// TestSetupHintMakesManFindManual checks that the lines which setup prints for startup files make man find the page, and
// that it prints none where man finds the page already.
func TestSetupHintMakesManFindManual(t *testing.T) {
	t.Parallel()
	requireProgram(t, "man")
	for _, tt := range []struct {
		name    string
		env     func(u setupUser) []string
		prefix  string // relative to the test directory; "" is the prefix of the program
		missing []string
	}{
		{"prefix of a directory in PATH", func(setupUser) []string { return nil }, "", nil},
		{"program not in PATH", func(setupUser) []string { return []string{"PATH=" + os.Getenv("PATH")} }, "", []string{"git"}},
		{"MANPATH without the page", func(setupUser) []string { return []string{"MANPATH=/usr/share/man"} }, "", []string{"man"}},
		{"MANPATH with an empty entry", func(setupUser) []string { return []string{"MANPATH=/usr/share/man:"} }, "", nil},
		{"MANPATH with the page", func(u setupUser) []string {
			return []string{"MANPATH=" + filepath.Join(u.home, "go/share/man")}
		}, "", nil},
		{"neither PATH nor MANPATH", func(setupUser) []string {
			return []string{"PATH=" + os.Getenv("PATH"), "MANPATH=/usr/share/man"}
		}, "", []string{"git", "man"}},
		{"another prefix", func(setupUser) []string { return nil }, "elsewhere", []string{"man"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u := newSetupUser(t, "go/bin")
			u.env = append(u.env, tt.env(u)...)
			prefix := filepath.Join(u.home, "go")
			if tt.prefix != "" {
				prefix = filepath.Join(u.dir, tt.prefix)
			}
			req := setup.Request{Prefix: prefix, Staged: true, Files: map[string][]byte{"manual": manualPage}, Env: u.env}
			installed, err := setup.Install(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			var missing []string
			script := ""
			for _, h := range setup.StartupHints(installed, u.getenv) {
				missing, script = append(missing, h.Program), script+h.Line+"\n"
			}
			if !slices.Equal(missing, tt.missing) {
				t.Errorf("hints for %q, want %q", missing, tt.missing)
			}
			found := u.try(nil, "man", "-w", "git-agency")
			if (found.code == 0) != (len(tt.missing) == 0) {
				t.Errorf("man exited with %d, but the hints are for %q", found.code, missing)
			}
			if got, want := u.must("sh", "-ec", script+"man -w git-agency"), installed.Files[0].Path; got != want {
				t.Errorf("with the hints, man finds %q, want %q", got, want)
			}
		})
	}
}

func TestMakeInstallAndUninstall(t *testing.T) {
	t.Parallel()
	requireProgram(t, "make")
	requireProgram(t, "install")
	for name, place := range map[string]func(u setupUser) (args []string, root string){
		"for one user": func(u setupUser) ([]string, string) {
			return []string{"PREFIX=" + filepath.Join(u.home, "opt")}, filepath.Join(u.home, "opt")
		},
		"for a package, staged in the home": func(u setupUser) ([]string, string) {
			return []string{"PREFIX=/usr", "DESTDIR=" + filepath.Join(u.home, "stage")}, filepath.Join(u.home, "stage", "usr")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newSetupUser(t, "bin")
			args, root := place(u)
			// -o build keeps make from building: the program is this test binary.
			args = append([]string{"make", "-s", "-C", repositoryTop(t), "-o", "build", "PROGRAM=" + filepath.Join(u.bin, "git-agency")}, args...)
			mkdirAll(t, filepath.Join(root, "bin"))
			before := u.listHome()
			for range 2 { // a second install must succeed too
				u.must(append(args, "install")...)
			}
			for _, file := range []string{"bin/git-agency", "share/man/man1/git-agency.1"} {
				if !exists(filepath.Join(root, file)) {
					t.Errorf("%s is not installed", file)
				}
			}
			if strings.Contains(name, "package") {
				for _, dir := range []string{".local", ".config"} {
					if exists(filepath.Join(u.home, dir)) {
						t.Errorf("an install with DESTDIR wrote to %s", dir)
					}
				}
			}
			for range 2 {
				u.must(append(args, "uninstall")...)
			}
			if d := dumpDiff(before, u.listHome()); d != "" {
				t.Errorf("files differ after make uninstall:\n%s", d)
			}
		})
	}
}

func repositoryTop(t *testing.T) string {
	t.Helper()
	top, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return top
}

func TestBashCompletesAfterSetup(t *testing.T) {
	t.Parallel()
	for _, bin := range []string{".local/bin", "go/bin"} {
		t.Run(bin, func(t *testing.T) {
			t.Parallel()
			gitBashCompletion(t)
			u := newSetupUser(t, bin)
			u.git("agency", "setup")
			got := u.bashReplies([]string{"source " + bashCompletionLibrary(t)}, "git agency work")
			if len(got) != 1 || strings.TrimSpace(got[0]) != "worktree" {
				t.Errorf("bash offers the completions %q", got)
			}
		})
	}
}

// TestSetupInstallsAllCompletions checks that setup installs the embedded completion of every shell and removes it again.
func TestSetupInstallsAllCompletions(t *testing.T) {
	t.Parallel()
	u := newSetupUser(t, ".local/bin")
	before := u.listHome()
	u.git("agency", "setup")
	installed := map[string]string{
		"bash": ".local/share/bash-completion/completions/git-agency",
		"zsh":  ".local/share/zsh/site-functions/_git-agency",
		"fish": ".config/fish/conf.d/git-agency.fish",
	}
	if !slices.Equal(slices.Sorted(maps.Keys(installed)), slices.Sorted(slices.Values(complete.Shells))) {
		t.Errorf("the program has completions for %q", complete.Shells)
	}
	for shell, file := range installed {
		script, _ := complete.Script(shell)
		if got := u.read(filepath.Join(u.home, file)); !strings.HasPrefix(got, string(script)) || got == "" {
			t.Errorf("%s contains %.100q", file, got)
		}
	}
	u.git("agency", "setup", "--undo")
	if d := dumpDiff(before, u.listHome()); d != "" {
		t.Errorf("files differ after setup --undo:\n%s", d)
	}
}
