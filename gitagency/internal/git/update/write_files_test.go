package update

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// Promise: whoever writes the new files, they are what git writes; and where nothing is said about how to, git is not
// needed for that.
func TestFilesThatWeWriteAreThoseThatGitWrites(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		set       func(l *gittest.Lab)
		ourselves bool
	}{
		{"nothing is said", func(*gittest.Lab) {}, true},
		{"a setting that changes nothing", func(l *gittest.Lab) {
			l.ConfigureGlobal("core.autocrlf", "false")
			l.ConfigureGlobal("core.eol", "crlf")
		}, true},
		{"attributes elsewhere", func(l *gittest.Lab) { l.Write("other/.gitattributes", "* eol=crlf\n"); l.Commit("rules") }, true},
		{"ends of lines", func(l *gittest.Lab) { l.ConfigureGlobal("core.autocrlf", "true") }, false},
		{"attributes at the top", func(l *gittest.Lab) { l.Write(".gitattributes", "* eol=crlf\n"); l.Commit("rules") }, false},
		{"attributes on the way", func(l *gittest.Lab) { l.Write("dir/.gitattributes", "*.txt ident\n"); l.Commit("rules") }, false},
		{"attributes that nobody has added", func(l *gittest.Lab) { l.Write("dir/.gitattributes", "* eol=crlf\n") }, false},
		{"attributes of the repository", func(l *gittest.Lab) { l.WriteIn(l.Root, ".git/info/attributes", "* eol=crlf\n") }, false},
		{"attributes that a setting names", func(l *gittest.Lab) {
			l.WriteIn(l.Root, ".git/rules", "* eol=crlf\n")
			l.ConfigureGlobal("core.attributesFile", filepath.Join(l.Root, ".git/rules"))
		}, false},
		{"a setting of one worktree", func(l *gittest.Lab) {
			l.Git("config", "extensions.worktreeConfig", "true")
			l.Git("config", "--worktree", "core.autocrlf", "true")
		}, false},
		{"not all is checked out", func(l *gittest.Lab) { l.Git("sparse-checkout", "set", "--no-cone", "/*", "!dir/") }, false},
		{"a file that git was told to skip", func(l *gittest.Lab) { l.Git("update-index", "--skip-worktree", "dir/b.txt") }, false},
		{"no links", func(l *gittest.Lab) { l.ConfigureGlobal("core.symlinks", "false") }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			seen := map[bool]map[string]string{}
			for _, ourselves := range []bool{false, true} {
				l := gittest.New(t)
				to := varied(l)
				base := l.Git("rev-parse", "main")
				tt.set(l)
				if now := l.Git("rev-parse", "main"); now != base { // what is to come is on top of the rules
					l.Git("checkout", "-q", "--detach", to)
					l.Git("rebase", "-q", "main")
					to = l.Git("rev-parse", "HEAD")
					l.Git("checkout", "-q", "main")
				}
				ad := newAdvancer(l, to)
				if ourselves {
					ad.by = openMerger(ad.Lab)
				}
				x, err := ad.begin()
				l.Must(err)
				l.Must(x.Lock(t.Context()))
				if got := len(x.staging.numberedNames) > 0; got != (ourselves && tt.ourselves) {
					t.Errorf("written by us: %t", got)
				}
				for _, name := range steps[1:] {
					l.Must(ad.step(x, name))
				}
				l.Must(x.Close())
				seen[ourselves] = contentOf(l)
				seen[ourselves]["git status"] = ad.status()
			}
			gittest.RequireSame(t, "ours", seen[true], seen[false])
		})
	}
}

// What is large git writes, without holding all of it in memory.
func TestLargeFilesAreLeftToGit(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	ad := newAdvancer(l, ahead(l, func(tree string) {
		l.WriteIn(tree, "large", "")
		l.Must(os.Truncate(filepath.Join(tree, "large"), 17<<20))
	}))
	ad.by = openMerger(ad.Lab)
	x, err := ad.begin()
	l.Must(err)
	l.Must(x.Lock(t.Context()))
	if len(x.staging.numberedNames) > 0 {
		t.Error("it was read")
	}
	for _, name := range steps[1:] {
		l.Must(ad.step(x, name))
	}
	l.Must(x.Close())
	if fi, err := os.Lstat(filepath.Join(l.Root, "large")); err != nil || fi.Size() != 17<<20 {
		t.Errorf("%v, %v", fi, err)
	}
}

// Who is told to end before the refs are locked is undone, and nothing is left to do.
func TestAnAdvanceThatIsToldToEndIsUndone(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, messy func(*testing.T) *advancer) {
		ad := messy(t)
		before := ad.sum()
		x, err := ad.begin()
		ad.Must(err)
		ctx, cancel := context.WithCancel(t.Context())
		x.fault = func(string) error { cancel(); return nil }
		if err := x.Lock(ctx); err == nil {
			t.Fatal("it went on")
		}
		ad.Must(x.Undo(t.Context()))
		gittest.RequireSame(t, "undone", ad.sum(), before)
	})
}

// contentOf is what every file of a tree holds, and its permissions.
func contentOf(l *gittest.Lab) map[string]string {
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
