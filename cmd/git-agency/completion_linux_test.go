package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// completedLines lists command lines and their text after TAB was pressed at the end, in any shell.
var completedLines = []struct{ line, after string }{
	{"git age", "git agency "},
	{"git agency sta", "git agency start "},
	{"git-agency sta", "git-agency start "},
	{"git agency worktree ado", "git agency worktree adopt "},
	{"git agency start pay", "git agency start payments "},
	{"git agency start --mo", "git agency start --mode "},
	{"git agency start --mode headl", "git agency start --mode headless "},
	{"git agency start --runner cod", "git agency start --runner codex "},
	{"git -c agency.mine.command=x agency start --runner=mi", "git -c agency.mine.command=x agency start --runner=mine "},
	{"git agency start --mode=headl", "git agency start --mode=headless "},
	{"git agency show 20260128120010", "git agency show 20260128120010-6262 "},
	{"git-agency show 20260128120010", "git-agency show 20260128120010-6262 "},

	// Values with characters special to the shell are quoted in the style of the line.
	{"git agency start --profile my", `git agency start --profile my\ profile `},
	{`git agency start --profile my\ p`, `git agency start --profile my\ profile `},
	{"git-agency start --profile=my", `git-agency start --profile=my\ profile `},
	{"git agency start --profile 'my p", "git agency start --profile 'my profile'"},
	{`git agency start --profile "my p`, `git agency start --profile "my profile"`},
	{"git agency start --profile a", "git agency start --profile a:b "},
	{"git agency start --profile a:", "git agency start --profile a:b "},
	{"git agency start --profile=a:", "git agency start --profile=a:b "},
	{`git agency start --profile \$`, `git agency start --profile \$\(touch\ pwned\) `},
	{`git agency start --profile '$`, `git agency start --profile '$(touch pwned)'`},
	{`git -c "agency.it's.changeset=worktree" agency start --profile i`, `git -c "agency.it's.changeset=worktree" agency start --profile it\'s `},
	{`git -c "agency.it's.changeset=worktree" agency start --profile 'i`, `git -c "agency.it's.changeset=worktree" agency start --profile 'it'\''s'`},
	{`git -c 'agency.a"$b.changeset=worktree' agency start --profile "a\"`, `git -c 'agency.a"$b.changeset=worktree' agency start --profile "a\"\$b"`},
	{`git-agency start --profile=\$`, `git-agency start --profile=\$\(touch\ pwned\) `},

	// A directory of a sandbox gets a slash and no space; the first word behind -- is a program.
	{"git agency exec 20260128120010 --cwd in\td", `git agency exec 20260128120010 --cwd in\ sandbox/deep/`},
	{"git-agency exec 20260128120010 --cwd=in", `git-agency exec 20260128120010 --cwd=in\ sandbox/`},
	{"git agency exec 20260128120010 -- git-agenc", "git agency exec 20260128120010 -- git-agency "},
	{"git agency exec 20260128120010 -- readm", "git agency exec 20260128120010 -- readm"},
	{"git agency exec 20260128120010 -- cat readm", "git agency exec 20260128120010 -- cat readme "},

	// Directories come from the shell, commits from git.
	{"git agency worktree adopt su", "git agency worktree adopt sub/"},
	{"git agency worktree adopt -- su", "git agency worktree adopt -- sub/"},
	{"git agency worktree create x --from mai", "git agency worktree create x --from main "},
	{"git agency worktree create x --from=mai", "git agency worktree create x --from=main "},

	// Where there are no candidates, the shell does not offer file names instead.
	{"git agency start readm", "git agency start readm"},
	{"git agency ls readm", "git agency ls readm"},
	{"git agency start -- readm", "git agency start -- readm"},
	{"git-agency show readm", "git-agency show readm"},

	// Options of git in front of "agency", and aliases, are honored.
	{"git -C sub agency start pay", "git -C sub agency start payments "},
	{"git -C '../other repo' agency show 2", "git -C '../other repo' agency show " + otherRepoID + " "},
	{`git -C ../other\ repo agency show 2`, `git -C ../other\ repo agency show ` + otherRepoID + " "},
	{`git --git-dir=../other\ repo/.git agency show 2`, `git --git-dir=../other\ repo/.git agency show ` + otherRepoID + " "},
	{"git -c agency.x:y.changeset=worktree -c a.b=c agency start --profile x", "git -c agency.x:y.changeset=worktree -c a.b=c agency start --profile x:y "},
	{"git -c 'agency.x y.changeset=worktree' agency start --profile x", `git -c 'agency.x y.changeset=worktree' agency start --profile x\ y `},
	{"git -C ~/../repo agency start pay", "git -C ~/../repo agency start payments "},
	{"git ag start pay", "git ag start payments "},
	{"git ags pay", "git ags payments "},
}

