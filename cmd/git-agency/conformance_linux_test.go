package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency"
)

// changesets are the backends that the conformance suite compares, with the isolations under which each works. The first one,
// under its last isolation and with the first of conformanceOutputs, is the reference for all others.
var changesets = []struct {
	name       string
	isolations []string
}{
	{"worktree", []string{"os", "none"}},
	{"overlay", []string{"os"}},
	{"clone", []string{"os", "none"}},
}

var conformanceOutputs = []string{"open", "none", "hosts:a.example,b.example:443"}

// combination is one of the sandboxes that the conformance suite compares.
type combination struct{ changeset, isolation, outputs string }

func (c combination) String() string { return c.changeset + " " + c.isolation + " " + c.outputs }

// args returns the options of start.
func (c combination) args() string {
	return "--changeset " + c.changeset + " --isolation " + c.isolation + " --outputs " + c.outputs
}

// combinations returns all combinations, the reference first. With -short it returns one for each changeset.
func combinations() []combination {
	reference := combination{changesets[0].name, changesets[0].isolations[len(changesets[0].isolations)-1], conformanceOutputs[0]}
	all := []combination{reference}
	for k, kind := range changesets {
		for i, isolation := range kind.isolations {
			for j, outputs := range conformanceOutputs {
				c := combination{kind.name, isolation, outputs}
				if c != reference && (!testing.Short() || k > 0 && i == 0 && j == 0) {
					all = append(all, c)
				}
			}
		}
	}
	return all
}

// step is a part of the life of sandboxes: a script that runs in the repository, with the options of start in $OPTIONS, and the
// functions of stepFunctions. All that it prints must be the same for each combination.
type step struct{ name, script string }

// stepFunctions are functions of the scripts.
const stepFunctions = `
a=3131 b=3232 r=3333 c=3434 d=3535 e=3636 f=3737 # ids
# start <digit> <name> [option…] starts a sandbox with an id that is the same in each run.
start() { digit=$1 name=$2; shift 2; TEST_NOW=2026-01-28T12:0$digit:00Z TEST_RAND=$digit git agency start wt --name "$name" $OPTIONS "$@"; }
# inside <id> <script> runs a script in a sandbox.
inside() { git agency exec "$1" -- sh -ec "$2"; }
# fails <command…> checks that a command fails, and prints its exit code.
fails() { if "$@"; then echo "succeeded: $*" >&2; exit 1; else echo "exit code $?"; fi; }
# tree <id> lists the files of a sandbox with their modes and contents, and what git says about them.
tree() {
	inside "$1" '
		find . \( -name .git -o -path ./.agency \) -prune -o -printf "%P %y %m %l\n" | sort
		find . \( -name .git -o -path ./.agency \) -prune -o -type f -print0 | sort -z | xargs -0 sha1sum
		git status --porcelain --branch --ignored; git diff HEAD --stat; git log --format=%s; git stash list; git fsck --no-dangling --no-progress'
}
`

