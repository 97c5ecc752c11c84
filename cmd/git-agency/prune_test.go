package main

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/git-agency/git-agency/gitagency"
)

// The cast of every pruning, beside the worktree of the sweeps. All but one ended long ago, by a clock
// that the tests set; what is pruned is judged by the real one.
const (
	pruneActive = "20260128120100-6363" // is being worked in
	pruneOld    = "20260128120200-6464" // was discarded, and nothing is left of its sandbox
	pruneHalf   = "20260128120300-6565" // the same, but its sandbox is still there: the discard was interrupted
	pruneYoung  = "20260128120400-6666" // as that one, but only just now
	pruneStray  = "20260128120600-6767" // a ref keeps its work, nothing else knows of it
	pruneTemp   = "20260128120700-6868" // its record was being removed
)

// newPruneLab has one of everything that prune looks at, and work of other people beside it.
func newPruneLab(t *testing.T) *lab {
	t.Helper()
	l := newSweepLab(t)
	for _, id := range []string{pruneActive, pruneOld, pruneHalf, pruneYoung} {
		l.startAs(id)
		tree := l.sandboxOf(id)
		l.write(filepath.Join(tree, "committed"), id+"\n")
		l.git("-C", tree, "add", "committed")
		l.git("-C", tree, "commit", "-q", "-m", "work")
		l.write(filepath.Join(tree, "sub", "untracked"), id+"\n")
		l.write(filepath.Join(tree, "readme"), "changed\n")
	}
	l.snapshotsOf("--create-reflog", pruneActive+"/1", pruneOld+"/1", pruneOld+"/2", pruneHalf+"/1", pruneYoung+"/1")
	l.discardAs(pruneOld, "", 0)
	l.discardAs(pruneHalf, "TEST_FAULT=discard/tree:before=kill", -1)
	if o := l.try([]string{"TEST_FAULT=discard/tree:before=kill"}, "git-agency", "discard", pruneYoung); o.code != -1 {
		t.Fatal(o.stderr)
	}
	l.git("update-ref", "refs/agency/trash/"+pruneStray, "HEAD")
	l.snapshotsOf("--no-deref", pruneStray+"/1", pruneStray+"/2") // no log says since when
	l.write(filepath.Join(l.repoData(), "invocations", ".tmp-"+pruneTemp, "events.jsonl"), "{}\n")
	l.write(filepath.Join(l.repoData(), ".tmp-repo.json-1"), "{")
	return l
}

// snapshotsOf makes refs of snapshots, whatever they hold.
func (l *lab) snapshotsOf(option string, names ...string) {
	l.t.Helper()
	l.must(append([]string{"sh", "-c", `option=$1; shift; printf 'create refs/agency/snapshots/%s HEAD\n' "$@" | git update-ref "$option" --stdin`, "sh", option}, names...)...)
}

// at is the moment an id of the tests names.
func at(id string) string {
	return "TEST_NOW=" + id[:4] + "-" + id[4:6] + "-" + id[6:8] + "T" + id[8:10] + ":" + id[10:12] + ":" + id[12:14] + "Z"
}

// startAs starts an invocation that gets this id.
func (l *lab) startAs(id string) {
	l.t.Helper()
	if o := l.try([]string{at(id), "TEST_RAND=" + string(rune('a'+id[len(id)-1]-'1'))}, "git-agency", "start", "wt"); o.line() != id {
		l.t.Fatalf("started %q, not %s: %s", o.line(), id, o.stderr)
	}
}

// discardAs discards an invocation at the moment its id names.
func (l *lab) discardAs(id, fault string, code int) {
	l.t.Helper()
	if o := l.try([]string{at(id), fault}, "git-agency", "discard", id); o.code != code {
		l.t.Fatalf("ended with %d: %s", o.code, o.stderr)
	}
}

func (l *lab) sandboxOf(id string) string {
	return filepath.Join(l.repoData(), "sandboxes", id, "tree")
}

