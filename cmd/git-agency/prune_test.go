package main

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/git-agency/git-agency/gitagency"
)

// Invocations of the prune tests, besides the integration worktree of the sweeps. The tests set the clock to the time in
// the id when they start and discard, except for the discard of pruneRecent; prune itself uses the real clock.
const (
	pruneActive      = "20260128120100-6363" // active
	pruneOld         = "20260128120200-6464" // discarded; its sandbox is removed
	pruneInterrupted = "20260128120300-6565" // discarded, but the discard was killed and its sandbox is still there
	pruneRecent      = "20260128120400-6666" // like pruneInterrupted, but discarded just now
	pruneOrphan      = "20260128120600-6767" // has refs for trash and snapshots, but no record
	pruneTemp        = "20260128120700-6868" // has only the temporary directory of a record that was being removed
)

// newPruneLab makes a repository with one of every kind of thing that prune examines, besides work of the user.
func newPruneLab(t *testing.T) *lab {
	t.Helper()
	l := newSweepLab(t)
	for _, id := range []string{pruneActive, pruneOld, pruneInterrupted, pruneRecent} {
		l.startWithID(id)
		tree := l.sandboxPath(id)
		l.write(filepath.Join(tree, "committed"), id+"\n")
		l.git("-C", tree, "add", "committed")
		l.git("-C", tree, "commit", "-q", "-m", "work")
		l.write(filepath.Join(tree, "sub", "untracked"), id+"\n")
		l.write(filepath.Join(tree, "readme"), "changed\n")
	}
	l.createSnapshotRefs("--create-reflog", pruneActive+"/1", pruneOld+"/1", pruneOld+"/2", pruneInterrupted+"/1", pruneRecent+"/1")
	l.discardAtID(pruneOld, "", 0)
	l.discardAtID(pruneInterrupted, "TEST_FAULT=discard/tree:before=kill", -1)
	if o := l.try([]string{"TEST_FAULT=discard/tree:before=kill"}, "git-agency", "discard", pruneRecent); o.code != -1 {
		t.Fatal(o.stderr)
	}
	l.git("update-ref", "refs/agency/trash/"+pruneOrphan, "HEAD")
	l.createSnapshotRefs("--no-deref", pruneOrphan+"/1", pruneOrphan+"/2") // no reflog tells their age
	l.write(filepath.Join(l.repoData(), "invocations", ".tmp-"+pruneTemp, "events.jsonl"), "{}\n")
	l.write(filepath.Join(l.repoData(), ".tmp-repo.json-1"), "{")
	return l
}

// createSnapshotRefs creates refs of snapshots at HEAD, with an option of git update-ref.
func (l *lab) createSnapshotRefs(option string, names ...string) {
	l.t.Helper()
	l.must(append([]string{"sh", "-c", `option=$1; shift; printf 'create refs/agency/snapshots/%s HEAD\n' "$@" | git update-ref "$option" --stdin`, "sh", option}, names...)...)
}

// testNowFor returns the TEST_NOW setting for the time in an id.
func testNowFor(id string) string {
	return "TEST_NOW=" + id[:4] + "-" + id[4:6] + "-" + id[6:8] + "T" + id[8:10] + ":" + id[10:12] + ":" + id[12:14] + "Z"
}

// startWithID starts an invocation that gets this id.
func (l *lab) startWithID(id string) {
	l.t.Helper()
	if o := l.try([]string{testNowFor(id), "TEST_RAND=" + string(rune('a'+id[len(id)-1]-'1'))}, "git-agency", "start", "wt"); o.line() != id {
		l.t.Fatalf("started %q, not %s: %s", o.line(), id, o.stderr)
	}
}

// discardAtID discards an invocation with the clock set to the time in its id and checks the exit code.
func (l *lab) discardAtID(id, fault string, code int) {
	l.t.Helper()
	if o := l.try([]string{testNowFor(id), fault}, "git-agency", "discard", id); o.code != code {
		l.t.Fatalf("exited with %d: %s", o.code, o.stderr)
	}
}

// sandboxPath returns the worktree of a sandbox.
func (l *lab) sandboxPath(id string) string {
	return filepath.Join(l.repoData(), "sandboxes", id, "tree")
}

