package main

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency"
)

// The ids of a repeatable run. The first is the integration worktree every lab begins with.
const (
	sweepWorktree = "20260128120000-6161"
	sweepID       = "20260128120500-6262"
)

var sweepEnv = []string{"TEST_NOW=2026-01-28T12:05:00Z", "TEST_RAND=b"}

// sweep is a command that changes the world, and how to end what it left when it was interrupted.
type sweep struct {
	verb  string
	name  string // where the verb does not say all
	argv  []string
	list  []string // lists what it makes, as JSON
	clean []string
	ready func(l *lab) // what has to be there first; may be nil
}

func (s sweep) String() string { return cmp.Or(s.name, s.verb) }

// newLab is the lab of a sweep.
func (s sweep) newLab(t *testing.T) *lab {
	t.Helper()
	l := newSweepLab(t)
	if s.ready != nil {
		s.ready(l)
	}
	return l
}

var creations = []sweep{
	{
		verb:  "worktree create",
		argv:  []string{"git-agency", "worktree", "create", "other"},
		list:  []string{"worktree", "ls", "--all", "--json"},
		clean: []string{"worktree", "rm", sweepID},
	},
	{
		verb:  "start",
		argv:  []string{"git-agency", "start", "wt", "--name", "x"},
		list:  []string{"ls", "--all", "--json"},
		clean: []string{"discard", sweepID},
	},
	{
		verb:  "worktree adopt",
		argv:  []string{"git-agency", "worktree", "adopt", "--name", "adopted"},
		list:  []string{"worktree", "ls", "--all", "--json"},
		clean: []string{"worktree", "rm", sweepID},
	},
	forkSweep,
}

// forkID is an invocation with work of every kind, of which there is a snapshot.
const forkID = "20260128120100-6161"

var forkSweep = sweep{
	verb:  "start",
	name:  "start from a snapshot",
	argv:  []string{"git-agency", "start", "--from-snapshot", forkID + "/1"},
	list:  []string{"ls", "--all", "--json"},
	clean: []string{"discard", sweepID},
	ready: func(l *lab) {
		if o := l.try([]string{"TEST_NOW=2026-01-28T12:01:00Z", "TEST_RAND=a"}, "git-agency", "start", "wt"); o.code != 0 {
			l.t.Fatal(o.stderr)
		}
		l.workIn(l.agency("path", forkID))
		l.git("-C", l.agency("path", forkID), "rm", "-q", "--cached", "sub/one") // staged as gone, and still there
		l.agency("snapshot", "create", forkID)
	},
}

// first is the creation that meets a repository that nobody of ours has been to: no line in
// info/exclude, no records, no branch below agency/.
var first = sweep{
	verb:  "worktree create",
	argv:  []string{"git-agency", "worktree", "create", "wt"},
	list:  []string{"worktree", "ls", "--all", "--json"},
	clean: []string{"worktree", "rm", sweepID},
}

func TestTheFirstCreationThatFailsAtAnyStepLeavesTheWorldAsItWas(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	before := l.world()
	for _, point := range l.points(first) {
		o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=fail"), first.argv...)
		if o.code != 1 || strings.Contains(o.stderr, "clean-up") {
			t.Errorf("%s: ended with %d\n%s", point, o.code, o.stderr)
		}
		if d := diff(before, l.world()); d != "" {
			t.Fatalf("%s: the world changed:\n%s", point, d)
		}
		if exists(l.data) {
			t.Fatalf("%s: the data directory is left", point)
		}
	}
}

// newSweepLab is a lab with an integration worktree, another worktree of the user's, and work of the
// user's in both that no command may touch.
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
	l.write(filepath.Join(l.worktree(), "untracked"), "u\n")
	return l
}

// worktree is the tree of the lab's integration worktree.
func (l *lab) worktree() string {
	return filepath.Join(l.repoData(), "worktrees", sweepWorktree, "tree")
}

// repoData is where the records of the lab's repository are.
func (l *lab) repoData() string {
	l.t.Helper()
	found, err := filepath.Glob(filepath.Join(l.data, "repos", "*"))
	if err != nil || len(found) != 1 {
		l.t.Fatalf("%v, %v", found, err)
	}
	return found[0]
}