// pruned runs prune, which must succeed, and returns what it says.
func (l *lab) pruned(args ...string) []gitagency.PruneResult {
	l.t.Helper()
	return things(l.t, l.agency(slices.Concat([]string{"prune", "--json"}, args)...))
}

func things(t *testing.T, text string) []gitagency.PruneResult {
	t.Helper()
	var things []gitagency.PruneResult
	if err := json.Unmarshal([]byte(text), &things); err != nil {
		t.Fatal(err)
	}
	return things
}

// outcomes is what became of each thing, by its id. Leftovers count where there is nothing else.
func outcomes(things []gitagency.PruneResult) map[string]string {
	found := map[string]string{}
	for _, p := range things {
		if _, have := found[p.ID]; !have || p.Kind != "leftover" {
			found[p.ID] = p.Action
		}
	}
	return found
}

// checkNothingBroken is what anybody may see at any moment.
func (l *lab) checkNothingBroken(point string) {
	l.t.Helper()
	for _, i := range l.all() {
		if i.Broken {
			l.t.Fatalf("%s: %s is %s", point, i.ID, i.BrokenReason)
		}
	}
}

// checkPruned prunes once more and holds the world against that of a prune nobody disturbed.
func (l *lab) checkPruned(point, want string) {
	l.t.Helper()
	l.checkNothingBroken(point)
	if o := l.try(nil, "git-agency", "prune"); o.code != 0 {
		l.t.Fatalf("%s: the next prune ended with %d\n%s", point, o.code, o.stderr)
	}
	if d := diff(want, withoutObjects(l.world())); d != "" {
		l.t.Fatalf("%s: it is not what an undisturbed prune leaves:\n%s", point, d)
	}
	if fsck := l.try(nil, "git", "fsck", "--no-dangling"); fsck.code != 0 {
		l.t.Errorf("%s: git fsck: %s", point, fsck.stderr)
	}
}

// undisturbed is the world after a prune, having checked that it is what a prune should leave.
func (l *lab) undisturbed() string {
	l.t.Helper()
	before, restore := l.world(), l.save()
	defer restore()
	young := "keep"
	if exists(l.sandboxOf(pruneYoung)) {
		young = "clean"
	}
	got := outcomes(l.pruned())
	for id, want := range map[string]string{
		pruneActive: "keep", pruneOld: "remove", pruneHalf: "remove", pruneYoung: young, pruneStray: "remove", pruneTemp: "remove",
	} {
		if got[id] != want {
			l.t.Fatalf("%s: %q, not %q", id, got[id], want)
		}
	}
	for _, file := range []string{"committed", "sub/untracked"} {
		if kept := l.git("show", "refs/agency/trash/"+pruneYoung+":"+file); kept != pruneYoung {
			l.t.Fatalf("of %s %q is kept", file, kept)
		}
	}
	if kept := strings.Fields(l.git("for-each-ref", "--format=%(refname:lstrip=3)", "refs/agency/snapshots")); !slices.Equal(kept, []string{pruneActive + "/1", pruneYoung + "/1"}) {
		l.t.Fatalf("of snapshots %q is kept", kept)
	}
	after := l.world()
	// What changed is what was pruned, and nothing else: above all not the sandbox that is worked in.
	ofThePruned := regexp.MustCompile(`(?m)^[+-] "(repo/\.git/objects/|repo/\.git/packed-refs|repo/\.git/ORIG_HEAD|data/repos/\w+/\.tmp-|[^"]*(` +
		strings.Join([]string{pruneOld, pruneHalf, pruneYoung, pruneStray, pruneTemp}, "|") + `)).*\n`)
	if rest := ofThePruned.ReplaceAllString(diff(before, after), ""); rest != "" {
		l.t.Fatalf("something else changed:\n%s", rest)
	}
	for _, line := range strings.Split(withoutObjects(after), "\n") {
		for _, id := range []string{pruneOld, pruneHalf, pruneStray, pruneTemp} {
			if strings.Contains(line, id) {
				l.t.Fatalf("left behind: %s", line)
			}
		}
	}
	return withoutObjects(after)
}

