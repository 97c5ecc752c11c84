package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// typed is what becomes of a line when TAB is pressed at its end, in any shell.
var typed = []struct{ line, after string }{
	{"git age", "git agency "},
	{"git agency sta", "git agency start "},
	{"git-agency sta", "git-agency start "},
	{"git agency worktree ado", "git agency worktree adopt "},
	{"git agency start pay", "git agency start payments "},
	{"git agency start --mo", "git agency start --mode "},
	{"git agency start --mode headl", "git agency start --mode headless "},
	{"git agency start --mode=headl", "git agency start --mode=headless "},
	{"git agency show 20260128120010", "git agency show 20260128120010-6262 "},
	{"git-agency show 20260128120010", "git-agency show 20260128120010-6262 "},

	// Values that would be something else to the shell are quoted as the line is.
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

	// A directory of a sandbox goes on, and what runs there is a program.
	{"git agency exec 20260128120010 --cwd in\td", `git agency exec 20260128120010 --cwd in\ sandbox/deep/`},
	{"git-agency exec 20260128120010 --cwd=in", `git-agency exec 20260128120010 --cwd=in\ sandbox/`},
	{"git agency exec 20260128120010 -- git-agenc", "git agency exec 20260128120010 -- git-agency "},
	{"git agency exec 20260128120010 -- readm", "git agency exec 20260128120010 -- readm"},
	{"git agency exec 20260128120010 -- cat readm", "git agency exec 20260128120010 -- cat readme "},

	// What the shell and git know themselves.
	{"git agency worktree adopt su", "git agency worktree adopt sub/"},
	{"git agency worktree adopt -- su", "git agency worktree adopt -- sub/"},
	{"git agency worktree create x --from mai", "git agency worktree create x --from main "},
	{"git agency worktree create x --from=mai", "git agency worktree create x --from=main "},

	// No file can be meant where there are no candidates.
	{"git agency start readm", "git agency start readm"},
	{"git agency ls readm", "git agency ls readm"},
	{"git agency start -- readm", "git agency start -- readm"},
	{"git-agency show readm", "git-agency show readm"},

	// What git's own options say counts, and so do aliases.
	{"git -C sub agency start pay", "git -C sub agency start payments "},
	{"git -C '../other repo' agency show 2", "git -C '../other repo' agency show " + otherID + " "},
	{`git -C ../other\ repo agency show 2`, `git -C ../other\ repo agency show ` + otherID + " "},
	{`git --git-dir=../other\ repo/.git agency show 2`, `git --git-dir=../other\ repo/.git agency show ` + otherID + " "},
	{"git -c agency.x:y.changeset=worktree -c a.b=c agency start --profile x", "git -c agency.x:y.changeset=worktree -c a.b=c agency start --profile x:y "},
	{"git -c 'agency.x y.changeset=worktree' agency start --profile x", `git -c 'agency.x y.changeset=worktree' agency start --profile x\ y `},
	{"git -C ~/../repo agency start pay", "git -C ~/../repo agency start payments "},
	{"git ag start pay", "git ag start payments "},
	{"git ags pay", "git ags payments "},
}

func TestTABInATerminal(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "zsh by eval"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			l := newShellLab(t)
			term := l.terminal(shell)
			for _, tt := range typed {
				// Shells differ in whether a space follows a closing quote.
				if got := term.press(tt.line + "\t"); strings.TrimRight(got, " ") != strings.TrimRight(tt.after, " ") {
					t.Errorf("%s TAB\n got %q\nwant %q", tt.line, got, tt.after)
				}
			}
			l.mustNotHaveRun()
		})
	}
}

func TestTABInATerminalShowsWhatTheCandidatesAre(t *testing.T) {
	t.Parallel()
	for shell, keys := range map[string]string{"bash": "\t\t", "zsh": "\t"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			l := newShellLab(t)
			term := l.terminal(shell)
			const line = "git agency show 2026012812001"
			if got := term.press(line + keys); got != line {
				t.Errorf("the line became %q", got)
			}
			for _, want := range []string{hostileName + ", wt, active", "done, payments, discarded", "broken: missing-tree"} {
				if !term.shows(want) {
					t.Errorf("%q is not on the screen:\n%s", want, term.screen())
				}
			}
			l.mustNotHaveRun()
		})
	}
}