// lifeCycle is the life of three sandboxes.
var lifeCycle = []step{
	{"start", `
		start 1 a; start 2 b
		tree $a
		git agency ls --format '%(invocation_name) %(state) %(ahead) %(dirty)'`},
	{"commit", `
		inside $a 'echo committed >>readme; mkdir -p new/deep; echo new >new/deep/file; git add -A; git commit -qm "work in a"'
		git log --format='%s %an' agency/sandbox-20260128120100-3131
		git agency ls --format '%(invocation_name) %(state) %(ahead) %(dirty)'`},
	{"uncommitted work", `
		inside $a '
			echo edited >>sub/one; rm sub/deep/two; mv tools bin; chmod +x plain; ln -sf plain link; ln -s nowhere dangling
			mkdir -p fresh/deep; echo untracked >fresh/deep/file; echo object >fresh/x.o; mkdir empty
			echo staged >staged; git add staged; echo more >>staged
			git rm -q --cached gone; echo "two words" >"a b"; printf "\0\377" >binary; : >hollow'
		tree $a
		git agency ls --format '%(invocation_name) %(state) %(ahead) %(dirty)'`},
	{"put", `
		printf 'put\n' >../put; mkdir -p ../dir/deep; echo one >../dir/one; echo two >../dir/deep/two; chmod +x ../dir/one; ln -sf one ../dir/link
		git agency put $a ../put made.txt
		git agency put $a ../put readme
		git agency put $a ../put brand/new/file
		git agency put $a ../dir sub
		fails git agency put $a ../put ../escape
		tree $a`},
	{"put while a command runs", `
		: >../out
		git agency exec $a -- sh -c 'echo ready; until test -e go; do sleep 0.02; done; cat go; echo answer >answer; rm go' >>../out &
		until grep -q ready ../out; do sleep 0.02; done
		git agency put $a ../put go
		wait
		cat ../out
		inside $a 'cat answer; rm answer; test ! -e go'`},
	{"snapshot", `
		commit=$(git agency snapshot create $a -m 'a message')
		git ls-tree -r $commit
		git log -1 --format=%s $commit
		git agency snapshot ls $a --json | grep -v '"taken_at"\|"snapshot"'
		tree $a`},
	{"diff", `
		git agency diff $a
		git agency diff $a --name-status
		git agency diff $a --from head
		git agency diff $a --binary
		fails git agency diff $a --exit-code --name-status
		git agency diff $b --exit-code
		git agency diff $a $b --stat`},
	{"rollback", `
		inside $a 'rm -rf sub fresh link; mkdir link; echo no >link/file; echo later >>readme; git add -A; git commit -qm later; echo stray >stray'
		git agency snapshot rollback $a $a/1 2>../err >../out
		sed 's/after .*//' ../err
		tree $a
		git agency snapshot rollback $a $a/2 2>../err >../out
		tree $a
		git agency snapshot rollback $a $a/1 2>../err >../out`},
	{"radar", `
		inside $b 'echo other >>readme; echo free >free'
		git agency radar wt --porcelain
		git agency ls --radar --format '%(invocation_name) %(radar)'`},
	{"sync", `
		(cd "$WT"; echo person >person; git rm -q removed; git add person; git commit -qm person)
		inside $b 'git add -A; git commit -qm "work in b"; echo dirty >dirty'
		git agency sync $b
		tree $b
		git agency sync $b
		git agency radar wt --porcelain`},
	{"refused landing", `
		fails git agency land $a
		fails git agency submit $a
		tree $a`},
	{"land", `
		inside $a 'git add -A; git commit -qm "all of a"'
		git agency submit $a
		git agency ls --format '%(invocation_name) %(landing) %(ahead) %(dirty)'
		git agency land $a -n
		git agency land $a
		git agency ls --all --format '%(invocation_name) %(landing)'
		git -C "$WT" status --porcelain; git -C "$WT" log --format=%s; git -C "$WT" ls-tree -r HEAD`},
	{"conflicts", `
		fails git agency land $b
		fails git agency sync $b
		tree $b
		inside $b 'printf "resolved\n" >readme; git add readme; git commit -qm merged'
		tree $b`},
	{"unland", `
		git agency unland $a
		git -C "$WT" status --porcelain; git -C "$WT" ls-tree -r HEAD`},
	{"discard", `
		inside $b 'echo precious >precious; rm readme; echo cache >x.o; git init -q --template= -b main nested; echo nested >nested/file'
		git agency discard $b
		git ls-tree -r refs/agency/trash/20260128120200-3232
		git agency ls --all --format '%(invocation_name) %(landing)'
		fails git agency exec $b -- true`},
	{"restore", `
		TEST_NOW=2026-01-28T12:03:00Z TEST_RAND=3 git agency restore $b
		tree $r
		inside $r 'cat nested/file; git -C nested status --short; rm -rf nested'`},
	{"land all", `
		fails git agency land $r --commit-all -m 'all of b'
		git -C "$WT" revert --no-edit HEAD
		git agency land $r --commit-all -m 'all of b'
		git -C "$WT" status --porcelain; git -C "$WT" ls-tree -r HEAD`},
	{"start from a snapshot and a branch", `
		start 4 c
		inside $c 'echo c >c; mv sub moved; rm -r new || :; git add c'
		git agency snapshot create $c >../out
		TEST_NOW=2026-01-28T12:05:00Z TEST_RAND=5 git agency start --name d --from-snapshot $c/1 $OPTIONS
		tree $d
		inside $d 'git add -A; git commit -qm d'
		git branch topic agency/sandbox-20260128120500-3535
		start 6 e --from topic
		tree $e
		echo uncommitted >"$WT"/uncommitted; echo changed >>"$WT"/plain
		start 7 f --with-changes
		tree $f
		git agency diff $f --from base --name-status
		git agency discard $c $d $e $f`},
	{"prune", `
		TEST_NOW= git agency prune --expire now 2>../err | sed '/^removed layer /d; s/ it was .*//; s/\(was\|snapshot\) (*[0-9a-f]\{10\}//g' 
		git agency ls --all --json; git for-each-ref --format='%(refname)' refs/agency 'refs/heads/agency/sandbox-*'
		git worktree list --porcelain | grep -c ^worktree
		find .git/worktrees -mindepth 1 -maxdepth 1 | wc -l
		(cd "$DATA"; find repos/*/sandboxes repos/*/invocations -mindepth 1; fails ls -d repos/*/trash; find . -path './layers/*')`},
}