// prunePoints are the steps of a prune, each once.
func (l *lab) prunePoints() []string {
	l.t.Helper()
	points := l.points(sweep{verb: "prune", argv: []string{"git-agency", "prune"}})
	slices.Sort(points)
	return slices.Compact(points)
}

func TestAPruneThatFailsOrIsInterruptedAtAnyStepIsFinishedByTheNext(t *testing.T) {
	t.Parallel()
	l := newPruneLab(t)
	want, points, restore := l.undisturbed(), l.prunePoints(), l.save()
	for _, step := range []string{"discard/tree:after", "prune/snapshots:before", "prune/trash:before", "prune/record:after", "prune/leftover:before"} {
		if !slices.Contains(points, step) {
			t.Fatalf("no step %s in %q", step, points)
		}
	}
	for i, point := range points {
		for n, action := range []string{"fail", "term", "kill"} {
			if testing.Short() && i%6 != 2*n {
				continue // every second point, with one of the three
			}
			code := map[string]int{"fail": 1, "term": 143, "kill": -1}[action]
			o := l.try([]string{"TEST_FAULT=" + point + "=" + action}, "git-agency", "prune")
			// Interrupted after the very last step, all is done.
			if o.code != code && (action != "term" || o.code != 0) || strings.Contains(o.stderr, "clean-up") {
				t.Errorf("%s=%s: ended with %d\n%s%s", point, action, o.code, o.stdout, o.stderr)
			}
			if action == "fail" && (!strings.Contains(o.stderr, "failed on purpose at "+point) || !strings.Contains(o.stdout, "failed on purpose at "+point)) {
				t.Errorf("%s: does not say what failed:\n%s%s", point, o.stdout, o.stderr)
			}
			l.checkPruned(point+"="+action, want)
			restore()
		}
	}
}

// One thing that cannot be removed keeps nothing else from going.
func TestWhatCannotBePrunedDoesNotStopTheRest(t *testing.T) {
	t.Parallel()
	l := newPruneLab(t)
	want := l.undisturbed()
	inTheWay := filepath.Join(l.repo, ".git", "refs", "agency", "trash", pruneOld+".lock")
	l.write(filepath.Join(inTheWay, "file"), "")
	o := l.try(nil, "git-agency", "prune", "--json")
	if o.code != 1 || !strings.Contains(o.stderr, "invocation "+pruneOld+" is discarded, but not all of it could be removed") {
		t.Errorf("ended with %d: %s", o.code, o.stderr)
	}
	if got := outcomes(things(t, o.stdout)); got[pruneOld] != "keep" || got[pruneHalf] != "remove" || got[pruneStray] != "remove" || got[pruneTemp] != "remove" {
		t.Errorf("got %v", got)
	}
	l.checkNothingBroken("afterwards")
	if kept := l.git("show", "refs/agency/trash/"+pruneOld+":committed"); kept != pruneOld {
		t.Errorf("%q is kept", kept)
	}
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	l.checkPruned("when the cause is gone", want)
}

