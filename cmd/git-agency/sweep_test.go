package main

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency"
)

// Ids of a repeatable run: of the integration worktree that newSweepLab creates, and of the tested command.
const (
	sweepWorktree = "20260128120000-6161"
	sweepID       = "20260128120500-6262"
)

var sweepEnv = []string{"TEST_NOW=2026-01-28T12:05:00Z", "TEST_RAND=b"}

// sweep is a command that is made to fail, interrupted or killed at every step, and the command that removes an incomplete result.
type sweep struct {
	verb      string
	name      string // name of the subtest, if not the verb
	argv      []string
	listArgs  []string     // arguments of the listing that shows the result, as JSON
	cleanArgs []string     // arguments that remove an incomplete result
	prepare   func(l *lab) // prepares the repository; may be nil

	makesLayer bool // the command makes a layer, which may stay after a failure
	keepsIndex bool // the command writes objects to keep staged files, which may stay after a failure
}

func (s sweep) String() string { return cmp.Or(s.name, s.verb) }

// dump is lab.dump, without the layers and objects that the command may leave.
func (s sweep) dump(l *lab) string {
	l.t.Helper()
	switch {
	case s.keepsIndex:
		return withoutObjects(l.dump())
	case !s.makesLayer:
		return l.dump()
	}
	return regexp.MustCompile(`(?m)^"data/layers/.*\n`).ReplaceAllString(l.dump(), "")
}

// newLab makes the repository of a sweep.
func (s sweep) newLab(t *testing.T) *lab {
	t.Helper()
	l := newSweepLab(t)
	if s.prepare != nil {
		s.prepare(l)
	}
	return l
}

var creations = []sweep{
	{
		verb:      "worktree create",
		argv:      []string{"git-agency", "worktree", "create", "other"},
		listArgs:  []string{"worktree", "ls", "--all", "--json"},
		cleanArgs: []string{"worktree", "rm", sweepID},
	},
	{
		verb:      "start",
		argv:      []string{"git-agency", "start", "wt", "--name", "x"},
		listArgs:  []string{"ls", "--all", "--json"},
		cleanArgs: []string{"discard", sweepID},
	},
	{
		verb:      "worktree adopt",
		argv:      []string{"git-agency", "worktree", "adopt", "--name", "adopted"},
		listArgs:  []string{"worktree", "ls", "--all", "--json"},
		cleanArgs: []string{"worktree", "rm", sweepID},
	},
	forkSweep,
	restoreSweep,
	copySweep,
	firstOverlay,
	{
		verb: "start", name: "start an overlay", prepare: startOverlay,
		argv: overlayArgs("start", "wt"), listArgs: []string{"ls", "--all", "--json"}, cleanArgs: []string{"discard", sweepID},
	},
	{
		verb: "start", name: "start an overlay from a snapshot", keepsIndex: true,
		argv: overlayArgs("start", "--from-snapshot", forkID+"/1"), listArgs: []string{"ls", "--all", "--json"}, cleanArgs: []string{"discard", sweepID},
		prepare: func(l *lab) {
			startOverlay(l)
			l.makeChanges(forkID)
			l.agency("snapshot", "create", forkID)
		},
	},
	{
		verb: "start", name: "start a clone",
		argv: cloneArgs("os", "start", "wt"), listArgs: []string{"ls", "--all", "--json"}, cleanArgs: []string{"discard", sweepID},
	},
	{
		verb: "start", name: "start a clone without walls",
		argv: cloneArgs("none", "start", "wt"), listArgs: []string{"ls", "--all", "--json"}, cleanArgs: []string{"discard", sweepID},
	},
	{
		verb: "restore", name: "restore an overlay", keepsIndex: true,
		argv: []string{"git-agency", "restore", forkID}, listArgs: []string{"ls", "--all", "--json"}, cleanArgs: []string{"discard", sweepID},
		prepare: func(l *lab) {
			startOverlay(l)
			l.makeChanges(forkID)
			l.inSandbox(forkID, "git rm -q --cached sub/one; git init -q --template= vendor/lib")
			l.agency("discard", forkID)
		},
	},
}

// firstOverlay creates a sandbox that is an overlay, and its layer.
var firstOverlay = sweep{
	verb: "start", name: "start the first overlay", makesLayer: true,
	argv: overlayArgs("start", "wt"), listArgs: []string{"ls", "--all", "--json"}, cleanArgs: []string{"discard", sweepID},
}

// overlayArgs returns a command line with the options for an overlay.
func overlayArgs(args ...string) []string {
	return slices.Concat([]string{"git-agency"}, args, []string{"--changeset", "overlay", "--isolation", "os"})
}

// cloneArgs returns a command line with the options for a clone.
func cloneArgs(isolation string, args ...string) []string {
	return slices.Concat([]string{"git-agency"}, args, []string{"--changeset", "clone", "--isolation", isolation})
}

// startOverlay makes a sandbox that is an overlay, with the id forkID, and so the layer.
func startOverlay(l *lab) {
	l.t.Helper()
	if o := l.try([]string{"TEST_NOW=2026-01-28T12:01:00Z", "TEST_RAND=a"}, overlayArgs("start", "wt")...); o.code != 0 {
		l.t.Fatal(o.stderr)
	}
}

// inSandbox runs a sh script in a sandbox and returns its output. It runs behind the walls only where the tree is an overlay,
// which exists nowhere else.
func (l *lab) inSandbox(id, script string) string {
	l.t.Helper()
	if tree := l.sandboxPath(id); exists(filepath.Join(tree, ".git")) {
		return l.runShell(tree, script)
	}
	return l.agency("exec", id, "--", "sh", "-ec", script)
}

