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

// findings is what doctor says, which must end as it promises to.
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

// cure mends whatever doctor names, id by id, and looks that it then names nothing any more. It returns
// the codes that it saw.
func (l *lab) cure(point string) []string {
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

// sweepPackedRefsLock has the doctor remove a lock that a killed git left on all refs at once: it could be
// anybody's, so no other command takes it away.
func (l *lab) sweepPackedRefsLock() {
	l.t.Helper()
	if exists(filepath.Join(l.repo, ".git", "packed-refs.lock")) {
		l.agency("doctor", "--fix", "packed-refs.lock")
	}
}

// checkMended is what must hold after a creation was killed: the listings end well, doctor names what is
// left by its id, mending that one id leaves no trace, and then there is nothing left to name.
func (l *lab) checkMended(s sweep, point, before string) {
	l.t.Helper()
	for _, argv := range [][]string{{"ls"}, {"ls", "--all"}, {"worktree", "ls", "--all"}} {
		l.agency(argv...)
	}
	state, found := l.state(s), l.findings()
	if state == "incomplete" || state == "missing-meta" {
		if !slices.ContainsFunc(found, func(f gitagency.Finding) bool { return f.ID == sweepID }) {
			l.t.Fatalf("%s (%s): doctor does not name it: %+v", point, state, found)
		}
		if o := l.try(nil, "git-agency", "doctor", "--fix", sweepID); o.code != 0 {
			l.t.Fatalf("%s (%s): --fix ended with %d\n%s", point, state, o.code, o.stderr)
		}
		if left := l.findings(); len(left) > 0 {
			l.t.Fatalf("%s (%s): after --fix there is still %+v", point, state, left)
		}
	}
	l.cure(point)
	if state == "whole" {
		l.checkWhole(s, point)
		return
	}
	if d := diff(before, l.world()); d != "" {
		l.t.Fatalf("%s (%q): traces are left:\n%s", point, strings.TrimSpace(state), d)
	}
}

// ill is a way to be broken: how one gets there, what doctor says, and what holds when it is mended.
type ill struct {
	code  string
	id    string // "" is the sandbox of the lab
	wreck func(*ward)
	cured func(*ward) // nil where only a person can mend it
	risk  bool
	sweep bool // its mend is also killed at every change of the disk
	steps bool // its mend is also failed and killed at every step
}

// ward is a lab with an integration worktree, a sandbox, and work of every kind in both.
type ward struct {
	*lab
	tree string // of the sandbox
	home string // of its record
}

func (w *ward) admin(id string) string { return filepath.Join(w.repo, ".git", "worktrees", id) }

// records is where they are, also when another repository has some beside them.
func (w *ward) records() string { return filepath.Dir(filepath.Dir(w.home)) }

func (w *ward) remove(paths ...string) {
	w.t.Helper()
	for _, p := range paths {
		if err := os.RemoveAll(p); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *ward) rename(from, to string) {
	w.t.Helper()
	if err := os.Rename(from, to); err != nil {
		w.t.Fatal(err)
	}
}

func (w *ward) link(to, path string) {
	w.t.Helper()
	if err := os.Symlink(to, path); err != nil {
		w.t.Fatal(err)
	}
}

// redirect makes the entry of the sandbox lead to a repository that fetches what it lacks with a command.
func (w *ward) redirect() {
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
	w.write(filepath.Join(w.admin(sweepID), "commondir"), evil+"\n")
}

// dies runs a command that is killed at a step.
func (w *ward) dies(point string, argv ...string) {
	w.t.Helper()
	env := []string{"TEST_NOW=2026-01-28T12:07:00Z", "TEST_RAND=c", "TEST_FAULT=" + point + "=kill"}
	if o := w.try(env, append([]string{"git-agency"}, argv...)...); o.code != -1 {
		w.t.Fatalf("%q at %s ended with %d: %s", argv, point, o.code, o.stderr)
	}
	// A git that it talked with lets go of the repository lock when it sees that nobody is there any more.
	if o := w.try(nil, "flock", filepath.Join(w.repo, ".git", "agency", "lock.flock"), "true"); o.code != 0 {
		w.t.Fatalf("the lock: %+v", o)
	}
}

const deadID = "20260128120700-6363" // of what dies

// kept looks that everything that was in the sandbox is under its trash ref, and the sandbox gone.
func (w *ward) keptAll() {
	w.t.Helper()
	kept := w.kept()
	for _, want := range []string{"\tcommitted", "\tstaged", "\tsub/untracked", "changed"} {
		if !strings.Contains(kept, want) {
			w.t.Errorf("%q was lost:\n%s", want, kept)
		}
	}
	if exists(filepath.Dir(w.tree)) || exists(w.admin(sweepID)) || w.git("for-each-ref", "refs/heads/agency/sandbox-*") != "" {
		w.t.Errorf("something of the sandbox is left")
	}
}

// works looks that the sandbox can be worked in, with all that was in it.
func (w *ward) works() {
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

func truncate(t *testing.T, path string) {
	t.Helper()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
}

var ills = []ill{
	{code: "interrupted-creation", id: deadID, wreck: func(w *ward) { w.dies("start/checkout:after", "start", "wt") }, cured: func(w *ward) {}},
	{code: "interrupted-creation", id: deadID, wreck: func(w *ward) { w.dies("worktree create/marker:after", "worktree", "create", "new") }, cured: func(w *ward) {}},
	{code: "empty-record", id: deadID, wreck: func(w *ward) { w.write(filepath.Join(filepath.Dir(w.home), deadID, ".tmp-x"), "") }, cured: func(w *ward) {}},
	{code: "missing-meta", risk: true, wreck: func(w *ward) { w.remove(filepath.Join(w.home, "meta.json")) }, cured: func(w *ward) { w.keptAll() }},
	{code: "corrupt-meta", risk: true, steps: true, wreck: func(w *ward) { w.write(filepath.Join(w.home, "meta.json"), `{"what was": "there"`) }, cured: func(w *ward) {
		w.keptAll()
		if got := w.git("log", "-1", "--format=%B", trash); !strings.Contains(got, `{"what was": "there"`) {
			w.t.Errorf("the record was not kept: %q", got)
		}
	}},
	{code: "id-mismatch", risk: true, wreck: func(w *ward) {
		w.write(filepath.Join(w.home, "meta.json"), strings.ReplaceAll(w.read(filepath.Join(w.home, "meta.json")), sweepID, deadID))
	}, cured: func(w *ward) { w.keptAll() }},
	{code: "corrupt-meta", id: sweepWorktree, risk: true, sweep: true, wreck: func(w *ward) { truncate(w.t, filepath.Join(w.repoData(), "worktrees", sweepWorktree, "meta.json")) }, cured: func(w *ward) {
		if got := w.read(filepath.Join(w.agency("worktree", "path", "wt"), "untracked")); got != "u\n" {
			w.t.Errorf("the worktree holds %q", got)
		}
		w.agency("start", "wt")
	}},
	{code: "corrupt-meta", id: sweepWorktree, risk: true, wreck: func(w *ward) { // and its tree was on its way out
		home := filepath.Join(w.repoData(), "worktrees", sweepWorktree)
		w.rename(w.worktree(), filepath.Join(home, ".aside"))
		truncate(w.t, filepath.Join(home, "meta.json"))
	}, cured: func(w *ward) {
		if got := w.read(filepath.Join(w.agency("worktree", "path", "wt"), "untracked")); got != "u\n" {
			w.t.Errorf("the worktree holds %q", got)
		}
	}},
	{code: "missing-tree", wreck: func(w *ward) { w.remove(w.tree) }, cured: func(w *ward) {
		if got := w.git("show", trash+":committed"); got != "c" {
			w.t.Errorf("what was committed is %q", got)
		}
	}},
	{code: "missing-tree", wreck: func(w *ward) { // and git's entry of it names a tree of the user's
		w.remove(w.tree)
		w.write(filepath.Join(w.admin(sweepID), "gitdir"), filepath.Join(w.dir, "home", "own", ".git")+"\n")
	}, cured: func(w *ward) {
		if got := w.git("show", trash+":committed"); got != "c" {
			w.t.Errorf("what was committed is %q", got)
		}
		if got := w.git("-C", filepath.Join(w.dir, "home", "own"), "symbolic-ref", "HEAD"); got != "refs/heads/users-own" {
			w.t.Errorf("the worktree of the user's is on %q", got)
		}
	}},
	{code: "missing-tree", id: sweepWorktree, wreck: func(w *ward) { w.remove(w.worktree()) }, cured: func(w *ward) {
		w.git("rev-parse", "agency/wt-6161")
	}},
	{code: "moved-tree", risk: true, wreck: func(w *ward) { w.git("worktree", "move", w.tree, filepath.Join(w.dir, "home", "moved")) }},
	{code: "moved-tree", risk: true, wreck: func(w *ward) { // and a link was left
		w.rename(w.tree, filepath.Join(w.dir, "home", "moved"))
		w.link(filepath.Join(w.dir, "home", "moved"), w.tree)
	}},
	{code: "foreign-tree", wreck: func(w *ward) {
		w.remove(w.tree)
		w.link(filepath.Join(w.dir, "home", "own"), w.tree)
	}},
	{code: "moved-data", risk: true, sweep: true, wreck: func(w *ward) {
		w.rename(w.data, w.data+"2")
		w.data += "2"
		w.env = append(w.env, "AGENCY_DATA_DIR="+w.data)
	}, cured: func(w *ward) { w.works() }},
	{code: "moved-repository", id: "*", risk: true, sweep: true, wreck: func(w *ward) {
		w.agency("worktree", "adopt")
		w.rename(w.repo, w.repo+"2")
		w.repo += "2"
	}, cured: func(w *ward) {
		w.works()
		if got := w.agency("worktree", "path", "main"); got != w.repo {
			w.t.Errorf("the adopted worktree is at %s", got)
		}
	}},
	{code: "moved-repository", id: "*", risk: true, wreck: func(w *ward) { // and whoever moved it left a link
		w.agency("worktree", "adopt")
		w.rename(w.repo, w.repo+"2")
		w.link("repo2", w.repo)
		w.repo += "2"
	}, cured: func(w *ward) {
		w.works()
		if got := w.agency("worktree", "path", "main"); got != w.repo {
			w.t.Errorf("the adopted worktree is at %s", got)
		}
	}},
	{code: "interrupted-discard", risk: false, wreck: func(w *ward) { w.dies("discard/tree:after", "discard", sweepID) }, cured: func(w *ward) { w.keptAll() }},
	{code: "interrupted-discard", risk: true, wreck: func(w *ward) { w.dies("discard/tree:before", "discard", sweepID) }, cured: func(w *ward) { w.keptAll() }},
	{code: "interrupted-discard", risk: true, wreck: func(w *ward) { // and it had landed
		meta := filepath.Join(w.home, "meta.json")
		w.write(meta, strings.Replace(w.read(meta), `"status"`, `"landing": "landed", "status"`, 1))
	}, cured: func(w *ward) {
		w.keptAll()
		if got := w.read(filepath.Join(w.home, "meta.json")); !strings.Contains(got, `"landing": "landed"`) {
			w.t.Errorf("the record says %s", got)
		}
	}},
	{code: "interrupted-land", risk: true, sweep: true, wreck: func(w *ward) {
		w.dies("land/files:after", "land", sweepID, "--commit-all", "-m", "all")
	}, cured: func(w *ward) {
		if got := w.agency("ls"); !strings.Contains(got, sweepID) {
			w.t.Errorf("it has not been undone: %s", got)
		}
	}},
	{code: "interrupted-land", risk: true, wreck: func(w *ward) {
		w.dies("land/commit:after", "land", sweepID, "--commit-all", "-m", "all")
	}, cured: func(w *ward) {
		if got := w.agency("ls", "--all"); !strings.Contains(got, "landed") {
			w.t.Errorf("it is not landed: %s", got)
		}
	}},
	{code: "stray-landing", id: "agency/advance-0123456789abcdef", wreck: func(w *ward) {
		w.write(filepath.Join(w.repo, ".git/agency/advance-0123456789abcdef/tree/readme"), "")
	}, cured: func(w *ward) { w.works() }},
	{code: "stray-landing", id: "*", risk: true, sweep: true, wreck: func(w *ward) { // whose note somebody took for rubbish
		w.dies("land/files:after", "land", sweepID, "--commit-all", "-m", "all")
		w.remove(filepath.Join(w.records(), "landing.json"))
	}, cured: func(w *ward) {
		w.works()
		if got := w.git("-C", w.worktree(), "status", "--porcelain"); got != "?? untracked" {
			w.t.Errorf("git status in the worktree says %q", got)
		}
	}},
	{code: "interrupted-verify", id: deadID, wreck: func(w *ward) {
		w.dies("verify/run:before", "land", sweepID, "--commit-all", "-m", "all", "--verify", "true")
	}, cured: func(w *ward) {
		w.works()
		if got := w.agency("ls"); strings.Contains(got, deadID) {
			w.t.Errorf("it is still there: %s", got)
		}
	}},
	{code: "interrupted-put", risk: true, sweep: true, wreck: func(w *ward) { w.dies("put/done:before", "put", sweepID, "readme", "sub", ".") }, cured: func(w *ward) {
		w.works()
		if w.read(filepath.Join(w.tree, "readme")) == w.read(filepath.Join(w.repo, "readme")) {
			w.t.Error("what was put is still there")
		}
	}},
	{code: "interrupted-rollback", risk: true, sweep: true, wreck: func(w *ward) {
		w.agency("snapshot", "create", sweepID)
		w.write(filepath.Join(w.tree, "later"), "l\n")
		w.write(filepath.Join(w.tree, "readme"), "changed again\n")
		w.dies("rollback/files:after", "snapshot", "rollback", sweepID, sweepID+"/1")
	}, cured: func(w *ward) {
		if exists(filepath.Join(w.tree, "later")) || w.read(filepath.Join(w.tree, "readme")) != "changed\n" {
			w.t.Error("it was not finished")
		}
		if got := w.git("show", "refs/agency/snapshots/"+sweepID+"/2:later"); got != "l" {
			w.t.Errorf("what was left holds %q", got)
		}
	}},
	{code: "interrupted-put", wreck: func(w *ward) { w.dies("put/stage:after", "put", sweepID, "readme", "new") }, cured: func(w *ward) {
		w.works()
		if exists(filepath.Join(w.tree, "new")) {
			w.t.Error("it was put after all")
		}
	}},
	{code: "interrupted-put", wreck: func(w *ward) { w.dies("put/done:after", "put", sweepID, "readme", "sub/one") }, cured: func(w *ward) {
		w.works()
		if w.read(filepath.Join(w.tree, "sub", "one")) != w.read(filepath.Join(w.repo, "readme")) {
			w.t.Error("what was done did not stay")
		}
	}},
	{code: "half-discarded", wreck: func(w *ward) { w.dies("discard/record:before", "discard", sweepID) }, cured: func(w *ward) { w.works() }},
	{code: "interrupted-archive", id: sweepWorktree, risk: true, wreck: func(w *ward) {
		w.dies("worktree rm/tree:before", "worktree", "rm", "wt", "--force")
	}, cured: func(w *ward) {
		if got := w.git("show", "refs/agency/trash/"+sweepWorktree+":untracked"); got != "u" {
			w.t.Errorf("kept %q", got)
		}
	}},
	{code: "interrupted-archive", id: deadID, wreck: func(w *ward) {
		w.try([]string{"TEST_NOW=2026-01-28T12:07:00Z", "TEST_RAND=c"}, "git-agency", "worktree", "adopt")
		w.dies("worktree rm/marker:before", "worktree", "rm", "main")
	}, cured: func(w *ward) {
		if exists(filepath.Join(w.repo, ".agency")) {
			w.t.Error("the marker is left")
		}
	}},
	{code: "half-archived", id: sweepWorktree, wreck: func(w *ward) {
		w.dies("worktree rm/record:before", "worktree", "rm", "wt", "--force")
	}, cured: func(w *ward) { w.agency("start", "wt") }},
	{code: "missing-marker", wreck: func(w *ward) { w.remove(filepath.Join(w.tree, ".agency")) }, cured: func(w *ward) { w.works() }},
	{code: "missing-marker", wreck: func(w *ward) { // and something is where its directory was
		w.remove(filepath.Join(w.tree, ".agency"))
		w.write(filepath.Join(w.tree, ".agency"), "mine\n")
	}, cured: func(w *ward) {
		w.works()
		if got := w.read(filepath.Join(w.tree, "was-agency-1")); got != "mine\n" {
			w.t.Errorf("what was there holds %q", got)
		}
		w.agency("exec", sweepID, "--", "true")
	}},
	{code: "missing-marker", id: sweepWorktree, wreck: func(w *ward) { w.remove(filepath.Join(w.worktree(), ".agency")) }, cured: func(w *ward) { w.agency("start", "wt") }},
	{code: "wrong-marker", wreck: func(w *ward) { w.write(filepath.Join(w.tree, ".agency", "INTEGRATION_MARKER"), "") }},
	{code: "foreign-tree", risk: true, wreck: func(w *ward) {
		w.remove(filepath.Join(w.tree, ".git"))
		w.git("init", "-q", w.tree)
	}},
	{code: "foreign-tree", id: deadID, wreck: func(w *ward) { // what was adopted is gone, and something else there
		tree := filepath.Join(w.dir, "home", "adopted")
		w.git("worktree", "add", "-q", "-b", "topic", tree)
		w.try([]string{"TEST_NOW=2026-01-28T12:07:00Z", "TEST_RAND=c"}, "git-agency", "worktree", "adopt", tree)
		w.git("worktree", "remove", tree)
		w.git("init", "-q", tree)
	}},
	{code: "missing-branch", id: deadID, risk: true, wreck: func(w *ward) {
		tree := filepath.Join(w.dir, "home", "adopted")
		w.git("worktree", "add", "-q", "-b", "topic", tree)
		w.try([]string{"TEST_NOW=2026-01-28T12:07:00Z", "TEST_RAND=c"}, "git-agency", "worktree", "adopt", tree)
		w.git("-C", tree, "switch", "-q", "-c", "other")
		w.git("branch", "-D", "topic")
	}},
	{code: "unlinked-tree", risk: true, sweep: true, wreck: func(w *ward) { w.remove(w.admin(sweepID)) }, cured: func(w *ward) { w.works() }},
	{code: "unlinked-tree", risk: true, wreck: func(w *ward) { truncate(w.t, filepath.Join(w.tree, ".git")) }, cured: func(w *ward) { w.works() }},
	{code: "unlinked-tree", id: sweepWorktree, risk: true, wreck: func(w *ward) { w.remove(w.admin(sweepWorktree)) }, cured: func(w *ward) {
		w.git("-C", w.worktree(), "status")
		w.agency("start", "wt")
	}},
	{code: "unlinked-tree", risk: true, wreck: func(w *ward) { // git would run what is configured there
		w.redirect()
		w.remove(filepath.Join(w.admin(sweepID), "index"))
		truncate(w.t, filepath.Join(w.tree, ".git"))
	}, cured: func(w *ward) {
		if exists(filepath.Join(w.dir, "ran")) {
			w.t.Error("what an agent configured was run")
		}
		w.works()
	}},
	{code: "unlinked-tree", risk: true, wreck: func(w *ward) { w.write(filepath.Join(w.admin(sweepID), "HEAD"), "nonsense\n") }, cured: func(w *ward) { w.works() }},
	{code: "missing-branch", risk: true, sweep: true, wreck: func(w *ward) { w.git("update-ref", "-d", "refs/heads/agency/sandbox-"+sweepID) }, cured: func(w *ward) { w.works() }},
	{code: "leftovers", wreck: func(w *ward) {
		w.write(filepath.Join(w.home, ".tmp-meta.json-1"), "{")
		w.write(filepath.Join(w.home, "intent.json"), "{}")
	}, cured: func(w *ward) { w.works() }},
	{code: "unclaimed-marker", id: ".agency", wreck: func(w *ward) { w.write(filepath.Join(w.repo, ".agency", "INTEGRATION_MARKER"), "") }},
	{code: "orphan-branch", risk: true, wreck: func(w *ward) {
		w.remove(w.home, filepath.Dir(w.tree))
		w.git("worktree", "prune")
	}, cured: func(w *ward) {
		if got := w.git("show", trash+":committed"); got != "c" {
			w.t.Errorf("what was committed is %q", got)
		}
	}},
	{code: "other-data-dir", risk: true, wreck: func(w *ward) {
		w.env = append(w.env, "AGENCY_DATA_DIR="+w.data+"-other")
		w.remove(filepath.Join(w.home, "meta.json"))
	}},
	{code: "foreign-record", risk: true, wreck: func(w *ward) {
		w.remove(w.repo)
		if err := os.Mkdir(w.repo, 0o755); err != nil {
			w.t.Fatal(err)
		}
		w.git("init", "-q", "-b", "main", ".")
		w.git("commit", "-q", "--allow-empty", "-m", "another beginning")
	}, cured: func(w *ward) {
		if got := w.git("show", trash+":committed"); got != "c" {
			w.t.Errorf("of its files %q is kept", got)
		}
	}},
	{code: "damaged-repo", id: "*", wreck: func(w *ward) { w.write(filepath.Join(w.repoData(), "repo.json"), "garbage") }, cured: func(w *ward) {
		w.works()
		w.agency("start", "wt")
	}},
	{code: "data-dir-missing", id: "data-dir", risk: true, wreck: func(w *ward) { w.rename(w.data, w.data+"-away") }},
	{code: "data-dir-open", id: "data-dir", wreck: func(w *ward) {
		if err := os.Chmod(w.data, 0o755); err != nil {
			w.t.Fatal(err)
		}
	}, cured: func(w *ward) { w.works() }},
	{code: "data-dir-open", id: "data-dir", wreck: func(w *ward) { // and it is not all ours
		w.write(filepath.Join(w.data, "of-others"), "")
		for _, dir := range []string{w.data, filepath.Join(w.data, "repos")} {
			if err := os.Chmod(dir, 0o755); err != nil {
				w.t.Fatal(err)
			}
		}
	}, cured: func(w *ward) {
		w.works()
		if fi, err := os.Stat(w.data); err != nil || fi.Mode().Perm() != 0o755 {
			w.t.Errorf("the directory of others is %v, %v", fi.Mode(), err)
		}
	}},
	{code: "copied-entry", wreck: func(w *ward) {
		w.copyTree(w.repo, w.repo+"-copy")
		w.repo += "-copy"
	}, cured: func(w *ward) {
		w.repo = strings.TrimSuffix(w.repo, "-copy")
		w.works()
	}},
	{code: "refused-setting", id: "agency.sandbox.write", wreck: func(w *ward) { w.git("config", "agency.sandbox.write", "/") }},
	{code: "refused-setting", id: "agency.sandbox.hdie", wreck: func(w *ward) { w.git("config", "agency.sandbox.hdie", "~/secret's") }},
	{code: "stale-lock", id: "packed-refs.lock", wreck: func(w *ward) { w.write(filepath.Join(w.repo, ".git", "packed-refs.lock"), "") }, cured: func(w *ward) { w.works() }},
	{code: "stale-lock", id: "index.lock", wreck: func(w *ward) { w.write(filepath.Join(w.repo, ".git", "index.lock"), "") }, cured: func(w *ward) { w.git("add", "untracked") }},
	{code: "stale-lock", id: "refs/heads/topic/x.lock", wreck: func(w *ward) { w.write(filepath.Join(w.repo, ".git", "refs/heads/topic/x.lock"), "") }, cured: func(w *ward) { w.git("branch", "topic/x") }},
	{code: "stale-lock", wreck: func(w *ward) { w.write(filepath.Join(w.admin(sweepID), "index.lock"), "") }, cured: func(w *ward) { w.git("-C", w.tree, "add", "."); w.works() }},
	{code: "stale-lock", id: "logs/HEAD.lock", wreck: func(w *ward) { w.write(filepath.Join(w.repo, ".git/logs/HEAD.lock"), "") }, cured: func(w *ward) { w.git("reflog", "expire", "HEAD") }},
	{code: "orphan-log", id: "logs/refs/heads/gone", wreck: func(w *ward) {
		oid := w.git("rev-parse", "main")
		w.write(filepath.Join(w.repo, ".git/logs/refs/heads/gone"), strings.Repeat("0", 40)+" "+oid+" A <a@b> 1 +0000\tx\n")
	}, cured: func(w *ward) { w.git("branch", "gone") }},
	{code: "orphan-log", id: "logs/refs/heads/gone", risk: true, wreck: func(w *ward) {
		oid := w.git("commit-tree", "-m", "only here", "main^{tree}")
		w.write(filepath.Join(w.repo, ".git/logs/refs/heads/gone"), strings.Repeat("0", 40)+" "+oid+" A <a@b> 1 +0000\tx\n")
	}},
	{code: "damaged-entry", id: "worktrees/own", risk: true, wreck: func(w *ward) { truncate(w.t, filepath.Join(w.admin("own"), "commondir")) }, cured: func(w *ward) {
		w.git("-C", filepath.Join(w.dir, "home", "own"), "status")
	}},
	{code: "damaged-entry", id: "worktrees/half", wreck: func(w *ward) { w.write(filepath.Join(w.admin("half"), "commondir"), "") }, cured: func(w *ward) {
		w.git("worktree", "list")
	}},
	{code: "damaged-entry", id: "worktrees/own", risk: true, wreck: func(w *ward) { truncate(w.t, filepath.Join(w.admin("own"), "HEAD")) }, cured: func(w *ward) {
		if got := w.git("-C", filepath.Join(w.dir, "home", "own"), "log", "-1", "--format=%s"); got != "first" {
			w.t.Errorf("its HEAD is at %q", got)
		}
	}},
	{code: "damaged-entry", id: "worktrees/own", risk: true, wreck: func(w *ward) { truncate(w.t, filepath.Join(w.admin("own"), "gitdir")) }},
	{code: "damaged-entry", id: "worktrees/own", risk: true, wreck: func(w *ward) {
		truncate(w.t, filepath.Join(w.admin("own"), "HEAD"))
		w.remove(filepath.Join(w.admin("own"), "logs"))
	}},
	{code: "initializing-entry", id: "worktrees/own", wreck: func(w *ward) { w.write(filepath.Join(w.admin("own"), "locked"), "initializing") }, cured: func(w *ward) {
		w.git("worktree", "remove", filepath.Join(w.dir, "home", "own"))
	}},
	{code: "leftover-scratch", wreck: func(w *ward) { w.write(filepath.Join(w.repo, ".git/agency/capture-"+sweepID+"/HEAD"), "") }, cured: func(w *ward) { w.works() }},
	{code: "leftover-scratch", wreck: func(w *ward) {
		w.write(filepath.Join(w.repo, ".git/agency/incoming-sandbox-"+sweepID+"/pack/tmp_pack_x"), "")
	}, cured: func(w *ward) {
		w.works()
		if left, _ := filepath.Glob(filepath.Join(w.repo, ".git/agency/incoming-*")); len(left) > 0 {
			w.t.Errorf("%s is left", left)
		}
	}},
	{code: "leftover-scratch", id: "info/.tmp-exclude-1", wreck: func(w *ward) { w.write(filepath.Join(w.repo, ".git/info/.tmp-exclude-1"), "") }, cured: func(w *ward) { w.works() }},
	{code: "visible-markers", id: "info/exclude", wreck: func(w *ward) { w.write(filepath.Join(w.repo, ".git/info/exclude"), "# mine\n") }, cured: func(w *ward) {
		if got := w.git("-C", w.tree, "status", "--porcelain"); strings.Contains(got, ".agency") {
			w.t.Errorf("git status shows %q", got)
		}
	}},
}

// newWard is a ward that is well.
func newWard(t *testing.T) *ward {
	t.Helper()
	l, tree := newDiscardLab(t)
	return &ward{l, tree, filepath.Join(l.repoData(), "invocations", sweepID)}
}

func TestDoctorNamesEveryIllnessAndMendsItOrSaysWhoCan(t *testing.T) {
	t.Parallel()
	for i, ill := range ills {
		t.Run(fmt.Sprintf("%s_%d", ill.code, i), func(t *testing.T) {
			t.Parallel()
			w := newWard(t)
			l := w.lab
			if found := l.findings(); len(found) > 0 {
				t.Fatalf("before: %+v", found)
			}
			ill.wreck(w)
			before := withoutObjects(l.world())
			found := l.findings()
			id := cmp.Or(ill.id, sweepID)
			at := slices.IndexFunc(found, func(f gitagency.Finding) bool { return f.Code == ill.code && (f.ID == id || id == "*") })
			if at < 0 {
				t.Fatalf("doctor found %+v", found)
			}
			f := found[at]
			id = f.ID
			if f.AtRisk != ill.risk || !filepath.IsAbs(f.Path) || f.Problem == "" {
				t.Errorf("it is %+v", f)
			}
			if o := l.try(nil, "sh", "-n", "-c", f.FixCommand); o.code != 0 || strings.Contains(f.FixCommand, "<") {
				t.Errorf("no shell would take %q: %s", f.FixCommand, o.stderr)
			}
			if d := diff(before, withoutObjects(l.world())); d != "" {
				t.Errorf("looking changed the world:\n%s", d)
			}
			if ill.cured == nil {
				if strings.Contains(f.FixCommand, "doctor --fix") || f.FixCommand == "" {
					t.Errorf("the mend is %q", f.FixCommand)
				}
				if o := l.try(nil, "git-agency", "doctor", "--fix", id); o.code != 4 || !strings.Contains(o.stderr, f.FixCommand) {
					t.Errorf("--fix ended with %d: %s", o.code, o.stderr)
				}
				if d := diff(before, withoutObjects(l.world())); d != "" {
					t.Errorf("a mend that is none changed the world:\n%s", d)
				}
				return
			}
			if f.FixCommand != "git agency doctor --fix "+id {
				t.Errorf("the mend is %q", f.FixCommand)
			}
			if o := l.try(nil, "git-agency", "doctor", "--fix", id); o.code != 0 || !strings.Contains(o.stdout, "mended "+ill.code) {
				t.Fatalf("--fix ended with %d: %s", o.code, o.stderr)
			}
			l.cure(ill.code)
			ill.cured(w)
			l.git("fsck", "--no-dangling")
		})
	}
}

func TestEveryCodeOfTheDoctorHasACase(t *testing.T) {
	t.Parallel()
	for _, code := range gitagency.FindingCodes() {
		if !slices.ContainsFunc(ills, func(i ill) bool { return i.code == code }) {
			t.Errorf("nobody tests %s", code)
		}
	}
}

func TestAMendThatFailsOrIsKilledAtAnyStepIsTakenUpByTheNext(t *testing.T) {
	t.Parallel()
	for _, ill := range ills {
		if !ill.steps {
			continue
		}
		w := newWard(t)
		l := w.lab
		ill.wreck(w)
		fix := []string{"git-agency", "doctor", "--fix", sweepID}
		points, restore := l.points(sweep{argv: fix}), l.save()
		for i, point := range points {
			for action, code := range map[string]int{"fail": 1, "kill": -1} {
				if testing.Short() && (action == "fail") != (i%2 == 0) {
					continue // the end of a step is as good as the beginning of the next
				}
				if o := l.try([]string{"TEST_FAULT=" + point + "=" + action}, fix...); o.code != code {
					t.Fatalf("%s=%s ended with %d: %s", point, action, o.code, o.stderr)
				}
				l.cure(point)
				ill.cured(w)
				restore()
			}
		}
	}
}
