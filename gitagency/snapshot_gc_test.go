package gitagency

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// "git gc --prune=now" may have listed the reachable objects before a snapshot had its ref, and may remove objects of it
// at any later time. Then the snapshot fails and leaves no ref, and a rollback overwrites no file whose content is lost.
func TestSnapshotFailsIfGCRemovedItsObjects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		point string
		fails bool // false: a pack of ours holds the objects by then
	}{
		{"snapshot/capture:after", true},
		{"rollback/capture:after", true},
		{"rollback/ref:after", true},
		{"rollback/files:before", false},
		{"rollback/done:before", false},
	} {
		t.Run(c.point, func(t *testing.T) {
			t.Parallel()
			var l *testRepo
			blob := ""
			l = newTestRepo(t, Options{Fault: func(_ context.Context, at string) error {
				if at == c.point && blob != "" {
					_ = os.Remove(filepath.Join(l.repo.git.CommonDir, "objects", blob[:2], blob[2:]))
				}
				return nil
			}})
			l.writeFile("a", "1\n")
			first, err := l.sandbox.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			l.writeFile("a", "2, which nothing else holds\n")
			blob = l.git("hash-object", "a")
			if c.point == "snapshot/capture:after" {
				_, err = l.sandbox.Snapshot(t.Context())
			} else {
				_, err = l.sandbox.Rollback(t.Context(), RollbackRequest{Snapshot: first})
			}
			data, _ := os.ReadFile(filepath.Join(l.sandbox.WorkDir(), "a"))
			switch {
			case !c.fails && err != nil:
				t.Error(err)
			case !c.fails:
				if got := l.git("cat-file", "blob", "refs/agency/snapshots/"+l.sandbox.ID+"/2:a"); got != "2, which nothing else holds" {
					t.Errorf("the snapshot holds %q", got)
				}
			case err == nil || string(data) == "1\n":
				t.Errorf("%v; a is %q", err, data)
			case l.git("for-each-ref", "refs/agency/snapshots/"+l.sandbox.ID+"/2") != "":
				t.Error("a snapshot ref was made")
			}
		})
	}
}