// copySweep creates a sandbox with copies of ignored files, in a read-only directory too.
var copySweep = sweep{
	verb:      "start",
	name:      "start with copies",
	argv:      []string{"git-agency", "start", "wt"},
	listArgs:  []string{"ls", "--all", "--json"},
	cleanArgs: []string{"discard", sweepID},
	prepare: func(l *lab) {
		l.write(filepath.Join(l.repo, ".git", "info", "exclude"), "/.agency/\n.env\nnode_modules\n")
		l.git("config", "--add", "agency.copy", ".env")
		l.git("config", "--add", "agency.copy", "node_modules")
		tree := l.worktreePath()
		l.write(filepath.Join(tree, ".env"), "SECRET=1\n")
		l.write(filepath.Join(tree, "node_modules", "package", "index.js"), "js\n")
		l.write(filepath.Join(tree, "node_modules", "package", "deep", "file"), "deep\n")
		if err := os.Symlink("../package/index.js", filepath.Join(tree, "node_modules", "link")); err != nil {
			l.t.Fatal(err)
		}
		readOnly := filepath.Join(tree, "node_modules", "package", "deep")
		if err := os.Chmod(readOnly, 0o555); err != nil {
			l.t.Fatal(err)
		}
		l.t.Cleanup(func() { _ = os.Chmod(readOnly, 0o755) }) // the directory of the test can then be removed
	},
}

// restoreSweep restores a discarded sandbox with changes of every kind, a nested repository and a submodule.
var restoreSweep = sweep{
	verb:      "restore",
	argv:      []string{"git-agency", "restore", forkID},
	listArgs:  []string{"ls", "--all", "--json"},
	cleanArgs: []string{"discard", sweepID},
	prepare: func(l *lab) {
		library := filepath.Join(l.dir, "home", "library")
		l.git("init", "-q", library)
		l.git("-C", library, "commit", "-q", "--allow-empty", "-m", "library")
		l.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", library, "library")
		l.git("commit", "-q", "-m", "library", "library", ".gitmodules")
		l.git("-C", l.worktreePath(), "merge", "-q", l.git("rev-parse", "HEAD"))
		forkSweep.prepare(l)
		l.git("init", "-q", filepath.Join(l.agency("path", forkID), "vendor", "lib"))
		l.agency("discard", forkID)
	},
}

// forkID is an invocation with changes of every kind and a snapshot.
const forkID = "20260128120100-6161"

var forkSweep = sweep{
	verb:      "start",
	name:      "start from a snapshot",
	argv:      []string{"git-agency", "start", "--from-snapshot", forkID + "/1"},
	listArgs:  []string{"ls", "--all", "--json"},
	cleanArgs: []string{"discard", sweepID},
	prepare: func(l *lab) {
		if o := l.try([]string{"TEST_NOW=2026-01-28T12:01:00Z", "TEST_RAND=a"}, "git-agency", "start", "wt"); o.code != 0 {
			l.t.Fatal(o.stderr)
		}
		l.makeChanges(forkID)
		l.git("-C", l.agency("path", forkID), "rm", "-q", "--cached", "sub/one") // deleted in the index, but not in the worktree
		l.agency("snapshot", "create", forkID)
	},
}

// firstCreation is the first command in a repository: info/exclude has no line of ours yet, and there are no records and no
// branches below agency/.
var firstCreation = sweep{
	verb:      "worktree create",
	argv:      []string{"git-agency", "worktree", "create", "wt"},
	listArgs:  []string{"worktree", "ls", "--all", "--json"},
	cleanArgs: []string{"worktree", "rm", sweepID},
}

func TestFirstCreationFailedAtAnyStepIsUndone(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	before := l.dump()
	for _, point := range thin(l.faultPoints(firstCreation)) {
		o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=fail"), firstCreation.argv...)
		if o.code != 1 || strings.Contains(o.stderr, "clean-up") {
			t.Errorf("%s: exited with %d\n%s", point, o.code, o.stderr)
		}
		if d := dumpDiff(before, l.dump()); d != "" {
			t.Fatalf("%s: files changed:\n%s", point, d)
		}
		if exists(l.data) {
			t.Fatalf("%s: the data directory is left", point)
		}
	}
}

// newSweepLab makes a repository with an integration worktree, a worktree of the user, and files of the user that no
// command may change.
func newSweepLab(t *testing.T) *lab {
	t.Helper()
	l := newLab(t)
	if o := l.try([]string{"TEST_NOW=2026-01-28T12:00:00Z", "TEST_RAND=a"}, "git-agency", "worktree", "create", "wt"); o.code != 0 {
		t.Fatal(o.stderr)
	}
	l.git("worktree", "add", "-q", "-b", "users-own", filepath.Join(l.dir, "home", "own"))
	l.write(filepath.Join(l.repo, "staged"), "s\n")
	l.git("add", "staged")
	l.write(filepath.Join(l.repo, "untracked"), "u\n")
	l.write(filepath.Join(l.worktreePath(), "untracked"), "u\n")
	return l
}

// worktreePath returns the path of the integration worktree.
func (l *lab) worktreePath() string {
	return filepath.Join(l.repoData(), "worktrees", sweepWorktree, "tree")
}

// repoData returns the directory with the records of the repository.
func (l *lab) repoData() string {
	l.t.Helper()
	found, err := filepath.Glob(filepath.Join(l.data, "repos", "*"))
	if err != nil || len(found) != 1 {
		l.t.Fatalf("%v, %v", found, err)
	}
	return found[0]
}

