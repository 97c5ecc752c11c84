package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What is unusual is not wrong: after each of these, doctor has nothing to say.
var healthy = map[string]func(*ward){
	"nothing happened": func(*ward) {},
	"there are snapshots, also of what nobody knows": func(w *ward) {
		for _, id := range []string{sweepID, deadID} {
			w.git("update-ref", "--create-reflog", "refs/agency/snapshots/"+id+"/1", "HEAD")
		}
	},
	"the data directory is elsewhere, behind a link": func(w *ward) {
		w.rename(w.data, w.data+"2")
		w.link("data2", w.data)
	},
	"the data directory is one that others use, too": func(w *ward) {
		w.write(filepath.Join(w.data, "of-others"), "")
		if err := os.Chmod(w.data, 0o1777); err != nil {
			w.t.Fatal(err)
		}
	},
	"the data directory is open, but holds nothing of this repository": func(w *ward) {
		w.env = append(w.env, "AGENCY_DATA_DIR="+w.dir)
		w.repo = filepath.Join(w.dir, "home", "fresh")
		if err := os.Mkdir(w.repo, 0o755); err != nil {
			w.t.Fatal(err)
		}
		w.git("init", "-q", w.repo)
	},
	"somebody has a branch of a sandbox checked out that nobody knows any more": func(w *ward) {
		w.git("worktree", "add", "-q", "-b", "agency/sandbox-"+deadID, "../home/topic")
	},
	"the main worktree is on such a branch": func(w *ward) { w.git("switch", "-q", "-c", "agency/sandbox-"+deadID) },
	"a worktree of the user's is locked without a reason, and empty": func(w *ward) {
		w.git("-c", "core.logAllRefUpdates=false", "worktree", "add", "-q", "--no-checkout", "-b", "topic", "../home/topic")
		w.git("worktree", "lock", "../home/topic")
	},
}

func TestDoctorFindsNothingWhereNothingIsWrong(t *testing.T) {
	t.Parallel()
	for name, prepare := range healthy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWard(t)
			prepare(w)
			if found := w.findings(); len(found) > 0 {
				t.Errorf("doctor found %+v", found)
			}
		})
	}
}

// What is under way is not wrong, at whatever moment one looks.
func TestDoctorFindsNothingWhileOthersStartAndDiscard(t *testing.T) {
	t.Parallel()
	l := newSweepLab(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20 {
			id := l.try(nil, "git-agency", "start", "wt")
			if o := l.try(nil, "git-agency", "discard", id.line()); id.code != 0 || o.code != 0 {
				t.Errorf("%s%s", id.stderr, o.stderr)
			}
		}
	}()
	for looks := 0; ; looks++ {
		select {
		case <-done:
			t.Logf("%d looks", looks)
			return
		default:
		}
		if found := l.findings(); len(found) > 0 {
			t.Errorf("doctor found %+v", found)
		}
		time.Sleep(20 * time.Millisecond) // else it takes more of the machine than the one it watches
	}
}
