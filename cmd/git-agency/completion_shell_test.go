package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// newShellLab is a completion lab with aliases, and a second repository in "other repo" that has one
// invocation, otherID.
func newShellLab(t *testing.T) *lab {
	t.Helper()
	l := newCompletionLab(t)
	l.git("config", "--global", "alias.ag", "agency")
	l.git("config", "--global", "alias.ags", "agency start")
	l.git("init", "-q", "-b", "main", "../other repo")
	l.git("-C", "../other repo", "commit", "-q", "--allow-empty", "-m", "first")
	l.git("-C", "../other repo", "agency", "worktree", "create", "elsewhere")
	if o := l.try(sweepEnv, "git", "-C", "../other repo", "agency", "start", "elsewhere", "--name", "far"); o.code != 0 {
		t.Fatal(o.stderr)
	}
	return l
}

const otherID = sweepID

// script is where the completion script for a shell lies, as the tool prints it.
func (l *lab) script(shell string) string {
	l.t.Helper()
	path := filepath.Join(l.dir, "git-agency."+shell)
	l.write(path, l.agency("completion", shell)+"\n")
	return path
}

// newLosingLab is a shell lab whose tool can be lost: there is no other on its PATH.
func newLosingLab(t *testing.T) *lab {
	t.Helper()
	l := newShellLab(t)
	path := slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(dir string) bool { return exists(filepath.Join(dir, "git-agency")) })
	l.env = append(l.env, "PATH="+strings.Join(append([]string{l.bin}, path...), string(os.PathListSeparator)))
	return l
}

// loseTool takes the tool away, as somebody does who removes the program and keeps its completions. The
// repository has an alias of its name, which git runs instead.
func (l *lab) loseTool() {
	l.t.Helper()
	l.git("config", "alias.agency", "!touch pwned")
	if err := os.Remove(filepath.Join(l.bin, "git-agency")); err != nil {
		l.t.Fatal(err)
	}
}

// mustNotHaveRun fails the test if anything the lab is named after was taken for a command.
func (l *lab) mustNotHaveRun() {
	l.t.Helper()
	if found := l.must("find", l.dir, "-name", "pwned"); found != "" {
		l.t.Errorf("a name was run: %s", found)
	}
}

func needs(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not installed", program)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// shared finds a file that was installed together with one of the programs.
func shared(t *testing.T, what string, programs []string, names ...string) string {
	t.Helper()
	for _, program := range programs {
		for _, name := range names {
			if path := filepath.Join(filepath.Dir(filepath.Dir(program)), "share", name); exists(path) {
				return path
			}
		}
	}
	t.Skipf("%s is not installed", what)
	return ""
}

func gitsCompletion(t *testing.T) string {
	t.Helper()
	return shared(t, "git's completion for bash", []string{needs(t, "git"), needs(t, "bash")}, "bash-completion/completions/git",
		"git-core/contrib/completion/git-completion.bash", "git/contrib/completion/git-completion.bash", "doc/git/contrib/completion/git-completion.bash")
}

func bashCompletion(t *testing.T) string {
	t.Helper()
	return shared(t, "bash-completion", []string{needs(t, "bash"), needs(t, "git")}, "bash-completion/bash_completion")
}

func TestEachShellCanReadItsScript(t *testing.T) {
	t.Parallel()
	for _, shell := range completionShells {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			needs(t, shell)
			l := newLab(t)
			if o := l.try(nil, shell, "-n", l.script(shell)); o != (outcome{}) {
				t.Errorf("%+v", o)
			}
		})
	}
}

// replies has bash complete a line, as it does when TAB is pressed at its end: the words are broken at
// = and :, and the function that is registered for the first one is called.
func (l *lab) replies(load []string, line string) []string {
	l.t.Helper()
	const press = `
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9 COMP_KEY=9
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
complete -p "$1" >/dev/null 2>&1 || _completion_loader "$1"
spec=$(complete -p "$1") || exit
spec=${spec#*-F }
COMPREPLY=()
"${spec%% *}" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
`
	words := regexp.MustCompile(`[=:]+|[^=: ]+`).FindAllString(line, -1)
	if strings.HasSuffix(line, " ") {
		words = append(words, "")
	}
	argv := []string{"bash", "--norc", "--noprofile", "-c", strings.Join(load, "\n") + press, "bash", line}
	o := l.try(nil, append(argv, words...)...)
	if o.code != 0 || o.stderr != "" {
		l.t.Errorf("%q: ended with %d: %s", line, o.code, o.stderr)
	}
	return strings.Split(strings.TrimSuffix(o.stdout, "\n"), "\n")
}