// completedIDs lists command lines whose last word stands for an invocation, and their text after TAB was pressed at the
// end, in any shell.
var completedIDs = []struct{ line, after string }{
	{"git agency show done", "git agency show 20260128120012-6262 "},
	{"git-agency show refa", "git-agency show 20260128120030-6363 "},
	{"git agency show refunds", "git agency show 20260128120031-6464 "},
	{"git agency exec refa", "git agency exec 20260128120030-6363 "},
	{"git agency exec -- refa", "git agency exec -- 20260128120030-6363 "},
	{"git agency land refunds-2 refa", "git agency land refunds-2 20260128120030-6363 "},
	{"git-agency snapshot verify done", "git-agency snapshot verify 20260128120012-6262/1 "},
	{"git agency doctor --fix lo", "git agency doctor --fix 20260128120013-6262 "},
	{"git agency doctor --fix=lo", "git agency doctor --fix=20260128120013-6262 "},
	{"git-agency doctor --fix=lo", "git-agency doctor --fix=20260128120013-6262 "},
	{"git -C sub agency show refa", "git -C sub agency show 20260128120030-6363 "},
	{"git -C '../other repo' agency show far", "git -C '../other repo' agency show " + otherRepoID + " "},
	{"git ag show refa", "git ag show 20260128120030-6363 "},

	// The part of an id after the dash.
	{"git agency show 6464", "git agency show 20260128120031-6464 "},
	{"git-agency show 64", "git-agency show 20260128120031-6464 "},

	// What several invocations match is not changed.
	{"git agency show ref", "git agency show ref"},
	{"git agency show 6262", "git agency show 6262"},
	{"git agency show @", "git agency show @"},
	{"git agency show @-2", "git agency show @-2 "},
	{"git-agency land @-2", "git-agency land @-2 "},
	{"git agency exec @-4 -- git-agenc", "git agency exec @-4 -- git-agency "},

	// Where a name matches nothing, the line is not changed.
	{"git agency show funds", "git agency show funds"},
	{"git agency discard done", "git agency discard done"},
	{"git agency show 2026012812003", "git agency show 2026012812003"},
}

// completedSpecialNames is completedIDs for a name with characters special to the shell. fish replaces no such word.
var completedSpecialNames = []struct{ line, after string }{
	{`git agency show \$`, "git agency show 20260128120010-6262 "},
	{`git-agency show \$\(touch\ `, "git-agency show 20260128120010-6262 "},
	{`git agency discard '$(touch p`, "git agency discard '20260128120010-6262'"},
	{`git-agency show "\$(tou`, `git-agency show "20260128120010-6262"`},
}

// leavesOutLine reports whether -short leaves out line number i for a shell: three shells share the lines.
func leavesOutLine(shell string, i int) bool {
	return !isRotated(i, slices.Index([]string{"bash", "zsh", "fish"}, shell))
}

// skipZshByEval skips a test of zsh with -short that TestTabCompletesLine makes unnecessary: zsh runs the same functions,
// whether it loaded them from a file or by eval.
func skipZshByEval(t *testing.T, shell string) {
	t.Helper()
	if testing.Short() && shell == "zsh by eval" {
		t.Skip("skipped with -short")
	}
}

func TestTabReplacesNameByID(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "zsh by eval", "fish"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			skipZshByEval(t, shell)
			l := newNamedInvocationsLab(t)
			term := l.startShell(shell)
			lines := completedIDs
			if shell != "fish" {
				lines = slices.Concat(lines, completedSpecialNames)
			}
			for i, tt := range lines {
				if leavesOutLine(shell, i) {
					continue
				}
				// Shells differ in whether a space follows a closing quote.
				if got := term.typeKeys(tt.line + "\t"); strings.TrimRight(got, " ") != strings.TrimRight(tt.after, " ") {
					t.Errorf("%s TAB\n got %q\nwant %q", tt.line, got, tt.after)
				}
			}
			l.checkNothingRan()
		})
	}
}

