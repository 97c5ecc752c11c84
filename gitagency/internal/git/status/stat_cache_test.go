package status

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/repotest"
)

// statCacheFixture is a worktree with a stat cache of it.
type statCacheFixture struct {
	*gittest.Fixture
	repo *git.Repo
	git.WorktreeSpec
	mirror *git.Mirror
	cache  []byte // the stat cache
	tree   string // tree that the cache stands for
}

// newStatCacheFixture creates a sandbox worktree with changed, untracked, ignored and nested files, and its stat cache.
func newStatCacheFixture(t *testing.T) *statCacheFixture {
	t.Helper()
	l := gittest.New(t)
	l.Write(".gitignore", "*.o\n/out/\nquiet/.gitignore\n")
	l.Write("quiet/tracked", "q\n")
	l.Commit("second")
	repo := repotest.OpenRepo(l)
	w := repotest.AddSandbox(l, repo)
	l.WriteIn(w.Tree, "quiet/.gitignore", "# nobody sees it\n")
	l.WriteIn(w.Tree, "new/untracked", "u\n")
	l.WriteIn(w.Tree, "new/.gitignore", "*.tmp\n")
	l.WriteIn(w.Tree, "new/x.tmp", "ignored\n")
	l.WriteIn(w.Tree, "out/of", "the way\n")
	l.WriteIn(w.Tree, "a.txt", "changed\n")
	l.Must(os.MkdirAll(filepath.Join(w.Tree, "nested", ".git"), 0o755))
	p := &statCacheFixture{Fixture: l, repo: repo, mirror: repotest.NewMirror(l), WorktreeSpec: git.WorktreeSpec{Name: w.Name, Dir: w.Tree, Branch: w.Branch}}
	p.record()
	return p
}

// record creates the stat cache if there is none. It retries until all files are older than the scan.
func (p *statCacheFixture) record() {
	p.T.Helper()
	p.repo = repotest.OpenRepo(p.Fixture) // with the present configuration
	for until := time.Now().Add(gittest.Timeout); p.cache == nil; {
		var err error
		p.tree, p.cache, err = DiskTreeWithStatCache(p.T.Context(), p.mirror, p.WorktreeSpec, p.Git("rev-parse", "HEAD"), ReadConfigDigest(p.repo))
		p.Must(err)
		if time.Now().After(until) {
			p.T.Fatal("no stat cache was created")
		}
	}
}

// matches reports whether the worktree still matches the stat cache. It fails the test if the tree is another one.
func (p *statCacheFixture) matches() bool {
	p.T.Helper()
	repo := repotest.OpenRepo(p.Fixture)
	tree := TreeFromStatCache(repo, p.WorktreeSpec, ReadConfigDigest(repo), p.cache)
	if tree != "" && tree != p.tree {
		p.T.Fatalf("tree from the stat cache is %s, want %s", tree, p.tree)
	}
	return tree != ""
}