// points runs a command once and returns every point of its transaction.
func (l *lab) points(s sweep) []string {
	l.t.Helper()
	steps := filepath.Join(l.t.TempDir(), "steps")
	restore := l.save()
	if o := l.try(append(slices.Clone(sweepEnv), "TEST_STEPS="+steps), s.argv...); o.code != 0 {
		l.t.Fatal(o.stderr)
	}
	restore()
	points := strings.Fields(strings.ReplaceAll(l.read(steps), " ", "_"))
	if len(points) < 4 {
		l.t.Fatalf("only %q", points)
	}
	for i, p := range points {
		points[i] = strings.ReplaceAll(p, "_", " ")
	}
	return points
}

// state is what the listing says of the id of the sweep: "" when it is not there, "whole", or the
// reason why it is broken.
func (l *lab) state(s sweep) string {
	l.t.Helper()
	var all []struct {
		Invocation string `json:"invocation_id"`
		Worktree   string `json:"worktree_id"`
		Reason     string `json:"broken_reason"`
		Broken     bool   `json:"broken"`
	}
	if err := json.Unmarshal([]byte(l.agency(s.list...)), &all); err != nil {
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

func TestACreationThatFailsAtAnyStepLeavesTheWorldAsItWas(t *testing.T) {
	t.Parallel()
	for _, s := range creations {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			l := s.newLab(t)
			before := l.world()
			for _, point := range l.points(s) {
				o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=fail"), s.argv...)
				if o.code != 1 || o.stdout != "" || !strings.Contains(o.stderr, "failed on purpose at "+point) || strings.Contains(o.stderr, "clean-up") {
					t.Errorf("%s: ended with %d\n%s%s", point, o.code, o.stdout, o.stderr)
				}
				if d := diff(before, l.world()); d != "" {
					t.Fatalf("%s: the world changed:\n%s", point, d)
				}
			}
			if o := l.try(sweepEnv, s.argv...); o.code != 0 {
				t.Errorf("after all that it does not work any more: %s", o.stderr)
			}
		})
	}
}

func TestACreationThatIsInterruptedAtAnyStepRollsBackAndSaysSo(t *testing.T) {
	t.Parallel()
	for _, sig := range []struct {
		name string
		code int
	}{{"int", 130}, {"term", 143}} {
		t.Run(sig.name, func(t *testing.T) {
			t.Parallel()
			s := creations[1]
			l := newSweepLab(t)
			before := l.world()
			for _, point := range l.points(s) {
				o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"="+sig.name), s.argv...)
				// Once the record is being written the invocation exists, and is finished.
				if strings.HasPrefix(point, "start/record:") {
					continue
				}
				if o.code != sig.code || o.stdout != "" {
					t.Errorf("%s: ended with %d\n%s%s", point, o.code, o.stdout, o.stderr)
				}
				if d := diff(before, l.world()); d != "" {
					t.Fatalf("%s: the world changed:\n%s", point, d)
				}
			}
		})
	}
}

func TestACreationKilledAtAnyStepIsGoneOrWholeOrNamedAndCanBeRemoved(t *testing.T) {
	t.Parallel()
	for _, s := range creations {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			l := s.newLab(t)
			before, points := l.world(), l.points(s)
			restore := l.save()
			for _, point := range points {
				if o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=kill"), s.argv...); o.code != -1 {
					t.Fatalf("%s: ended with %d\n%s", point, o.code, o.stderr)
				}
				l.checkInterrupted(s, point, before)
				restore()
			}
		})
	}
}

// checkInterrupted is what must hold after a creation was killed: git's own view is untouched for
// everybody else, the listing names what is left, and cleaning that up leaves no trace.
func (l *lab) checkInterrupted(s sweep, point, before string) {
	l.t.Helper()
	state := l.state(s)
	switch state {
	case "", "whole":
	case "incomplete", "missing-meta":
		if o := l.try(nil, append([]string{"git-agency"}, s.clean...)...); o.code != 0 {
			l.t.Fatalf("%s: %s could not be cleaned up: %s", point, state, o.stderr)
		}
	default:
		l.t.Fatalf("%s: broken as %q", point, state)
	}
	if state == "whole" {
		l.checkWhole(s, point)
		return
	}
	if d := diff(before, l.world()); d != "" {
		l.t.Fatalf("%s (%q): traces are left:\n%s", point, state, d)
	}
}