// faultPoints runs a command once, restores the repository, and returns the fault points that the command reached.
func (l *lab) faultPoints(s sweep) []string {
	l.t.Helper()
	steps := filepath.Join(l.t.TempDir(), "steps")
	restore := l.save()
	if o := l.try(append(slices.Clone(sweepEnv), "TEST_STEPS="+steps), s.argv...); o.code != 0 {
		l.t.Fatal(o.stderr)
	}
	restore()
	points := strings.Fields(strings.ReplaceAll(l.read(steps), " ", "_"))
	if len(points) < 4 {
		l.t.Fatalf("only the fault points %q", points)
	}
	for i, p := range points {
		points[i] = strings.ReplaceAll(p, "_", " ")
	}
	return points
}

// sampleBoundaries returns the fault points of a sweep with -short: of the points of onePerBoundary the first, the last, and
// every fifth in between.
func sampleBoundaries(points []string) (chosen []string) {
	all := onePerBoundary(points)
	for i, point := range all {
		if i%5 == 0 || i == len(all)-1 {
			chosen = append(chosen, point)
		}
	}
	return chosen
}

// onePerBoundary selects one fault point for each boundary between steps. The points are in the order in which a command
// reached them. The point after a step and the point before the next step are the same boundary: no file changes between
// them. Of such a pair it selects the point after the step at odd boundaries and the point before the step at even ones.
// A fault happens when its point is reached for the first time, so each point counts only there.
func onePerBoundary(points []string) (chosen []string) {
	isFirst := func(i int) bool { return slices.Index(points, points[i]) == i }
	for i := 0; i < len(points); i++ {
		if !isFirst(i) {
			continue
		}
		point := points[i]
		if strings.HasSuffix(point, ":after") && i+1 < len(points) && strings.HasSuffix(points[i+1], ":before") && isFirst(i+1) {
			i++
			if len(chosen)%2 == 0 {
				point = points[i]
			}
		}
		chosen = append(chosen, point)
	}
	return chosen
}

// isSelected reports whether a long table of cases that do not depend on each other runs case number i of n: with
// -short every fifth.
func isSelected(i, n int) bool { return isEvery(5, i, n) }

// isEvery reports whether case number i of n is run: all without -short; with -short the first, the last, and one in step cases.
func isEvery(step, i, n int) bool { return !testing.Short() || i%step == 0 || i == n-1 }

// isRotated reports whether a table of cases by a few variants (agents, shells, sandboxes) runs case number i for variant v:
// all without -short; with -short a third for each variant, so that three variants run every case once.
func isRotated(i, v int) bool { return !testing.Short() || (i+v)%3 == 0 }

// thin returns the cases of a table or a sweep that are run: with -short every third.
func thin[T any](all []T) (some []T) {
	for i, c := range all {
		if isEvery(3, i, len(all)) {
			some = append(some, c)
		}
	}
	return some
}

// chooseActions returns a function that reports whether a sweep applies an action ("fail", "kill" or a signal) at a fault
// point. Without -short it applies each at every point. With -short the command fails before a step or is killed after a
// step, at one point for each of the boundaries between steps that sampleBoundaries selects.
func chooseActions(points []string) func(point, action string) bool {
	if !testing.Short() {
		return func(string, string) bool { return true }
	}
	chosen := sampleBoundaries(points)
	return func(point, action string) bool {
		wants := "kill"
		if strings.HasSuffix(point, ":before") {
			wants = "fail"
		}
		return action == wants && slices.Contains(chosen, point)
	}
}

func TestOnePerBoundary(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ points, want []string }{
		{nil, nil},
		{faultPoints("v", "a"), []string{"v/a:before", "v/a:after"}},
		{faultPoints("v", "a", "b"), []string{"v/a:before", "v/a:after", "v/b:after"}},
		{faultPoints("v", "a", "b", "c"), []string{"v/a:before", "v/a:after", "v/c:before", "v/c:after"}},
		{faultPoints("v", "a", "b", "c", "d"), []string{"v/a:before", "v/a:after", "v/c:before", "v/c:after", "v/d:after"}},
		// Between the first b:after and the only c:before, the steps a and b run again.
		{faultPoints("v", "a", "b", "a", "b", "c"), []string{"v/a:before", "v/a:after", "v/b:after", "v/c:before", "v/c:after"}},
	} {
		if got := onePerBoundary(c.points); !slices.Equal(got, c.want) {
			t.Errorf("of %q it selects %q, want %q", c.points, got, c.want)
		}
	}
}

// listedState returns the state of sweepID in the listing: "" if it is not listed, "whole", or the reason why it is broken.
func (l *lab) listedState(s sweep) string {
	l.t.Helper()
	var all []struct {
		Invocation string `json:"invocation_id"`
		Worktree   string `json:"worktree_id"`
		Reason     string `json:"broken_reason"`
		Broken     bool   `json:"broken"`
	}
	if err := json.Unmarshal([]byte(l.agency(s.listArgs...)), &all); err != nil {
		l.t.Fatal(err)
	}
	for _, e := range all {
		switch {
		case e.Invocation != sweepID && e.Worktree != sweepID:
		case e.Broken:
			return e.Reason
		default:
			return "whole"
		}
	}
	return ""
}

func TestCreationFailedAtAnyStepIsUndone(t *testing.T) {
	t.Parallel()
	for i, s := range creations {
		if testing.Short() && i%2 != 0 {
			continue // TestCreationKilledAtAnyStepIsRemovable kills the others
		}
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			l := s.newLab(t)
			before, points := s.dump(l), l.faultPoints(s)
			chosen := chooseActions(points)
			for _, point := range points {
				if !chosen(point, "fail") {
					continue // TestCreationKilledAtAnyStepIsRemovable kills it at the other boundaries
				}
				o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=fail"), s.argv...)
				if o.code != 1 || o.stdout != "" || !strings.Contains(o.stderr, "failed on purpose at "+point) || strings.Contains(o.stderr, "clean-up") {
					t.Errorf("%s: exited with %d\n%s%s", point, o.code, o.stdout, o.stderr)
				}
				if d := dumpDiff(before, s.dump(l)); d != "" {
					t.Fatalf("%s: files changed:\n%s", point, d)
				}
			}
			if o := l.try(sweepEnv, s.argv...); o.code != 0 {
				t.Errorf("the command fails without a fault: %s", o.stderr)
			}
		})
	}
}