func TestBashCompletesHoweverTheScriptWasLoaded(t *testing.T) {
	t.Parallel()
	needs(t, "bash")
	l := newShellLab(t)
	const ours = `eval "$(git-agency completion bash)"`
	l.write(filepath.Join(l.dir, "share", "bash-completion", "completions", "git-agency"), l.agency("completion", "bash")+"\n")
	loads := []struct {
		name string
		load func(t *testing.T) []string
		git  bool
	}{
		{"after git's own", func(t *testing.T) []string { return []string{"source " + gitsCompletion(t), ours} }, true},
		{"before git's own", func(t *testing.T) []string { return []string{ours, "source " + gitsCompletion(t)} }, true},
		{"by bash-completion, when it is needed", func(t *testing.T) []string {
			gitsCompletion(t)
			return []string{"BASH_COMPLETION_USER_DIR=" + l.dir + "/share/bash-completion; source " + bashCompletion(t)}
		}, true},
		{"without git's own", func(*testing.T) []string { return []string{"set -u", ours} }, false},
	}
	for _, tt := range loads {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			load := tt.load(t)
			lines := map[string][]string{
				"git-agency worktree ":               {"create ", "adopt ", "ls ", "show ", "path ", "rm "},
				"git-agency start --mode=h":          {"headed ", "headless "},
				"git-agency start --profile=a:":      {"b "},
				"git-agency start --profile ":        {`\$\(touch\ pwned\) `, "a:b ", `my\ profile `},
				"git-agency discard 20260128120010-": {"20260128120010-6262 "},
				"git-agency start -- ":               {""},
				"git-agency exec 2026012812001":      {"20260128120010-6262 ", "20260128120011-6262 "},
				"git-agency exec x -- git-agenc":     {"git-agency "},
				"git-agency exec x -- wai":           {""}, // a word of the shell's own
				"git-agency start --name ":           {""},
			}
			if tt.git {
				lines["git agency worktree "] = lines["git-agency worktree "]
				lines["git agency wor"] = []string{"worktree "}
				lines["git agency start --mode=h"] = lines["git-agency start --mode=h"]
				lines["git agency start --profile=a:"] = []string{"b "}
				lines["git agency start --mo"] = []string{"--mode "}
				lines["git agency path 2026"] = []string{"20260128120010-6262 ", "20260128120011-6262 ", "20260128120012-6262 ", "20260128120013-6262 "}
				lines["git agency start pay"] = []string{"payments "}
				lines["git agency start -- "] = []string{""}
				lines["git agency worktree create x --from=ma"] = []string{"main "}
				lines["git -C sub agency start pay"] = []string{"payments "}
				lines["git -C sub/deep -C .. agency start pay"] = []string{"payments "}
				lines["git --git-dir=.git agency start pay"] = []string{"payments "}
				lines["git -c agency.x:y.changeset=worktree agency start --profile x"] = []string{"x:y "}
				lines["git ag wor"] = []string{"worktree "}
				lines["git -C sub ag wor"] = []string{"worktree "}
				lines["git ags pay"] = []string{"payments "}
				lines["git -C sub ags pay"] = []string{"payments "}
			}
			for line, want := range lines {
				if got := l.replies(load, line); !slices.Equal(got, want) {
					t.Errorf("%q:\n got %q\nwant %q", line, got, want)
				}
			}
			l.mustNotHaveRun()
		})
	}
}

func TestBashCompletesAShellAliasThatWasRegisteredWithGit(t *testing.T) {
	t.Parallel()
	l := newShellLab(t)
	load := []string{"source " + gitsCompletion(t), `eval "$(git-agency completion bash)"`, "__git_complete gag _git_agency"}
	if got := l.replies(load, "gag start pay"); !slices.Equal(got, []string{"payments "}) {
		t.Errorf("%q", got)
	}
}