// prune runs prune, which must succeed, and returns its results.
func (l *lab) prune(args ...string) []gitagency.PruneResult {
	l.t.Helper()
	return parsePruneResults(l.t, l.agency(slices.Concat([]string{"prune", "--json"}, args)...))
}

func parsePruneResults(t *testing.T, text string) []gitagency.PruneResult {
	t.Helper()
	var things []gitagency.PruneResult
	if err := json.Unmarshal([]byte(text), &things); err != nil {
		t.Fatal(err)
	}
	return things
}

// actionsByID returns the action of each result by its id. A leftover counts only if the id has no other result.
func actionsByID(things []gitagency.PruneResult) map[string]string {
	found := map[string]string{}
	for _, p := range things {
		if _, have := found[p.ID]; !have || p.Kind != "leftover" {
			found[p.ID] = p.Action
		}
	}
	return found
}

// checkNoBrokenInvocations checks that no invocation is broken, which must hold at any moment.
func (l *lab) checkNoBrokenInvocations(point string) {
	l.t.Helper()
	for _, i := range l.invocations() {
		if i.Broken {
			l.t.Fatalf("%s: %s is %s", point, i.ID, i.BrokenReason)
		}
	}
}

// checkNextPrune prunes once more and compares all files with those after an uninterrupted prune.
func (l *lab) checkNextPrune(point, want string) {
	l.t.Helper()
	l.checkNoBrokenInvocations(point)
	if o := l.try(nil, "git-agency", "prune"); o.code != 0 {
		l.t.Fatalf("%s: the next prune exited with %d\n%s", point, o.code, o.stderr)
	}
	if d := dumpDiff(want, withoutObjects(l.dump())); d != "" {
		l.t.Fatalf("%s: files differ from those after an uninterrupted prune:\n%s", point, d)
	}
	if fsck := l.try(nil, "git", "fsck", "--no-dangling"); fsck.code != 0 {
		l.t.Errorf("%s: git fsck: %s", point, fsck.stderr)
	}
}

// uninterruptedPrune returns all files after a prune, without objects, checks that they are correct, and restores the
// repository.
func (l *lab) uninterruptedPrune() string {
	l.t.Helper()
	before, restore := l.dump(), l.save()
	defer restore()
	young := "keep"
	if exists(l.sandboxPath(pruneRecent)) {
		young = "clean"
	}
	got := actionsByID(l.prune())
	for id, want := range map[string]string{
		pruneActive: "keep", pruneOld: "remove", pruneInterrupted: "remove", pruneRecent: young, pruneOrphan: "remove", pruneTemp: "remove",
	} {
		if got[id] != want {
			l.t.Fatalf("%s: %q, not %q", id, got[id], want)
		}
	}
	for _, file := range []string{"committed", "sub/untracked"} {
		if kept := l.git("show", "refs/agency/trash/"+pruneRecent+":"+file); kept != pruneRecent {
			l.t.Fatalf("%s in the trash is %q", file, kept)
		}
	}
	if kept := strings.Fields(l.git("for-each-ref", "--format=%(refname:lstrip=3)", "refs/agency/snapshots")); !slices.Equal(kept, []string{pruneActive + "/1", pruneRecent + "/1"}) {
		l.t.Fatalf("the remaining snapshots are %q", kept)
	}
	after := l.dump()
	// Only paths of pruned invocations may have changed, above all not the active sandbox.
	prunedPaths := regexp.MustCompile(`(?m)^[+-] "(repo/\.git/objects/|repo/\.git/packed-refs|repo/\.git/ORIG_HEAD|data/repos/\w+/\.tmp-|[^"]*(` +
		strings.Join([]string{pruneOld, pruneInterrupted, pruneRecent, pruneOrphan, pruneTemp}, "|") + `)).*\n`)
	if rest := prunedPaths.ReplaceAllString(dumpDiff(before, after), ""); rest != "" {
		l.t.Fatalf("other files changed:\n%s", rest)
	}
	for _, line := range strings.Split(withoutObjects(after), "\n") {
		for _, id := range []string{pruneOld, pruneInterrupted, pruneOrphan, pruneTemp} {
			if strings.Contains(line, id) {
				l.t.Fatalf("not removed: %s", line)
			}
		}
	}
	return withoutObjects(after)
}

