package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency"
)

// newcomer is somebody with an empty home directory, who has put the program into a directory of it.
type newcomer struct {
	*lab
	home string
}

func newNewcomer(t *testing.T, bin string) newcomer {
	t.Helper()
	l := newLab(t)
	home := filepath.Join(l.dir, "home")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l.bin = mkdir(t, filepath.Join(home, bin))
	if err := os.Symlink(exe, filepath.Join(l.bin, "git-agency")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"MANPATH", "XDG_DATA_DIRS", "XDG_CONFIG_HOME"} {
		l.env = append(l.env, name+"=")
	}
	l.env = append(l.env, "PATH="+l.bin+string(os.PathListSeparator)+os.Getenv("PATH"), "MANPAGER=cat")
	return newcomer{l, home}
}

func TestANewUserInstallsReadsTheManualAndLeavesNoTrace(t *testing.T) {
	t.Parallel()
	for _, bin := range []string{".local/bin", "go/bin"} {
		t.Run(bin, func(t *testing.T) {
			t.Parallel()
			needs(t, "man")
			u := newNewcomer(t, bin)
			before := u.everything()
			if o := u.try(nil, "man", "-w", "git-agency"); o.code == 0 {
				t.Skipf("there is a manual on this machine already: %s", o.line())
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
			if d := diff(before, u.everything()); d != "" {
				t.Errorf("this is left:\n%s", d)
			}
		})
	}
}

// everything lists what is in the home directory, empty directories too.
func (u newcomer) everything() string {
	u.t.Helper()
	return u.must("sh", "-c", `cd "$1" && find . | sort`, "sh", u.home)
}

// placeholders stand for the completions, in a form that shows whether a shell has loaded them.
var placeholders = map[string][]byte{
	"bash": []byte("_git_agency() { echo placeholder for bash; }\n"),
	"zsh":  []byte("#compdef git-agency\n_git-agency() { echo placeholder for zsh; }\n"),
	"fish": []byte("function __git_agency_placeholder\n    echo placeholder for fish\nend\n"),
}

// installPlaceholders installs below a prefix, and returns what is left to do.
func (u newcomer) installPlaceholders(prefix string, staged bool) map[string]startupHint {
	u.t.Helper()
	installed, err := gitagency.Install(u.t.Context(), gitagency.InstallRequest{Prefix: prefix, Files: placeholders, Staged: staged, Env: u.env})
	if err != nil {
		u.t.Fatal(err)
	}
	hints := map[string]startupHint{}
	for _, h := range startupHints(installed, u.getenv) {
		hints[h.Program] = h
	}
	return hints
}

func (u newcomer) getenv(name string) string {
	value := ""
	for _, kv := range u.env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	return value
}

// The prefixes that people install into: the usual one, that of 'go install', and one for everybody.
var prefixes = map[string]func(newcomer) (prefix string, staged bool){
	"~/.local":         func(u newcomer) (string, bool) { return filepath.Join(u.home, ".local"), false },
	"~/.local, staged": func(u newcomer) (string, bool) { return filepath.Join(u.home, ".local"), true },
	"~/go":             func(u newcomer) (string, bool) { return filepath.Join(u.home, "go"), false },
	"for everybody":    func(u newcomer) (string, bool) { return filepath.Join(u.dir, "usr"), true },
}

func TestBashLoadsTheCompletionWhenItMeetsTheCommand(t *testing.T) {
	t.Parallel()
	loader, gits := bashCompletion(t), gitsCompletion(t)
	for name, place := range prefixes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newNewcomer(t, "bin")
			prefix, staged := place(u)
			u.env = append(u.env, "XDG_DATA_DIRS="+filepath.Join(u.dir, "usr", "share")+":/usr/local/share:/usr/share")
			if hint, ok := u.installPlaceholders(prefix, staged)["bash"]; ok {
				t.Errorf("there is something left to do: %+v", hint)
			}
			script := `. "$1" && . "$2" && __git_complete_command agency`
			if got := u.must("bash", "--noprofile", "--norc", "-c", script, "bash", loader, gits); got != "placeholder for bash" {
				t.Errorf("git's completion called %q", got)
			}
		})
	}
}

func TestBashIsToldWhereItDoesNotLook(t *testing.T) {
	t.Parallel()
	needs(t, "bash")
	for name, data := range map[string]string{"the directory is not searched": "/usr/share", "there is no bash-completion": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newNewcomer(t, "bin")
			prefix := filepath.Join(u.dir, "odd $(prefix) `it` \"is\"")
			if data == "" {
				data = filepath.Join(prefix, "share")
			}
			u.env = append(u.env, "XDG_DATA_DIRS="+data)
			hint, ok := u.installPlaceholders(prefix, true)["bash"]
			if !ok {
				t.Fatal("there is nothing left to do")
			}
			if got := u.must("bash", "--noprofile", "--norc", "-ec", hint.Line+"\n_git_agency"); got != "placeholder for bash" {
				t.Errorf("%s loads %q", hint.Line, got)
			}
		})
	}
}