// A person or an agent does not wait for the lock.
func TestWhatIsWrittenBetweenThePlanAndItsExecutionIsKept(t *testing.T) {
	t.Parallel()
	l := newPruneLab(t)
	l.startAs("20260128120800-6969")
	l.discardAs("20260128120800-6969", "", 0)
	again := l.sandboxOf("20260128120800-6969")
	here := filepath.Join(l.dir, "home", "here")
	var o outcome
	done := make(chan struct{})
	go func() {
		defer close(done)
		o = l.try([]string{"TEST_FAULT=prune/trash:before=wait", "TEST_WAIT=" + here}, "git-agency", "prune", "--expire=now", "--json")
	}()
	// It stands before each ref it removes, while the plan was made long ago.
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
			t.Fatal("prune did not come by")
		}
		if over {
			break
		}
		if first {
			l.write(filepath.Join(l.sandboxOf(pruneHalf), "late"), "l\n")
			l.write(filepath.Join(again, "late"), "l\n")
		}
		if err := os.Remove(here); err != nil {
			t.Fatal(err)
		}
	}
	if o.code != 0 {
		t.Fatalf("ended with %d: %s", o.code, o.stderr)
	}
	if got := outcomes(things(t, o.stdout)); got[pruneHalf] != "clean" || got["20260128120800-6969"] != "keep" || got[pruneOld] != "remove" || got[pruneYoung] != "remove" {
		t.Errorf("got %v", got)
	}
	for _, p := range things(t, o.stdout) {
		if (p.ID == pruneHalf || p.ID == "20260128120800-6969") && (p.Reason != "it was worked in after it ended" || p.TrashCommit != "") {
			t.Errorf("got %+v", p)
		}
	}
	if late := l.git("show", "refs/agency/trash/"+pruneHalf+":late"); late != "l" {
		t.Errorf("%q is kept", late)
	}
	if late := l.read(filepath.Join(again, "late")); late != "l\n" {
		t.Errorf("%q is left", late)
	}
	l.checkNothingBroken("afterwards")
}