// prunePoints returns the fault points of a prune, each once; with -short only one for each boundary between steps.
func (l *lab) prunePoints() []string {
	l.t.Helper()
	points := l.faultPoints(sweep{verb: "prune", argv: []string{"git-agency", "prune"}})
	for _, step := range []string{"discard/tree:after", "prune/snapshots:before", "prune/trash:before", "prune/record:after", "prune/leftover:before"} {
		if !slices.Contains(points, step) {
			l.t.Fatalf("no step %s in %q", step, points)
		}
	}
	if testing.Short() {
		return sampleBoundaries(points)
	}
	slices.Sort(points)
	return slices.Compact(points)
}

func TestPruneInterruptedAtAnyStepIsFinishedByNext(t *testing.T) {
	t.Parallel()
	l := newPruneLab(t)
	want, points, restore := l.uninterruptedPrune(), l.prunePoints(), l.save()
	for i, point := range points {
		for n, action := range []string{"fail", "term", "kill"} {
			if testing.Short() && (i%2 != 0 || i/2%3 != n) {
				continue // one of the three; TestPruneKilledAtAnyStepKeepsLateWork kills it at the other boundaries
			}
			code := map[string]int{"fail": 1, "term": 143, "kill": -1}[action]
			o := l.try([]string{"TEST_FAULT=" + point + "=" + action}, "git-agency", "prune")
			// A prune interrupted after its last step succeeds.
			if o.code != code && (action != "term" || o.code != 0) || strings.Contains(o.stderr, "clean-up") {
				t.Errorf("%s=%s: exited with %d\n%s%s", point, action, o.code, o.stdout, o.stderr)
			}
			if action == "fail" && (!strings.Contains(o.stderr, "failed on purpose at "+point) || !strings.Contains(o.stdout, "failed on purpose at "+point)) {
				t.Errorf("%s: the output does not name the failed step:\n%s%s", point, o.stdout, o.stderr)
			}
			l.checkNextPrune(point+"="+action, want)
			restore()
		}
	}
}

// TestPruneContinuesAfterFailure checks that prune removes everything else when it cannot delete one ref.
func TestPruneContinuesAfterFailure(t *testing.T) {
	t.Parallel()
	l := newPruneLab(t)
	want := l.uninterruptedPrune()
	refLock := filepath.Join(l.repo, ".git", "refs", "agency", "trash", pruneOld+".lock")
	l.write(filepath.Join(refLock, "file"), "")
	o := l.try(nil, "git-agency", "prune", "--json")
	if o.code != 1 || !strings.Contains(o.stderr, "invocation "+pruneOld+" is discarded, but not all of it could be removed") {
		t.Errorf("exited with %d: %s", o.code, o.stderr)
	}
	if got := actionsByID(parsePruneResults(t, o.stdout)); got[pruneOld] != "keep" || got[pruneInterrupted] != "remove" || got[pruneOrphan] != "remove" || got[pruneTemp] != "remove" {
		t.Errorf("got %v", got)
	}
	l.checkNoBrokenInvocations("afterwards")
	if kept := l.git("show", "refs/agency/trash/"+pruneOld+":committed"); kept != pruneOld {
		t.Errorf("committed in the trash is %q", kept)
	}
	if err := os.RemoveAll(refLock); err != nil {
		t.Fatal(err)
	}
	l.checkNextPrune("after removing the lock of the ref", want)
}