func TestStartInterruptedAtAnyStepIsUndone(t *testing.T) {
	t.Parallel()
	for _, sig := range []struct {
		name     string
		code     int
		creation sweep
	}{{"int", 130, creations[1]}, {"term", 143, firstOverlay}} { // both signals are handled alike
		t.Run(sig.name, func(t *testing.T) {
			t.Parallel()
			s := sig.creation
			l := s.newLab(t)
			before, points := s.dump(l), l.faultPoints(s)
			chosen := sampleBoundaries(points)
			for _, point := range points {
				if testing.Short() && !slices.Contains(chosen, point) {
					continue
				}
				o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"="+sig.name), s.argv...)
				// From the record on, the start is completed.
				if strings.HasPrefix(point, "start/record:") {
					continue
				}
				if o.code != sig.code || o.stdout != "" {
					t.Errorf("%s: exited with %d\n%s%s", point, o.code, o.stdout, o.stderr)
				}
				if d := dumpDiff(before, s.dump(l)); d != "" {
					t.Fatalf("%s: files changed:\n%s", point, d)
				}
			}
		})
	}
}

func TestCreationKilledAtAnyStepIsRemovable(t *testing.T) {
	t.Parallel()
	for i, s := range creations {
		if testing.Short() && i%2 == 0 {
			continue // TestCreationFailedAtAnyStepIsUndone makes the others fail
		}
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			l := s.newLab(t)
			before, points := s.dump(l), l.faultPoints(s)
			chosen, restore := chooseActions(points), l.save()
			for _, point := range points {
				if !chosen(point, "kill") {
					continue // TestCreationFailedAtAnyStepIsUndone makes it fail at the other boundaries
				}
				if o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=kill"), s.argv...); o.code != -1 {
					t.Fatalf("%s: exited with %d\n%s", point, o.code, o.stderr)
				}
				l.checkAfterKill(s, point, before)
				restore()
			}
		})
	}
}

// checkAfterKill checks that a killed creation is complete, or that the listing shows what is left and that removing it
// restores all files.
func (l *lab) checkAfterKill(s sweep, point, before string) {
	l.t.Helper()
	state := ""
	waitUntil(func() bool { // an orphaned git keeps the lock, and what is under way is not listed
		state = l.listedState(s)
		return state != "" || dumpDiff(before, s.dump(l)) == ""
	})
	switch state {
	case "", "whole":
	case "incomplete", "missing-meta":
		if o := l.try(nil, append([]string{"git-agency"}, s.cleanArgs...)...); o.code != 0 {
			l.t.Fatalf("%s: removing it in state %s failed: %s", point, state, o.stderr)
		}
	default:
		l.t.Fatalf("%s: the listed state is %q", point, state)
	}
	if state == "whole" {
		l.checkCreated(s, point)
		return
	}
	if d := dumpDiff(before, s.dump(l)); d != "" {
		l.t.Fatalf("%s (%q): files are left:\n%s", point, state, d)
	}
	l.checkNextLayer(s, point)
}

// checkNextLayer repeats a killed creation that makes a layer, and checks that only complete layers are left.
func (l *lab) checkNextLayer(s sweep, point string) {
	l.t.Helper()
	if !s.makesLayer {
		return
	}
	l.must(s.argv...)
	layers, err := filepath.Glob(filepath.Join(l.data, "layers", "*"))
	if err != nil || len(layers) != 1 || strings.Count(filepath.Base(layers[0]), "-") != 1 {
		l.t.Fatalf("%s: after the next start the layers are %q, %v", point, layers, err)
	}
}

// checkCreated checks that a worktree or sandbox listed as whole is complete.
func (l *lab) checkCreated(s sweep, point string) {
	l.t.Helper()
	tree, marker := l.repo, "INTEGRATION_MARKER"
	switch s.verb {
	case "start", restoreSweep.verb:
		tree, marker = l.agency("path", sweepID), "SANDBOX_MARKER"
	case "worktree create":
		tree = l.agency("worktree", "path", sweepID)
	}
	if !exists(filepath.Join(tree, ".agency", marker)) {
		l.t.Errorf("%s: the marker is missing", point)
	}
	if s.verb == "worktree adopt" {
		return
	}
	if overlaid := s.verb != "worktree create" && !exists(filepath.Join(tree, ".git")); overlaid {
		l.checkCreatedOverlay(s, point)
		return
	}
	if s.verb == restoreSweep.verb {
		const want = " M readme\nA  staged\nD  sub/one\n?? sub/one\n?? sub/untracked\n?? vendor/"
		if status := l.git("-C", tree, "status", "--porcelain"); status != want || !exists(filepath.Join(tree, "vendor", "lib", ".git", "HEAD")) || !exists(filepath.Join(tree, "library", ".git")) {
			l.t.Errorf("%s: the sandbox was restored as\n%s", point, status)
		}
		return
	}
	if s.name == forkSweep.name {
		like := l.agency("path", forkID)
		for _, argv := range [][]string{{"status", "--porcelain"}, {"rev-parse", "HEAD"}, {"diff", "HEAD"}, {"diff", "--cached"}} {
			if got, want := l.git(append([]string{"-C", tree}, argv...)...), l.git(append([]string{"-C", like}, argv...)...); got != want {
				l.t.Errorf("%s: git %q prints %s, want %s", point, argv, got, want)
			}
		}
		return
	}
	if status := l.git("-C", tree, "status", "--porcelain"); status != "" {
		l.t.Errorf("%s: the worktree is not clean: %s", point, status)
	}
	if head := l.git("-C", tree, "symbolic-ref", "HEAD"); !strings.HasPrefix(head, "refs/heads/agency/") || l.git("rev-parse", head) != l.git("rev-parse", "main") {
		l.t.Errorf("%s: HEAD is %s", point, head)
	}
}

