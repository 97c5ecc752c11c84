package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency"
)

// findings returns the findings of "doctor --json" and checks its exit code: 4 if there are any, else 0.
func (l *lab) findings() []gitagency.Finding {
	l.t.Helper()
	o := l.try(nil, "git-agency", "doctor", "--json")
	var d gitagency.Diagnosis
	if err := json.Unmarshal([]byte(o.stdout), &d); err != nil {
		l.t.Fatalf("%v\n%s%s", err, o.stdout, o.stderr)
	}
	want := 0
	if len(d.Findings) > 0 {
		want = 4
	}
	if o.code != want {
		l.t.Fatalf("doctor ended with %d for %+v\n%s", o.code, d.Findings, o.stderr)
	}
	return d.Findings
}

// fixAll runs doctor --fix for each finding until doctor reports none, and returns the codes of the findings.
// It fails the test if a finding remains after its fix.
func (l *lab) fixAll(point string) []string {
	l.t.Helper()
	var codes, tried []string
	for {
		found := l.findings()
		if len(found) == 0 {
			return codes
		}
		f := found[0]
		if slices.Contains(tried, f.ID) {
			l.t.Fatalf("%s: after --fix %s there is still %+v", point, f.ID, found)
		}
		tried, codes = append(tried, f.ID), append(codes, f.Code)
		if o := l.try(nil, "git-agency", "doctor", "--fix", f.ID); o.code != 0 {
			l.t.Fatalf("%s: --fix %s ended with %d\n%s", point, f.ID, o.code, o.stderr)
		}
	}
}

// fixPackedRefsLock runs doctor --fix on a packed-refs.lock that a killed git left. No other command removes
// that lock, because it may belong to any git process.
func (l *lab) fixPackedRefsLock() {
	l.t.Helper()
	if exists(filepath.Join(l.repo, ".git", "packed-refs.lock")) {
		l.agency("doctor", "--fix", "packed-refs.lock")
	}
}

// checkFixable checks the state after a creation was killed: the listings succeed, doctor reports the
// remainder by its id, and after --fix of that id no file and no finding is left. It returns the listed state.
func (l *lab) checkFixable(s sweep, point, before string) (state string) {
	l.t.Helper()
	for _, argv := range [][]string{{"ls"}, {"ls", "--all"}, {"worktree", "ls", "--all"}} {
		l.agency(argv...)
	}
	state, found := l.listedState(s), l.findings()
	switch {
	case state == "incomplete" || state == "missing-meta":
		if !slices.ContainsFunc(found, func(f gitagency.Finding) bool { return f.ID == sweepID }) {
			l.t.Fatalf("%s (%s): doctor does not report %s: %+v", point, state, sweepID, found)
		}
		if o := l.try(nil, "git-agency", "doctor", "--fix", sweepID); o.code != 0 {
			l.t.Fatalf("%s (%s): --fix ended with %d\n%s", point, state, o.code, o.stderr)
		}
		if left := l.findings(); len(left) > 0 {
			l.t.Fatalf("%s (%s): after --fix there is still %+v", point, state, left)
		}
	case len(found) > 0:
		l.fixAll(point)
	}
	if state == "whole" {
		l.checkCreated(s, point)
		return state
	}
	if d := dumpDiff(before, s.dump(l)); d != "" {
		l.t.Fatalf("%s (%q): files are left:\n%s", point, strings.TrimSpace(state), d)
	}
	l.checkNextLayer(s, point)
	return state
}

// doctorCase is one kind of damage, the finding that doctor must report, and a check of the repaired state.
type doctorCase struct {
	code       string
	id         string // of the finding; "": the lab's sandbox, "*": any
	damage     func(*doctorLab)
	checkFixed func(*doctorLab) // nil: only a person can fix it
	atRisk     bool             // the finding must have AtRisk set
	killSweep  bool             // the fix is also killed at every change to the disk
	faultSweep bool             // the fix also fails and is killed at every step
}

// doctorLab is a lab with an integration worktree and a sandbox, both with committed, staged, changed and
// untracked files.
type doctorLab struct {
	*lab
	tree      string // of the sandbox
	recordDir string // directory of the sandbox's record
	others    string // records of the repository that replaceMoved makes
	ended     string // id of the sandbox that replaceMoved discards
}

// adminDir returns git's administrative directory of a worktree.
func (w *doctorLab) adminDir(id string) string { return filepath.Join(w.repo, ".git", "worktrees", id) }

// recordsDir returns the directory with the records of the lab's repository, even if the data directory has
// records of other repositories.
func (w *doctorLab) recordsDir() string { return filepath.Dir(filepath.Dir(w.recordDir)) }

