package sandbox_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
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
			var l *sandboxtest.Fixture
			blob := ""
			l = sandboxtest.New(t, core.Options{Fault: func(_ context.Context, at string) error {
				if at == c.point && blob != "" {
					_ = os.Remove(filepath.Join(l.Repo.Git.CommonDir, "objects", blob[:2], blob[2:]))
				}
				return nil
			}})
			l.WriteFile("a", "1\n")
			first, err := l.Sandbox.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			l.WriteFile("a", "2, which nothing else holds\n")
			blob = l.Git("hash-object", "a")
			if c.point == "snapshot/capture:after" {
				_, err = l.Sandbox.Snapshot(t.Context())
			} else {
				_, err = l.Sandbox.Rollback(t.Context(), sandbox.RollbackRequest{Snapshot: first})
			}
			data, _ := os.ReadFile(filepath.Join(l.Sandbox.WorkDir(), "a"))
			switch {
			case !c.fails && err != nil:
				t.Error(err)
			case !c.fails:
				if got := l.Git("cat-file", "blob", "refs/agency/snapshots/"+l.Sandbox.ID+"/2:a"); got != "2, which nothing else holds" {
					t.Errorf("the snapshot holds %q", got)
				}
			case err == nil || string(data) == "1\n":
				t.Errorf("%v; a is %q", err, data)
			case l.Git("for-each-ref", "refs/agency/snapshots/"+l.Sandbox.ID+"/2") != "":
				t.Error("a snapshot ref was made")
			}
		})
	}
}
