package git

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// Promise: whoever writes the new files, they are what git writes; and where nothing is said about how to, git is not
// needed for that.
func TestFilesThatWeWriteAreThoseThatGitWrites(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		set       func(l *lab)
		ourselves bool
	}{
		{"nothing is said", func(*lab) {}, true},
		{"a setting that changes nothing", func(l *lab) { l.configure("core.autocrlf", "false"); l.configure("core.eol", "crlf") }, true},
		{"attributes elsewhere", func(l *lab) { l.write("other/.gitattributes", "* eol=crlf\n"); l.commit("rules") }, true},
		{"ends of lines", func(l *lab) { l.configure("core.autocrlf", "true") }, false},
		{"attributes at the top", func(l *lab) { l.write(".gitattributes", "* eol=crlf\n"); l.commit("rules") }, false},
		{"attributes on the way", func(l *lab) { l.write("dir/.gitattributes", "*.txt ident\n"); l.commit("rules") }, false},
		{"attributes that nobody has added", func(l *lab) { l.write("dir/.gitattributes", "* eol=crlf\n") }, false},
		{"attributes of the repository", func(l *lab) { l.put(l.dir, ".git/info/attributes", "* eol=crlf\n") }, false},
		{"attributes that a setting names", func(l *lab) {
			l.put(l.dir, ".git/rules", "* eol=crlf\n")
			l.configure("core.attributesFile", filepath.Join(l.dir, ".git/rules"))
		}, false},
		{"a setting of one worktree", func(l *lab) {
			l.git("config", "extensions.worktreeConfig", "true")
			l.git("config", "--worktree", "core.autocrlf", "true")
		}, false},
		{"not all is checked out", func(l *lab) { l.git("sparse-checkout", "set", "--no-cone", "/*", "!dir/") }, false},
		{"a file that git was told to skip", func(l *lab) { l.git("update-index", "--skip-worktree", "dir/b.txt") }, false},
		{"no links", func(l *lab) { l.configure("core.symlinks", "false") }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			seen := map[bool]map[string]string{}
			for _, ourselves := range []bool{false, true} {
				l := newLab(t)
				to := varied(l)
				base := l.git("rev-parse", "main")
				tt.set(l)
				if now := l.git("rev-parse", "main"); now != base { // what is to come is on top of the rules
					l.git("checkout", "-q", "--detach", to)
					l.git("rebase", "-q", "main")
					to = l.git("rev-parse", "HEAD")
					l.git("checkout", "-q", "main")
				}
				ad := newAdvancer(l, to)
				if ourselves {
					ad.by = ad.merger()
				}
				x, err := ad.begin()
				l.must(err)
				l.must(x.Lock(t.Context()))
				if got := len(x.staging.numberedNames) > 0; got != (ourselves && tt.ourselves) {
					t.Errorf("written by us: %t", got)
				}
				for _, name := range steps[1:] {
					l.must(ad.step(x, name))
				}
				l.must(x.Close())
				seen[ourselves] = contentOf(l)
				seen[ourselves]["git status"] = ad.status()
			}
			requireSame(t, "ours", seen[true], seen[false])
		})
	}
}

// What is large git writes, without holding all of it in memory.
func TestLargeFilesAreLeftToGit(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ad := newAdvancer(l, l.ahead(func(tree string) {
		l.put(tree, "large", "")
		l.must(os.Truncate(filepath.Join(tree, "large"), 17<<20))
	}))
	ad.by = ad.merger()
	x, err := ad.begin()
	l.must(err)
	l.must(x.Lock(t.Context()))
	if len(x.staging.numberedNames) > 0 {
		t.Error("it was read")
	}
	for _, name := range steps[1:] {
		l.must(ad.step(x, name))
	}
	l.must(x.Close())
	if fi, err := os.Lstat(filepath.Join(l.dir, "large")); err != nil || fi.Size() != 17<<20 {
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
		ad.must(err)
		ctx, cancel := context.WithCancel(t.Context())
		x.fault = func(string) error { cancel(); return nil }
		if err := x.Lock(ctx); err == nil {
			t.Fatal("it went on")
		}
		ad.must(x.Undo(t.Context()))
		requireSame(t, "undone", ad.sum(), before)
	})
}

// contentOf is what every file of a tree holds, and its permissions.
func contentOf(l *lab) map[string]string {
	l.t.Helper()
	all := map[string]string{}
	l.must(filepath.WalkDir(l.dir, func(path string, d os.DirEntry, err error) error {
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
		rel, _ := filepath.Rel(l.dir, path)
		all[rel] = fi.Mode().String() + " " + content
		return err
	}))
	return all
}