// TestPruneKeepsWorkWrittenAfterPlanning writes into discarded sandboxes while prune, having made its plan, waits before it
// removes refs: neither people nor agents take the lock.
func TestPruneKeepsWorkWrittenAfterPlanning(t *testing.T) {
	t.Parallel()
	l := newPruneLab(t)
	l.startWithID("20260128120800-6969")
	l.discardAtID("20260128120800-6969", "", 0)
	again := l.sandboxPath("20260128120800-6969")
	here := filepath.Join(l.dir, "home", "here")
	var o outcome
	done := make(chan struct{})
	go func() {
		defer close(done)
		o = l.try([]string{"TEST_FAULT=prune/trash:before=wait", "TEST_WAIT=" + here}, "git-agency", "prune", "--expire=now", "--json")
	}()
	// prune waits at the fault point before each ref that it removes; its plan is made.
	for first := true; ; first = false {
		over := false
		if !waitUntil(func() bool {
			select {
			case <-done:
				over = true
			default:
			}
			return over || exists(here)
		}) {
			t.Fatal("prune did not reach the fault point")
		}
		if over {
			break
		}
		if first {
			l.write(filepath.Join(l.sandboxPath(pruneInterrupted), "late"), "l\n")
			l.write(filepath.Join(again, "late"), "l\n")
		}
		if err := os.Remove(here); err != nil {
			t.Fatal(err)
		}
	}
	if o.code != 0 {
		t.Fatalf("exited with %d: %s", o.code, o.stderr)
	}
	if got := actionsByID(parsePruneResults(t, o.stdout)); got[pruneInterrupted] != "clean" || got["20260128120800-6969"] != "keep" || got[pruneOld] != "remove" || got[pruneRecent] != "remove" {
		t.Errorf("got %v", got)
	}
	for _, p := range parsePruneResults(t, o.stdout) {
		if (p.ID == pruneInterrupted || p.ID == "20260128120800-6969") && (p.Reason != "its sandbox was changed after it ended" || p.TrashCommit != "") {
			t.Errorf("got %+v", p)
		}
	}
	if late := l.git("show", "refs/agency/trash/"+pruneInterrupted+":late"); late != "l" {
		t.Errorf("late in the trash is %q", late)
	}
	if late := l.read(filepath.Join(again, "late")); late != "l\n" {
		t.Errorf("late in the worktree is %q", late)
	}
	l.checkNoBrokenInvocations("afterwards")
}

