package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/complete"
)

// newShellLab returns a completion lab with git aliases and a second repository in "other repo" that has
// one invocation, otherRepoID.
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

const otherRepoID = sweepID

// writeCompletionScript writes the completion script for a shell to a file and returns its path.
func (l *lab) writeCompletionScript(shell string) string {
	l.t.Helper()
	path := filepath.Join(l.dir, "git-agency."+shell)
	l.write(path, l.agency("completion", shell)+"\n")
	return path
}

// newRemovableToolLab returns a shell lab in whose PATH no other git-agency is found, for removeTool.
func newRemovableToolLab(t *testing.T) *lab {
	t.Helper()
	l := newShellLab(t)
	path := slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(dir string) bool { return exists(filepath.Join(dir, "git-agency")) })
	l.env = append(l.env, "PATH="+strings.Join(append([]string{l.bin}, path...), string(os.PathListSeparator)))
	return l
}

// removeTool removes the program and keeps its completions. It also sets a git alias with the name of the
// tool, which git would run instead.
func (l *lab) removeTool() {
	l.t.Helper()
	l.git("config", "alias.agency", "!touch pwned")
	if err := os.Remove(filepath.Join(l.bin, "git-agency")); err != nil {
		l.t.Fatal(err)
	}
}

// checkNothingRan fails the test if a shell or git has run one of the hostile names, which create "pwned".
func (l *lab) checkNothingRan() {
	l.t.Helper()
	if found := l.must("find", l.dir, "-name", "pwned"); found != "" {
		l.t.Errorf("a candidate or alias was run as a command: %s", found)
	}
}

// requireProgram returns the real path of a program, or skips the test if it is not installed.
func requireProgram(t *testing.T, program string) string {
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

// findSharedFile returns the path of a file in the share directory beside one of the programs, or skips the
// test if it is not installed.
func findSharedFile(t *testing.T, what string, programs []string, names ...string) string {
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

// gitBashCompletion returns the path of git's own completion script for bash.
func gitBashCompletion(t *testing.T) string {
	t.Helper()
	return findSharedFile(t, "git's completion for bash", []string{requireProgram(t, "git"), requireProgram(t, "bash")}, "bash-completion/completions/git",
		"git-core/contrib/completion/git-completion.bash", "git/contrib/completion/git-completion.bash", "doc/git/contrib/completion/git-completion.bash")
}

// bashCompletionLibrary returns the path of the script of the bash-completion project.
func bashCompletionLibrary(t *testing.T) string {
	t.Helper()
	return findSharedFile(t, "bash-completion", []string{requireProgram(t, "bash"), requireProgram(t, "git")}, "bash-completion/bash_completion")
}

func TestCompletionScriptsParse(t *testing.T) {
	t.Parallel()
	for _, shell := range complete.Shells {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			requireProgram(t, shell)
			l := newLab(t)
			if o := l.try(nil, shell, "-n", l.writeCompletionScript(shell)); o != (outcome{}) {
				t.Errorf("%+v", o)
			}
		})
	}
}

// bashReplies returns the candidates of bash for TAB at the end of line. As bash does, it splits words at
// = and : and calls the completion function registered for the first word.
func (l *lab) bashReplies(load []string, line string) []string {
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

func TestBashCompletionLoadOrders(t *testing.T) {
	t.Parallel()
	requireProgram(t, "bash")
	l := newShellLab(t)
	const ours = `eval "$(git-agency completion bash)"`
	l.write(filepath.Join(l.dir, "share", "bash-completion", "completions", "git-agency"), l.agency("completion", "bash")+"\n")
	loads := []struct {
		name string
		load func(t *testing.T) []string
		git  bool
	}{
		{"after git's completion", func(t *testing.T) []string { return []string{"source " + gitBashCompletion(t), ours} }, true},
		{"before git's completion", func(t *testing.T) []string { return []string{ours, "source " + gitBashCompletion(t)} }, true},
		{"on demand by bash-completion", func(t *testing.T) []string {
			gitBashCompletion(t)
			return []string{"BASH_COMPLETION_USER_DIR=" + l.dir + "/share/bash-completion; source " + bashCompletionLibrary(t)}
		}, true},
		{"without git's completion", func(*testing.T) []string { return []string{"set -u", ours} }, false},
	}
	for v, tt := range loads {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			load := tt.load(t)
			lines := map[string][]string{
				"git-agency worktree ":               {"create ", "adopt ", "finish ", "ls ", "show ", "path ", "rm "},
				"git-agency start --mode=h":          {"headed ", "headless "},
				"git-agency start --profile=a:":      {"b "},
				"git-agency start --profile ":        {`\$\(touch\ pwned\) `, "a:b ", `my\ profile `},
				"git-agency discard 20260128120010-": {"20260128120010-6262 "},
				"git-agency start -- ":               {""},
				"git-agency exec 2026012812001":      {"20260128120010-6262 ", "20260128120011-6262 "},
				"git-agency exec x -- git-agenc":     {"git-agency "},
				"git-agency exec x -- wai":           {""}, // wait is a shell builtin, no program
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
			for i, line := range slices.Sorted(maps.Keys(lines)) {
				if !isRotated(i, v) {
					continue
				}
				if got, want := l.bashReplies(load, line), lines[line]; !slices.Equal(got, want) {
					t.Errorf("%q:\n got %q\nwant %q", line, got, want)
				}
			}
			l.checkNothingRan()
		})
	}
}

