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

// landLab is a lab whose integration worktree has uncommitted changes of a user, and a sandbox with changes of every
// kind to land there.
type landLab struct {
	*lab
	tree        string            // the integration worktree
	uncommitted map[string]string // the user's uncommitted files there, as readTree returns them
	status      string            // git status of the worktree

	before     map[string]string // files of the worktree before the landing
	after      map[string]string // files of the worktree after the landing
	treeBefore string            // tree object of HEAD before the landing
	treeAfter  string            // tree object of HEAD after the landing
}

var landSweep = sweep{verb: "land", argv: []string{"git-agency", "land", sweepID}, listArgs: []string{"ls", "--all", "--json"}}

// overlayLandSweep is landSweep for a sandbox that is an overlay.
var overlayLandSweep = sweep{verb: landSweep.verb, name: "land an overlay", argv: landSweep.argv, listArgs: landSweep.listArgs}

// cloneLandSweep is landSweep for a sandbox that is a clone.
var cloneLandSweep = sweep{verb: landSweep.verb, name: "land a clone", argv: landSweep.argv, listArgs: landSweep.listArgs}

// landArgs returns the command line of a landing with a strategy.
func landArgs(strategy string) []string {
	return append(slices.Clone(landSweep.argv), "--strategy", strategy)
}

var unlandSweep = sweep{verb: "unland", argv: []string{"git-agency", "unland", sweepID}, listArgs: landSweep.listArgs}

