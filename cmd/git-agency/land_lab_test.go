package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency"
)

// landLab is a repository in whose integration worktree a person is at work, and a sandbox with changes of every kind
// that are to land there.
type landLab struct {
	*lab
	tree   string            // the person's
	own    map[string]string // what the person has there that is in no commit, as files says
	status string            // what git says of that

	before map[string]string // all that is in the tree
	after  map[string]string // when it has landed
	head   string            // the tree of HEAD, as git knows it
	landed string            // when it has landed
}

var landSweep = sweep{verb: "land", argv: []string{"git-agency", "land", sweepID}, list: []string{"ls", "--all", "--json"}}

// landWith is a landing by a strategy.
func landWith(strategy string) []string {
	return append(slices.Clone(landSweep.argv), "--strategy", strategy)
}

var unlandSweep = sweep{verb: "unland", argv: []string{"git-agency", "unland", sweepID}, list: landSweep.list}

func newLandLab(t *testing.T) *landLab {
	t.Helper()
	l := &landLab{lab: newSweepLab(t)}
	l.tree = l.worktree()
	l.git("config", "agency.autoDetach", "false")
	l.shell(l.tree, `
mkdir -p d/e f2d both
echo 1 >d/e/x; echo 2 >d/y; echo 3 >f2d/only; echo 4 >tofile; ln -s readme link; echo 5 >plain; echo 6 >tolink; seq 100 >long
echo 7 >both/changed; echo 8 >both/mine; echo 9 >staged; echo 10 >staged-dirty; echo 11 >removed
printf '*.log\nbuild/\n' >.gitignore`)
	l.write(filepath.Join(l.tree, "big.bin"), noise(1))
	l.shell(l.tree, "git add -A . ':!untracked'; git commit -qm ground")
	if o := l.try(sweepEnv, "git-agency", "start", "wt"); o.code != 0 {
		t.Fatal(o.stderr)
	}
	sandbox := l.sandboxOf(sweepID)
	l.write(filepath.Join(sandbox, "big.bin"), noise(2))
	l.shell(sandbox, `
rm -r d; echo now-a-file >d
rm tofile; mkdir tofile; echo deep >tofile/deep
chmod +x plain
rm link; echo was-a-link >link
ln -sf plain tolink
git mv long renamed; echo more >>renamed
git rm -q -r f2d
git add -A; git commit -qm kinds
echo changed >both/changed; mkdir -p new/dir; echo new >new/dir/file
git add -A; git commit -qm more`)
	l.shell(l.tree, `
echo later >later; git add later; git commit -qm later
echo dirty >>both/mine
echo s >>staged; git add staged
echo s >>staged-dirty; git add staged-dirty; echo d >>staged-dirty
echo added >added; git add added
rm removed
mkdir build; echo out >build/out; echo log >both/a.log; echo loose >both/loose`)
	l.own = map[string]string{}
	l.before, l.after = l.files(l.tree), l.files(sandbox)
	for _, name := range []string{"both/mine", "staged", "staged-dirty", "added", "untracked", "build", "build/out", "both/a.log", "both/loose"} {
		l.own[name] = l.before[name]
	}
	maps.Copy(l.after, l.own)
	l.after["later"] = l.before["later"]
	delete(l.after, "removed")
	l.status = l.git("-C", l.tree, "status", "--porcelain=v2")
	l.head = l.git("-C", l.tree, "rev-parse", "HEAD^{tree}")
	l.landed, _, _ = strings.Cut(l.git("-C", l.tree, "merge-tree", "--write-tree", "HEAD", "agency/sandbox-"+sweepID), "\n")
	return l
}

// of is the same lab in another test.
func (l *landLab) of(t *testing.T) *landLab {
	of := *l
	of.lab = l.with(t)
	return &of
}

// shell runs lines of a shell.
func (l *lab) shell(dir, lines string) string {
	l.t.Helper()
	return l.must("sh", "-ec", `cd "$0"`+"\n"+lines, dir)
}

// noise is 400 KB that nothing makes smaller.
func noise(seed byte) string {
	data := make([]byte, 400<<10)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data)
	return string(data)
}

// files is everything in a tree but what is git's or ours: kinds, modes and bytes.
func (l *lab) files(tree string) map[string]string {
	l.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(tree, path)
		switch {
		case name == ".":
		case d.Name() == ".git" || name == ".agency":
			if d.IsDir() {
				return fs.SkipDir
			}
		case d.IsDir():
			all[name] = "a directory"
		case d.Type() == fs.ModeSymlink:
			to, err := os.Readlink(path)
			all[name] = "-> " + to
			return err
		default:
			info, err := d.Info()
			if err != nil {
				return err
			}
			all[name] = fmt.Sprintf("%o ", info.Mode()) + l.read(path)
		}
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return all
}

// differences are the names by which two trees differ.
func differences(a, b map[string]string) []string {
	var names []string
	for name, content := range a {
		if other, there := b[name]; !there {
			names = append(names, "-"+name)
		} else if other != content {
			names = append(names, "!"+name)
		}
	}
	for name := range b {
		if _, there := a[name]; !there {
			names = append(names, "+"+name)
		}
	}
	slices.Sort(names)
	return names
}