// TreeFromStatCache must not match after any change of the files, of the ignore rules, of the index or of the
// configuration. Changes of ignored files do not count.
func TestStatCacheMatchesUntilSomethingChanges(t *testing.T) {
	t.Parallel()
	p := newStatCacheFixture(t)
	in := func(name string) string { return filepath.Join(p.Dir, name) }
	if !p.matches() {
		t.Fatal("an unchanged worktree does not match")
	}
	p.WriteIn(p.Dir, "out/of", "another way\n")
	p.WriteIn(p.Dir, "out/more", "ignored\n")
	p.WriteIn(p.Dir, "new/x.tmp", "still ignored\n")
	if !p.matches() {
		t.Error("no match after changes of ignored files")
	}
	for _, c := range []struct {
		what   string
		change func()
	}{
		{"content, with the same size and mtime", func() {
			fi, err := os.Stat(in("dir/b.txt"))
			p.Must(err)
			p.Must(os.WriteFile(in("dir/b.txt"), []byte("B\n"), 0o644))
			p.Must(os.Chtimes(in("dir/b.txt"), fi.ModTime(), fi.ModTime()))
		}},
		{"an untracked file", func() { p.WriteIn(p.Dir, "new/untracked", "v\n") }},
		{"a new file", func() { p.WriteIn(p.Dir, "dir/came", "c\n") }},
		{"a removed file", func() { p.Must(os.Remove(in("dir/came"))) }},
		{"a new file in an untracked directory", func() { p.WriteIn(p.Dir, "new/deeper/x", "c\n") }},
		{"executable bit", func() { p.Must(os.Chmod(in("a.txt"), 0o755)) }},
		{"target of a symlink", func() { p.Must(os.Remove(in("link"))); p.Must(os.Symlink("run.sh", in("link"))) }},
		{"a directory replaced by a symlink", func() {
			p.Must(os.Rename(in("dir"), filepath.Join(filepath.Dir(p.Dir), "aside")))
			p.Must(os.Symlink("../aside", in("dir")))
		}},
		{"the symlink replaced by the directory", func() {
			p.Must(os.Remove(in("dir")))
			p.Must(os.Rename(filepath.Join(filepath.Dir(p.Dir), "aside"), in("dir")))
		}},
		{"a nested repository without .git", func() { p.Must(os.Remove(in("nested/.git"))) }},
		{".gitignore", func() { p.WriteIn(p.Dir, ".gitignore", "*.p\n/out/\nquiet/.gitignore\n") }},
		{"an ignored .gitignore", func() { p.WriteIn(p.Dir, "quiet/.gitignore", "# somebody hears\n") }},
		{"an untracked .gitignore", func() { p.WriteIn(p.Dir, "new/.gitignore", "*.tnt\n") }},
		{"info/exclude", func() { p.WriteIn(p.Root, ".git/info/exclude", "*.q\n") }},
		{"ignore file of the user", func() { p.WriteIn(filepath.Dir(p.Root), ".config/git/ignore", "*.r\n") }},
		{"core.autocrlf", func() { p.Git("config", "core.autocrlf", "input") }},
		{"extensions.worktreeConfig", func() { p.Git("config", "extensions.worktreeConfig", "true") }},
		{"core.autocrlf in config.worktree", func() { p.GitIn(p.Dir, "config", "--worktree", "core.autocrlf", "true") }},
		{"changed core.autocrlf in config.worktree", func() { p.GitIn(p.Dir, "config", "--worktree", "core.autocrlf", "input") }},
		{"the index", func() { p.GitIn(p.Dir, "add", "a.txt") }},
		{"secret patterns", func() { p.SecretPatterns = []string{"*.key"} }},
	} {
		c.change()
		if p.matches() {
			t.Errorf("%s: the stat cache still matches", c.what)
		}
		p.cache = nil
		if p.record(); !p.matches() {
			t.Errorf("%s: a new stat cache does not match", c.what)
		}
	}
}

// There must be no stat cache where only git knows which configuration applies to the worktree, as with conditional
// includes.
func TestNoStatCacheWithPerWorktreeIncludes(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(p *statCacheFixture){
		"onbranch include":                     func(p *statCacheFixture) { p.Git("config", "includeIf.onbranch:agency/**.path", "more") },
		"include in config.worktree":           func(p *statCacheFixture) { p.GitIn(p.Dir, "config", "--worktree", "include.path", "more") },
		"core.excludesFile in config.worktree": func(p *statCacheFixture) { p.GitIn(p.Dir, "config", "--worktree", "core.excludesFile", "/nowhere") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newStatCacheFixture(t)
			p.Git("config", "extensions.worktreeConfig", "true")
			p.cache = nil
			p.record()
			before := p.cache
			set(p)
			repo := repotest.OpenRepo(p.Fixture)
			_, cache, err := DiskTreeWithStatCache(t.Context(), p.mirror, p.WorktreeSpec, p.Git("rev-parse", "HEAD"), ReadConfigDigest(repo))
			p.Must(err)
			if p.matches() || cache != nil || before == nil {
				t.Errorf("got a stat cache of %d bytes", len(cache))
			}
		})
	}
}

