package main

import (
	"path/filepath"
	"testing"
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
			before, err := worldOf(victim)
			if err != nil {
				t.Fatal(err)
			}
			id := h.forge(w, victim)
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