func TestPruneDryRunReportsRealRun(t *testing.T) {
	t.Parallel()
	const id = pruneInterrupted
	type state struct {
		want string // action for the invocation id with the default --expire
		make func(l *lab)
	}
	states := map[string]state{
		"unchanged":          {"remove", func(*lab) {}},
		"file added":         {"clean", func(l *lab) { l.write(filepath.Join(l.sandboxPath(id), "late"), "l\n") }},
		"ignored file added": {"remove", func(l *lab) { l.write(filepath.Join(l.sandboxPath(id), ".agency", "late"), "l\n") }},
		"mode changed":       {"clean", func(l *lab) { l.must("chmod", "+x", filepath.Join(l.sandboxPath(id), "readme")) }},
		"directory removed":  {"remove", func(l *lab) { l.must("rm", "-r", filepath.Join(l.sandboxPath(id), "sub")) }},
		"commit added":       {"clean", func(l *lab) { l.git("-C", l.sandboxPath(id), "commit", "-q", "-a", "-m", "late") }},
		"moved to .aside":    {"remove", func(l *lab) { l.renameInSandboxDir(id, "tree", ".aside") }},
		"moved to .aside and file added": {"clean", func(l *lab) {
			l.renameInSandboxDir(id, "tree", ".aside")
			l.write(filepath.Join(filepath.Dir(l.sandboxPath(id)), ".aside", "late"), "l\n")
		}},
		"moved to .aside and created again": {"clean", func(l *lab) {
			l.renameInSandboxDir(id, "tree", ".aside")
			l.write(filepath.Join(l.sandboxPath(id), "late"), "l\n")
		}},
		"moved to .done": {"remove", func(l *lab) { l.renameInSandboxDir(id, "tree", ".done") }},
		"symbolic link instead of the tree": {"remove", func(l *lab) {
			l.must("rm", "-r", l.sandboxPath(id))
			l.must("ln", "-s", l.repo, l.sandboxPath(id))
		}},
		"tree removed":                 {"remove", func(l *lab) { l.must("rm", "-r", l.sandboxPath(id)) }},
		"nested repository":            {"keep", func(l *lab) { l.git("init", "-q", filepath.Join(l.sandboxPath(id), "nested")) }},
		"named pipe as .gitattributes": {"keep", func(l *lab) { l.must("mkfifo", filepath.Join(l.sandboxPath(id), ".gitattributes")) }},
		"file beside the tree":         {"keep", func(l *lab) { l.write(filepath.Join(filepath.Dir(l.sandboxPath(id)), "notes"), "mine\n") }},
		"trash ref deleted":            {"clean", func(l *lab) { l.git("update-ref", "-d", "refs/agency/trash/"+id) }},
		"refs packed":                  {"remove", func(l *lab) { l.git("pack-refs", "--all") }},
		"branch deleted":               {"remove", func(l *lab) { l.git("update-ref", "-d", "refs/heads/agency/sandbox-"+id) }},
		"branch moved": {"clean", func(l *lab) {
			l.git("update-ref", "refs/heads/agency/sandbox-"+id, l.git("commit-tree", "-m", "late", "main^{tree}"))
		}},
		"branch checked out elsewhere": {"keep", func(l *lab) {
			l.must("rm", "-r", l.sandboxPath(id))
			l.git("worktree", "prune")
			l.git("worktree", "add", "-q", filepath.Join(l.dir, "home", "elsewhere"), "agency/sandbox-"+id)
		}},
		"worktree entry removed":    {"remove", func(l *lab) { l.must("rm", "-r", filepath.Join(l.repo, ".git", "worktrees", id)) }},
		"worktree entry damaged":    {"remove", func(l *lab) { l.write(filepath.Join(l.repo, ".git", "worktrees", id, "commondir"), "") }},
		"landed":                    {"remove", func(l *lab) { l.editRecord(id, `"discarded"`, `"landed"`) }},
		"in review":                 {"keep", func(l *lab) { l.editRecord(id, `"discarded"`, `"review"`) }},
		"no finished_at":            {"clean", func(l *lab) { l.editRecord(id, `"finished_at"`, `"never_mind"`) }},
		"finished_at in the future": {"clean", func(l *lab) { l.editRecord(id, `"finished_at": "2026`, `"finished_at": "2126`) }},
		"incomplete snapshot": {"remove", func(l *lab) {
			l.write(filepath.Join(l.repo, ".git", "refs", "agency", "snapshots", id, "2.lock"), "")
			l.write(filepath.Join(l.repo, ".git", "logs", "refs", "agency", "snapshots", id, "3"), "")
			l.write(filepath.Join(l.repo, ".git", "logs", "refs", "agency", "snapshots", pruneTemp, "1"), "")
		}},
		"orphan with snapshots only":    {"remove", func(l *lab) { l.git("update-ref", "-d", "refs/agency/trash/"+pruneOrphan) }},
		"unknown schema version":        {"keep", func(l *lab) { l.editRecord(id, `"schema_version": "1.0"`, `"schema_version": "9.0"`) }},
		"record with the id of another": {"keep", func(l *lab) { l.editRecord(id, `"invocation_id": "`+id, `"invocation_id": "`+pruneOld) }},
		"no record":                     {"keep", func(l *lab) { l.must("rm", filepath.Join(l.repoData(), "invocations", id, "meta.json")) }},
		"archived worktree":             {"remove", func(l *lab) { l.agency("worktree", "rm", "wt", "--force") }},
		"interrupted worktree rm": {"remove", func(l *lab) {
			if o := l.try([]string{"TEST_FAULT=worktree rm/registration:before=kill"}, "git-agency", "worktree", "rm", "wt", "--force"); o.code != -1 {
				l.t.Fatal(o.stderr)
			}
		}},
		"no repo.json": {"remove", func(l *lab) { l.must("rm", filepath.Join(l.repoData(), "repo.json")) }},
	}
	for _, step := range []string{"tree", "registration", "branch", "leftovers", "sandbox-dir"} {
		states["discard killed after "+step] = state{"remove", func(l *lab) { l.discardAtID(id, "TEST_FAULT=discard/"+step+":after=kill", -1) }}
	}
	names := slices.Sorted(maps.Keys(states))
	forEachCase(t, names, newPruneLab, func(l *lab, number int, restore func()) {
		s := states[names[number]]
		l.checkDryRun(number, id, s.want, s.make, restore)
	})
}