// checkWhole is what somebody who finds it listed can rely on.
func (l *lab) checkWhole(s sweep, point string) {
	l.t.Helper()
	tree, marker := l.repo, "INTEGRATION_MARKER"
	switch s.verb {
	case "start":
		tree, marker = l.agency("path", sweepID), "SANDBOX_MARKER"
	case "worktree create":
		tree = l.agency("worktree", "path", sweepID)
	}
	if !exists(filepath.Join(tree, ".agency", marker)) {
		l.t.Errorf("%s: it has no marker", point)
	}
	if s.verb == "worktree adopt" {
		return
	}
	if s.name == forkSweep.name {
		like := l.agency("path", forkID)
		for _, argv := range [][]string{{"status", "--porcelain"}, {"rev-parse", "HEAD"}, {"diff", "HEAD"}, {"diff", "--cached"}} {
			if got, want := l.git(append([]string{"-C", tree}, argv...)...), l.git(append([]string{"-C", like}, argv...)...); got != want {
				l.t.Errorf("%s: git %q says %s, want %s", point, argv, got, want)
			}
		}
		return
	}
	if status := l.git("-C", tree, "status", "--porcelain"); status != "" {
		l.t.Errorf("%s: it is not clean: %s", point, status)
	}
	if head := l.git("-C", tree, "symbolic-ref", "HEAD"); !strings.HasPrefix(head, "refs/heads/agency/") || l.git("rev-parse", head) != l.git("rev-parse", "main") {
		l.t.Errorf("%s: it is on %s", point, head)
	}
}

func TestArchivingAWorktreeThatFailsOrIsKilledAtAnyStepLosesNothing(t *testing.T) {
	t.Parallel()
	l := newSweepLab(t)
	rm := sweep{verb: "worktree rm", argv: []string{"git-agency", "worktree", "rm", sweepWorktree, "--force"}}
	points := l.points(rm)
	restore := l.save()
	decided := false
	for _, point := range points {
		decided = decided || strings.HasPrefix(point, "worktree rm/tree:")
		for _, action := range []string{"fail", "kill"} {
			before := withoutObjects(l.world())
			o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"="+action), rm.argv...)
			if action == "fail" {
				if o.code != 1 || strings.Contains(o.stderr, "clean-up") {
					t.Errorf("%s: ended with %d\n%s", point, o.code, o.stderr)
				}
				if d := diff(before, withoutObjects(l.world())); d != "" && !decided {
					t.Fatalf("%s: the world changed:\n%s", point, d)
				}
				if decided && !strings.Contains(o.stderr, "is archived, but") {
					t.Errorf("%s: does not say what stands: %s", point, o.stderr)
				}
			}
			late := exists(l.worktree())
			// The person goes on working in what is still there, and archives again.
			if exists(l.worktree()) {
				l.write(filepath.Join(l.worktree(), "late"), "l\n")
				if o := l.try(nil, rm.argv[:4]...); o.code != 1 {
					t.Errorf("%s: archived over work without --force: %d\n%s", point, o.code, o.stderr)
				}
			}
			l.must(rm.argv...)
			for name, want := range map[string]string{"untracked": "u", "late": "l"} {
				if name == "late" && !late {
					continue // there was nothing left to work in
				}
				if got := l.git("show", "refs/agency/trash/"+sweepWorktree+":"+name); got != want {
					t.Errorf("%s: of %s %q is kept", point, name, got)
				}
			}
			if exists(l.worktree()) || strings.Contains(l.git("worktree", "list"), sweepWorktree) {
				t.Errorf("%s: something of it is left", point)
			}
			restore()
		}
	}
}

// newDiscardLab has a sandbox with work of every kind in it.
func newDiscardLab(t *testing.T) (l *lab, tree string) {
	t.Helper()
	l = newSweepLab(t)
	if o := l.try(sweepEnv, "git-agency", "start", "wt"); o.code != 0 {
		t.Fatal(o.stderr)
	}
	tree = l.agency("path", sweepID)
	l.workIn(tree)
	return l, tree
}

// workIn leaves work of every kind in a tree.
func (l *lab) workIn(tree string) {
	l.t.Helper()
	l.write(filepath.Join(tree, "committed"), "c\n")
	l.git("-C", tree, "add", "committed")
	l.git("-C", tree, "commit", "-q", "-m", "work")
	l.write(filepath.Join(tree, "staged"), "s\n")
	l.git("-C", tree, "add", "staged")
	l.write(filepath.Join(tree, "sub", "untracked"), "u\n")
	l.write(filepath.Join(tree, "readme"), "changed\n")
}

var discardSweep = sweep{verb: "discard", argv: []string{"git-agency", "discard", sweepID}, list: []string{"ls", "--all", "--json"}}

const trash = "refs/agency/trash/" + sweepID