func TestZshFindsTheCompletionOnceItIsToldWhere(t *testing.T) {
	t.Parallel()
	needs(t, "zsh")
	for name, place := range prefixes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newNewcomer(t, "bin")
			hint, ok := u.installPlaceholders(place(u))["zsh"]
			if !ok {
				t.Fatal("there is nothing left to do, and zsh looks nowhere in a home")
			}
			script := hint.Line + "\nautoload -U compinit && compinit -D -u && print -r -- ${_comps[git-agency]} && autoload -U _git-agency && _git-agency"
			if got := u.must("zsh", "-f", "-c", script); !strings.HasPrefix(got, "_git-agency") {
				t.Errorf("with %s, zsh completes git-agency by %q", hint.Line, got)
			}
		})
	}
}

func TestZshLooksBelowUsrLocalByItself(t *testing.T) {
	t.Parallel()
	needs(t, "zsh")
	u := newNewcomer(t, "bin")
	const dir = "/usr/local/share/zsh/site-functions"
	if got := strings.Split(u.must("zsh", "-f", "-c", "print -l $fpath"), "\n"); !slices.Contains(got, dir) {
		t.Skipf("this zsh looks elsewhere: %q", got)
	}
	installed := gitagency.InstallResult{Prefix: "/usr/local", Files: []gitagency.InstalledFile{{Kind: "zsh", Path: dir + "/_git-agency"}}}
	for _, h := range startupHints(installed, u.getenv) {
		if h.Program == "zsh" {
			t.Errorf("there is something left to do: %+v", h)
		}
	}
}

func TestFishReadsTheCompletionWhenItStarts(t *testing.T) {
	t.Parallel()
	needs(t, "fish")
	for name, place := range prefixes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newNewcomer(t, "bin")
			prefix, staged := place(u)
			u.env = append(u.env, "XDG_DATA_DIRS="+filepath.Join(u.dir, "usr", "share")+":/usr/local/share:/usr/share")
			if hint, ok := u.installPlaceholders(prefix, staged)["fish"]; ok {
				t.Errorf("there is something left to do: %+v", hint)
			}
			if got := u.must("fish", "-c", "__git_agency_placeholder"); got != "placeholder for fish" {
				t.Errorf("fish has loaded %q", got)
			}
		})
	}
}

func TestFishIsToldWhereItDoesNotLook(t *testing.T) {
	t.Parallel()
	needs(t, "fish")
	u := newNewcomer(t, "bin")
	hint, ok := u.installPlaceholders(filepath.Join(u.dir, `odd $prefix "is"`), true)["fish"]
	if !ok {
		t.Fatal("there is nothing left to do")
	}
	if got := u.must("fish", "-c", hint.Line+"\n__git_agency_placeholder"); got != "placeholder for fish" {
		t.Errorf("%s loads %q", hint.Line, got)
	}
}

