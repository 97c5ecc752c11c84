package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// healthyCases are unusual but valid states of a repository, in which doctor must find nothing.
var healthyCases = map[string]func(*doctorLab){
	"no change": func(*doctorLab) {},
	"snapshots, also of an unknown invocation": func(w *doctorLab) {
		for _, id := range []string{sweepID, killedID} {
			w.git("update-ref", "--create-reflog", "refs/agency/snapshots/"+id+"/1", "HEAD")
		}
	},
	"the data directory is a symlink": func(w *doctorLab) {
		w.rename(w.data, w.data+"2")
		w.symlink("data2", w.data)
	},
	"the data directory is shared with other users": func(w *doctorLab) {
		w.write(filepath.Join(w.data, "of-others"), "")
		if err := os.Chmod(w.data, 0o1777); err != nil {
			w.t.Fatal(err)
		}
	},
	"the data directory is readable but has no record of this repository": func(w *doctorLab) {
		w.env = append(w.env, "AGENCY_DATA_DIR="+w.dir)
		w.repo = filepath.Join(w.dir, "home", "fresh")
		if err := os.Mkdir(w.repo, 0o755); err != nil {
			w.t.Fatal(err)
		}
		w.git("init", "-q", w.repo)
	},
	"a worktree is on the branch of an unknown sandbox": func(w *doctorLab) {
		w.git("worktree", "add", "-q", "-b", "agency/sandbox-"+killedID, "../home/topic")
	},
	"the main worktree is on the branch of an unknown sandbox": func(w *doctorLab) { w.git("switch", "-q", "-c", "agency/sandbox-"+killedID) },
	"a user's worktree is locked without a reason and empty": func(w *doctorLab) {
		w.git("-c", "core.logAllRefUpdates=false", "worktree", "add", "-q", "--no-checkout", "-b", "topic", "../home/topic")
		w.git("worktree", "lock", "../home/topic")
	},
}

func TestDoctorHealthyRepositories(t *testing.T) {
	t.Parallel()
	for name, prepare := range healthyCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newDoctorLab(t)
			prepare(w)
			if found := w.findings(); len(found) > 0 {
				t.Errorf("doctor found %+v", found)
			}
		})
	}
}

// TestDoctorDuringStartAndDiscard runs doctor repeatedly while sandboxes are started and discarded.
func TestDoctorDuringStartAndDiscard(t *testing.T) {
	t.Parallel()
	l := newSweepLab(t)
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range rounds {
			id := l.try(nil, "git-agency", "start", "wt")
			if o := l.try(nil, "git-agency", "discard", id.line()); id.code != 0 || o.code != 0 {
				t.Errorf("%s%s", id.stderr, o.stderr)
			}
		}
	}()
	for looks := 0; ; looks++ {
		select {
		case <-done:
			t.Logf("%d runs of doctor", looks)
			return
		default:
		}
		if found := l.findings(); len(found) > 0 {
			t.Errorf("doctor found %+v", found)
		}
		time.Sleep(20 * time.Millisecond) // leave the CPU to start and discard
	}
}