// A stat cache created right after a write must be nil, or must not match after the next write of the same size.
func TestStatCacheDetectsWriteInSameTick(t *testing.T) {
	t.Parallel()
	p := newStatCacheFixture(t)
	name := filepath.Join(p.Dir, "dir", "b.txt")
	for n := range 10 {
		p.Must(os.WriteFile(name, []byte{byte('a' + n%2), '\n'}, 0o644))
		_, cache, err := DiskTreeWithStatCache(t.Context(), p.mirror, p.WorktreeSpec, p.Git("rev-parse", "HEAD"), ReadConfigDigest(p.repo))
		p.Must(err)
		p.Must(os.WriteFile(name, []byte{byte('b' - n%2), '\n'}, 0o644))
		if TreeFromStatCache(p.repo, p.WorktreeSpec, ReadConfigDigest(p.repo), cache) != "" {
			t.Fatalf("round %d: the stat cache still matches", n)
		}
	}
}

// There must be no stat cache if a path has a ctime at or after the beginning of the scan: on many kernels the next write
// gets the same timestamp.
func TestNoStatCacheForFilesAsYoungAsScan(t *testing.T) {
	t.Parallel()
	p := newStatCacheFixture(t)
	for _, name := range []string{"dir/b.txt", "dir", "new", "new/untracked", "new/.gitignore"} {
		_, _, err := stableDiskTree(t.Context(), p.mirror, p.WorktreeSpec, p.Git("rev-parse", "HEAD"), func(g WorktreeContents) {
			if g.scan.startedAt = time.Now().UnixNano(); g.newStatCache(worktreeDigest{}) == nil {
				t.Errorf("%s: no stat cache although all files are older", name)
			}
			at := g.scan.statNow(name).Ctime
			for i := range g.scan.result.stats { // make every other file older
				if g.scan.result.stats[i].Ctime > at {
					g.scan.result.stats[i].Ctime = 0
				}
			}
			if g.scan.startedAt = at; g.newStatCache(worktreeDigest{}) != nil {
				t.Errorf("%s: stat cache of a file as young as the scan", name)
			}
		})
		p.Must(err)
	}
}

// FuzzParseStatCache checks that parseStatCache returns nil for damaged data.
func FuzzParseStatCache(f *testing.F) {
	digest := worktreeDigest{1, 2, 3}
	seen := []pathStat{{".", git.FileStat{Ctime: 1}}}
	for n := range 40 {
		seen = append(seen, pathStat{fmt.Sprintf("dir/sub/%d", n), git.FileStat{Ctime: int64(n), Ino: 4}})
	}
	whole := encodeStatCache(digest, make([]byte, 20), seen)
	l := parseStatCache(whole, digest)
	if l == nil || l.tree != strings.Repeat("0", 40) || !slices.Equal(l.groups, []statGroup{{".", 1}, {"dir/sub", 40}}) {
		f.Fatalf("a valid stat cache is parsed as %+v", l)
	}
	if name, was := l.entry(2); string(name) != "1\x00" || was != (git.FileStat{Ctime: 1, Ino: 4}) {
		f.Errorf("got %s %v", name, was)
	}
	if parseStatCache(whole, worktreeDigest{}) != nil {
		f.Error("a stat cache with another digest was accepted")
	}
	f.Add(whole, -1, byte(0))
	for i := 0; i < len(whole); i += 7 {
		f.Add(whole[:i], -1, byte(0))
		f.Add(whole, i, byte(0x40))
	}
	f.Fuzz(func(t *testing.T, data []byte, at int, flip byte) {
		data = append([]byte(nil), data...)
		if at >= 0 && at < len(data) {
			data[at] ^= flip
		}
		l := parseStatCache(data, digest)
		if l == nil {
			return
		}
		for i := range len(l.nameEnds) / nameEndSize {
			l.entry(i)
		}
		if at >= 0 && at < len(whole) && flip != 0 && len(data) == len(whole) && string(data[:at]) == string(whole[:at]) {
			t.Errorf("byte %d was changed, and the data was accepted", at)
		}
	})
}