func TestFishCompletes(t *testing.T) {
	t.Parallel()
	fish := needs(t, "fish")
	shared(t, "fish's completion for git", []string{fish}, "fish/completions/git.fish")
	l := newShellLab(t)
	l.write(filepath.Join(l.dir, "home", ".config", "fish", "conf.d", "git-agency.fish"), l.agency("completion", "fish")+"\n")
	live := strings.Split(strings.TrimSuffix(liveInvocations, "\n"), "\n")
	profiles := []string{"$(touch pwned)", "a:b", "my profile"}
	for line, want := range map[string][]string{
		"git agency wor":                                                  {"worktree\tcreate, list and archive integration worktrees"},
		"git-agency wor":                                                  {"worktree\tcreate, list and archive integration worktrees"},
		"git agency discard 2026012812001":                                append(live, strings.TrimSuffix(lostInvocation, "\n")),
		"git-agency path 20260128120010":                                  live[:1],
		"git agency start pay":                                            {"payments\tagency/payments-6161"},
		"git agency start --mode=":                                        {"--mode=headed", "--mode=headless"},
		"git agency start --mod":                                          {"--mode\trecord the MODE: headed or headless"},
		"git agency start --profile ":                                     profiles,
		"git agency start --profile 'my ":                                 {"my profile"},
		`git agency start --profile my\ `:                                 {"my profile"},
		"git agency start --profile a:":                                   {"a:b"},
		"git agency exec 20260128120010 --cwd in\\ sandbox/d":             {"in sandbox/deep/"},
		"git agency exec 20260128120010 --cwd=s":                          {"--cwd=sub/"},
		"git agency exec x -- git-agenc":                                  {"git-agency\tcommand link"},
		"git agency start -- ":                                            nil,
		"git agency ls ":                                                  nil,
		"git agency worktree adopt su":                                    {"sub/"},
		"git agency worktree create --from ma":                            {"main\tLocal Branch"},
		"git -C sub agency start pay":                                     {"payments\tagency/payments-6161"},
		"git -C '../other repo' agency show 2":                            {otherID + "\tfar, elsewhere, active"},
		"git --git-dir=../other\\ repo/.git agency show 2":                {otherID + "\tfar, elsewhere, active"},
		"git -c agency.x:y.changeset=worktree agency start --profile x":   {"x:y"},
		"git -c 'agency.x y.changeset=worktree' agency start --profile=x": {"--profile=x y"},
		"git ag start pay":                                                {"payments\tagency/payments-6161"},
		"git ags pay":                                                     {"payments\tagency/payments-6161"},
		"git -C sub ags pay":                                              {"payments\tagency/payments-6161"},
		"git agenc":                                                       {"agency\tMany coding agents on one repository"},
		"git -C sub agenc":                                                {"agency\tMany coding agents on one repository"},
		"git agency bogus ":                                               nil,
		"git-agency start -- ":                                            nil,
	} {
		o := l.try(nil, "fish", "-c", "complete -C $argv[1]", line)
		got := slices.Sorted(strings.SplitSeq(strings.TrimSuffix(o.stdout, "\n"), "\n"))
		if want == nil {
			want = []string{""}
		}
		if !slices.Equal(got, slices.Sorted(slices.Values(want))) || o.code != 0 || o.stderr != "" {
			t.Errorf("%q:\n got %q, %+v\nwant %q", line, got, o, want)
		}
	}
	l.mustNotHaveRun()
}

func TestFishRunsNothingWhereTheToolIsMissing(t *testing.T) {
	t.Parallel()
	shared(t, "fish's completion for git", []string{needs(t, "fish")}, "fish/completions/git.fish")
	l := newLosingLab(t)
	l.write(filepath.Join(l.dir, "home", ".config", "fish", "conf.d", "git-agency.fish"), l.agency("completion", "fish")+"\n")
	l.loseTool()
	for _, line := range []string{"git agency sta", "git -C sub agency sta", "git -c alias.agency='!touch pwned' agency sta", "git-agency sta"} {
		if o := l.try(nil, "fish", "-c", "complete -C $argv[1]", line); o != (outcome{}) {
			t.Errorf("%q: %+v", line, o)
		}
	}
	l.mustNotHaveRun()
}