// newLandLab makes a landLab whose sandbox starts with the given options.
func newLandLab(t *testing.T, options ...string) *landLab {
	t.Helper()
	l := &landLab{lab: newSweepLab(t)}
	l.tree = l.worktreePath()
	l.git("config", "agency.autoDetach", "false")
	l.runShell(l.tree, `
mkdir -p d/e f2d both
echo 1 >d/e/x; echo 2 >d/y; echo 3 >f2d/only; echo 4 >tofile; ln -s readme link; echo 5 >plain; echo 6 >tolink; seq 100 >long
echo 7 >both/changed; echo 8 >both/mine; echo 9 >staged; echo 10 >staged-dirty; echo 11 >removed
printf '*.log\nbuild/\n' >.gitignore`)
	l.write(filepath.Join(l.tree, "big.bin"), randomData(1))
	l.runShell(l.tree, "git add -A . ':!untracked'; git commit -qm ground")
	if o := l.try(sweepEnv, append([]string{"git-agency", "start", "wt"}, options...)...); o.code != 0 {
		t.Fatal(o.stderr)
	}
	big := filepath.Join(t.TempDir(), "big.bin")
	l.write(big, randomData(2))
	l.agency("put", sweepID, big, "big.bin")
	l.inSandbox(sweepID, `
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
	l.agency("diff", sweepID, "--stat") // imports what was committed in a clone
	l.runShell(l.tree, `
echo later >later; git add later; git commit -qm later
echo dirty >>both/mine
echo s >>staged; git add staged
echo s >>staged-dirty; git add staged-dirty; echo d >>staged-dirty
echo added >added; git add added
rm removed
mkdir build; echo out >build/out; echo log >both/a.log; echo loose >both/loose`)
	l.uncommitted = map[string]string{}
	l.before, l.after = l.readTree(l.tree), l.readSandbox(sweepID)
	for _, name := range []string{"both/mine", "staged", "staged-dirty", "added", "untracked", "build", "build/out", "both/a.log", "both/loose"} {
		l.uncommitted[name] = l.before[name]
	}
	maps.Copy(l.after, l.uncommitted)
	l.after["later"] = l.before["later"]
	delete(l.after, "removed")
	l.status = l.git("-C", l.tree, "status", "--porcelain=v2")
	l.treeBefore = l.git("-C", l.tree, "rev-parse", "HEAD^{tree}")
	l.treeAfter, _, _ = strings.Cut(l.git("-C", l.tree, "merge-tree", "--write-tree", "HEAD", "agency/sandbox-"+sweepID), "\n")
	return l
}

// inSubtest returns the lab for a subtest.
func (l *landLab) inSubtest(t *testing.T) *landLab {
	of := *l
	of.lab = l.withT(t)
	return &of
}

// runShell runs a sh script in dir and returns its output.
func (l *lab) runShell(dir, lines string) string {
	l.t.Helper()
	return l.must("sh", "-ec", `cd "$0"`+"\n"+lines, dir)
}

// randomData returns 400 KiB of incompressible data.
func randomData(seed byte) string {
	data := make([]byte, 400<<10)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data)
	return string(data)
}

// readTree returns the type, mode and content of the files below tree by path, without .git and .agency.
func (l *lab) readTree(tree string) map[string]string {
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

// readSandbox is readTree for the tree of a sandbox, which may be an overlay.
func (l *lab) readSandbox(id string) map[string]string {
	l.t.Helper()
	tree := l.sandboxPath(id)
	if !exists(filepath.Join(tree, ".git")) {
		tree = l.t.TempDir()
		l.must("sh", "-ec", `git agency exec "$0" -- tar -cf - . | tar -xf - -C "$1"`, id, tree)
	}
	return l.readTree(tree)
}

// diffTrees returns the paths by which two results of readTree differ, marked - (missing), ! (changed) and + (added).
func diffTrees(a, b map[string]string) []string {
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

// checkUncommitted checks that the user's uncommitted files are unchanged.
func (l *landLab) checkUncommitted(point string) {
	l.t.Helper()
	now := l.readTree(l.tree)
	for name, content := range l.uncommitted {
		if now[name] != content {
			l.t.Fatalf("%s: the user's file %s is %q", point, name, now[name])
		}
	}
}

// userCommitDiff is the --name-status of a commit of all the user's changes.
const userCommitDiff = "A\tadded\nM\tboth/mine\nD\tremoved\nM\tstaged\nM\tstaged-dirty"

// commitAsUser commits the user's changes after a kill. It returns false if a lock file is in the way.
func (l *landLab) commitAsUser(point string) bool {
	l.t.Helper()
	o := l.try(nil, "git", "-C", l.tree, "commit", "-qam", "own")
	if o.code != 0 {
		if !strings.Contains(o.stderr, ".lock") {
			l.t.Fatalf("%s: the user's commit ended with %d\n%s", point, o.code, o.stderr)
		}
		return false
	}
	l.checkUserCommit(point)
	return true
}

// checkUserCommit checks that the commit of commitAsUser has the user's changes and no others.
func (l *landLab) checkUserCommit(point string) {
	l.t.Helper()
	own := l.git("-C", l.tree, "rev-list", "--grep=^own$", "HEAD")
	if got := l.git("-C", l.tree, "show", "--format=", "--name-status", own); got != userCommitDiff {
		l.t.Fatalf("%s: the user's commit has\n%s", point, got)
	}
}

// checkTree checks the files of the worktree, the tree of HEAD, git status and fsck, and that no leftovers of a landing
// exist. own tells that the user's changes were committed.
func (l *landLab) checkTree(point string, files map[string]string, head string, own bool) {
	l.t.Helper()
	if d := diffTrees(files, l.readTree(l.tree)); len(d) > 0 {
		l.t.Fatalf("%s: the files differ: %q", point, d)
	}
	want := head + "\n" + l.status
	if own {
		want = regexp.MustCompile(`(?m)^[^?].*\n`).ReplaceAllString(l.status+"\n", "")
	}
	got := l.runShell(l.tree, `git rev-parse 'HEAD^{tree}'; git status --porcelain=v2; git fsck --strict --no-dangling --no-progress`)
	if own {
		_, got, _ = strings.Cut(got+"\n", "\n")
	}
	if got != want {
		l.t.Fatalf("%s: HEAD, status and fsck are\n%s\nwant\n%s", point, got, want)
	}
	if left := l.landingLeftovers(); len(left) > 0 {
		l.t.Fatalf("%s: left behind: %q", point, left)
	}
}

// landingLeftovers returns temporary files that must not exist after a landing was completed or undone.
func (l *lab) landingLeftovers() []string {
	l.t.Helper()
	var left []string
	if note := filepath.Join(l.repoData(), "landing.json"); exists(note) {
		left = append(left, note)
	}
	err := filepath.WalkDir(filepath.Join(l.repo, ".git"), func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		if strings.HasPrefix(name, "capture-") {
			return fs.SkipDir // temporary directory of a killed git; prune and doctor remove it
		}
		if id, locked := strings.CutSuffix(name, ".lock"); locked && filepath.Base(filepath.Dir(path)) == "index" && exists(filepath.Join(l.repoData(), "sandboxes", id)) {
			return err // of the ref that keeps staged files; the next import or the end of the sandbox removes it
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

// showInvocation returns the record of an invocation.
func (l *lab) showInvocation(id string) gitagency.Invocation {
	l.t.Helper()
	var inv gitagency.Invocation
	if err := json.Unmarshal([]byte(l.agency("show", id, "--json")), &inv); err != nil {
		l.t.Fatal(err)
	}
	return inv
}

// countTrailer returns the number of commits of the branch with a trailer.
func (l *landLab) countTrailer(trailer, value string) int {
	l.t.Helper()
	return len(strings.Fields(l.git("-C", l.tree, "rev-list", "--grep=^"+trailer+": "+value+"$", "HEAD")))
}

// checkLanded checks a completed landing: it landed exactly once and completely, and only the trash ref is left of the
// sandbox.
func (l *landLab) checkLanded(point, strategy string, own bool) {
	l.t.Helper()
	want := 1
	if strategy == "rebase" {
		want = 2
	}
	if got := l.countTrailer("Agency-Invocation", sweepID); got != want {
		l.t.Fatalf("%s: the landing made %d commits, want %d", point, got, want)
	}
	l.checkTree(point, l.after, l.treeAfter, own)
	if inv := l.showInvocation(sweepID); inv.Landing != "landed" || inv.Broken {
		l.t.Fatalf("%s: the record says %+v", point, inv)
	}
	if exists(filepath.Dir(l.sandboxPath(sweepID))) || l.hasEntry() ||
		l.git("for-each-ref", "--format=%(refname)", "refs/heads/agency/sandbox-"+sweepID, trashRef) != trashRef {
		l.t.Fatalf("%s: parts of the sandbox are left, or its trash ref is missing", point)
	}
	if own {
		l.checkUserCommit(point)
	}
}

// checkUnlanded checks a completed unland: one commit reverts the whole landing and nothing else.
func (l *landLab) checkUnlanded(point string, own bool) {
	l.t.Helper()
	if got := l.countTrailer("Agency-Undoes", ".*"); got != 1 {
		l.t.Fatalf("%s: unland made %d commits, want 1", point, got)
	}
	l.checkTree(point, l.before, l.treeBefore, own)
	if inv := l.showInvocation(sweepID); inv.UnlandedCommit == "" || inv.Broken {
		l.t.Fatalf("%s: the record says %+v", point, inv)
	}
	if own {
		l.checkUserCommit(point)
	}
}