// checkCreatedOverlay is checkCreated for a sandbox that is an overlay.
func (l *lab) checkCreatedOverlay(s sweep, point string) {
	l.t.Helper()
	want := "## agency/sandbox-" + sweepID
	switch {
	case s.verb == "restore":
		want += "\n M readme\nA  staged\nD  sub/one\n?? sub/one\n?? sub/untracked\n?? vendor/"
	case strings.HasSuffix(s.name, "snapshot"):
		want += "\n M readme\nA  staged\n?? sub/untracked"
	}
	if status := l.inSandbox(sweepID, "git status --porcelain --branch; git fsck --no-dangling --no-progress; test "+strconv.FormatBool(s.verb == "restore")+" = false || cat vendor/lib/.git/HEAD >/dev/null"); status != want {
		l.t.Errorf("%s: the sandbox was created as\n%s", point, status)
	}
}

func TestWorktreeRmFailedAtAnyStepKeepsWork(t *testing.T) {
	t.Parallel()
	l := newSweepLab(t)
	rm := sweep{verb: "worktree rm", argv: []string{"git-agency", "worktree", "rm", sweepWorktree, "--force"}}
	points := l.faultPoints(rm)
	chosen, restore := chooseActions(points), l.save()
	decided := false
	for _, point := range points {
		decided = decided || strings.HasPrefix(point, "worktree rm/tree:")
		for _, action := range []string{"fail", "kill"} {
			if !chosen(point, action) {
				continue
			}
			before := withoutObjects(l.dump())
			o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"="+action), rm.argv...)
			if action == "fail" {
				if o.code != 1 || strings.Contains(o.stderr, "clean-up") {
					t.Errorf("%s: exited with %d\n%s", point, o.code, o.stderr)
				}
				if d := dumpDiff(before, withoutObjects(l.dump())); d != "" && !decided {
					t.Fatalf("%s: files changed:\n%s", point, d)
				}
				if decided && !strings.Contains(o.stderr, "is archived, but") {
					t.Errorf("%s: the error does not say that the command took effect: %s", point, o.stderr)
				}
			}
			late := exists(l.worktreePath())
			// The user adds a file to the worktree, if it is still there, and removes it again.
			if exists(l.worktreePath()) {
				l.write(filepath.Join(l.worktreePath(), "late"), "l\n")
				if o := l.try(nil, rm.argv[:4]...); o.code != 1 {
					t.Errorf("%s: a dirty worktree was removed without --force: %d\n%s", point, o.code, o.stderr)
				}
			}
			l.must(rm.argv...)
			for name, want := range map[string]string{"untracked": "u", "late": "l"} {
				if name == "late" && !late {
					continue // the worktree was gone
				}
				if got := l.git("show", "refs/agency/trash/"+sweepWorktree+":"+name); got != want {
					t.Errorf("%s: %s in the trash is %q", point, name, got)
				}
			}
			if exists(l.worktreePath()) || strings.Contains(l.git("worktree", "list"), sweepWorktree) {
				t.Errorf("%s: the worktree or its entry is left", point)
			}
			restore()
		}
	}
}

// newDiscardLab makes a sandbox with changes of every kind.
func newDiscardLab(t *testing.T) (l *lab, tree string) {
	t.Helper()
	l = newSweepLab(t)
	return l, l.startToDiscard("git-agency", "start", "wt")
}

// startToDiscard starts the sandbox sweepID and makes changes of every kind in it.
func (l *lab) startToDiscard(argv ...string) (tree string) {
	l.t.Helper()
	if o := l.try(sweepEnv, argv...); o.code != 0 {
		l.t.Fatal(o.stderr)
	}
	l.makeChanges(sweepID)
	l.agency("diff", sweepID, "--stat") // imports what was committed in a clone
	return l.sandboxPath(sweepID)
}

// makeChanges makes committed, staged, unstaged and untracked changes in a sandbox.
func (l *lab) makeChanges(id string) {
	l.t.Helper()
	l.inSandbox(id, `
echo c >committed; git add committed; git commit -q -m work
echo s >staged; git add staged
echo u >sub/untracked; echo changed >readme`)
}

var discardSweep = sweep{verb: "discard", argv: []string{"git-agency", "discard", sweepID}, listArgs: []string{"ls", "--all", "--json"}}

const trashRef = "refs/agency/trash/" + sweepID

// trashText returns the listing of the tree at the trash ref and the content of readme in it.
func (l *lab) trashText() string {
	return l.git("ls-tree", "-r", trashRef) + "\n" + l.git("show", trashRef+":readme")
}

// sandboxPaths matches the lines of a dump of the sandbox, its records and the objects, the only files that may change.
var sandboxPaths = regexp.MustCompile(`(?m)^"(repo/\.git/(objects|worktrees/` + sweepID + `|agency/worktrees/` + sweepID + `)/|repo/\.git/(logs/)?refs/(agency/trash|agency/base|agency/index|heads/agency/sandbox)|data/repos/\w+/(sandboxes|invocations|trash)/).*\n|^"data/repos/\w+/trash" .*\n`)

