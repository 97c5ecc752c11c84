package status_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
	"github.com/git-agency/git-agency/gitagency/internal/git/status"
)

// TestOverlayIsTouchedByAnyChange checks everything that makes a scan of an overlay necessary. A capture of one that passes for
// untouched reads none of its files.
func TestOverlayIsTouchedByAnyChange(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(l *gittest.Fixture, repo *git.Repo, s *git.WorktreeSpec){
		"a new file":  func(l *gittest.Fixture, _ *git.Repo, s *git.WorktreeSpec) { write(l, s.Overlay.Upper, "new") },
		"a directory": func(l *gittest.Fixture, _ *git.Repo, s *git.WorktreeSpec) { write(l, s.Overlay.Upper, "dir/new") },
		"another index": func(l *gittest.Fixture, r *git.Repo, s *git.WorktreeSpec) {
			replace(l, filepath.Join(r.AdminDir(s.Name), "index"))
		},
		"no index": func(l *gittest.Fixture, r *git.Repo, s *git.WorktreeSpec) {
			l.Must(os.Remove(filepath.Join(r.AdminDir(s.Name), "index")))
		},
		"another commit": func(_ *gittest.Fixture, _ *git.Repo, s *git.WorktreeSpec) {
			s.Overlay.TreeID = s.Overlay.TreeID[1:] + "0"
		},
		"a submodule": func(l *gittest.Fixture, r *git.Repo, s *git.WorktreeSpec) { write(l, r.AdminDir(s.Name), "modules/m") },
		"a git directory": func(l *gittest.Fixture, _ *git.Repo, s *git.WorktreeSpec) {
			l.Must(os.Remove(filepath.Join(s.Overlay.Upper, ".git")))
			write(l, s.Overlay.Upper, ".git/HEAD")
		},
		"no tree":            func(_ *gittest.Fixture, _ *git.Repo, s *git.WorktreeSpec) { s.Dir = "" },
		"no upper directory": func(l *gittest.Fixture, _ *git.Repo, s *git.WorktreeSpec) { l.Must(os.RemoveAll(s.Overlay.Upper)) },
		"no overlay":         func(_ *gittest.Fixture, _ *git.Repo, s *git.WorktreeSpec) { s.Overlay = nil },
		"a marker as a file": func(l *gittest.Fixture, _ *git.Repo, s *git.WorktreeSpec) {
			l.Must(os.Remove(filepath.Join(s.Overlay.Upper, s.Omit)))
			write(l, s.Overlay.Upper, s.Omit)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := gittest.New(t)
			l.Write("a", "1")
			l.Commit("first")
			repo, dir := repotest.OpenRepo(l), gittest.TempDir(t)
			headTree := l.Git("rev-parse", "HEAD^{tree}")
			s := git.WorktreeSpec{
				Name: "untouched", Dir: dir, Omit: ".omitted",
				Overlay: &overlay.Tree{Upper: filepath.Join(dir, "upper"), Index: filepath.Join(dir, "index"), TreeID: headTree},
			}
			write(l, s.Overlay.Upper, ".git")
			l.Must(os.Mkdir(filepath.Join(s.Overlay.Upper, s.Omit), 0o755))
			l.Must(git.CopyFileWithMtime(filepath.Join(repo.CommonDir, "index"), s.Overlay.Index))
			l.Must(os.MkdirAll(repo.UnlistedAdminDir(s.Name), 0o755))
			l.Must(os.Link(s.Overlay.Index, filepath.Join(repo.UnlistedAdminDir(s.Name), "index")))
			if !status.IsUntouchedOverlay(repo, s, headTree) {
				t.Fatal("a new overlay counts as touched")
			}
			if change(l, repo, &s); status.IsUntouchedOverlay(repo, s, headTree) {
				t.Error("it counts as untouched")
			}
		})
	}
}

// write writes a file below a directory, and makes its parent directories.
func write(l *gittest.Fixture, dir, name string) {
	l.T.Helper()
	path := filepath.Join(dir, name)
	l.Must(os.MkdirAll(filepath.Dir(path), 0o755))
	l.Must(os.WriteFile(path, []byte("x\n"), 0o644))
}

// replace puts a copy of a file in its place.
func replace(l *gittest.Fixture, path string) {
	l.T.Helper()
	l.Must(git.CopyFileWithMtime(path, path+".new"))
	l.Must(os.Rename(path+".new", path))
}
