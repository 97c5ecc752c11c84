package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency"
)

// newSyncLab makes a sandbox, by a given command, whose commits conflict with a new commit on the integration branch.
func newSyncLab(t *testing.T, start []string) *rollbackLab {
	t.Helper()
	l := &rollbackLab{lab: newSweepLab(t)}
	if o := l.try(sweepEnv, start...); o.code != 0 {
		t.Fatal(o.stderr)
	}
	l.tree = l.agency("path", sweepID)
	l.agency("exec", sweepID, "--", "sh", "-ec", "echo agent >readme; git commit -qam work; echo u >untracked")
	wt := l.agency("worktree", "path", "wt")
	l.write(filepath.Join(wt, "readme"), "person\n")
	l.write(filepath.Join(wt, "persons"), "p\n")
	l.git("-C", wt, "add", ".")
	l.git("-C", wt, "commit", "-q", "-m", "person")
	return l
}

func TestSyncKilledAtAnyStepIsUndoneOrFinished(t *testing.T) {
	t.Parallel()
	for name, start := range map[string][]string{"worktree": {"git-agency", "start", "wt"}, "overlay": overlayArgs("start", "wt"), "clone": cloneArgs("none", "start", "wt")} {
		if testing.Short() && name == "clone" { // the transition is that of a worktree
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testKilledSync(t, newSyncLab(t, start))
		})
	}
}

func testKilledSync(t *testing.T, l *rollbackLab) {
	sync := []string{"git-agency", "sync", sweepID}
	person := l.git("-C", l.agency("worktree", "path", "wt"), "rev-parse", "HEAD")
	note := filepath.Join(l.repoData(), "invocations", sweepID, "rollback.json")
	restore := l.save()
	restore()
	before := l.sandboxState()
	steps := filepath.Join(t.TempDir(), "steps")
	if o := l.try(append(slices.Clone(sweepEnv), "TEST_STEPS="+steps), sync...); o.code != 2 {
		t.Fatalf("sync exited with %d: %s", o.code, o.stderr)
	}
	after := l.sandboxState()
	var points []string
	for _, step := range []string{"capture", "ref", "state", "pack", "prepare", "note", "lock", "files", "heads", "underway", "index", "layer", "record", "done"} {
		points = append(points, "sync/"+step+":before", "sync/"+step+":after")
	}
	if got := strings.Fields(l.read(steps)); !slices.Equal(got, points) {
		t.Fatalf("the steps are %q", got)
	}
	restore()

	// Commands that may find the sync in progress: four that finish it, and another sync.
	next := [][]string{
		{"git-agency", "exec", sweepID, "--", "true"},
		{"git-agency", "doctor", "--fix", sweepID},
		{"git-agency", "snapshot", "create", sweepID},
		{"git-agency", "diff", sweepID, "--stat"},
		sync,
	}
	check := func(what string, argv []string, begun bool) {
		t.Helper()
		if !begun && argv[1] == "doctor" {
			argv = next[0]
		}
		want, code := before, 0
		if begun || argv[1] == "sync" {
			want = after
		}
		if argv[1] == "sync" {
			code = map[bool]int{true: 1, false: 2}[begun] // 1: the conflicts of the first sync are not resolved
		}
		if o := l.try(nil, argv...); o.code != code {
			t.Fatalf("%s: %q exited with %d\n%s", what, argv, o.code, o.stderr)
		}
		if got := l.sandboxState(); got != want {
			t.Fatalf("%s: after %q the state is\n%s\nwant\n%s", what, argv, got, want)
		}
		got, merging, _ := strings.Cut(l.must("git-agency", "exec", sweepID, "--", "sh", "-c", gitStateScript+"; echo merging; git rev-parse -q --verify MERGE_HEAD || true"), "\nmerging")
		if !strings.HasSuffix(want, got) {
			t.Fatalf("%s: after %q the state inside is\n%s\nwant\n%s", what, argv, got, want)
		}
		if begun || argv[1] == "sync" {
			if got := l.agency("ls", "--format", "%(synced_commit)"); got != person {
				t.Errorf("%s: synced_commit is %q", what, got)
			}
			if merging != "\n"+person {
				t.Errorf("%s: MERGE_HEAD is %q", what, merging)
			}
		}
		if exists(note) {
			t.Fatalf("%s: rollback.json is left", what)
		}
		if fsck := l.try(nil, "git", "fsck", "--no-dangling"); fsck.code != 0 {
			t.Errorf("%s: git fsck: %s", what, fsck.stderr)
		}
	}
	if o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT=sync/files:after=kill"), sync...); o.code != -1 {
		t.Fatal(o.stderr)
	}
	if found := l.findings(); !slices.ContainsFunc(found, func(f gitagency.Finding) bool {
		return strings.Contains(f.Problem, "a sync of the sandbox was interrupted")
	}) {
		t.Errorf("doctor does not report the sync: %+v", found)
	}
	restore()
	chosen := chooseActions(points)
	for i, point := range points {
		how := []string{"fail", "kill"}[i%2] // the end of a step equals the beginning of the next
		if !chosen(point, how) {
			continue
		}
		begun := i >= slices.Index(points, "sync/files:before")
		last := point == "sync/done:after"
		world := l.dumpWithoutObjects()
		o := l.try(append(slices.Clone(sweepEnv), "TEST_FAULT="+point+"="+how), sync...)
		if how == "kill" && o.code != -1 {
			t.Fatalf("%s: exited with %d\n%s", point, o.code, o.stderr)
		}
		if how == "fail" {
			if o.code != 1 || o.stdout != "" || begun != strings.Contains(o.stderr, "half-way to "+sweepID+"/2") {
				t.Errorf("%s: exited with %d\n%s%s", point, o.code, o.stdout, o.stderr)
			}
			if d := dumpDiff(world, l.dumpWithoutObjects()); d != "" && !begun {
				t.Fatalf("%s: files changed:\n%s", point, d)
			}
		}
		begun = exists(note) || last
		check(point+" "+how, next[i%len(next)], begun)
		restore()
	}
}