func (l *lab) dumpOutsideSandbox() string { return sandboxPaths.ReplaceAllString(l.dump(), "") }

// discardLabs make sandboxes to discard: one whose content a commit holds, and one that needs an archive too.
var discardLabs = map[string]func(t *testing.T) (l *lab, tree string){
	"commit": newDiscardLab, "archive": newArchiveLab, "overlay": newOverlayDiscardLab, "overlay with archive": newOverlayArchiveLab,
	"clone": newCloneDiscardLab,
}

// newOverlayDiscardLab is newDiscardLab with an overlay.
func newOverlayDiscardLab(t *testing.T) (l *lab, tree string) {
	t.Helper()
	l = newSweepLab(t)
	return l, l.startToDiscard(overlayArgs("start", "wt")...)
}

// newCloneDiscardLab is newDiscardLab with a clone.
func newCloneDiscardLab(t *testing.T) (l *lab, tree string) {
	t.Helper()
	l = newSweepLab(t)
	return l, l.startToDiscard(cloneArgs("none", "start", "wt")...)
}

// newOverlayArchiveLab is newArchiveLab with an overlay.
func newOverlayArchiveLab(t *testing.T) (l *lab, tree string) {
	t.Helper()
	l, tree = newOverlayDiscardLab(t)
	l.addNested()
	return l, tree
}

// newArchiveLab makes a sandbox with changes of every kind and a nested repository.
func newArchiveLab(t *testing.T) (l *lab, tree string) {
	t.Helper()
	l, tree = newDiscardLab(t)
	l.addNested()
	return l, tree
}

// addNested makes a nested repository in the sandbox sweepID.
func (l *lab) addNested() {
	l.t.Helper()
	l.inSandbox(sweepID, "git init -q --template= -b main vendor/lib; echo p >vendor/lib/precious")
}

// hasNested reports whether the sandbox sweepID has the nested repository.
func (l *lab) hasNested() bool {
	l.t.Helper()
	return l.inSandbox(sweepID, "cat vendor/lib/precious || :") == "p"
}

// checkArchived checks that the archive of a discarded sandbox holds the nested repository, and that nothing else is in
// the directory of archives.
func (l *lab) checkArchived(point string) {
	l.t.Helper()
	names, err := filepath.Glob(filepath.Join(l.repoData(), "trash", "*"))
	temps, _ := filepath.Glob(filepath.Join(l.repoData(), "trash", ".*"))
	if err != nil || len(names) != 1 || len(temps) > 0 {
		l.t.Fatalf("%s: the archives are %q, %q, %v", point, names, temps, err)
	}
	if got := l.must("tar", "-xOf", names[0], "tree/vendor/lib/precious", "tree/vendor/lib/.git/HEAD"); got != "p\nref: refs/heads/main" {
		l.t.Fatalf("%s: the archive has %q", point, got)
	}
	if found := l.findings(); len(found) > 0 {
		l.t.Fatalf("%s: doctor found %+v", point, found)
	}
}

func TestDiscardFailedAtAnyStepIsUndoneOrFinished(t *testing.T) {
	t.Parallel()
	for name, newLab := range discardLabs {
		if testing.Short() && (name == "commit" || name == "overlay") {
			continue // TestDiscardKilledAtAnyStepIsFinishedByNext kills these
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testFailedDiscard(t, newLab)
		})
	}
}

func testFailedDiscard(t *testing.T, newLab func(t *testing.T) (l *lab, tree string)) {
	l, tree := newLab(t)
	points := l.faultPoints(discardSweep)
	chosen, restore := chooseActions(points), l.save()
	outside := l.dumpOutsideSandbox()
	decided := false
	for _, point := range points {
		decided = decided || strings.HasPrefix(point, "discard/tree:")
		if !chosen(point, "fail") {
			continue // testKilledDiscard kills it at the other boundaries
		}
		worldBefore := withoutWalls(l.dump())
		o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=fail"), discardSweep.argv...)
		if o.code != 1 || strings.Contains(o.stderr, "clean-up") {
			t.Errorf("%s: exited with %d\n%s", point, o.code, o.stderr)
		}
		if !decided {
			if d := dumpDiff(worldBefore, withoutWalls(l.dump())); d != "" {
				t.Fatalf("%s: files changed:\n%s", point, d)
			}
		} else if !strings.Contains(o.stderr, "is discarded, but") {
			t.Errorf("%s: the error does not say that the command took effect: %s", point, o.stderr)
		}
		l.checkNextDiscard(point, tree, outside)
		restore()
	}
}

func TestDiscardKilledAtAnyStepIsFinishedByNext(t *testing.T) {
	t.Parallel()
	for name, newLab := range discardLabs {
		if testing.Short() && name == "archive" {
			continue // the overlay with an archive is killed too
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testKilledDiscard(t, newLab)
		})
	}
}

func testKilledDiscard(t *testing.T, newLab func(t *testing.T) (l *lab, tree string)) {
	l, tree := newLab(t)
	archived := l.hasNested()
	points := l.faultPoints(discardSweep)
	chosen, restore := chooseActions(points), l.save()
	outside := l.dumpOutsideSandbox()
	kill := func(point string) {
		t.Helper()
		if o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=kill"), discardSweep.argv...); o.code != -1 {
			t.Fatalf("%s: exited with %d\n%s", point, o.code, o.stderr)
		}
	}
	kills := 0
	for _, point := range points {
		if !chosen(point, "kill") {
			continue // testFailedDiscard makes it fail at the other boundaries
		}
		kills++
		if !testing.Short() || !archived || kills%2 == 0 {
			kill(point)
			if state := l.listedState(discardSweep); state != "whole" {
				t.Fatalf("%s: the state of the invocation is %q", point, state)
			}
			l.checkNextDiscard(point, tree, outside)
			if archived {
				l.checkArchived(point)
			}
			restore()
		}
		if archived && (!testing.Short() || kills%2 != 0) {
			kill(point)
			l.checkDoctorAfterDiscard(point)
			restore()
		}
	}
}