func (w *doctorLab) remove(paths ...string) {
	w.t.Helper()
	for _, p := range paths {
		if err := os.RemoveAll(p); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *doctorLab) rename(from, to string) {
	w.t.Helper()
	if err := os.Rename(from, to); err != nil {
		w.t.Fatal(err)
	}
}

func (w *doctorLab) symlink(to, path string) {
	w.t.Helper()
	if err := os.Symlink(to, path); err != nil {
		w.t.Fatal(err)
	}
}

// redirectCommonDir points the commondir of the sandbox's worktree entry to a partial clone that would fetch
// missing objects by running a command.
func (w *doctorLab) redirectCommonDir() {
	w.t.Helper()
	evil, command := filepath.Join(w.dir, "home", "evil"), filepath.Join(w.dir, "home", "command")
	w.write(command, "#!/bin/sh\n: > "+filepath.Join(w.dir, "ran")+"\n")
	if err := os.Chmod(command, 0o755); err != nil {
		w.t.Fatal(err)
	}
	w.git("init", "-q", "--bare", evil)
	for key, value := range map[string]string{
		"core.repositoryformatversion": "1", "extensions.partialClone": "o", "remote.o.promisor": "true",
		"remote.o.url": "ext::" + command, "protocol.ext.allow": "always",
	} {
		w.git("-C", evil, "config", key, value)
	}
	w.write(filepath.Join(evil, "refs/heads/agency/sandbox-"+sweepID), strings.Repeat("1", 40)+"\n")
	w.write(filepath.Join(w.adminDir(sweepID), "commondir"), evil+"\n")
}

// dieAt runs git-agency and kills it at the fault point.
func (w *doctorLab) dieAt(point string, argv ...string) {
	w.t.Helper()
	env := []string{"TEST_NOW=2026-01-28T12:07:00Z", "TEST_RAND=c", "TEST_FAULT=" + point + "=kill"}
	if o := w.try(env, append([]string{"git-agency"}, argv...)...); o.code != -1 {
		w.t.Fatalf("%q at %s ended with %d: %s", argv, point, o.code, o.stderr)
	}
	// A git child that is still alive releases the repository lock when it reads the end of its input.
	w.takeRepositoryLock()()
}

const killedID = "20260128120700-6363" // id of a record created by a killed command

// checkNoRefs checks that there are no refs with the given prefixes.
func (w *doctorLab) checkNoRefs(prefixes ...string) {
	w.t.Helper()
	if left := w.git(append([]string{"for-each-ref"}, prefixes...)...); left != "" {
		w.t.Errorf("refs are left:\n%s", left)
	}
}

// checkTrashed checks that the trash ref holds everything that was in the sandbox, and that the sandbox is gone.
func (w *doctorLab) checkTrashed() {
	w.t.Helper()
	kept := w.trashText()
	for _, want := range []string{"\tcommitted", "\tstaged", "\tsub/untracked", "changed"} {
		if !strings.Contains(kept, want) {
			w.t.Errorf("the trash ref lacks %q:\n%s", want, kept)
		}
	}
	if exists(filepath.Dir(w.tree)) || exists(w.adminDir(sweepID)) || w.git("for-each-ref", "refs/heads/agency/sandbox-*") != "" {
		w.t.Errorf("the tree, the worktree entry or the branch of the sandbox is left")
	}
}

// moveAdopted adopts the main worktree and a linked one inside of it, starts a sandbox in each, and moves the repository.
func (w *doctorLab) moveAdopted() {
	w.t.Helper()
	w.git("worktree", "add", "-q", "-b", "inner", filepath.Join(w.repo, "inner"))
	w.agency("worktree", "adopt", "--name", "outer")
	w.agency("worktree", "adopt", "inner")
	for _, name := range []string{"outer", "inner"} {
		id := w.agency("start", name)
		w.git("-C", w.agency("path", id), "commit", "-q", "--allow-empty", "-m", "in "+name)
		w.write(filepath.Join(w.agency("path", id), name), "content\n")
	}
	w.rename(w.repo, w.repo+"2")
	w.repo += "2"
}

// checkAdoptedLand checks that the sandboxes of moveAdopted land in the worktrees that they were started in.
func (w *doctorLab) checkAdoptedLand() {
	w.t.Helper()
	w.checkUsable()
	for name, tree := range map[string]string{"outer": w.repo, "inner": filepath.Join(w.repo, "inner")} {
		landed := 0
		for _, line := range strings.Split(w.agency("ls", "--format", "%(invocation_id) %(sandbox_path)"), "\n") {
			if id, path, _ := strings.Cut(line, " "); exists(filepath.Join(path, name)) {
				w.agency("land", id, "--commit-all", "-m", name)
				landed++
			}
		}
		if landed != 1 || !exists(filepath.Join(tree, name)) {
			w.t.Errorf("%d sandboxes of %s landed, and %s is in the tree: %v", landed, name, name, exists(filepath.Join(tree, name)))
		}
	}
}

// replaceMoved is moveAdopted, with a discarded sandbox that has an archive, and then makes another repository with a sandbox
// at the old path.
func (w *doctorLab) replaceMoved() {
	w.t.Helper()
	w.ended = w.agency("start", "wt")
	w.git("init", "-q", filepath.Join(w.agency("path", w.ended), "nested"))
	w.agency("discard", w.ended)
	w.moveAdopted()
	moved := w.repo
	w.repo = strings.TrimSuffix(moved, "2")
	if err := os.Mkdir(w.repo, 0o755); err != nil {
		w.t.Fatal(err)
	}
	w.git("init", "-q", "-b", "main", ".")
	w.git("commit", "-q", "--allow-empty", "-m", "another beginning")
	w.agency("worktree", "create", "other")
	w.write(filepath.Join(w.agency("path", w.agency("start", "other")), "theirs"), "content\n")
	w.others = w.recordsOfOther()
	w.repo = moved
}

// recordsOfOther returns the records of the worktree and the sandbox that replaceMoved makes in the other repository, where
// w.repo is.
func (w *doctorLab) recordsOfOther() string {
	w.t.Helper()
	return w.agency("worktree", "show", "--json", "other") + w.agency("ls", "--json", "--worktree", "other")
}

// checkReplacedLand checks that the repository that replaceMoved moved has all of its sandboxes, and the other one its own.
func (w *doctorLab) checkReplacedLand() {
	w.t.Helper()
	w.checkAdoptedLand()
	if tree := w.agency("path", w.agency("restore", w.ended)); !exists(filepath.Join(tree, "nested", ".git")) {
		w.t.Error("the archive of the ended sandbox is gone")
	}
	moved := w.repo
	w.repo = strings.TrimSuffix(moved, "2")
	if got := w.recordsOfOther(); got != w.others {
		w.t.Errorf("the other repository has the records\n%s\nand had\n%s", got, w.others)
	}
	theirs := w.agency("ls", "--format", "%(invocation_id)")
	w.agency("land", theirs, "--commit-all", "-m", "theirs")
	w.fixAll("in the other repository")
	w.repo = moved
	if found := w.findings(); len(found) > 0 {
		w.t.Errorf("doctor found %+v", found)
	}
}

// checkUsable checks that git works in the sandbox and that its changes, branch and HEAD are intact.
func (w *doctorLab) checkUsable() {
	w.t.Helper()
	tree := w.agency("path", sweepID)
	if got := w.git("-C", tree, "status", "--porcelain"); !strings.Contains(got, "sub/untracked") || !strings.Contains(got, "readme") {
		w.t.Errorf("git status in the sandbox says %q", got)
	}
	if got := w.git("-C", tree, "log", "--format=%s", "-1", "agency/sandbox-"+sweepID); got != "work" {
		w.t.Errorf("its branch is at %q", got)
	}
	if got := w.git("-C", tree, "symbolic-ref", "HEAD"); got != "refs/heads/agency/sandbox-"+sweepID {
		w.t.Errorf("its HEAD is %q", got)
	}
}

func truncateFile(t *testing.T, path string) {
	t.Helper()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
}

var doctorCases = []doctorCase{
	{code: "interrupted-creation", id: killedID, damage: func(w *doctorLab) { w.dieAt("start/checkout:after", "start", "wt") }, checkFixed: func(w *doctorLab) {}},
	{code: "interrupted-creation", id: killedID, damage: func(w *doctorLab) { w.dieAt("worktree create/marker:after", "worktree", "create", "new") }, checkFixed: func(w *doctorLab) {}},
	{code: "empty-record", id: killedID, damage: func(w *doctorLab) { w.write(filepath.Join(filepath.Dir(w.recordDir), killedID, ".tmp-x"), "") }, checkFixed: func(w *doctorLab) {}},
	{code: "missing-meta", atRisk: true, damage: func(w *doctorLab) { w.remove(filepath.Join(w.recordDir, "meta.json")) }, checkFixed: func(w *doctorLab) { w.checkTrashed() }},
	{code: "corrupt-meta", atRisk: true, faultSweep: true, damage: func(w *doctorLab) { w.write(filepath.Join(w.recordDir, "meta.json"), `{"what was": "there"`) }, checkFixed: func(w *doctorLab) {
		w.checkTrashed()
		if got := w.git("log", "-1", "--format=%B", trashRef); !strings.Contains(got, `{"what was": "there"`) {
			w.t.Errorf("the record was not kept: %q", got)
		}
	}},
	{code: "id-mismatch", atRisk: true, damage: func(w *doctorLab) {
		w.write(filepath.Join(w.recordDir, "meta.json"), strings.ReplaceAll(w.read(filepath.Join(w.recordDir, "meta.json")), sweepID, killedID))
	}, checkFixed: func(w *doctorLab) { w.checkTrashed() }},
	{code: "corrupt-meta", id: sweepWorktree, atRisk: true, killSweep: true, damage: func(w *doctorLab) {
		truncateFile(w.t, filepath.Join(w.repoData(), "worktrees", sweepWorktree, "meta.json"))
	}, checkFixed: func(w *doctorLab) {
		if got := w.read(filepath.Join(w.agency("worktree", "path", "wt"), "untracked")); got != "u\n" {
			w.t.Errorf("the worktree holds %q", got)
		}
		w.agency("start", "wt")
	}},
	{code: "corrupt-meta", id: sweepWorktree, atRisk: true, damage: func(w *doctorLab) { // and its tree was moved aside for removal
		home := filepath.Join(w.repoData(), "worktrees", sweepWorktree)
		w.rename(w.worktreePath(), filepath.Join(home, ".aside"))
		truncateFile(w.t, filepath.Join(home, "meta.json"))
	}, checkFixed: func(w *doctorLab) {
		if got := w.read(filepath.Join(w.agency("worktree", "path", "wt"), "untracked")); got != "u\n" {
			w.t.Errorf("the worktree holds %q", got)
		}
	}},
	{code: "missing-tree", damage: func(w *doctorLab) { w.remove(w.tree) }, checkFixed: func(w *doctorLab) {
		if got := w.git("show", trashRef+":committed"); got != "c" {
			w.t.Errorf("the trash ref has %q for the committed file", got)
		}
	}},
	{code: "missing-tree", damage: func(w *doctorLab) { // and git's worktree entry has the path of a user's worktree
		w.remove(w.tree)
		w.write(filepath.Join(w.adminDir(sweepID), "gitdir"), filepath.Join(w.dir, "home", "own", ".git")+"\n")
	}, checkFixed: func(w *doctorLab) {
		if got := w.git("show", trashRef+":committed"); got != "c" {
			w.t.Errorf("the trash ref has %q for the committed file", got)
		}
		if got := w.git("-C", filepath.Join(w.dir, "home", "own"), "symbolic-ref", "HEAD"); got != "refs/heads/users-own" {
			w.t.Errorf("the user's worktree is on %q", got)
		}
	}},
	{code: "missing-tree", id: sweepWorktree, damage: func(w *doctorLab) { w.remove(w.worktreePath()) }, checkFixed: func(w *doctorLab) {
		w.git("rev-parse", "agency/wt-6161")
	}},
	{code: "moved-tree", atRisk: true, damage: func(w *doctorLab) { w.git("worktree", "move", w.tree, filepath.Join(w.dir, "home", "moved")) }},
	{code: "moved-tree", atRisk: true, damage: func(w *doctorLab) { // and a symlink is at the old path
		w.rename(w.tree, filepath.Join(w.dir, "home", "moved"))
		w.symlink(filepath.Join(w.dir, "home", "moved"), w.tree)
	}},
	{code: "foreign-tree", damage: func(w *doctorLab) {
		w.remove(w.tree)
		w.symlink(filepath.Join(w.dir, "home", "own"), w.tree)
	}},
	{code: "moved-data", atRisk: true, killSweep: true, damage: func(w *doctorLab) {
		w.rename(w.data, w.data+"2")
		w.data += "2"
		w.env = append(w.env, "AGENCY_DATA_DIR="+w.data)
	}, checkFixed: func(w *doctorLab) { w.checkUsable() }},
	{code: "moved-repository", id: "*", atRisk: true, killSweep: true, damage: func(w *doctorLab) {
		w.agency("worktree", "adopt")
		w.rename(w.repo, w.repo+"2")
		w.repo += "2"
	}, checkFixed: func(w *doctorLab) {
		w.checkUsable()
		if got := w.agency("worktree", "path", "main"); got != w.repo {
			w.t.Errorf("the adopted worktree is at %s", got)
		}
	}},
	{code: "moved-repository", id: "*", atRisk: true, damage: func(w *doctorLab) { // and a symlink is at the old path
		w.agency("worktree", "adopt")
		w.rename(w.repo, w.repo+"2")
		w.symlink("repo2", w.repo)
		w.repo += "2"
	}, checkFixed: func(w *doctorLab) {
		w.checkUsable()
		if got := w.agency("worktree", "path", "main"); got != w.repo {
			w.t.Errorf("the adopted worktree is at %s", got)
		}
	}},
	{code: "moved-repository", id: "*", atRisk: true, killSweep: true, damage: func(w *doctorLab) { // with adopted worktrees
		w.moveAdopted()
	}, checkFixed: func(w *doctorLab) { w.checkAdoptedLand() }},
	{code: "moved-repository", id: "*", atRisk: true, killSweep: true, damage: func(w *doctorLab) { // and adopted again by a version that did not refuse it
		w.moveAdopted()
		records, aside := w.recordsDir(), w.data+".aside"
		w.rename(records, aside)
		w.git("-C", w.repo, "worktree", "repair", filepath.Join(w.repo, "inner"))
		// The tool sees none of the ids that moveAdopted made, perhaps in this second: other ones are given to it.
		for name, random := range map[string]string{".": "c", "inner": "d"} {
			if o := w.try([]string{"TEST_NOW=2026-01-28T12:06:00Z", "TEST_RAND=" + random}, "git-agency", "worktree", "adopt", name); o.code != 0 {
				w.t.Fatal(o.stderr)
			}
		}
		w.rename(aside, records)
	}, checkFixed: func(w *doctorLab) { w.checkAdoptedLand() }},
	{code: "moved-repository", id: "*", atRisk: true, killSweep: true, damage: func(w *doctorLab) { // and another repository is at the old path
		w.replaceMoved()
	}, checkFixed: func(w *doctorLab) { w.checkReplacedLand() }},
	{code: "interrupted-discard", atRisk: false, damage: func(w *doctorLab) { w.dieAt("discard/tree:after", "discard", sweepID) }, checkFixed: func(w *doctorLab) { w.checkTrashed() }},
	{code: "interrupted-discard", atRisk: true, damage: func(w *doctorLab) { w.dieAt("discard/tree:before", "discard", sweepID) }, checkFixed: func(w *doctorLab) { w.checkTrashed() }},
	{code: "interrupted-discard", atRisk: true, damage: func(w *doctorLab) { // of a landed invocation
		meta := filepath.Join(w.recordDir, "meta.json")
		w.write(meta, strings.Replace(w.read(meta), `"status"`, `"landing": "landed", "status"`, 1))
	}, checkFixed: func(w *doctorLab) {
		w.checkTrashed()
		if got := w.read(filepath.Join(w.recordDir, "meta.json")); !strings.Contains(got, `"landing": "landed"`) {
			w.t.Errorf("the record says %s", got)
		}
	}},
	{code: "interrupted-discard", damage: func(w *doctorLab) { // a ref that keeps staged files
		w.agency("discard", sweepID)
		w.git("update-ref", "refs/agency/index/"+sweepID, "HEAD")
	}, checkFixed: func(w *doctorLab) { w.checkTrashed(); w.checkNoRefs("refs/agency/index") }},
	{code: "interrupted-land", atRisk: true, killSweep: true, damage: func(w *doctorLab) {
		w.dieAt("land/files:after", "land", sweepID, "--commit-all", "-m", "all")
	}, checkFixed: func(w *doctorLab) {
		if got := w.agency("ls"); !strings.Contains(got, sweepID) {
			w.t.Errorf("the landing was not undone: %s", got)
		}
	}},
	{code: "interrupted-land", atRisk: true, damage: func(w *doctorLab) {
		w.dieAt("land/commit:after", "land", sweepID, "--commit-all", "-m", "all")
	}, checkFixed: func(w *doctorLab) {
		if got := w.agency("ls", "--all"); !strings.Contains(got, "landed") {
			w.t.Errorf("the landing was not completed: %s", got)
		}
	}},
	{code: "stray-landing", id: "agency/advance-0123456789abcdef", damage: func(w *doctorLab) {
		w.write(filepath.Join(w.repo, ".git/agency/advance-0123456789abcdef/tree/readme"), "")
	}, checkFixed: func(w *doctorLab) { w.checkUsable() }},
	{code: "stray-landing", id: "*", atRisk: true, killSweep: true, damage: func(w *doctorLab) { // the note landing.json was deleted
		w.dieAt("land/files:after", "land", sweepID, "--commit-all", "-m", "all")
		w.remove(filepath.Join(w.recordsDir(), "landing.json"))
	}, checkFixed: func(w *doctorLab) {
		w.checkUsable()
		if got := w.git("-C", w.worktreePath(), "status", "--porcelain"); got != "?? untracked" {
			w.t.Errorf("git status in the worktree says %q", got)
		}
	}},
	{code: "interrupted-verify", id: killedID, damage: func(w *doctorLab) {
		w.dieAt("verify/run:before", "land", sweepID, "--commit-all", "-m", "all", "--verify", "true")
	}, checkFixed: func(w *doctorLab) {
		w.checkUsable()
		if got := w.agency("ls"); strings.Contains(got, killedID) {
			w.t.Errorf("the verification sandbox is left: %s", got)
		}
	}},
	{code: "interrupted-put", atRisk: true, killSweep: true, damage: func(w *doctorLab) { w.dieAt("put/done:before", "put", sweepID, "readme", "sub", ".") }, checkFixed: func(w *doctorLab) {
		w.checkUsable()
		if w.read(filepath.Join(w.tree, "readme")) == w.read(filepath.Join(w.repo, "readme")) {
			w.t.Error("the put was not undone")
		}
	}},
	{code: "interrupted-rollback", atRisk: true, killSweep: true, damage: func(w *doctorLab) {
		w.agency("snapshot", "create", sweepID)
		w.write(filepath.Join(w.tree, "later"), "l\n")
		w.write(filepath.Join(w.tree, "readme"), "changed again\n")
		w.dieAt("rollback/files:after", "snapshot", "rollback", sweepID, sweepID+"/1")
	}, checkFixed: func(w *doctorLab) {
		if exists(filepath.Join(w.tree, "later")) || w.read(filepath.Join(w.tree, "readme")) != "changed\n" {
			w.t.Error("the rollback was not completed")
		}
		if got := w.git("show", "refs/agency/snapshots/"+sweepID+"/2:later"); got != "l" {
			w.t.Errorf("the snapshot of the state before the rollback has %q", got)
		}
	}},
	{code: "interrupted-put", damage: func(w *doctorLab) { w.dieAt("put/stage:after", "put", sweepID, "readme", "new") }, checkFixed: func(w *doctorLab) {
		w.checkUsable()
		if exists(filepath.Join(w.tree, "new")) {
			w.t.Error("the staged file was put")
		}
	}},
	{code: "interrupted-put", damage: func(w *doctorLab) { w.dieAt("put/done:after", "put", sweepID, "readme", "sub/one") }, checkFixed: func(w *doctorLab) {
		w.checkUsable()
		if w.read(filepath.Join(w.tree, "sub", "one")) != w.read(filepath.Join(w.repo, "readme")) {
			w.t.Error("the completed put was undone")
		}
	}},
	{code: "half-discarded", damage: func(w *doctorLab) { w.dieAt("discard/record:before", "discard", sweepID) }, checkFixed: func(w *doctorLab) { w.checkUsable() }},
	{code: "half-discarded", damage: func(w *doctorLab) { // with an archive
		w.git("init", "-q", filepath.Join(w.tree, "nested"))
		w.dieAt("discard/archive:after", "discard", sweepID)
	}, checkFixed: func(w *doctorLab) {
		if exists(filepath.Join(w.repoData(), "trash")) || !exists(filepath.Join(w.tree, "nested", ".git")) {
			w.t.Error("the discard was not undone")
		}
	}},
	{code: "interrupted-discard", atRisk: true, damage: func(w *doctorLab) { // with an archive
		w.git("init", "-q", filepath.Join(w.tree, "nested"))
		w.dieAt("discard/tree:before", "discard", sweepID)
	}, checkFixed: func(w *doctorLab) {
		w.checkTrashed()
		if !exists(filepath.Join(w.repoData(), "trash", sweepID+".tar")) {
			w.t.Error("the archive is gone")
		}
	}},
	{code: "orphan-archive", id: "20260128120100-0000", atRisk: true, damage: func(w *doctorLab) {
		w.write(filepath.Join(w.repoData(), "trash", "20260128120100-0000.tar"), "archive")
	}, checkFixed: func(w *doctorLab) {
		w.checkUsable()
		if exists(filepath.Join(w.repoData(), "trash")) {
			w.t.Error("the archive is left")
		}
	}},
	{code: "corrupt-meta", atRisk: true, damage: func(w *doctorLab) { // of a sandbox with files that no commit can hold
		w.git("init", "-q", filepath.Join(w.tree, "nested"))
		w.write(filepath.Join(w.recordDir, "meta.json"), "{")
	}, checkFixed: func(w *doctorLab) {
		w.checkTrashed()
		if !exists(filepath.Join(w.repoData(), "trash", sweepID+".tar")) {
			w.t.Error("the archive is gone")
		}
	}},
	{code: "orphan-archive", atRisk: true, damage: func(w *doctorLab) { // with files that are nowhere else
		w.git("init", "-q", filepath.Join(w.tree, "nested"))
		w.agency("discard", sweepID)
		w.git("update-ref", "-d", "refs/agency/trash/"+sweepID)
		w.remove(w.recordDir)
	}, checkFixed: func(w *doctorLab) {
		w.git("rev-parse", "--verify", "refs/agency/trash/"+sweepID)
		if !exists(filepath.Join(w.repoData(), "trash", sweepID+".tar")) {
			w.t.Error("the archive is gone")
		}
		w.agency("prune", "--expire", "now")
		if exists(filepath.Join(w.repoData(), "trash")) {
			w.t.Error("the archive is left")
		}
	}},
	{code: "leftover-scratch", id: "*", damage: func(w *doctorLab) { // of an archive
		w.write(filepath.Join(w.repoData(), "trash", ".tmp-"+sweepID+".tar-1"), "archive")
	}, checkFixed: func(w *doctorLab) { w.checkUsable() }},
	{code: "interrupted-archive", id: sweepWorktree, atRisk: true, damage: func(w *doctorLab) {
		w.dieAt("worktree rm/tree:before", "worktree", "rm", "wt", "--force")
	}, checkFixed: func(w *doctorLab) {
		if got := w.git("show", "refs/agency/trash/"+sweepWorktree+":untracked"); got != "u" {
			w.t.Errorf("the trash ref has %q for the untracked file", got)
		}
	}},
	{code: "interrupted-archive", id: killedID, damage: func(w *doctorLab) {
		w.try([]string{"TEST_NOW=2026-01-28T12:07:00Z", "TEST_RAND=c"}, "git-agency", "worktree", "adopt")
		w.dieAt("worktree rm/marker:before", "worktree", "rm", "main")
	}, checkFixed: func(w *doctorLab) {
		if exists(filepath.Join(w.repo, ".agency")) {
			w.t.Error("the marker is left")
		}
	}},
	{code: "half-archived", id: sweepWorktree, damage: func(w *doctorLab) {
		w.dieAt("worktree rm/record:before", "worktree", "rm", "wt", "--force")
	}, checkFixed: func(w *doctorLab) { w.agency("start", "wt") }},
	{code: "missing-marker", damage: func(w *doctorLab) { w.remove(filepath.Join(w.tree, ".agency")) }, checkFixed: func(w *doctorLab) { w.checkUsable() }},
	{code: "missing-marker", damage: func(w *doctorLab) { // and a file is in place of its directory
		w.remove(filepath.Join(w.tree, ".agency"))
		w.write(filepath.Join(w.tree, ".agency"), "mine\n")
	}, checkFixed: func(w *doctorLab) {
		w.checkUsable()
		if got := w.read(filepath.Join(w.tree, "was-agency-1")); got != "mine\n" {
			w.t.Errorf("the file that was moved aside has %q", got)
		}
		w.agency("exec", sweepID, "--", "true")
	}},
	{code: "missing-marker", id: sweepWorktree, damage: func(w *doctorLab) { w.remove(filepath.Join(w.worktreePath(), ".agency")) }, checkFixed: func(w *doctorLab) { w.agency("start", "wt") }},
	{code: "wrong-marker", damage: func(w *doctorLab) { w.write(filepath.Join(w.tree, ".agency", "INTEGRATION_MARKER"), "") }},
	{code: "unreadable-tree", damage: func(w *doctorLab) {
		if err := os.Chmod(w.tree, 0o300); err != nil {
			w.t.Fatal(err)
		}
	}, checkFixed: func(w *doctorLab) { w.checkUsable() }},
	{code: "foreign-tree", atRisk: true, damage: func(w *doctorLab) {
		w.remove(filepath.Join(w.tree, ".git"))
		w.git("init", "-q", w.tree)
	}},
	{code: "foreign-tree", id: killedID, damage: func(w *doctorLab) { // another repository is at the path of the adopted worktree
		tree := filepath.Join(w.dir, "home", "adopted")
		w.git("worktree", "add", "-q", "-b", "topic", tree)
		w.try([]string{"TEST_NOW=2026-01-28T12:07:00Z", "TEST_RAND=c"}, "git-agency", "worktree", "adopt", tree)
		w.git("worktree", "remove", tree)
		w.git("init", "-q", tree)
	}},
	{code: "missing-branch", id: killedID, atRisk: true, damage: func(w *doctorLab) {
		tree := filepath.Join(w.dir, "home", "adopted")
		w.git("worktree", "add", "-q", "-b", "topic", tree)
		w.try([]string{"TEST_NOW=2026-01-28T12:07:00Z", "TEST_RAND=c"}, "git-agency", "worktree", "adopt", tree)
		w.git("-C", tree, "switch", "-q", "--detach")
		w.git("branch", "-D", "topic")
	}},
	{code: "missing-target", damage: func(w *doctorLab) { // no reflog names another branch
		meta := filepath.Join(w.recordDir, "meta.json")
		w.write(meta, strings.Replace(w.read(meta), `"refs/heads/`, `"refs/heads/gone-`, 1))
	}},
	{code: "missing-layer", id: "*", atRisk: true, damage: func(w *doctorLab) {
		w.agency("start", "wt", "--changeset", "overlay")
		w.agency("exec", "@", "--", "sh", "-c", "echo work >work")
		w.remove(filepath.Join(w.repoData(), "../../layers"))
	}, checkFixed: func(w *doctorLab) { w.agency("exec", "@", "--", "sh", "-ec", "test -e work; git diff --exit-code") }},
	{code: "missing-clone", id: "*", atRisk: true, killSweep: true, damage: func(w *doctorLab) {
		w.agency("start", "wt", "--changeset", "clone", "--isolation", "none")
		w.agency("exec", "@", "--", "sh", "-ec", "echo work >work; git add work; git commit -qm work; echo more >more; git add more")
		w.remove(filepath.Join(w.agency("path", "@"), ".git"))
	}, checkFixed: func(w *doctorLab) {
		w.agency("exec", "@", "--", "sh", "-ec", "git log -1 --format=%s | grep -q '^work$'; git diff --exit-code; git diff --cached --name-only | grep -q '^more$'; git fsck")
	}},
	{code: "missing-clone", id: "*", atRisk: true, damage: func(w *doctorLab) {
		w.agency("start", "wt", "--changeset", "clone", "--isolation", "none")
		dir := filepath.Dir(w.agency("path", "@"))
		w.runShell(filepath.Join(dir, "tree"), "echo late >late; git add late; git commit -qm 'not imported'")
		w.remove(filepath.Join(dir, "clone"))
		w.write(filepath.Join(dir, "tree/.git/objects/info/alternates"), "/nowhere/objects\n")
	}, checkFixed: func(w *doctorLab) {
		w.agency("exec", "@", "--", "git", "fsck")
		if got := w.git("log", "-1", "--format=%s", "agency/sandbox-"+filepath.Base(filepath.Dir(w.agency("path", "@")))); got != "not imported" {
			w.t.Errorf("the last commit of the branch is %q", got)
		}
	}},
	{code: "missing-clone", id: "*", atRisk: true, damage: func(w *doctorLab) {
		w.agency("start", "wt", "--changeset", "clone", "--isolation", "none")
		w.runShell(w.agency("path", "@"), "mv .git ../elsewhere; ln -s ../elsewhere .git")
	}, checkFixed: func(w *doctorLab) {
		w.agency("exec", "@", "--", "git", "fsck")
		if kept, err := filepath.Glob(filepath.Join(filepath.Dir(w.agency("path", "@")), "clone/replaced-*/git")); err != nil || len(kept) != 1 {
			w.t.Errorf("the link is kept as %q, %v", kept, err)
		}
	}},
	{code: "missing-clone", id: "*", atRisk: true, damage: func(w *doctorLab) {
		w.agency("start", "wt", "--changeset", "clone", "--isolation", "none")
		w.git("update-ref", "-d", w.git("for-each-ref", "--format=%(refname)", "refs/agency/base"))
	}, checkFixed: func(w *doctorLab) {
		if base := w.git("for-each-ref", "--format=%(objectname)", "refs/agency/base"); base != w.git("rev-parse", "agency/sandbox-"+filepath.Base(filepath.Dir(w.agency("path", "@")))) {
			w.t.Errorf("the base is %q", base)
		}
	}},
	{code: "unlinked-tree", atRisk: true, killSweep: true, damage: func(w *doctorLab) { w.remove(w.adminDir(sweepID)) }, checkFixed: func(w *doctorLab) { w.checkUsable() }},
	{code: "unlinked-tree", atRisk: true, damage: func(w *doctorLab) { truncateFile(w.t, filepath.Join(w.tree, ".git")) }, checkFixed: func(w *doctorLab) { w.checkUsable() }},
	{code: "unlinked-tree", id: sweepWorktree, atRisk: true, damage: func(w *doctorLab) { w.remove(w.adminDir(sweepWorktree)) }, checkFixed: func(w *doctorLab) {
		w.git("-C", w.worktreePath(), "status")
		w.agency("start", "wt")
	}},
	{code: "unlinked-tree", atRisk: true, damage: func(w *doctorLab) { // git would run a command configured by an agent
		w.redirectCommonDir()
		w.remove(filepath.Join(w.adminDir(sweepID), "index"))
		truncateFile(w.t, filepath.Join(w.tree, ".git"))
	}, checkFixed: func(w *doctorLab) {
		if exists(filepath.Join(w.dir, "ran")) {
			w.t.Error("a command configured by an agent was run")
		}
		w.checkUsable()
	}},
	{code: "unlinked-tree", atRisk: true, damage: func(w *doctorLab) { w.write(filepath.Join(w.adminDir(sweepID), "HEAD"), "nonsense\n") }, checkFixed: func(w *doctorLab) { w.checkUsable() }},
	{code: "missing-branch", atRisk: true, killSweep: true, damage: func(w *doctorLab) { w.git("update-ref", "-d", "refs/heads/agency/sandbox-"+sweepID) }, checkFixed: func(w *doctorLab) { w.checkUsable() }},
	{code: "leftovers", damage: func(w *doctorLab) {
		w.write(filepath.Join(w.recordDir, ".tmp-meta.json-1"), "{")
		w.write(filepath.Join(w.recordDir, "intent.json"), "{}")
	}, checkFixed: func(w *doctorLab) { w.checkUsable() }},
	{code: "unclaimed-marker", id: ".agency", damage: func(w *doctorLab) { w.write(filepath.Join(w.repo, ".agency", "INTEGRATION_MARKER"), "") }},
	{code: "orphan-branch", atRisk: true, damage: func(w *doctorLab) {
		w.remove(w.recordDir, filepath.Dir(w.tree))
		w.git("worktree", "prune")
	}, checkFixed: func(w *doctorLab) {
		if got := w.git("show", trashRef+":committed"); got != "c" {
			w.t.Errorf("the trash ref has %q for the committed file", got)
		}
	}},
	{code: "orphan-ref", id: killedID, atRisk: true, damage: func(w *doctorLab) {
		w.git("update-ref", "refs/agency/base/"+killedID, "HEAD")
		w.git("update-ref", "refs/agency/index/"+killedID, "HEAD")
	}, checkFixed: func(w *doctorLab) {
		w.checkNoRefs("refs/agency/base", "refs/agency/index")
		if got := w.git("rev-parse", "refs/agency/trash/"+killedID); got != w.git("rev-parse", "HEAD") {
			w.t.Errorf("the trash ref is at %s", got)
		}
	}},
	{code: "other-data-dir", atRisk: true, damage: func(w *doctorLab) {
		w.env = append(w.env, "AGENCY_DATA_DIR="+w.data+"-other")
		w.remove(filepath.Join(w.recordDir, "meta.json"))
	}},
	{code: "foreign-record", atRisk: true, damage: func(w *doctorLab) {
		w.remove(w.repo)
		if err := os.Mkdir(w.repo, 0o755); err != nil {
			w.t.Fatal(err)
		}
		w.git("init", "-q", "-b", "main", ".")
		w.git("commit", "-q", "--allow-empty", "-m", "another beginning")
	}, checkFixed: func(w *doctorLab) {
		if got := w.git("show", trashRef+":committed"); got != "c" {
			w.t.Errorf("the trash ref has %q for the committed file", got)
		}
	}},
	{code: "damaged-repo", id: "*", damage: func(w *doctorLab) { w.write(filepath.Join(w.repoData(), "repo.json"), "garbage") }, checkFixed: func(w *doctorLab) {
		w.checkUsable()
		w.agency("start", "wt")
	}},
	{code: "data-dir-missing", id: "data-dir", atRisk: true, damage: func(w *doctorLab) { w.rename(w.data, w.data+"-away") }},
	{code: "data-dir-open", id: "data-dir", damage: func(w *doctorLab) {
		if err := os.Chmod(w.data, 0o755); err != nil {
			w.t.Fatal(err)
		}
	}, checkFixed: func(w *doctorLab) { w.checkUsable() }},
	{code: "data-dir-open", id: "data-dir", damage: func(w *doctorLab) { // and it has files of other programs
		w.write(filepath.Join(w.data, "of-others"), "")
		for _, dir := range []string{w.data, filepath.Join(w.data, "repos")} {
			if err := os.Chmod(dir, 0o755); err != nil {
				w.t.Fatal(err)
			}
		}
	}, checkFixed: func(w *doctorLab) {
		w.checkUsable()
		if fi, err := os.Stat(w.data); err != nil || fi.Mode().Perm() != 0o755 {
			w.t.Errorf("the shared data directory has mode %v, %v", fi.Mode(), err)
		}
	}},
	{code: "copied-entry", damage: func(w *doctorLab) {
		copyTree(w.t, w.repo, w.repo+"-copy")
		w.repo += "-copy"
	}, checkFixed: func(w *doctorLab) {
		w.repo = strings.TrimSuffix(w.repo, "-copy")
		w.checkUsable()
	}},
	{code: "refused-setting", id: "agency.sandbox.write", damage: func(w *doctorLab) { w.git("config", "agency.sandbox.write", "/") }},
	{code: "refused-setting", id: "agency.sandbox.hdie", damage: func(w *doctorLab) { w.git("config", "agency.sandbox.hdie", "~/secret's") }},
	{code: "interrupted-probe", id: "20260128120500-9999", damage: func(w *doctorLab) {
		w.write(filepath.Join(w.recordsDir(), "probes", "20260128120500-9999.json"), `{"platform": "slurm", "pid": 1, "pid_started": "gone"}`)
	}},
	{code: "stale-lock", id: "packed-refs.lock", damage: func(w *doctorLab) { w.write(filepath.Join(w.repo, ".git", "packed-refs.lock"), "") }, checkFixed: func(w *doctorLab) { w.checkUsable() }},
	{code: "stale-lock", id: "packed-refs.new", damage: func(w *doctorLab) {
		w.git("branch", "packed")
		w.git("pack-refs", "--all")
		w.write(filepath.Join(w.repo, ".git", "packed-refs.new"), "# pack-refs with")
	}, checkFixed: func(w *doctorLab) { w.git("branch", "-D", "packed"); w.checkUsable() }},
	{code: "stale-lock", id: "objects/pack/multi-pack-index.d/multi-pack-index-chain.lock", damage: func(w *doctorLab) {
		w.write(filepath.Join(w.repo, ".git/objects/pack/multi-pack-index.d/multi-pack-index-chain.lock"), "")
	}, checkFixed: func(w *doctorLab) { w.git("fsck") }},
	{code: "stale-lock", id: "index.lock", damage: func(w *doctorLab) { w.write(filepath.Join(w.repo, ".git", "index.lock"), "") }, checkFixed: func(w *doctorLab) { w.git("add", "untracked") }},
	{code: "stale-lock", id: "refs/heads/topic/x.lock", damage: func(w *doctorLab) { w.write(filepath.Join(w.repo, ".git", "refs/heads/topic/x.lock"), "") }, checkFixed: func(w *doctorLab) { w.git("branch", "topic/x") }},
	{code: "stale-lock", damage: func(w *doctorLab) { w.write(filepath.Join(w.adminDir(sweepID), "index.lock"), "") }, checkFixed: func(w *doctorLab) { w.git("-C", w.tree, "add", "."); w.checkUsable() }},
	{code: "stale-lock", id: "logs/HEAD.lock", damage: func(w *doctorLab) { w.write(filepath.Join(w.repo, ".git/logs/HEAD.lock"), "") }, checkFixed: func(w *doctorLab) { w.git("reflog", "expire", "HEAD") }},
	{code: "orphan-log", id: "logs/refs/heads/gone", damage: func(w *doctorLab) {
		oid := w.git("rev-parse", "main")
		w.write(filepath.Join(w.repo, ".git/logs/refs/heads/gone"), strings.Repeat("0", 40)+" "+oid+" A <a@b> 1 +0000\tx\n")
	}, checkFixed: func(w *doctorLab) { w.git("branch", "gone") }},
	{code: "orphan-log", id: "logs/refs/heads/gone", atRisk: true, damage: func(w *doctorLab) {
		oid := w.git("commit-tree", "-m", "only here", "main^{tree}")
		w.write(filepath.Join(w.repo, ".git/logs/refs/heads/gone"), strings.Repeat("0", 40)+" "+oid+" A <a@b> 1 +0000\tx\n")
	}},
	{code: "damaged-entry", id: "worktrees/own", atRisk: true, damage: func(w *doctorLab) { truncateFile(w.t, filepath.Join(w.adminDir("own"), "commondir")) }, checkFixed: func(w *doctorLab) {
		w.git("-C", filepath.Join(w.dir, "home", "own"), "status")
	}},
	{code: "damaged-entry", id: "worktrees/half", damage: func(w *doctorLab) { w.write(filepath.Join(w.adminDir("half"), "commondir"), "") }, checkFixed: func(w *doctorLab) {
		w.git("worktree", "list")
	}},
	{code: "damaged-entry", id: "worktrees/own", atRisk: true, damage: func(w *doctorLab) { truncateFile(w.t, filepath.Join(w.adminDir("own"), "HEAD")) }, checkFixed: func(w *doctorLab) {
		if got := w.git("-C", filepath.Join(w.dir, "home", "own"), "log", "-1", "--format=%s"); got != "first" {
			w.t.Errorf("its HEAD is at %q", got)
		}
	}},
	{code: "damaged-entry", id: "worktrees/own", atRisk: true, damage: func(w *doctorLab) { truncateFile(w.t, filepath.Join(w.adminDir("own"), "gitdir")) }},
	{code: "damaged-entry", id: "worktrees/own", atRisk: true, damage: func(w *doctorLab) {
		truncateFile(w.t, filepath.Join(w.adminDir("own"), "HEAD"))
		w.remove(filepath.Join(w.adminDir("own"), "logs"))
	}},
	{code: "initializing-entry", id: "worktrees/own", damage: func(w *doctorLab) { w.write(filepath.Join(w.adminDir("own"), "locked"), "initializing") }, checkFixed: func(w *doctorLab) {
		w.git("worktree", "remove", filepath.Join(w.dir, "home", "own"))
	}},
	{code: "leftover-scratch", damage: func(w *doctorLab) { w.write(filepath.Join(w.repo, ".git/agency/capture-"+sweepID+"/HEAD"), "") }, checkFixed: func(w *doctorLab) { w.checkUsable() }},
	{code: "leftover-scratch", damage: func(w *doctorLab) {
		w.write(filepath.Join(w.repo, ".git/agency/incoming-sandbox-"+sweepID+"/pack/tmp_pack_x"), "")
	}, checkFixed: func(w *doctorLab) {
		w.checkUsable()
		if left, _ := filepath.Glob(filepath.Join(w.repo, ".git/agency/incoming-*")); len(left) > 0 {
			w.t.Errorf("%s is left", left)
		}
	}},
	{code: "leftover-scratch", id: "info/.tmp-exclude-1", damage: func(w *doctorLab) { w.write(filepath.Join(w.repo, ".git/info/.tmp-exclude-1"), "") }, checkFixed: func(w *doctorLab) { w.checkUsable() }},
	{code: "visible-markers", id: "info/exclude", damage: func(w *doctorLab) { w.write(filepath.Join(w.repo, ".git/info/exclude"), "# mine\n") }, checkFixed: func(w *doctorLab) {
		if got := w.git("-C", w.tree, "status", "--porcelain"); strings.Contains(got, ".agency") {
			w.t.Errorf("git status shows %q", got)
		}
	}},
}

// newDoctorLab returns a doctorLab without any damage.
func newDoctorLab(t *testing.T) *doctorLab {
	t.Helper()
	l, _ := newDiscardLab(t)
	return newDoctorLabOf(l)
}

// newDoctorLabOf returns the doctorLab of a lab that newDiscardLab made.
func newDoctorLabOf(l *lab) *doctorLab {
	l.t.Helper()
	return &doctorLab{lab: l, tree: l.sandboxPath(sweepID), recordDir: filepath.Join(l.repoData(), "invocations", sweepID)}
}

func TestDoctorReportsAndFixes(t *testing.T) {
	t.Parallel()
	var names []string
	for i, ill := range doctorCases {
		names = append(names, fmt.Sprintf("%s_%d", ill.code, i))
	}
	newLab := func(t *testing.T) *lab {
		t.Helper()
		l := newDoctorLab(t).lab
		if found := l.findings(); len(found) > 0 {
			t.Fatalf("before the damage, doctor found %+v", found)
		}
		return l
	}
	forEachCase(t, names, newLab, func(l *lab, number int, _ func()) {
		t, w, ill := l.t, newDoctorLabOf(l), doctorCases[number]
		ill.damage(w)
		before := withoutObjects(l.dump())
		found := l.findings()
		id := cmp.Or(ill.id, sweepID)
		at := slices.IndexFunc(found, func(f gitagency.Finding) bool { return f.Code == ill.code && (f.ID == id || id == "*") })
		if at < 0 {
			t.Fatalf("doctor found %+v", found)
		}
		f := found[at]
		id = f.ID
		if f.AtRisk != ill.atRisk || !filepath.IsAbs(f.Path) || f.Problem == "" {
			t.Errorf("the finding is %+v", f)
		}
		if o := l.try(nil, "sh", "-n", "-c", f.FixCommand); o.code != 0 || strings.Contains(f.FixCommand, "<") {
			t.Errorf("the fix command %q is no valid shell: %s", f.FixCommand, o.stderr)
		}
		if d := dumpDiff(before, withoutObjects(l.dump())); d != "" {
			t.Errorf("doctor changed files:\n%s", d)
		}
		if ill.checkFixed == nil {
			if strings.Contains(f.FixCommand, "doctor --fix") || f.FixCommand == "" {
				t.Errorf("the fix command is %q", f.FixCommand)
			}
			if o := l.try(nil, "git-agency", "doctor", "--fix", id); o.code != 4 || !strings.Contains(o.stderr, f.FixCommand) {
				t.Errorf("--fix ended with %d: %s", o.code, o.stderr)
			}
			if d := dumpDiff(before, withoutObjects(l.dump())); d != "" {
				t.Errorf("the refused --fix changed files:\n%s", d)
			}
			return
		}
		if f.FixCommand != "git agency doctor --fix "+id {
			t.Errorf("the fix command is %q", f.FixCommand)
		}
		if o := l.try(nil, "git-agency", "doctor", "--fix", id); o.code != 0 || !strings.Contains(o.stdout, "repaired "+ill.code) {
			t.Fatalf("--fix ended with %d: %s", o.code, o.stderr)
		}
		l.fixAll(ill.code)
		ill.checkFixed(w)
		l.git("fsck", "--no-dangling")
	})
}

func TestDoctorCasesCoverFindingCodes(t *testing.T) {
	t.Parallel()
	for _, code := range manualFindingCodes() {
		if !slices.ContainsFunc(doctorCases, func(i doctorCase) bool { return i.code == code }) {
			t.Errorf("doctorCases has no case for %s", code)
		}
	}
}

func TestDoctorFixResumesAfterFault(t *testing.T) {
	t.Parallel()
	for _, ill := range doctorCases {
		if !ill.faultSweep {
			continue
		}
		w := newDoctorLab(t)
		l := w.lab
		ill.damage(w)
		fix := []string{"git-agency", "doctor", "--fix", sweepID}
		points, restore := l.faultPoints(sweep{argv: fix}), l.save()
		chosen := chooseActions(points)
		for _, point := range points {
			for action, code := range map[string]int{"fail": 1, "kill": -1} {
				if !chosen(point, action) {
					continue
				}
				if o := l.try([]string{"TEST_FAULT=" + point + "=" + action}, fix...); o.code != code {
					t.Fatalf("%s=%s ended with %d: %s", point, action, o.code, o.stderr)
				}
				l.fixAll(point)
				ill.checkFixed(w)
				restore()
			}
		}
	}
}