// checkDryRun makes a state and compares the results of a dry run of prune with those of a real run, for every --expire;
// with -short only for the default and, in every ninth state, for one other.
func (l *lab) checkDryRun(number int, id, want string, makeState func(*lab), restore func()) {
	t := l.t
	t.Helper()
	expires := [][]string{nil, {"--expire=now"}, {"--expire=never"}, {"--expire=2026-01-28T12:02:30Z"}}
	if testing.Short() {
		if expires = [][]string{nil, expires[1+number/9%3]}; number%9 != 0 {
			expires = expires[:1]
		}
	}
	for _, expire := range expires {
		restore()
		makeState(l)
		before := l.dump()
		dry := l.try(nil, slices.Concat([]string{"git-agency", "prune", "--dry-run", "--json"}, expire)...)
		if d := dumpDiff(before, l.dump()); d != "" {
			t.Fatalf("%q: the dry run changed:\n%s", expire, d)
		}
		wet := l.try(nil, slices.Concat([]string{"git-agency", "prune", "--json"}, expire)...)
		if said := strings.ReplaceAll(dry.stdout, `"dry_run": true`, `"dry_run": false`); said != wet.stdout || dry.code != wet.code {
			t.Errorf("%q: the dry run exited with %d\n%s\nthe real run with %d\n%s\n%s", expire, dry.code, said, wet.code, wet.stdout, wet.stderr)
		}
		if dry.code != 0 || strings.Contains(dry.stdout, `"dry_run": false`) {
			t.Errorf("%q: exited with %d: %s", expire, dry.code, dry.stderr)
		}
		if expire == nil && actionsByID(parsePruneResults(t, wet.stdout))[id] != want {
			t.Errorf("want action %s:\n%s", want, wet.stdout)
		}
		l.checkActiveSandbox(expire)
	}
}

// checkActiveSandbox checks that prune left the active sandbox as it was and the repository sound.
func (l *lab) checkActiveSandbox(expire []string) {
	l.t.Helper()
	if status := l.git("-C", l.sandboxPath(pruneActive), "status", "--porcelain"); status != " M readme\n?? sub/untracked" {
		l.t.Errorf("%q: git status in the active sandbox is %q", expire, status)
	}
	if fsck := l.try(nil, "git", "fsck", "--no-dangling"); fsck.code != 0 && !strings.Contains(fsck.stderr, "commondir") {
		l.t.Errorf("%q: git fsck: %s", expire, fsck.stderr)
	}
}

// renameInSandboxDir renames an entry of the directory that holds the worktree of a sandbox.
func (l *lab) renameInSandboxDir(id, from, to string) {
	l.t.Helper()
	dir := filepath.Dir(l.sandboxPath(id))
	if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
		l.t.Fatal(err)
	}
}

// editRecord replaces a text in the record of an invocation.
func (l *lab) editRecord(id, from, to string) {
	l.t.Helper()
	path := filepath.Join(l.repoData(), "invocations", id, "meta.json")
	text := l.read(path)
	if !strings.Contains(text, from) {
		l.t.Fatalf("no %s in %s", from, text)
	}
	l.write(path, strings.ReplaceAll(text, from, to))
}

// TestPruneKilledAtAnyStepKeepsLateWork kills a prune that saves a file written after the discard, and checks that the
// next prune does not remove that file from the trash.
func TestPruneKilledAtAnyStepKeepsLateWork(t *testing.T) {
	t.Parallel()
	l := newPruneLab(t)
	l.write(filepath.Join(l.sandboxPath(pruneInterrupted), "late"), "l\n")
	points, restore := l.prunePoints(), l.save()
	for i, point := range points {
		if testing.Short() && i%2 == 0 {
			continue // see TestPruneInterruptedAtAnyStepIsFinishedByNext
		}
		if o := l.try([]string{"TEST_FAULT=" + point + "=kill"}, "git-agency", "prune"); o.code != -1 {
			t.Fatalf("%s: exited with %d\n%s", point, o.code, o.stderr)
		}
		l.checkLateWork(point)
		restore()
	}
}

// checkLateWork prunes twice more and checks that the trash holds the file written after the discard.
func (l *lab) checkLateWork(point string) {
	l.t.Helper()
	l.checkNoBrokenInvocations(point)
	for range 2 {
		if got := actionsByID(l.prune()); got[pruneInterrupted] == "remove" || got[pruneInterrupted] == "" {
			l.t.Fatalf("%s: the next prune: %v", point, got)
		}
	}
	if late := l.git("show", "refs/agency/trash/"+pruneInterrupted+":late"); late != "l" {
		l.t.Fatalf("%s: late in the trash is %q", point, late)
	}
	if exists(filepath.Dir(l.sandboxPath(pruneInterrupted))) {
		l.t.Fatalf("%s: the directory of the sandbox is left", point)
	}
}