// TestTabListsIDsOfNames types the beginning of several names. The shells list the ids with the names.
func TestTabListsIDsOfNames(t *testing.T) {
	t.Parallel()
	for shell, keys := range map[string]string{"bash": "\t\t", "zsh": "\t"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			l := newNamedInvocationsLab(t)
			term := l.startShell(shell)
			if _, err := term.pty.WriteString("git agency show ref" + keys); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"20260128120030-6363", "refactor, payments", "20260128120031-6464", "refunds, payments", "refunds-2, payments"} {
				if !term.waitForText(want) {
					t.Errorf("the screen does not show %q:\n%s", want, term.screenText())
				}
			}
			if strings.Contains(term.screenText(), "20260128120012-6262") {
				t.Errorf("another invocation is offered:\n%s", term.screenText())
			}
			l.checkNothingRan()
		})
	}
}

func TestTabCompletesLine(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "zsh by eval"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			l := newShellLab(t)
			term := l.startShell(shell)
			for i, tt := range completedLines {
				if leavesOutLine(shell, i) {
					continue
				}
				// Shells differ in whether a space follows a closing quote.
				if got := term.typeKeys(tt.line + "\t"); strings.TrimRight(got, " ") != strings.TrimRight(tt.after, " ") {
					t.Errorf("%s TAB\n got %q\nwant %q", tt.line, got, tt.after)
				}
			}
			l.checkNothingRan()
		})
	}
}

func TestTabListsCandidateDescriptions(t *testing.T) {
	t.Parallel()
	for shell, keys := range map[string]string{"bash": "\t\t", "zsh": "\t"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			l := newShellLab(t)
			term := l.startShell(shell)
			const line = "git agency show 2026012812001"
			if got := term.typeKeys(line + keys); got != line {
				t.Errorf("the line changed to %q", got)
			}
			for _, want := range []string{hostileName + ", wt, idle", "done, payments, discarded", "broken: missing-tree"} {
				if !term.waitForText(want) {
					t.Errorf("the screen does not show %q:\n%s", want, term.screenText())
				}
			}
			l.checkNothingRan()
		})
	}
}

func TestTabWithoutToolRunsNothing(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "zsh by eval"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			skipZshByEval(t, shell)
			l := newRemovableToolLab(t)
			term := l.startShell(shell)
			l.removeTool()
			for _, line := range []string{"git agency sta", "git -C sub agency sta", "git -c alias.agency='!touch pwned' agency sta", "git-agency sta"} {
				if got := term.typeKeys(line + "\t"); got != line {
					t.Errorf("%s TAB\n got %q", line, got)
				}
			}
			l.checkNothingRan()
		})
	}
}

// TestTabLeavesFilesToShell runs the completion scripts with a fake tool that answers every request with
// "files": later versions of the tool may do so for any word.
func TestTabLeavesFilesToShell(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			l := newShellLab(t)
			script := l.writeCompletionScript(shell)
			l.bin = t.TempDir()
			l.write(filepath.Join(l.bin, "git-agency"), "#!/bin/sh\ncase $1 in completion) cat '"+script+"' ;; *) printf '\\tfiles\\n' ;; esac\n")
			if err := os.Chmod(filepath.Join(l.bin, "git-agency"), 0o755); err != nil {
				t.Fatal(err)
			}
			l.env = append(l.env, "PATH="+l.bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			term := l.startShell(shell)
			for line, want := range map[string]string{
				"git agency put readm":      "git agency put readme",
				"git-agency put --x=readm":  "git-agency put --x=readme",
				"git agency exec -- sub/de": "git agency exec -- sub/deep/",
			} {
				if got := term.typeKeys(line + "\t"); strings.TrimRight(got, " ") != want {
					t.Errorf("%s TAB\n got %q\nwant %q", line, got, want)
				}
			}
		})
	}
}

// shellTerminal is an interactive shell on a pseudo-terminal.
type shellTerminal struct {
	l        *lab
	pty      *os.File
	lineFile string // file to which the shell writes its line on ^X^L

	mu     sync.Mutex
	output bytes.Buffer
}

const shellPrompt = "at your service> "