// kept is the tree that the trash ref of the sweep holds, as text.
func (l *lab) kept() string {
	return l.git("ls-tree", "-r", trash) + "\n" + l.git("show", trash+":readme")
}

// outside of the sandbox, its records and the objects, nothing may ever change.
var ofTheSandbox = regexp.MustCompile(`(?m)^"(repo/\.git/(objects|worktrees/` + sweepID + `)/|repo/\.git/(logs/)?refs/(agency/trash|heads/agency/sandbox)|data/repos/\w+/(sandboxes|invocations)/).*\n`)

func (l *lab) worldOutside() string { return ofTheSandbox.ReplaceAllString(l.world(), "") }

func TestADiscardThatFailsAtAnyStepChangedNothingOrIsFinishedByTheNext(t *testing.T) {
	t.Parallel()
	l, tree := newDiscardLab(t)
	points := l.points(discardSweep)
	restore := l.save()
	outside := l.worldOutside()
	decided := false
	for _, point := range points {
		decided = decided || strings.HasPrefix(point, "discard/tree:")
		worldBefore := withoutObjects(l.world())
		o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=fail"), discardSweep.argv...)
		if o.code != 1 || strings.Contains(o.stderr, "clean-up") {
			t.Errorf("%s: ended with %d\n%s", point, o.code, o.stderr)
		}
		if !decided {
			if d := diff(worldBefore, withoutObjects(l.world())); d != "" {
				t.Fatalf("%s: the world changed:\n%s", point, d)
			}
		} else if !strings.Contains(o.stderr, "is discarded, but") {
			t.Errorf("%s: does not say what stands: %s", point, o.stderr)
		}
		l.checkDiscarded(point, tree, outside)
		restore()
	}
}

func TestADiscardKilledAtAnyStepLosesNothingAndIsFinishedByTheNext(t *testing.T) {
	t.Parallel()
	l, tree := newDiscardLab(t)
	points := l.points(discardSweep)
	restore := l.save()
	outside := l.worldOutside()
	for _, point := range points {
		if o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=kill"), discardSweep.argv...); o.code != -1 {
			t.Fatalf("%s: ended with %d\n%s", point, o.code, o.stderr)
		}
		if state := l.state(discardSweep); state != "whole" {
			t.Fatalf("%s: the invocation is %q", point, state)
		}
		l.checkDiscarded(point, tree, outside)
		restore()
	}
}

