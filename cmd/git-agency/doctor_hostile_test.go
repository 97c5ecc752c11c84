package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// forgery is a change to the repository or the records by which an attacker tries to make doctor --fix modify
// another repository.
type forgery struct {
	forge    func(w *doctorLab, victim string) (id string) // victim: the user's other repository
	exitCode int                                           // exit code of --fix
}

var forgeries = map[string]forgery{
	"a worktree entry is a symlink to another repository": {func(w *doctorLab, victim string) string {
		w.remove(w.adminDir(sweepID))
		w.symlink(filepath.Join(victim, ".git"), w.adminDir(sweepID))
		return sweepID
	}, 1},
	"an intent to adopt another repository": {func(w *doctorLab, victim string) string {
		w.write(filepath.Join(w.recordsDir(), "worktrees", killedID, "intent.json"), `{"id": "`+killedID+`", "adopted": true, "tree": "`+victim+`"}`)
		return killedID
	}, 0},
	"a record with the path of another repository": {func(w *doctorLab, victim string) string {
		meta := w.read(filepath.Join(w.recordsDir(), "worktrees", sweepWorktree, "meta.json"))
		meta = strings.NewReplacer(sweepWorktree, killedID, filepath.Join(w.recordsDir(), "worktrees", sweepWorktree, "tree"), victim).Replace(meta)
		w.write(filepath.Join(w.recordsDir(), "worktrees", killedID, "meta.json"), meta)
		w.remove(filepath.Join(victim, ".agency"))
		return killedID
	}, 4},
	"an archived record with the path of another repository": {func(w *doctorLab, victim string) string {
		meta := w.read(filepath.Join(w.recordsDir(), "worktrees", sweepWorktree, "meta.json"))
		meta = strings.NewReplacer(sweepWorktree, killedID, filepath.Join(w.recordsDir(), "worktrees", sweepWorktree, "tree"), victim, `"present"`, `"archived"`).Replace(meta)
		w.write(filepath.Join(w.recordsDir(), "worktrees", killedID, "meta.json"), meta)
		return killedID
	}, 0}, // doctor finds no problem in it
}

func TestDoctorFixLeavesOtherRepositories(t *testing.T) {
	t.Parallel()
	for name, h := range forgeries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newDoctorLab(t)
			victim := filepath.Join(w.dir, "home", "victim")
			w.git("init", "-q", victim)
			w.git("-C", victim, "commit", "-q", "--allow-empty", "-m", "theirs")
			if o := w.try(nil, "git", "-C", victim, "agency", "worktree", "adopt", "--name", "theirs"); o.code != 0 {
				t.Fatal(o.stderr)
			}
			id := h.forge(w, victim)
			before, err := dumpFiles(victim)
			if err != nil {
				t.Fatal(err)
			}
			if o := w.try(nil, "git-agency", "doctor", "--fix", id); o.code != h.exitCode {
				t.Errorf("--fix ended with %d: %s", o.code, o.stderr)
			}
			after, err := dumpFiles(victim)
			if err != nil {
				t.Fatal(err)
			}
			if d := dumpDiff(before, after); d != "" {
				t.Errorf("the other repository changed:\n%s", d)
			}
		})
	}
}

// TestDoctorFixKeepsTrashRefWithLostChanges checks that --fix deletes the trash ref of an interrupted discard only
// if the sandbox still has everything that the ref holds.
func TestDoctorFixKeepsTrashRefWithLostChanges(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*doctorLab){
		"an untracked file is gone": func(w *doctorLab) { w.remove(filepath.Join(w.tree, "sub", "untracked")) },
		"a staged file is gone": func(w *doctorLab) {
			w.git("-C", w.tree, "reset", "-q", "--", "staged")
			w.remove(filepath.Join(w.tree, "staged"))
		},
		"an older state was checked out": func(w *doctorLab) {
			w.git("-C", w.tree, "reset", "-q", "--hard", "main")
			w.remove(filepath.Join(w.adminDir(sweepID), "logs"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newDoctorLab(t)
			w.dieAt("discard/record:before", "discard", sweepID)
			kept := w.git("rev-parse", trashRef)
			change(w)
			if o := w.try(nil, "git-agency", "doctor", "--fix", sweepID); o.code != 4 || !strings.Contains(o.stderr, "git update-ref -d "+trashRef+" "+kept) {
				t.Errorf("--fix ended with %d: %s", o.code, o.stderr)
			}
			if got := w.git("rev-parse", trashRef); got != kept {
				t.Errorf("the trash ref is at %s, want %s", got, kept)
			}
		})
	}
}

// TestDoctorEscapesHostilePaths puts newlines and control characters into paths that doctor prints. They must not
// add lines to its output, and the commands it suggests must be quoted correctly.
func TestDoctorEscapesHostilePaths(t *testing.T) {
	t.Parallel()
	w := newDoctorLab(t)
	const name = "a\n  fix   touch \x1b[2Jpasted '\xff\u202e.lock"
	to := filepath.Join(w.dir, "home", "x\n  fix   touch pasted")
	w.rename(w.tree, to)
	w.write(filepath.Join(w.adminDir(sweepID), "gitdir"), to+"/.git\n")
	w.write(filepath.Join(w.repo, ".git", name), "")
	o := w.try(nil, "git-agency", "doctor")
	if o.code != 4 || !utf8.ValidString(o.stdout) || strings.ContainsAny(o.stdout, "\x1b\u202e") {
		t.Errorf("ended with %d: %q", o.code, o.stdout)
	}
	findings, _, _ := strings.Cut(o.stdout, "\n\n")
	lines := strings.Split(findings, "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "  then  ") }) // printed for the fixable finding
	if len(lines) != 2*4 {
		t.Errorf("two findings have %d lines, want 8:\n%s", len(lines), findings)
	}
	for i, line := range lines {
		if start := []string{"", "  at    ", "  risk  ", "  fix   "}[i%4]; !strings.HasPrefix(line, start) {
			t.Errorf("line %d is %q", i, line)
		}
	}
	// The suggested commands fix the finding and change nothing else.
	for i := 3; i < len(lines); i += 4 {
		if o := w.try(nil, "bash", "-c", strings.TrimPrefix(lines[i], "  fix   ")); o.code != 0 {
			t.Errorf("%q ended with %d: %s", lines[i], o.code, o.stderr)
		} else if strings.Count(o.stderr, "\n") > 1 {
			t.Errorf("%q printed %q", lines[i], o.stderr)
		}
	}
	if exists(filepath.Join(w.repo, ".git", name)) || !exists(w.tree) || exists(filepath.Join(w.repo, "pasted")) {
		t.Errorf("the suggested commands had another effect:\n%s", findings)
	}
}
