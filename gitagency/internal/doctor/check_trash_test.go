package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/sandboxtest"
)

// Promise: Fix removes the archive of a killed discard only if the sandbox still has all of its files. Otherwise the
// archive may be the only copy, and Fix reports the command that removes it.
func TestFixKeepsArchiveThatMayBeOnlyCopy(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(tree string) error{
		"unchanged": nil,
		"changed": func(tree string) error {
			return os.WriteFile(filepath.Join(tree, "nested", "file"), []byte("new\n"), 0o644)
		},
		"file removed":       func(tree string) error { return os.Remove(filepath.Join(tree, "nested", "file")) },
		"repository removed": func(tree string) error { return os.RemoveAll(filepath.Join(tree, "nested")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var file string
			var left []byte
			l := sandboxtest.New(t, core.Options{Fault: func(_ context.Context, at string) (err error) {
				if at != "discard/trash:before" {
					return nil
				}
				left, err = os.ReadFile(file)
				return errors.Join(err, errors.New("on purpose"))
			}})
			file = l.Repo.Store.TrashArchivePath(l.Repo.ID, l.Sandbox.ID)
			tree := l.Sandbox.WorkDir()
			l.Git("init", "-q", "nested")
			l.WriteFile("nested/file", "old\n")
			if _, err := discard.Run(t.Context(), l.Repo, discard.Request{Query: l.Sandbox.ID}); err == nil || len(left) == 0 {
				t.Fatalf("an archive of %d bytes: %v", len(left), err)
			}
			// A killed process does not undo its steps.
			if err := errors.Join(l.Repo.Store.EnsureTrashDir(l.Repo.ID), os.WriteFile(file, left, 0o600)); err != nil {
				t.Fatal(err)
			}
			if change != nil {
				if err := change(tree); err != nil {
					t.Fatal(err)
				}
			}
			fixed, err := Fix(t.Context(), l.Repo, l.Sandbox.ID)
			_, statErr := os.Lstat(file)
			if change == nil {
				if err != nil || len(fixed) != 1 || !os.IsNotExist(statErr) {
					t.Errorf("%+v, %v; the archive: %v", fixed, err, statErr)
				}
				return
			}
			var finding *FindingError
			if !errors.As(err, &finding) || !strings.HasPrefix(finding.Finding.FixCommand, "rm ") || statErr != nil {
				t.Errorf("%+v, %v; the archive: %v", fixed, err, statErr)
			}
		})
	}
}