// checkDiscarded discards once more and holds the result against what a discard is.
func (l *lab) checkDiscarded(point, tree, outside string) {
	l.t.Helper()
	for range 2 {
		if o := l.try(sweepEnv, discardSweep.argv...); o.code != 0 {
			l.t.Fatalf("%s: the next discard ended with %d\n%s", point, o.code, o.stderr)
		}
	}
	kept := l.kept()
	for _, want := range []string{"\tcommitted", "\tstaged", "\tsub/untracked", "\tsub/one", "changed"} {
		if !strings.Contains(kept, want) {
			l.t.Fatalf("%s: %q was lost:\n%s", point, want, kept)
		}
	}
	if strings.Contains(kept, ".agency") {
		l.t.Errorf("%s: the marker was kept", point)
	}
	if exists(filepath.Dir(tree)) || l.git("for-each-ref", "refs/heads/agency/sandbox-"+sweepID) != "" ||
		strings.Contains(l.git("worktree", "list"), sweepID) || exists(filepath.Join(l.repo, ".git", "worktrees", sweepID)) {
		l.t.Fatalf("%s: something of the sandbox is left", point)
	}
	if d := diff(outside, l.worldOutside()); d != "" {
		l.t.Fatalf("%s: the world outside of the sandbox changed:\n%s", point, d)
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

var snapshotSweep = sweep{verb: "snapshot", argv: []string{"git-agency", "snapshot", "create", sweepID}, list: []string{"ls", "--all", "--json"}}

func TestASnapshotThatFailsOrIsKilledAtAnyStepIsNoneOrWholeAndDoesNotHinderTheNext(t *testing.T) {
	t.Parallel()
	l, _ := newDiscardLab(t)
	points := l.points(snapshotSweep)
	if want := []string{"snapshot/capture:before", "snapshot/capture:after", "snapshot/ref:before", "snapshot/ref:after"}; !slices.Equal(points, want) {
		t.Fatalf("the steps are %q", points)
	}
	before, restore := withoutObjects(l.world()), l.save()
	for _, point := range points {
		o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=fail"), snapshotSweep.argv...)
		if o.code != 1 || o.stdout != "" || !strings.Contains(o.stderr, "failed on purpose at "+point) || strings.Contains(o.stderr, "clean-up") {
			t.Errorf("%s: ended with %d\n%s%s", point, o.code, o.stdout, o.stderr)
		}
		if d := diff(before, withoutObjects(l.world())); d != "" {
			t.Fatalf("%s: the world changed:\n%s", point, d)
		}
		if o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=kill"), snapshotSweep.argv...); o.code != -1 {
			t.Fatalf("%s: ended with %d\n%s", point, o.code, o.stderr)
		}
		l.checkSnapshot(point, before, true)
		restore()
	}
}

// checkSnapshot is what must hold after a snapshot was killed: the sandbox is as it was, there is none or
// one that is whole, doctor can mend what is left, and so can the next snapshot by itself.
func (l *lab) checkSnapshot(point, before string, mend bool) {
	l.t.Helper()
	const refs = "refs/agency/snapshots/" + sweepID
	if o := l.try(nil, "git", "for-each-ref", refs); o.code != 0 || o.stderr != "" {
		l.t.Fatalf("%s: the refs cannot be read: %s", point, o.stderr)
	}
	if found := l.findings(); len(found) > 0 && mend {
		if o := l.try(nil, "git-agency", "doctor", "--fix", sweepID); o.code != 0 {
			l.t.Fatalf("%s: --fix ended with %d for %+v\n%s", point, o.code, found, o.stderr)
		}
	}
	commit := l.must(snapshotSweep.argv...)
	// It is the one that was killed, if that came to be, or else the first.
	if got := l.git("for-each-ref", "--format=%(objectname) %(refname)", refs); got != commit+" "+refs+"/1" {
		l.t.Fatalf("%s: %s, but there is %q", point, commit, got)
	}
	if got := l.git("ls-tree", "-r", "--name-only", commit); got != "committed\nreadme\nrun.sh\nstaged\nsub/deep/two\nsub/one\nsub/untracked" {
		l.t.Fatalf("%s: it holds %q", point, got)
	}
	if found := l.findings(); len(found) > 0 {
		l.t.Fatalf("%s: there is still %+v", point, found)
	}
	if fsck := l.try(nil, "git", "fsck", "--no-dangling"); fsck.code != 0 {
		l.t.Errorf("%s: git fsck: %s", point, fsck.stderr)
	}
	ofSnapshots := regexp.MustCompile(`(?m)^[+-] "(repo/\.git/(logs/)?refs/agency/snapshots/|data/repos/\w+/invocations/` + sweepID + `/events.jsonl).*\n`)
	if rest := ofSnapshots.ReplaceAllString(diff(before, withoutObjects(l.world())), ""); rest != "" {
		l.t.Fatalf("%s: something else changed:\n%s", point, rest)
	}
}

// A review is one step, the rename of the record: before it nothing has happened, and after it all of it has.
func TestAReviewThatFailsOrIsKilledHasHappenedOrNot(t *testing.T) {
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
		restore, before := l.save(), l.world()
		for point, killed := range map[string]string{"before": s.before, "after": s.now} {
			point = s.argv[1] + "/record:" + point
			o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=fail"), s.argv...)
			if o.code != 1 || !strings.Contains(o.stderr, "failed on purpose at "+point) || strings.Contains(o.stderr, "clean-up") {
				t.Errorf("%s: ended with %d\n%s", point, o.code, o.stderr)
			}
			if d := diff(before, l.world()); d != "" {
				t.Fatalf("%s: the world changed:\n%s", point, d)
			}
			if o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"=kill"), s.argv...); o.code != -1 {
				t.Fatalf("%s: ended with %d\n%s", point, o.code, o.stderr)
			}
			if got := l.agency("ls", "--format", "%(landing)"); got != killed {
				t.Errorf("%s: it is %q", point, got)
			}
			if found := l.findings(); len(found) > 0 {
				t.Errorf("%s: there is %+v", point, found)
			}
			restore()
		}
		l.must(s.argv...)
		if got := l.agency("ls", "--format", "%(landing)"); got != s.now {
			t.Errorf("%q made it %q", s.argv, got)
		}
	}
}

// withoutObjects leaves out what nobody can see: objects that nothing points at.
func withoutObjects(world string) string {
	return regexp.MustCompile(`(?m)^"repo/\.git/objects/.*\n`).ReplaceAllString(world, "")
}