func TestADryRunSaysExactlyWhatTheRealRunDoes(t *testing.T) {
	t.Parallel()
	const id = pruneHalf
	type state struct {
		want string // of the one that is looked at, by default
		make func(l *lab)
	}
	states := map[string]state{
		"as it is":              {"remove", func(*lab) {}},
		"written into":          {"clean", func(l *lab) { l.write(filepath.Join(l.sandboxOf(id), "late"), "l\n") }},
		"an ignored file in it": {"remove", func(l *lab) { l.write(filepath.Join(l.sandboxOf(id), ".agency", "late"), "l\n") }},
		"a mode changed in it":  {"clean", func(l *lab) { l.must("chmod", "+x", filepath.Join(l.sandboxOf(id), "readme")) }},
		"half of it is gone":    {"remove", func(l *lab) { l.must("rm", "-r", filepath.Join(l.sandboxOf(id), "sub")) }},
		"committed in":          {"clean", func(l *lab) { l.git("-C", l.sandboxOf(id), "commit", "-q", "-a", "-m", "late") }},
		"aside":                 {"remove", func(l *lab) { l.move(id, "tree", ".aside") }},
		"aside and written into": {"clean", func(l *lab) {
			l.move(id, "tree", ".aside")
			l.write(filepath.Join(filepath.Dir(l.sandboxOf(id)), ".aside", "late"), "l\n")
		}},
		"aside and made again": {"clean", func(l *lab) { l.move(id, "tree", ".aside"); l.write(filepath.Join(l.sandboxOf(id), "late"), "l\n") }},
		"looked at":            {"remove", func(l *lab) { l.move(id, "tree", ".done") }},
		"a link for a tree": {"remove", func(l *lab) {
			l.must("rm", "-r", l.sandboxOf(id))
			l.must("ln", "-s", l.repo, l.sandboxOf(id))
		}},
		"only an empty directory": {"remove", func(l *lab) { l.must("rm", "-r", l.sandboxOf(id)) }},
		"a repository in it":      {"keep", func(l *lab) { l.git("init", "-q", filepath.Join(l.sandboxOf(id), "nested")) }},
		"a pipe in it":            {"keep", func(l *lab) { l.must("mkfifo", filepath.Join(l.sandboxOf(id), ".gitattributes")) }},
		"something beside it":     {"keep", func(l *lab) { l.write(filepath.Join(filepath.Dir(l.sandboxOf(id)), "notes"), "mine\n") }},
		"its ref is gone":         {"clean", func(l *lab) { l.git("update-ref", "-d", "refs/agency/trash/"+id) }},
		"its refs are packed":     {"remove", func(l *lab) { l.git("pack-refs", "--all") }},
		"its branch is gone":      {"remove", func(l *lab) { l.git("update-ref", "-d", "refs/heads/agency/sandbox-"+id) }},
		"its branch has moved": {"clean", func(l *lab) {
			l.git("update-ref", "refs/heads/agency/sandbox-"+id, l.git("commit-tree", "-m", "late", "main^{tree}"))
		}},
		"its branch is elsewhere": {"keep", func(l *lab) {
			l.must("rm", "-r", l.sandboxOf(id))
			l.git("worktree", "prune")
			l.git("worktree", "add", "-q", filepath.Join(l.dir, "home", "elsewhere"), "agency/sandbox-"+id)
		}},
		"its entry is gone":    {"remove", func(l *lab) { l.must("rm", "-r", filepath.Join(l.repo, ".git", "worktrees", id)) }},
		"its entry is damaged": {"remove", func(l *lab) { l.write(filepath.Join(l.repo, ".git", "worktrees", id, "commondir"), "") }},
		"landed":               {"remove", func(l *lab) { l.edit(id, `"discarded"`, `"landed"`) }},
		"in review":            {"keep", func(l *lab) { l.edit(id, `"discarded"`, `"review"`) }},
		"no date":              {"clean", func(l *lab) { l.edit(id, `"finished_at"`, `"never_mind"`) }},
		"a date to come":       {"clean", func(l *lab) { l.edit(id, `"finished_at": "2026`, `"finished_at": "2126`) }},
		"a snapshot half made": {"remove", func(l *lab) {
			l.write(filepath.Join(l.repo, ".git", "refs", "agency", "snapshots", id, "2.lock"), "")
			l.write(filepath.Join(l.repo, ".git", "logs", "refs", "agency", "snapshots", id, "3"), "")
			l.write(filepath.Join(l.repo, ".git", "logs", "refs", "agency", "snapshots", pruneTemp, "1"), "")
		}},
		"only snapshots are left of a stray": {"remove", func(l *lab) { l.git("update-ref", "-d", "refs/agency/trash/"+pruneStray) }},
		"a corrupt record":                   {"keep", func(l *lab) { l.edit(id, `"schema_version": "1.0"`, `"schema_version": "9.0"`) }},
		"a record of another":                {"keep", func(l *lab) { l.edit(id, `"invocation_id": "`+id, `"invocation_id": "`+pruneOld) }},
		"no record":                          {"keep", func(l *lab) { l.must("rm", filepath.Join(l.repoData(), "invocations", id, "meta.json")) }},
		"an archived worktree":               {"remove", func(l *lab) { l.agency("worktree", "rm", "wt", "--force") }},
		"an archiving that was interrupted": {"remove", func(l *lab) {
			if o := l.try([]string{"TEST_FAULT=worktree rm/registration:before=kill"}, "git-agency", "worktree", "rm", "wt", "--force"); o.code != -1 {
				l.t.Fatal(o.stderr)
			}
		}},
		"no repo.json": {"remove", func(l *lab) { l.must("rm", filepath.Join(l.repoData(), "repo.json")) }},
	}
	for _, step := range []string{"tree", "registration", "branch", "leftovers", "sandbox-dir"} {
		states["a discard killed after "+step] = state{"remove", func(l *lab) { l.discardAs(id, "TEST_FAULT=discard/"+step+":after=kill", -1) }}
	}
	names := slices.Sorted(maps.Keys(states))
	const labs = 4 // at the same time; each is put back after a state, which costs less than to make another
	for first := range labs {
		t.Run(strconv.Itoa(first), func(t *testing.T) {
			t.Parallel()
			shared := newPruneLab(t)
			putBack := shared.save()
			putBack() // what it puts back later is compared with this
			for i := first; i < len(names); i += labs {
				name := names[i]
				t.Run(name, func(t *testing.T) {
					shared.with(t).checkDryRun(i, id, states[name].want, states[name].make)
				})
				putBack()
			}
		})
	}
}