func TestBashCompletionOfGitCompleteAlias(t *testing.T) {
	t.Parallel()
	l := newShellLab(t)
	load := []string{"source " + gitBashCompletion(t), `eval "$(git-agency completion bash)"`, "__git_complete gag _git_agency"}
	if got := l.bashReplies(load, "gag start pay"); !slices.Equal(got, []string{"payments "}) {
		t.Errorf("%q", got)
	}
}

func TestFishCompletion(t *testing.T) {
	t.Parallel()
	fish := requireProgram(t, "fish")
	findSharedFile(t, "fish's completion for git", []string{fish}, "fish/completions/git.fish")
	l := newShellLab(t)
	l.write(filepath.Join(l.dir, "home", ".config", "fish", "conf.d", "git-agency.fish"), l.agency("completion", "fish")+"\n")
	live := strings.Split(strings.TrimSuffix(liveCandidates, "\n"), "\n")
	profiles := []string{"$(touch pwned)", "a:b", "my profile"}
	lines := map[string][]string{
		"git agency wor":                                                  {"worktree\tcreate, list and archive integration worktrees"},
		"git-agency wor":                                                  {"worktree\tcreate, list and archive integration worktrees"},
		"git agency discard 2026012812001":                                append(live, strings.TrimSuffix(brokenCandidate, "\n")),
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
		"git -C '../other repo' agency show 2":                            {otherRepoID + "\tfar, elsewhere, idle"},
		"git --git-dir=../other\\ repo/.git agency show 2":                {otherRepoID + "\tfar, elsewhere, idle"},
		"git -c agency.x:y.changeset=worktree agency start --profile x":   {"x:y"},
		"git -c 'agency.x y.changeset=worktree' agency start --profile=x": {"--profile=x y"},
		"git ag start pay":                                                {"payments\tagency/payments-6161"},
		"git ags pay":                                                     {"payments\tagency/payments-6161"},
		"git -C sub ags pay":                                              {"payments\tagency/payments-6161"},
		"git agenc":                                                       {"agency\tMany coding agents on one repository"},
		"git -C sub agenc":                                                {"agency\tMany coding agents on one repository"},
		"git agency bogus ":                                               nil,
		"git-agency start -- ":                                            nil,
	}
	for _, line := range thin(slices.Sorted(maps.Keys(lines))) {
		want := lines[line]
		o := l.try(nil, "fish", "-c", "complete -C $argv[1]", line)
		got := slices.Sorted(strings.SplitSeq(strings.TrimSuffix(o.stdout, "\n"), "\n"))
		if want == nil {
			want = []string{""}
		}
		if !slices.Equal(got, slices.Sorted(slices.Values(want))) || o.code != 0 || o.stderr != "" {
			t.Errorf("%q:\n got %q, %+v\nwant %q", line, got, o, want)
		}
	}
	l.checkNothingRan()
}

// TestFishCompletionOfNames completes words that are found in the descriptions only, as fish does.
func TestFishCompletionOfNames(t *testing.T) {
	t.Parallel()
	findSharedFile(t, "fish's completion for git", []string{requireProgram(t, "fish")}, "fish/completions/git.fish")
	l := newNamedInvocationsLab(t)
	l.write(filepath.Join(l.dir, "home", ".config", "fish", "conf.d", "git-agency.fish"), l.agency("completion", "fish")+"\n")
	const (
		refactor = "20260128120030-6363\trefactor, payments, idle"
		refunds  = "20260128120031-6464\trefunds, payments, idle"
		refunds2 = "20260128120032-6565\trefunds-2, payments, idle"
	)
	for line, want := range map[string][]string{
		"git agency show ref":         {refactor, refunds, refunds2},
		"git agency show refunds":     {refunds},
		"git agency show 64":          {refunds},
		"git-agency land 6565 refund": {refunds},
		"git agency discard done":     {""}, // it is discarded already
	} {
		o := l.try(nil, "fish", "-c", "complete -C $argv[1]", line)
		got := slices.Sorted(strings.SplitSeq(strings.TrimSuffix(o.stdout, "\n"), "\n"))
		if !slices.Equal(got, want) || o.code != 0 || o.stderr != "" {
			t.Errorf("%q:\n got %q, %+v\nwant %q", line, got, o, want)
		}
	}
	l.checkNothingRan()
}

func TestFishCompletionWithoutToolRunsNothing(t *testing.T) {
	t.Parallel()
	findSharedFile(t, "fish's completion for git", []string{requireProgram(t, "fish")}, "fish/completions/git.fish")
	l := newRemovableToolLab(t)
	l.write(filepath.Join(l.dir, "home", ".config", "fish", "conf.d", "git-agency.fish"), l.agency("completion", "fish")+"\n")
	l.removeTool()
	for _, line := range []string{"git agency sta", "git -C sub agency sta", "git -c alias.agency='!touch pwned' agency sta", "git-agency sta"} {
		if o := l.try(nil, "fish", "-c", "complete -C $argv[1]", line); o != (outcome{}) {
			t.Errorf("%q: %+v", line, o)
		}
	}
	l.checkNothingRan()
}
