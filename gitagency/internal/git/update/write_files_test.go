package update

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// Promise: files that we write are the same as those that git writes; and we write them without git if no attributes or
// config affect their content.
func TestWrittenFilesMatchGit(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		set       func(l *gittest.Fixture)
		ourselves bool // written without git
	}{
		{"no config", func(*gittest.Fixture) {}, true},
		{"config without effect", func(l *gittest.Fixture) {
			l.ConfigureGlobal("core.autocrlf", "false")
			l.ConfigureGlobal("core.eol", "crlf")
		}, true},
		{"attributes in another directory", func(l *gittest.Fixture) { l.Write("other/.gitattributes", "* eol=crlf\n"); l.Commit("rules") }, true},
		{"core.autocrlf", func(l *gittest.Fixture) { l.ConfigureGlobal("core.autocrlf", "true") }, false},
		{"attributes in the root directory", func(l *gittest.Fixture) { l.Write(".gitattributes", "* eol=crlf\n"); l.Commit("rules") }, false},
		{"attributes in a parent directory", func(l *gittest.Fixture) { l.Write("dir/.gitattributes", "*.txt ident\n"); l.Commit("rules") }, false},
		{"untracked attributes", func(l *gittest.Fixture) { l.Write("dir/.gitattributes", "* eol=crlf\n") }, false},
		{"info/attributes", func(l *gittest.Fixture) { l.WriteIn(l.Root, ".git/info/attributes", "* eol=crlf\n") }, false},
		{"core.attributesFile", func(l *gittest.Fixture) {
			l.WriteIn(l.Root, ".git/rules", "* eol=crlf\n")
			l.ConfigureGlobal("core.attributesFile", filepath.Join(l.Root, ".git/rules"))
		}, false},
		{"config of one worktree", func(l *gittest.Fixture) {
			l.Git("config", "extensions.worktreeConfig", "true")
			l.Git("config", "--worktree", "core.autocrlf", "true")
		}, false},
		{"sparse checkout", func(l *gittest.Fixture) { l.Git("sparse-checkout", "set", "--no-cone", "/*", "!dir/") }, false},
		{"skip-worktree file", func(l *gittest.Fixture) { l.Git("update-index", "--skip-worktree", "dir/b.txt") }, false},
		{"core.symlinks=false", func(l *gittest.Fixture) { l.ConfigureGlobal("core.symlinks", "false") }, false},
	}
	for i, tt := range tests {
		if testing.Short() && i%2 != 0 {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			seen := map[bool]map[string]string{}
			for _, withMerger := range []bool{false, true} {
				l := gittest.New(t)
				to := makeVariedCommit(l)
				base := l.Git("rev-parse", "main")
				tt.set(l)
				if now := l.Git("rev-parse", "main"); now != base { // rebase the new commit onto the commit with attributes
					l.Git("checkout", "-q", "--detach", to)
					l.Git("rebase", "-q", "main")
					to = l.Git("rev-parse", "HEAD")
					l.Git("checkout", "-q", "main")
				}
				lab := newUpdateLab(l, to)
				if withMerger {
					lab.contentMerger = openMerger(lab.Fixture)
				}
				tx, err := lab.begin()
				l.Must(err)
				l.Must(tx.Lock(t.Context()))
				if got := len(tx.staging.numberedNames) > 0; got != (withMerger && tt.ourselves) {
					t.Errorf("written without git: %t", got)
				}
				for _, name := range stepNames[1:] {
					l.Must(lab.runStep(tx, name))
				}
				l.Must(tx.Close())
				seen[withMerger] = worktreeContents(l)
				seen[withMerger]["git status"] = lab.status()
			}
			gittest.RequireSame(t, "with a merger", seen[true], seen[false])
		})
	}
}

// Large files are written by git, which does not read all of their content into memory.
func TestLargeFilesAreWrittenByGit(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	lab := newUpdateLab(l, commitOnMain(l, func(tree string) {
		l.WriteIn(tree, "large", "")
		l.Must(os.Truncate(filepath.Join(tree, "large"), 17<<20))
	}))
	lab.contentMerger = openMerger(lab.Fixture)
	tx, err := lab.begin()
	l.Must(err)
	l.Must(tx.Lock(t.Context()))
	if len(tx.staging.numberedNames) > 0 {
		t.Error("the large file was written without git")
	}
	for _, name := range stepNames[1:] {
		l.Must(lab.runStep(tx, name))
	}
	l.Must(tx.Close())
	if fi, err := os.Lstat(filepath.Join(l.Root, "large")); err != nil || fi.Size() != 17<<20 {
		t.Errorf("%v, %v", fi, err)
	}
}

// An update that is cancelled before the refs are locked can be undone completely.
func TestCancelledUpdateIsUndone(t *testing.T) {
	t.Parallel()
	withAndWithoutMerger(t, func(t *testing.T, _ bool, newLab func(*testing.T) *updateLab) {
		lab := newLab(t)
		before := lab.diskState()
		tx, err := lab.begin()
		lab.Must(err)
		ctx, cancel := context.WithCancel(t.Context())
		tx.fault = func(string) error { cancel(); return nil }
		if err := tx.Lock(ctx); err == nil {
			t.Fatal("Lock succeeded")
		}
		lab.Must(tx.Undo(t.Context()))
		gittest.RequireSame(t, "undone", lab.diskState(), before)
	})
}

// worktreeContents returns the mode and content of every file of the main worktree.
func worktreeContents(l *gittest.Fixture) map[string]string {
	l.T.Helper()
	all := map[string]string{}
	l.Must(filepath.WalkDir(l.Root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.Name() == ".git" {
			if d != nil && d.IsDir() && err == nil {
				return filepath.SkipDir
			}
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case d.Type()&os.ModeSymlink != 0:
			content, err = os.Readlink(path)
		case d.Type().IsRegular():
			var data []byte
			data, err = os.ReadFile(path)
			content = string(data)
		}
		rel, _ := filepath.Rel(l.Root, path)
		all[rel] = fi.Mode().String() + " " + content
		return err
	}))
	return all
}