// checkDryRun makes a state and holds what a dry run of prune says against what prune does, for every --expire, or
// with -short for the default and, in every second state, for another.
func (l *lab) checkDryRun(number int, id, want string, makeState func(*lab)) {
	t := l.t
	t.Helper()
	makeState(l)
	restore := l.save()
	expires := [][]string{nil, {"--expire=now"}, {"--expire=never"}, {"--expire=2026-01-28T12:02:30Z"}}
	if testing.Short() {
		if expires = [][]string{nil, expires[1+number%3]}; number%2 == 0 {
			expires = expires[:1]
		}
	}
	for _, expire := range expires {
		before := l.world()
		dry := l.try(nil, slices.Concat([]string{"git-agency", "prune", "--dry-run", "--json"}, expire)...)
		if d := diff(before, l.world()); d != "" {
			t.Fatalf("%q: the dry run changed:\n%s", expire, d)
		}
		wet := l.try(nil, slices.Concat([]string{"git-agency", "prune", "--json"}, expire)...)
		if said := strings.ReplaceAll(dry.stdout, `"dry_run": true`, `"dry_run": false`); said != wet.stdout || dry.code != wet.code {
			t.Errorf("%q: said, with %d\n%s\nand then, with %d\n%s\n%s", expire, dry.code, said, wet.code, wet.stdout, wet.stderr)
		}
		if dry.code != 0 || strings.Contains(dry.stdout, `"dry_run": false`) {
			t.Errorf("%q: ended with %d: %s", expire, dry.code, dry.stderr)
		}
		if expire == nil && outcomes(things(t, wet.stdout))[id] != want {
			t.Errorf("it should %s:\n%s", want, wet.stdout)
		}
		l.checkWorkedIn(expire)
		restore()
	}
}

// checkWorkedIn is what holds whatever was pruned: the sandbox that is worked in is as it was, and what
// was written late is somewhere.
func (l *lab) checkWorkedIn(expire []string) {
	l.t.Helper()
	if status := l.git("-C", l.sandboxOf(pruneActive), "status", "--porcelain"); status != " M readme\n?? sub/untracked" {
		l.t.Errorf("%q: what is worked in shows %q", expire, status)
	}
	if fsck := l.try(nil, "git", "fsck", "--no-dangling"); fsck.code != 0 && !strings.Contains(fsck.stderr, "commondir") {
		l.t.Errorf("%q: git fsck: %s", expire, fsck.stderr)
	}
}

// move renames in the directory of a sandbox.
func (l *lab) move(id, from, to string) {
	l.t.Helper()
	dir := filepath.Dir(l.sandboxOf(id))
	if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
		l.t.Fatal(err)
	}
}

// edit changes the record of an invocation.
func (l *lab) edit(id, from, to string) {
	l.t.Helper()
	path := filepath.Join(l.repoData(), "invocations", id, "meta.json")
	text := l.read(path)
	if !strings.Contains(text, from) {
		l.t.Fatalf("no %s in %s", from, text)
	}
	l.write(path, strings.ReplaceAll(text, from, to))
}

// Killed while it keeps what was written late, a prune never leads the next one to remove it.
func TestLateWorkSurvivesAPruneThatIsKilledAtAnyStep(t *testing.T) {
	t.Parallel()
	l := newPruneLab(t)
	l.write(filepath.Join(l.sandboxOf(pruneHalf), "late"), "l\n")
	points, restore := l.prunePoints(), l.save()
	for i, point := range points {
		if testing.Short() && i%3 != 0 {
			continue
		}
		if o := l.try([]string{"TEST_FAULT=" + point + "=kill"}, "git-agency", "prune"); o.code != -1 {
			t.Fatalf("%s: ended with %d\n%s", point, o.code, o.stderr)
		}
		l.checkLate(point)
		restore()
	}
}