// checkDoctorAfterDiscard checks that doctor undoes or finishes a killed discard that needs an archive.
func (l *lab) checkDoctorAfterDiscard(point string) {
	l.t.Helper()
	if found := l.findings(); len(found) > 0 {
		if o := l.try(nil, "git-agency", "doctor", "--fix", sweepID); o.code != 0 {
			l.t.Fatalf("%s: --fix exited with %d for %+v\n%s", point, o.code, found, o.stderr)
		}
	}
	if l.agency("ls", "--json") == "[]" {
		l.checkArchived(point)
	} else if !l.hasNested() || exists(filepath.Join(l.repoData(), "trash")) || len(l.findings()) > 0 {
		l.t.Fatalf("%s: the discard was neither finished nor undone: %+v", point, l.findings())
	}
}

// checkNextDiscard discards twice more and checks the trash, that the sandbox is removed, and that no other file changed.
func (l *lab) checkNextDiscard(point, tree, outside string) {
	l.t.Helper()
	for range 2 {
		if o := l.try(sweepEnv, discardSweep.argv...); o.code != 0 {
			l.t.Fatalf("%s: the next discard exited with %d\n%s", point, o.code, o.stderr)
		}
	}
	kept := l.trashText()
	for _, want := range []string{"\tcommitted", "\tstaged", "\tsub/untracked", "\tsub/one", "changed"} {
		if !strings.Contains(kept, want) {
			l.t.Fatalf("%s: %q is not in the trash:\n%s", point, want, kept)
		}
	}
	if strings.Contains(kept, ".agency") {
		l.t.Errorf("%s: the marker is in the trash", point)
	}
	if exists(filepath.Dir(tree)) || l.git("for-each-ref", "refs/heads/agency/sandbox-"+sweepID) != "" ||
		strings.Contains(l.git("worktree", "list"), sweepID) || l.hasEntry() {
		l.t.Fatalf("%s: parts of the sandbox are left", point)
	}
	if d := dumpDiff(outside, l.dumpOutsideSandbox()); d != "" {
		l.t.Fatalf("%s: files outside the sandbox changed:\n%s", point, d)
	}
	var inv gitagency.Invocation
	if err := json.Unmarshal([]byte(l.agency("show", sweepID, "--json")), &inv); err != nil {
		l.t.Fatal(err)
	}
	if inv.Landing != "discarded" || inv.Broken {
		l.t.Errorf("%s: %+v", point, inv)
	}
	if fsck := l.try(nil, "git", "fsck", "--no-dangling"); fsck.code != 0 {
		l.t.Errorf("%s: git fsck: %s", point, fsck.stderr)
	}
}

// hasEntry reports whether git or git-agency has an entry for the worktree of the sandbox sweepID.
func (l *lab) hasEntry() bool {
	gitDir := filepath.Join(l.repo, ".git")
	return exists(filepath.Join(gitDir, "worktrees", sweepID)) || exists(filepath.Join(gitDir, "agency", "worktrees", sweepID))
}

var snapshotSweep = sweep{verb: "snapshot", argv: []string{"git-agency", "snapshot", "create", sweepID}, listArgs: []string{"ls", "--all", "--json"}}

func TestSnapshotKilledAtAnyStepIsAllOrNothing(t *testing.T) {
	t.Parallel()
	l, _ := newDiscardLab(t)
	points := l.faultPoints(snapshotSweep)
	if want := []string{"snapshot/capture:before", "snapshot/capture:after", "snapshot/ref:before", "snapshot/ref:after"}; !slices.Equal(points, want) {
		t.Fatalf("the steps are %q", points)
	}
	before, restore := withoutObjects(l.dump()), l.save()
	for _, point := range points {
		o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=fail"), snapshotSweep.argv...)
		if o.code != 1 || o.stdout != "" || !strings.Contains(o.stderr, "failed on purpose at "+point) || strings.Contains(o.stderr, "clean-up") {
			t.Errorf("%s: exited with %d\n%s%s", point, o.code, o.stdout, o.stderr)
		}
		if d := dumpDiff(before, withoutObjects(l.dump())); d != "" {
			t.Fatalf("%s: files changed:\n%s", point, d)
		}
		if o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=kill"), snapshotSweep.argv...); o.code != -1 {
			t.Fatalf("%s: exited with %d\n%s", point, o.code, o.stderr)
		}
		l.checkNextSnapshot(point, before, true)
		restore()
	}
}