// Each line that setup tells people to put into a file must make man find the page.
func TestManFindsTheManualOnceItIsToldWhere(t *testing.T) {
	t.Parallel()
	needs(t, "man")
	for _, tt := range []struct {
		name    string
		env     func(u newcomer) []string
		prefix  string // "" is beside the program
		missing []string
	}{
		{"beside a directory of PATH it looks by itself", func(newcomer) []string { return nil }, "", nil},
		{"the program is not in PATH", func(newcomer) []string { return []string{"PATH=" + os.Getenv("PATH")} }, "", []string{"git"}},
		{"MANPATH hides it", func(newcomer) []string { return []string{"MANPATH=/usr/share/man"} }, "", []string{"man"}},
		{"MANPATH with an empty entry does not", func(newcomer) []string { return []string{"MANPATH=/usr/share/man:"} }, "", nil},
		{"MANPATH that names it does not", func(u newcomer) []string {
			return []string{"MANPATH=" + filepath.Join(u.home, "go/share/man")}
		}, "", nil},
		{"both at once", func(newcomer) []string {
			return []string{"PATH=" + os.Getenv("PATH"), "MANPATH=/usr/share/man"}
		}, "", []string{"git", "man"}},
		{"another prefix", func(newcomer) []string { return nil }, "elsewhere", []string{"man"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u := newNewcomer(t, "go/bin")
			u.env = append(u.env, tt.env(u)...)
			prefix := filepath.Join(u.home, "go")
			if tt.prefix != "" {
				prefix = filepath.Join(u.dir, tt.prefix)
			}
			req := gitagency.InstallRequest{Prefix: prefix, Staged: true, Files: map[string][]byte{"manual": manualPage}, Env: u.env}
			installed, err := gitagency.Install(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			var missing []string
			script := ""
			for _, h := range startupHints(installed, u.getenv) {
				missing, script = append(missing, h.Program), script+h.Line+"\n"
			}
			if !slices.Equal(missing, tt.missing) {
				t.Errorf("there is %q left to do, not %q", missing, tt.missing)
			}
			found := u.try(nil, "man", "-w", "git-agency")
			if (found.code == 0) != (len(tt.missing) == 0) {
				t.Errorf("man ends with %d, and there is %q left to do", found.code, missing)
			}
			if got, want := u.must("sh", "-ec", script+"man -w git-agency"), installed.Files[0].Path; got != want {
				t.Errorf("once that is done, man finds %q, not %q", got, want)
			}
		})
	}
}

func TestWhatIsBesideTheProgramIsFoundByTheNameItWasCalledBy(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	bin, link, other := mkdir(t, filepath.Join(dir, "real", "bin")), mkdir(t, filepath.Join(dir, "link", "bin")), mkdir(t, filepath.Join(dir, "other", "bin"))
	for _, d := range []string{bin, link} {
		if err := os.Symlink(exe, filepath.Join(d, "git-agency")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(other, "git-agency"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	join := func(dirs ...string) string { return strings.Join(dirs, string(os.PathListSeparator)) }
	for _, tt := range []struct{ name, argv0, path, want string }{
		{"by a path", filepath.Join(bin, "git-agency"), join(link), filepath.Join(dir, "real")},
		{"by a name that PATH knows", "git-agency", join("/nonexistent", other, link, bin), filepath.Join(dir, "link")},
		{"by a name that PATH knows for another program", "git-agency", join(other), filepath.Dir(filepath.Dir(exe))},
		{"by a name that is not its own", "/nonexistent/git-agency", join(link), filepath.Dir(filepath.Dir(exe))},
		{"without PATH", "git-agency", "", filepath.Dir(filepath.Dir(exe))},
	} {
		if got, err := programPrefix(tt.argv0, tt.path); err != nil || got != tt.want {
			t.Errorf("%s: got %q (%v), want %q", tt.name, got, err, tt.want)
		}
	}
}

func TestMakeInstallsAndUninstallsAllOfIt(t *testing.T) {
	t.Parallel()
	needs(t, "make")
	needs(t, "install")
	for name, place := range map[string]func(u newcomer) (args []string, root string){
		"for one user": func(u newcomer) ([]string, string) {
			return []string{"PREFIX=" + filepath.Join(u.home, "opt")}, filepath.Join(u.home, "opt")
		},
		"for a package, made in a home": func(u newcomer) ([]string, string) {
			return []string{"PREFIX=/usr", "DESTDIR=" + filepath.Join(u.home, "stage")}, filepath.Join(u.home, "stage", "usr")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newNewcomer(t, "bin")
			args, root := place(u)
			// The program is this test's own, and is taken for built.
			args = append([]string{"make", "-s", "-C", repositoryTop(t), "-o", "build", "PROGRAM=" + filepath.Join(u.bin, "git-agency")}, args...)
			mkdir(t, filepath.Join(root, "bin"))
			before := u.everything()
			for range 2 { // twice is fine
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
						t.Errorf("a package was made, and something went to %s", dir)
					}
				}
			}
			for range 2 {
				u.must(append(args, "uninstall")...)
			}
			if d := diff(before, u.everything()); d != "" {
				t.Errorf("this is left:\n%s", d)
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

func TestTabWorksInBashOnceSetupHasRun(t *testing.T) {
	t.Parallel()
	for _, bin := range []string{".local/bin", "go/bin"} {
		t.Run(bin, func(t *testing.T) {
			t.Parallel()
			gitsCompletion(t)
			u := newNewcomer(t, bin)
			u.git("agency", "setup")
			got := u.replies([]string{"source " + bashCompletion(t)}, "git agency work")
			if len(got) != 1 || strings.TrimSpace(got[0]) != "worktree" {
				t.Errorf("TAB offers %q", got)
			}
		})
	}
}

// With the completions that ship, setup installs one for each of the shells, and they can be read back.
func TestSetupInstallsEveryCompletionThatShips(t *testing.T) {
	t.Parallel()
	u := newNewcomer(t, ".local/bin")
	before := u.everything()
	u.git("agency", "setup")
	installed := map[string]string{
		"bash": ".local/share/bash-completion/completions/git-agency",
		"zsh":  ".local/share/zsh/site-functions/_git-agency",
		"fish": ".config/fish/conf.d/git-agency.fish",
	}
	if !slices.Equal(slices.Sorted(maps.Keys(installed)), slices.Sorted(slices.Values(completionShells))) {
		t.Errorf("there are scripts for %q", completionShells)
	}
	for shell, file := range installed {
		script, _ := completionScript(shell)
		if got := u.read(filepath.Join(u.home, file)); !strings.HasPrefix(got, string(script)) || got == "" {
			t.Errorf("%s holds %.100q", file, got)
		}
	}
	u.git("agency", "setup", "--undo")
	if d := diff(before, u.everything()); d != "" {
		t.Errorf("this is left:\n%s", d)
	}
}