func TestTABRunsNothingWhereTheToolIsMissing(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "zsh by eval"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			l := newLosingLab(t)
			term := l.terminal(shell)
			l.loseTool()
			for _, line := range []string{"git agency sta", "git -C sub agency sta", "git -c alias.agency='!touch pwned' agency sta", "git-agency sta"} {
				if got := term.press(line + "\t"); got != line {
					t.Errorf("%s TAB\n got %q", line, got)
				}
			}
			l.mustNotHaveRun()
		})
	}
}

// A tool that does not exist yet may say that a word is a file.
func TestTABInATerminalLeavesFilesToTheShell(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			l := newShellLab(t)
			script := l.script(shell)
			l.bin = t.TempDir()
			l.write(filepath.Join(l.bin, "git-agency"), "#!/bin/sh\ncase $1 in completion) cat '"+script+"' ;; *) printf '\\tfiles\\n' ;; esac\n")
			if err := os.Chmod(filepath.Join(l.bin, "git-agency"), 0o755); err != nil {
				t.Fatal(err)
			}
			l.env = append(l.env, "PATH="+l.bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			term := l.terminal(shell)
			for line, want := range map[string]string{
				"git agency put readm":      "git agency put readme",
				"git-agency put --x=readm":  "git-agency put --x=readme",
				"git agency exec -- sub/de": "git agency exec -- sub/deep/",
			} {
				if got := term.press(line + "\t"); strings.TrimRight(got, " ") != want {
					t.Errorf("%s TAB\n got %q\nwant %q", line, got, want)
				}
			}
		})
	}
}

// terminal is a shell at whose prompt somebody types.
type terminal struct {
	l     *lab
	pty   *os.File
	typed string // the shell writes its line here when it is told to

	mu     sync.Mutex
	output bytes.Buffer
}

const prompt = "at your service> "

// startup are the files with which the shells begin: the completions, and a key (^X^L) that writes the
// line down and empties it.
var startup = map[string]string{
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
}

// terminal starts a shell in the lab's repository.
func (l *lab) terminal(how string) *terminal {
	l.t.Helper()
	shell, _, _ := strings.Cut(how, " ")
	path := needs(l.t, shell)
	term := &terminal{l: l, typed: filepath.Join(l.t.TempDir(), "typed")}
	home, source := filepath.Join(l.dir, "home"), ""
	var argv []string
	switch how {
	case "bash":
		source = gitsCompletion(l.t)
		argv = []string{"--noprofile", "--rcfile", filepath.Join(home, ".bashrc"), "-i"}
	case "zsh":
		source = filepath.Join(home, "functions")
		l.write(filepath.Join(source, "_git-agency"), l.must("git-agency", "completion", "zsh")+"\n")
		argv = []string{"-d", "-i"}
	case "zsh by eval":
		argv = []string{"-d", "-i"}
	}
	l.write(filepath.Join(home, "."+shell+"rc"), fmt.Sprintf(startup[how], prompt, term.typed, source))

	var tty *os.File
	term.pty, tty = openPTY(l.t, 100, 300) // wide enough that nothing is wrapped
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
				return // the shell is gone
			}
		}
	}()
	l.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed, and says so
		if err := term.pty.Close(); err != nil {
			l.t.Error(err)
		}
		<-read
	})
	if !term.shows(prompt) {
		l.t.Fatalf("%s does not prompt: %q", shell, term.screen())
	}
	return term
}

// press types keys and returns the line that the shell then has. The next line is a new one.
func (term *terminal) press(keys string) string {
	term.l.t.Helper()
	if _, err := term.pty.WriteString(keys + "\x18\x0c"); err != nil {
		term.l.t.Fatal(err)
	}
	if !waitFor(term.typed + ".done") {
		term.l.t.Fatalf("no answer to %q: %q", keys, term.screen())
	}
	if err := os.Remove(term.typed + ".done"); err != nil {
		term.l.t.Fatal(err)
	}
	return term.l.read(term.typed)
}

// shows waits until something was printed; a test that waits in vain fails, it does not hang.
func (term *terminal) shows(text string) bool {
	return waitUntil(func() bool { return strings.Contains(term.screen(), text) })
}

// screen is everything that was printed so far.
func (term *terminal) screen() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return strings.ReplaceAll(term.output.String(), "\r", "")
}