// checkNextSnapshot takes a snapshot after one was killed, with doctor --fix before it if mend is set, and checks that there
// is one complete snapshot, that doctor finds no problem, and that no other file changed.
func (l *lab) checkNextSnapshot(point, before string, mend bool) {
	l.t.Helper()
	const refs = "refs/agency/snapshots/" + sweepID
	if o := l.try(nil, "git", "for-each-ref", refs); o.code != 0 || o.stderr != "" {
		l.t.Fatalf("%s: git for-each-ref: %s", point, o.stderr)
	}
	if found := l.findings(); len(found) > 0 && mend {
		if o := l.try(nil, "git-agency", "doctor", "--fix", sweepID); o.code != 0 {
			l.t.Fatalf("%s: --fix exited with %d for %+v\n%s", point, o.code, found, o.stderr)
		}
	}
	commit := l.must(snapshotSweep.argv...)
	// The killed snapshot is reused if its ref exists; otherwise the new one is the first.
	if got := l.git("for-each-ref", "--format=%(objectname) %(refname)", refs); got != commit+" "+refs+"/1" {
		l.t.Fatalf("%s: created %s, but the refs are %q", point, commit, got)
	}
	if got := l.git("ls-tree", "-r", "--name-only", commit); got != "committed\nreadme\nrun.sh\nstaged\nsub/deep/two\nsub/one\nsub/untracked" {
		l.t.Fatalf("%s: the snapshot holds %q", point, got)
	}
	if found := l.findings(); len(found) > 0 {
		l.t.Fatalf("%s: remaining findings: %+v", point, found)
	}
	if fsck := l.try(nil, "git", "fsck", "--no-dangling"); fsck.code != 0 {
		l.t.Errorf("%s: git fsck: %s", point, fsck.stderr)
	}
	snapshotPaths := regexp.MustCompile(`(?m)^[+-] "(repo/\.git/(logs/)?refs/agency/snapshots/|data/repos/\w+/invocations/` + sweepID + `/events.jsonl).*\n`)
	if rest := snapshotPaths.ReplaceAllString(dumpDiff(before, withoutObjects(l.dump())), ""); rest != "" {
		l.t.Fatalf("%s: other files changed:\n%s", point, rest)
	}
}

// TestReviewKilledIsAllOrNothing checks submit and reject, whose only step is the rename of the record: killed before it
// they change nothing, killed after it they are complete.
func TestReviewKilledIsAllOrNothing(t *testing.T) {
	t.Parallel()
	l := newSweepLab(t)
	l.must("env", "TEST_NOW=2026-01-28T12:05:00Z", "TEST_RAND=b", "git-agency", "start", "wt")
	l.must("sh", "-c", `cd "$0" && echo new >new && git add new && git commit -q -m work`, l.agency("path", sweepID))
	for _, s := range []struct {
		argv        []string
		before, now string
	}{
		{[]string{"git-agency", "submit", sweepID}, "", "review"},
		{[]string{"git-agency", "reject", sweepID, "-m", "why"}, "review", "rejected"},
	} {
		restore, before := l.save(), l.dump()
		for point, killed := range map[string]string{"before": s.before, "after": s.now} {
			point = s.argv[1] + "/record:" + point
			o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=fail"), s.argv...)
			if o.code != 1 || !strings.Contains(o.stderr, "failed on purpose at "+point) || strings.Contains(o.stderr, "clean-up") {
				t.Errorf("%s: exited with %d\n%s", point, o.code, o.stderr)
			}
			if d := dumpDiff(before, l.dump()); d != "" {
				t.Fatalf("%s: files changed:\n%s", point, d)
			}
			if o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=kill"), s.argv...); o.code != -1 {
				t.Fatalf("%s: exited with %d\n%s", point, o.code, o.stderr)
			}
			if got := l.agency("ls", "--format", "%(landing)"); got != killed {
				t.Errorf("%s: landing is %q", point, got)
			}
			if found := l.findings(); len(found) > 0 {
				t.Errorf("%s: findings: %+v", point, found)
			}
			restore()
		}
		l.must(s.argv...)
		if got := l.agency("ls", "--format", "%(landing)"); got != s.now {
			t.Errorf("after %q landing is %q", s.argv, got)
		}
	}
}

// TestAllowKilledIsAllOrNothing checks allow, whose only step is the rename of the record.
func TestAllowKilledIsAllOrNothing(t *testing.T) {
	t.Parallel()
	l := newSweepLab(t)
	l.must("env", "TEST_NOW=2026-01-28T12:05:00Z", "TEST_RAND=b", "git-agency", "start", "wt", "--isolation", "none", "--file-size", "1m")
	for _, s := range []struct{ option, before, now string }{{"--file-size=2m", "1048576", "2097152"}, {"--reset", "2097152", "1048576"}} {
		argv := []string{"git-agency", "allow", sweepID, s.option}
		restore, before := l.save(), l.dump()
		for point, killed := range map[string]string{"before": s.before, "after": s.now} {
			point = "allow/record:" + point
			o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=fail"), argv...)
			if o.code != 1 || !strings.Contains(o.stderr, "failed on purpose at "+point) || strings.Contains(o.stderr, "clean-up") {
				t.Errorf("%s: exited with %d\n%s", point, o.code, o.stderr)
			}
			if d := dumpDiff(before, l.dump()); d != "" {
				t.Fatalf("%s: files changed:\n%s", point, d)
			}
			if o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=kill"), argv...); o.code != -1 {
				t.Fatalf("%s: exited with %d\n%s", point, o.code, o.stderr)
			}
			if got := l.agency("ls", "--format", "%(limits.file_size)"); got != killed {
				t.Errorf("%s: the limit is %q", point, got)
			}
			if found := l.findings(); len(found) > 0 {
				t.Errorf("%s: findings: %+v", point, found)
			}
			restore()
		}
		l.must(argv...)
	}
}

// withoutObjects removes the git objects from a dump, because unreachable objects may be left.
func withoutObjects(world string) string {
	return regexp.MustCompile(`(?m)^"repo/\.git/objects/.*\n`).ReplaceAllString(world, "")
}

// withoutWalls is withoutObjects that also removes the files which every import of git state writes.
func withoutWalls(world string) string {
	return regexp.MustCompile(`(?m)^"data/repos/\w+/sandboxes/`+sweepID+`/(walls/door\.json|walls/git/uncovered|clone/door\.json)" .*\n`).ReplaceAllString(withoutObjects(world), "")
}