// checkLate prunes twice more, after which the late work must be kept still.
func (l *lab) checkLate(point string) {
	l.t.Helper()
	l.checkNothingBroken(point)
	for range 2 {
		if got := outcomes(l.pruned()); got[pruneHalf] == "remove" || got[pruneHalf] == "" {
			l.t.Fatalf("%s: the next prune: %v", point, got)
		}
	}
	if late := l.git("show", "refs/agency/trash/"+pruneHalf+":late"); late != "l" {
		l.t.Fatalf("%s: %q is kept", point, late)
	}
	if exists(filepath.Dir(l.sandboxOf(pruneHalf))) {
		l.t.Fatalf("%s: something of the sandbox is left", point)
	}
}

func TestPrunesStartsAndDiscardsAtOnceDoNotDisturbEachOther(t *testing.T) {
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
					t.Errorf("prune ended with %d: %s", o.code, o.stderr)
				}
				l.checkNothingBrokenSoftly()
			}
		})
	}
	for range 8 {
		workers.Go(func() {
			for range 3 {
				start := l.try(nil, "git-agency", "start", "wt", "--lock-timeout", "-1")
				if start.code != 0 {
					t.Errorf("start ended with %d: %s", start.code, start.stderr)
					return
				}
				l.write(filepath.Join(l.sandboxOf(start.line()), "work"), "w\n")
				if o := l.try(nil, "git-agency", "discard", start.line(), "--lock-timeout", "-1"); o.code != 0 {
					t.Errorf("discard ended with %d: %s", o.code, o.stderr)
				}
				if o := l.try(nil, "git-agency", "discard", start.line(), "--lock-timeout", "-1"); o.code != 0 && o.code != 3 {
					t.Errorf("the second discard ended with %d: %s", o.code, o.stderr)
				}
			}
		})
	}
	workers.Wait()
	close(stop)
	pruners.Wait()
	l.pruned("--expire=now")
	if all := l.all(); len(all) > 0 {
		t.Errorf("left: %+v", all)
	}
	if refs := l.git("for-each-ref", "refs/agency", "refs/heads/agency/sandbox-*"); refs != "" {
		t.Errorf("left: %s", refs)
	}
	l.checkRepository()
}

// checkNothingBrokenSoftly is checkNothingBroken for goroutines, which must not end a test.
func (l *lab) checkNothingBrokenSoftly() {
	o := l.try(nil, "git-agency", "ls", "--all", "--porcelain")
	if o.code != 0 || strings.Contains(o.stdout, "\nbroken ") {
		l.t.Errorf("ls --all ended with %d:\n%s%s", o.code, o.stdout, o.stderr)
	}
}

// Who waited for the lock finds what he meant gone: it was discarded, and nothing was undone.
func TestADiscardOfWhatIsPrunedMeanwhileSaysThatItWasDiscarded(t *testing.T) {
	t.Parallel()
	l := newPruneLab(t)
	here, said := filepath.Join(l.dir, "home", "here"), filepath.Join(l.dir, "home", "said")
	var prune sync.WaitGroup
	prune.Go(func() {
		if o := l.try([]string{"TEST_FAULT=prune/record:before=wait", "TEST_WAIT=" + here}, "git-agency", "prune", "--expire=2026-01-28T12:02:30Z"); o.code != 0 {
			t.Errorf("prune ended with %d: %s", o.code, o.stderr)
		}
	})
	if !waitFor(here) {
		t.Fatal("prune did not come by")
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
		t.Error("discard does not wait")
	}
	if err := os.Remove(here); err != nil {
		t.Fatal(err)
	}
	if err := discard.Wait(); err != nil || !strings.Contains(l.read(said), pruneOld+" was discarded before") {
		t.Errorf("%v: %s", err, l.read(said))
	}
	prune.Wait()
}
