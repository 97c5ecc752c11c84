package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// hostile is what somebody who can write to the repository or the records may have put there, so that a
// mend changes what is not its to change.
type hostile struct {
	forge func(w *ward, victim string) (id string) // victim is another repository of the user's
	code  int                                      // that --fix ends with
}

var hostilities = map[string]hostile{
	"an entry that is a link to another repository": {func(w *ward, victim string) string {
		w.remove(w.admin(sweepID))
		w.link(filepath.Join(victim, ".git"), w.admin(sweepID))
		return sweepID
	}, 1},
	"an intent to adopt a tree of another repository": {func(w *ward, victim string) string {
		w.write(filepath.Join(w.records(), "worktrees", deadID, "intent.json"), `{"id": "`+deadID+`", "adopted": true, "tree": "`+victim+`"}`)
		return deadID
	}, 0},
	"a record of a tree of another repository": {func(w *ward, victim string) string {
		meta := w.read(filepath.Join(w.records(), "worktrees", sweepWorktree, "meta.json"))
		meta = strings.NewReplacer(sweepWorktree, deadID, filepath.Join(w.records(), "worktrees", sweepWorktree, "tree"), victim).Replace(meta)
		w.write(filepath.Join(w.records(), "worktrees", deadID, "meta.json"), meta)
		w.remove(filepath.Join(victim, ".agency"))
		return deadID
	}, 4},
	"a record of a tree of another repository that was archived": {func(w *ward, victim string) string {
		meta := w.read(filepath.Join(w.records(), "worktrees", sweepWorktree, "meta.json"))
		meta = strings.NewReplacer(sweepWorktree, deadID, filepath.Join(w.records(), "worktrees", sweepWorktree, "tree"), victim, `"present"`, `"archived"`).Replace(meta)
		w.write(filepath.Join(w.records(), "worktrees", deadID, "meta.json"), meta)
		return deadID
	}, 0}, // nothing is wrong with it
}

func TestAMendLeavesAloneWhatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	for name, h := range hostilities {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWard(t)
			victim := filepath.Join(w.dir, "home", "victim")
			w.git("init", "-q", victim)
			w.git("-C", victim, "commit", "-q", "--allow-empty", "-m", "theirs")
			if o := w.try(nil, "git", "-C", victim, "agency", "worktree", "adopt", "--name", "theirs"); o.code != 0 {
				t.Fatal(o.stderr)
			}
			id := h.forge(w, victim)
			before, err := worldOf(victim)
			if err != nil {
				t.Fatal(err)
			}
			if o := w.try(nil, "git-agency", "doctor", "--fix", id); o.code != h.code {
				t.Errorf("--fix ended with %d: %s", o.code, o.stderr)
			}
			after, err := worldOf(victim)
			if err != nil {
				t.Fatal(err)
			}
			if d := diff(before, after); d != "" {
				t.Errorf("another repository changed:\n%s", d)
			}
		})
	}
}

// A ref that keeps what a discard found is in the way only as long as all of that is still there.
func TestAMendKeepsARefThatHoldsWhatTheTreeDoesNot(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*ward){
		"a file that nobody had committed is gone": func(w *ward) { w.remove(filepath.Join(w.tree, "sub", "untracked")) },
		"what was staged is not any more": func(w *ward) {
			w.git("-C", w.tree, "reset", "-q", "--", "staged")
			w.remove(filepath.Join(w.tree, "staged"))
		},
		"an older state was brought back": func(w *ward) {
			w.git("-C", w.tree, "reset", "-q", "--hard", "main")
			w.remove(filepath.Join(w.admin(sweepID), "logs"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWard(t)
			w.dies("discard/record:before", "discard", sweepID)
			kept := w.git("rev-parse", trash)
			change(w)
			if o := w.try(nil, "git-agency", "doctor", "--fix", sweepID); o.code != 4 || !strings.Contains(o.stderr, "git update-ref -d "+trash+" "+kept) {
				t.Errorf("--fix ended with %d: %s", o.code, o.stderr)
			}
			if got := w.git("rev-parse", trash); got != kept {
				t.Errorf("the ref is at %s", got)
			}
		})
	}
}

// Paths in git's files are whatever somebody wrote there: they must not look like more than they are.
func TestWhatDoctorSaysHoldsOnItsLines(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	const name = "a\n  mend  touch \x1b[2Jpasted '\xff\u202e.lock"
	to := filepath.Join(w.dir, "home", "x\n  mend  touch pasted")
	w.rename(w.tree, to)
	w.write(filepath.Join(w.admin(sweepID), "gitdir"), to+"/.git\n")
	w.write(filepath.Join(w.repo, ".git", name), "")
	o := w.try(nil, "git-agency", "doctor")
	if o.code != 4 || !utf8.ValidString(o.stdout) || strings.ContainsAny(o.stdout, "\x1b\u202e") {
		t.Errorf("ended with %d: %q", o.code, o.stdout)
	}
	findings, _, _ := strings.Cut(o.stdout, "\n\n")
	lines := strings.Split(findings, "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return line == "  then  the lock goes" }) // of the one that can be mended
	if len(lines) != 2*4 {
		t.Errorf("two findings are %d lines:\n%s", len(lines), findings)
	}
	for i, line := range lines {
		if start := []string{"", "  at    ", "  risk  ", "  mend  "}[i%4]; !strings.HasPrefix(line, start) {
			t.Errorf("line %d is %q", i, line)
		}
	}
	// What it says to type does what it says, and nothing else.
	for i := 3; i < len(lines); i += 4 {
		if o := w.try(nil, "bash", "-c", strings.TrimPrefix(lines[i], "  mend  ")); o.code != 0 {
			t.Errorf("%q ended with %d: %s", lines[i], o.code, o.stderr)
		} else if strings.Count(o.stderr, "\n") > 1 {
			t.Errorf("%q said %q", lines[i], o.stderr)
		}
	}
	if exists(filepath.Join(w.repo, ".git", name)) || !exists(w.tree) || exists(filepath.Join(w.repo, "pasted")) {
		t.Errorf("typing that mended something else:\n%s", findings)
	}
}