// TestChangesetsBehaveAlike runs the life cycle for each combination and checks that it prints the same as for the reference: no
// command may behave differently because of the changeset.
func TestChangesetsBehaveAlike(t *testing.T) {
	t.Parallel()
	all := combinations()
	transcripts := make([][]string, len(all))
	t.Run("life", func(t *testing.T) {
		for i, c := range all {
			t.Run(c.String(), func(t *testing.T) {
				t.Parallel()
				transcripts[i] = liveThrough(t, c)
			})
		}
	})
	for i, c := range all[1:] {
		for n, step := range lifeCycle {
			if len(transcripts[0]) <= n || len(transcripts[i+1]) <= n {
				break // the test that ended early has failed
			}
			if want, got := transcripts[0][n], transcripts[i+1][n]; got != want {
				t.Errorf("%s: with %s it does not print the same as with %s:\n%s", step.name, c, all[0], diffTexts(t, want, got))
			}
		}
	}
}

// diffTexts returns the differences of two texts.
func diffTexts(t *testing.T, want, got string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"want": want, "got": got} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "diff", "-u", "want", "got")
	cmd.Dir = dir
	out, _ := cmd.Output() // fails because they differ
	return string(out)
}

// liveThrough runs the life cycle and returns what each step printed.
func liveThrough(t *testing.T, c combination) (transcripts []string) {
	l := newLab(t)
	l.runShell(l.repo, `
mkdir tools; echo tool >tools/tool; chmod +x tools/tool; echo plain >plain; ln -s readme link; echo gone >gone; echo removed >removed; echo '*.o' >.gitignore
git add -A; git commit -qm second`)
	wt := l.must("env", "TEST_NOW=2026-01-28T12:00:00Z", "TEST_RAND=0", "git-agency", "worktree", "create", "wt")
	env := []string{"TEST_NOW=2026-01-28T12:30:00Z", "OPTIONS=" + c.args(), "WT=" + wt, "DATA=" + l.data}
	for i, step := range lifeCycle {
		layers := l.layerStamps()
		o := l.try(env, "sh", "-ec", stepFunctions+step.script)
		if o.code != 0 {
			t.Fatalf("%s: ended with %d\n%s%s", step.name, o.code, o.stdout, o.stderr)
		}
		transcripts = append(transcripts, l.normalise(o.stdout+"stderr:\n"+o.stderr))
		if step.name != "prune" { // which may remove them
			l.checkLayers(step.name, layers)
		}
		if isSelected(i, len(lifeCycle)) {
			if found := l.findings(); len(found) > 0 {
				t.Fatalf("%s: doctor found %+v", step.name, found)
			}
		}
		if step.name == "start" {
			var inv gitagency.Invocation
			if err := json.Unmarshal([]byte(l.agency("show", "3131", "--json")), &inv); err != nil {
				t.Fatal(err)
			}
			if p := inv.Primitives; p.Changeset != c.changeset || p.Isolation != c.isolation || p.Outputs != c.outputs {
				t.Errorf("the primitives are %+v", p)
			}
		}
	}
	return transcripts
}

// normalise replaces the paths of a lab and the sizes of archives in a text, and removes the warnings about --isolation none.
func (l *lab) normalise(text string) string {
	text = regexp.MustCompile(`[0-9.]+ (B|KiB)`).ReplaceAllString(text, "SIZE")
	text = regexp.MustCompile(`(?m)^warning: .* isolated from the rest of the machine\n`).ReplaceAllString(text, "")
	text = strings.ReplaceAll(text, l.dir, "LAB")
	return regexp.MustCompile(`LAB/data/repos/[0-9a-f]+`).ReplaceAllString(text, "DATA")
}