// checkOwn makes sure that the person still has what is in no commit.
func (l *landLab) checkOwn(point string) {
	l.t.Helper()
	now := l.files(l.tree)
	for name, content := range l.own {
		if now[name] != content {
			l.t.Fatalf("%s: the person's %s is %q", point, name, now[name])
		}
	}
}

// committed is a commit of the person's of all that they have changed.
const committed = "A\tadded\nM\tboth/mine\nD\tremoved\nM\tstaged\nM\tstaged-dirty"

// commit is the person's next step, as it is after a kill. It reports whether git let them.
func (l *landLab) commit(point string) bool {
	l.t.Helper()
	o := l.try(nil, "git", "-C", l.tree, "commit", "-qam", "own")
	if o.code != 0 {
		if !strings.Contains(o.stderr, ".lock") {
			l.t.Fatalf("%s: the person's commit ended with %d\n%s", point, o.code, o.stderr)
		}
		return false
	}
	l.checkCommitted(point)
	return true
}

func (l *landLab) checkCommitted(point string) {
	l.t.Helper()
	own := l.git("-C", l.tree, "rev-list", "--grep=^own$", "HEAD")
	if got := l.git("-C", l.tree, "show", "--format=", "--name-status", own); got != committed {
		l.t.Fatalf("%s: the person's commit has\n%s", point, got)
	}
}

// is makes sure that the tree is as it was, or as it is to be, that git sees it so, and that nothing is held.
func (l *landLab) is(point string, files map[string]string, head string, own bool) {
	l.t.Helper()
	if d := differences(files, l.files(l.tree)); len(d) > 0 {
		l.t.Fatalf("%s: the files differ: %q", point, d)
	}
	want := head + "\n" + l.status
	if own {
		want = regexp.MustCompile(`(?m)^[^?].*\n`).ReplaceAllString(l.status+"\n", "")
	}
	got := l.shell(l.tree, `git rev-parse 'HEAD^{tree}'; git status --porcelain=v2; git fsck --strict --no-dangling --no-progress`)
	if own {
		_, got, _ = strings.Cut(got+"\n", "\n")
	}
	if got != want {
		l.t.Fatalf("%s: git sees\n%s\nwant\n%s", point, got, want)
	}
	if left := l.left(); len(left) > 0 {
		l.t.Fatalf("%s: left behind: %q", point, left)
	}
}

// left is what nobody needs any more once a landing is done or undone.
func (l *lab) left() []string {
	l.t.Helper()
	var left []string
	if note := filepath.Join(l.repoData(), "landing.json"); exists(note) {
		left = append(left, note)
	}
	err := filepath.WalkDir(filepath.Join(l.repo, ".git"), func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		if strings.HasPrefix(name, "capture-") {
			return fs.SkipDir // where a killed git was at work for us alone; prune and doctor find it
		}
		if err == nil && (strings.HasSuffix(name, ".lock") || name == "index.agency" || strings.HasPrefix(name, "advance-")) {
			left = append(left, path)
		}
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return left
}

// invocationOf is what the record says.
func (l *lab) invocationOf(id string) gitagency.Invocation {
	l.t.Helper()
	var inv gitagency.Invocation
	if err := json.Unmarshal([]byte(l.agency("show", id, "--json")), &inv); err != nil {
		l.t.Fatal(err)
	}
	return inv
}

// times is how many commits of the branch say that they are of an invocation.
func (l *landLab) times(trailer, value string) int {
	l.t.Helper()
	return len(strings.Fields(l.git("-C", l.tree, "rev-list", "--grep=^"+trailer+": "+value+"$", "HEAD")))
}

// checkLanded is what must hold when a landing is done: once, all of it, and nothing of the sandbox is left but what keeps
// its commits.
func (l *landLab) checkLanded(point, strategy string, own bool) {
	l.t.Helper()
	want := 1
	if strategy == "rebase" {
		want = 2
	}
	if got := l.times("Agency-Invocation", sweepID); got != want {
		l.t.Fatalf("%s: it has landed in %d commits", point, got)
	}
	l.is(point, l.after, l.landed, own)
	if inv := l.invocationOf(sweepID); inv.Landing != "landed" || inv.Broken {
		l.t.Fatalf("%s: the record says %+v", point, inv)
	}
	if exists(filepath.Dir(l.sandboxOf(sweepID))) || exists(filepath.Join(l.repo, ".git", "worktrees", sweepID)) ||
		l.git("for-each-ref", "--format=%(refname)", "refs/heads/agency/sandbox-"+sweepID, trash) != trash {
		l.t.Fatalf("%s: something of the sandbox is left, or nothing keeps it", point)
	}
	if own {
		l.checkCommitted(point)
	}
}

// checkUnlanded is what must hold when it was taken back: once, all of it, and nothing else.
func (l *landLab) checkUnlanded(point string, own bool) {
	l.t.Helper()
	if got := l.times("Agency-Undoes", ".*"); got != 1 {
		l.t.Fatalf("%s: it was taken back by %d commits", point, got)
	}
	l.is(point, l.before, l.head, own)
	if inv := l.invocationOf(sweepID); inv.UnlandedCommit == "" || inv.Broken {
		l.t.Fatalf("%s: the record says %+v", point, inv)
	}
	if own {
		l.checkCommitted(point)
	}
}