// shellStartupFiles are format strings for the rc files of the shells. They load the completions and bind
// the key ^X^L to a function that writes the line to a file and empties it.
var shellStartupFiles = map[string]string{
	"bash": `PS1='%[1]s'
bind 'set bell-style none'
source '%[3]s'
eval "$(git-agency completion bash)"
report () { printf %%s "$READLINE_LINE" >'%[2]s'; READLINE_LINE= READLINE_POINT=0; : >'%[2]s.done'; }
bind -x '"\C-x\C-l": report'
`,
	"zsh": `PS1='%[1]s'
fpath=('%[3]s' $fpath)
autoload -Uz compinit && compinit -u -D
report () { print -rn -- "$BUFFER" >'%[2]s'; BUFFER=; : >'%[2]s.done'; }
zle -N report && bindkey '^X^L' report
`,
	"zsh by eval": `PS1='%[1]s'
autoload -Uz compinit && compinit -u -D
eval "$(git-agency completion zsh)"
report () { print -rn -- "$BUFFER" >'%[2]s'; BUFFER=; : >'%[2]s.done'; }
zle -N report && bindkey '^X^L' report
%[3]s`,
	"fish": `function fish_prompt; echo -n '%[1]s'; end
function report
    commandline >'%[2]s.new'
    string collect <'%[2]s.new' | read -z line
    printf %%s (string trim -rc \n -- $line) >'%[2]s'
    commandline -r ''
    echo >'%[2]s.done'
end
bind \cx\cl report
%[3]s`,
}

// startShell starts a shell in the lab's repository and waits for its prompt.
func (l *lab) startShell(how string) *shellTerminal {
	l.t.Helper()
	shell, _, _ := strings.Cut(how, " ")
	path := requireProgram(l.t, shell)
	term := &shellTerminal{l: l, lineFile: filepath.Join(l.t.TempDir(), "typed")}
	home, source := filepath.Join(l.dir, "home"), ""
	var argv []string
	switch how {
	case "bash":
		source = gitBashCompletion(l.t)
		argv = []string{"--noprofile", "--rcfile", filepath.Join(home, ".bashrc"), "-i"}
	case "zsh":
		source = filepath.Join(home, "functions")
		l.write(filepath.Join(source, "_git-agency"), l.must("git-agency", "completion", "zsh")+"\n")
		argv = []string{"-d", "-i"}
	case "zsh by eval":
		argv = []string{"-d", "-i"}
	case "fish":
		findSharedFile(l.t, "fish's completion for git", []string{path}, "fish/completions/git.fish")
		l.write(filepath.Join(home, ".config", "fish", "conf.d", "git-agency.fish"), l.must("git-agency", "completion", "fish")+"\n")
		argv = []string{"-i", "-C", "source " + filepath.Join(home, ".fishrc")}
	}
	l.write(filepath.Join(home, "."+shell+"rc"), fmt.Sprintf(shellStartupFiles[how], shellPrompt, term.lineFile, source))

	var tty *os.File
	term.pty, tty = openPTY(l.t, 100, 300) // wide enough that no line is wrapped
	cmd := exec.CommandContext(l.t.Context(), path, argv...)
	cmd.Dir, cmd.Env = l.repo, append(l.env, "TERM=dumb", "INPUTRC=/dev/null")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	if err := tty.Close(); err != nil {
		l.t.Error(err)
	}
	read := make(chan bool)
	go func() {
		defer close(read)
		for buf := make([]byte, 4096); ; {
			n, err := term.pty.Read(buf)
			term.mu.Lock()
			term.output.Write(buf[:n])
			term.mu.Unlock()
			if err != nil {
				return // the shell has exited
			}
		}
	}()
	l.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // always an error: the shell was killed
		if err := term.pty.Close(); err != nil {
			l.t.Error(err)
		}
		<-read
	})
	if !term.waitForText(shellPrompt) {
		l.t.Fatalf("%s prints no prompt: %q", shell, term.screenText())
	}
	return term
}

// typeKeys types keys and returns the resulting command line, which it then clears.
func (term *shellTerminal) typeKeys(keys string) string {
	term.l.t.Helper()
	if _, err := term.pty.WriteString(keys + "\x18\x0c"); err != nil {
		term.l.t.Fatal(err)
	}
	if !waitForFile(term.lineFile + ".done") {
		term.l.t.Fatalf("no answer to %q: %q", keys, term.screenText())
	}
	if err := os.Remove(term.lineFile + ".done"); err != nil {
		term.l.t.Fatal(err)
	}
	return term.l.read(term.lineFile)
}

// waitForText waits until the shell has printed text. It returns false after a time limit.
func (term *shellTerminal) waitForText(text string) bool {
	return waitUntil(func() bool { return strings.Contains(term.screenText(), text) })
}

// screenText returns everything printed so far, without carriage returns.
func (term *shellTerminal) screenText() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return strings.ReplaceAll(term.output.String(), "\r", "")
}
