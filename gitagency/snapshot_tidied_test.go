package gitagency

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// A git that tidies up and spares nothing that is new, as "gc --prune=now" does, may have looked for what is needed
// before a snapshot had its ref, and take objects of it away at any time after. Then there is no snapshot, and an error;
// and a rollback overwrites nothing that could be gone.
func TestWhatIsTidiedAwayMeanwhileIsNeverTakenForASnapshot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		point string
		fails bool // else what the snapshot needs is where nobody takes it away any more
	}{
		{"snapshot/capture:after", true},
		{"rollback/capture:after", true},
		{"rollback/ref:after", true},
		{"rollback/files:before", false},
		{"rollback/done:before", false},
	} {
		t.Run(c.point, func(t *testing.T) {
			t.Parallel()
			var l *lab
			blob := ""
			l = newLab(t, Options{Fault: func(_ context.Context, at string) error {
				if at == c.point && blob != "" {
					_ = os.Remove(filepath.Join(l.repo.git.CommonDir, "objects", blob[:2], blob[2:]))
				}
				return nil
			}})
			l.write("a", "1\n")
			first, err := l.box.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			l.write("a", "2, which nothing else holds\n")
			blob = l.git("hash-object", "a")
			if c.point == "snapshot/capture:after" {
				_, err = l.box.Snapshot(t.Context())
			} else {
				_, err = l.box.Rollback(t.Context(), RollbackRequest{Snapshot: first})
			}
			data, _ := os.ReadFile(filepath.Join(l.box.WorkDir(), "a"))
			switch {
			case !c.fails && err != nil:
				t.Error(err)
			case !c.fails:
				if got := l.git("cat-file", "blob", "refs/agency/snapshots/"+l.box.ID+"/2:a"); got != "2, which nothing else holds" {
					t.Errorf("it holds %q", got)
				}
			case err == nil || string(data) == "1\n":
				t.Errorf("%v; a is %q", err, data)
			case l.git("for-each-ref", "refs/agency/snapshots/"+l.box.ID+"/2") != "":
				t.Error("there is a snapshot")
			}
		})
	}
}