func TestConcurrentPruneStartDiscard(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.agency("worktree", "create", "wt")
	stop := make(chan struct{})
	var pruners, workers sync.WaitGroup
	for range 2 {
		pruners.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if o := l.try(nil, "git-agency", "prune", "--expire=now", "--lock-timeout", "-1"); o.code != 0 {
					t.Errorf("prune exited with %d: %s", o.code, o.stderr)
				}
				l.reportBrokenInvocations()
			}
		})
	}
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	for range 8 {
		workers.Go(func() {
			for range rounds {
				start := l.try(nil, "git-agency", "start", "wt", "--lock-timeout", "-1")
				if start.code != 0 {
					t.Errorf("start exited with %d: %s", start.code, start.stderr)
					return
				}
				l.write(filepath.Join(l.sandboxPath(start.line()), "work"), "w\n")
				if o := l.try(nil, "git-agency", "discard", start.line(), "--lock-timeout", "-1"); o.code != 0 {
					t.Errorf("discard exited with %d: %s", o.code, o.stderr)
				}
				if o := l.try(nil, "git-agency", "discard", start.line(), "--lock-timeout", "-1"); o.code != 0 && o.code != 3 {
					t.Errorf("the second discard exited with %d: %s", o.code, o.stderr)
				}
			}
		})
	}
	workers.Wait()
	close(stop)
	pruners.Wait()
	l.prune("--expire=now")
	if all := l.invocations(); len(all) > 0 {
		t.Errorf("remaining invocations: %+v", all)
	}
	if refs := l.git("for-each-ref", "refs/agency", "refs/heads/agency/sandbox-*"); refs != "" {
		t.Errorf("remaining refs: %s", refs)
	}
	l.checkRepository()
}

// reportBrokenInvocations is checkNoBrokenInvocations for goroutines, which must not call Fatal.
func (l *lab) reportBrokenInvocations() {
	o := l.try(nil, "git-agency", "ls", "--all", "--porcelain")
	if o.code != 0 || strings.Contains(o.stdout, "\nbroken ") {
		l.t.Errorf("ls --all exited with %d:\n%s%s", o.code, o.stdout, o.stderr)
	}
}

// TestDiscardReportsInvocationPrunedMeanwhile checks that a discard which waits for the lock while prune removes its
// invocation succeeds and reports that the invocation was discarded before.
func TestDiscardReportsInvocationPrunedMeanwhile(t *testing.T) {
	t.Parallel()
	l := newPruneLab(t)
	here, said := filepath.Join(l.dir, "home", "here"), filepath.Join(l.dir, "home", "said")
	var prune sync.WaitGroup
	prune.Go(func() {
		if o := l.try([]string{"TEST_FAULT=prune/record:before=wait", "TEST_WAIT=" + here}, "git-agency", "prune", "--expire=2026-01-28T12:02:30Z"); o.code != 0 {
			t.Errorf("prune exited with %d: %s", o.code, o.stderr)
		}
	})
	if !waitForFile(here) {
		t.Fatal("prune did not reach the fault point")
	}
	stderr, err := os.Create(said)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	discard := exec.Command(filepath.Join(l.bin, "git-agency"), "discard", pruneOld, "--lock-timeout", "-1")
	discard.Dir, discard.Env, discard.Stderr = l.repo, l.env, stderr
	if err := discard.Start(); err != nil {
		t.Fatal(err)
	}
	if !waitUntil(func() bool { return strings.Contains(l.read(said), "waiting for the repository lock") }) {
		t.Error("discard does not wait for the lock")
	}
	if err := os.Remove(here); err != nil {
		t.Fatal(err)
	}
	if err := discard.Wait(); err != nil || !strings.Contains(l.read(said), pruneOld+" was discarded before") {
		t.Errorf("%v: %s", err, l.read(said))
	}
	prune.Wait()
}
