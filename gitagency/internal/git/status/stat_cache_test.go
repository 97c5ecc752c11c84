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

// portrait is a worktree, and what it looks like.
type portrait struct {
	*gittest.Lab
	repo *git.Repo
	git.WorktreeSpec
	mirror   *git.Mirror
	likeness []byte
	tree     string
}

func newPortrait(t *testing.T) *portrait {
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
	p := &portrait{Lab: l, repo: repo, mirror: repotest.NewMirror(l), WorktreeSpec: git.WorktreeSpec{Name: w.Name, Dir: w.Tree, Branch: w.Branch}}
	p.look()
	return p
}

// look draws the likeness, when everything is old enough to have one.
func (p *portrait) look() {
	p.T.Helper()
	p.repo = repotest.OpenRepo(p.Lab) // with the settings of now
	for until := time.Now().Add(gittest.Timeout); p.likeness == nil; {
		var err error
		p.tree, p.likeness, err = WorkTreeWithStatCache(p.T.Context(), p.mirror, p.WorktreeSpec, p.Git("rev-parse", "HEAD"), ReadConfigDigest(p.repo))
		p.Must(err)
		if time.Now().After(until) {
			p.T.Fatal("there is no likeness")
		}
	}
}

// recognised reports whether the worktree is taken for what it was, all of it.
func (p *portrait) recognised() bool {
	p.T.Helper()
	repo := repotest.OpenRepo(p.Lab)
	tree := TreeFromStatCache(repo, p.WorktreeSpec, ReadConfigDigest(repo), p.likeness)
	if tree != "" && tree != p.tree {
		p.T.Fatalf("it is said to be %s, and was %s", tree, p.tree)
	}
	return tree != ""
}

// Whatever anybody does to a worktree, and to what says how it is to be understood, it is not taken for what it was. What is
// of no account is.
func TestAWorktreeIsKnownByItsLikenessUntilSomethingChanges(t *testing.T) {
	t.Parallel()
	p := newPortrait(t)
	in := func(name string) string { return filepath.Join(p.Dir, name) }
	if !p.recognised() {
		t.Fatal("it is not known again")
	}
	p.WriteIn(p.Dir, "out/of", "another way\n")
	p.WriteIn(p.Dir, "out/more", "ignored\n")
	p.WriteIn(p.Dir, "new/x.tmp", "still ignored\n")
	if !p.recognised() {
		t.Error("what is ignored counts")
	}
	for _, c := range []struct {
		what string
		do   func()
	}{
		{"a byte, at the same length and time", func() {
			fi, err := os.Stat(in("dir/b.txt"))
			p.Must(err)
			p.Must(os.WriteFile(in("dir/b.txt"), []byte("B\n"), 0o644))
			p.Must(os.Chtimes(in("dir/b.txt"), fi.ModTime(), fi.ModTime()))
		}},
		{"a file that nobody tracks", func() { p.WriteIn(p.Dir, "new/untracked", "v\n") }},
		{"a file that came", func() { p.WriteIn(p.Dir, "dir/came", "c\n") }},
		{"a file that went", func() { p.Must(os.Remove(in("dir/came"))) }},
		{"a file that came where nobody tracks any", func() { p.WriteIn(p.Dir, "new/deeper/x", "c\n") }},
		{"a program", func() { p.Must(os.Chmod(in("a.txt"), 0o755)) }},
		{"a link", func() { p.Must(os.Remove(in("link"))); p.Must(os.Symlink("run.sh", in("link"))) }},
		{"a directory that is a link now", func() {
			p.Must(os.Rename(in("dir"), filepath.Join(filepath.Dir(p.Dir), "aside")))
			p.Must(os.Symlink("../aside", in("dir")))
		}},
		{"and one again", func() {
			p.Must(os.Remove(in("dir")))
			p.Must(os.Rename(filepath.Join(filepath.Dir(p.Dir), "aside"), in("dir")))
		}},
		{"a repository that is none any more", func() { p.Must(os.Remove(in("nested/.git"))) }},
		{"what is ignored", func() { p.WriteIn(p.Dir, ".gitignore", "*.p\n/out/\nquiet/.gitignore\n") }},
		{"what is ignored, by a file that is ignored", func() { p.WriteIn(p.Dir, "quiet/.gitignore", "# somebody hears\n") }},
		{"what is ignored where nobody tracks anything", func() { p.WriteIn(p.Dir, "new/.gitignore", "*.tnt\n") }},
		{"what is ignored everywhere", func() { p.WriteIn(p.Root, ".git/info/exclude", "*.q\n") }},
		{"what the user ignores", func() { p.WriteIn(filepath.Dir(p.Root), ".config/git/ignore", "*.r\n") }},
		{"how lines end", func() { p.Git("config", "core.autocrlf", "input") }},
		{"that worktrees have settings of their own", func() { p.Git("config", "extensions.worktreeConfig", "true") }},
		{"how lines end there", func() { p.GitIn(p.Dir, "config", "--worktree", "core.autocrlf", "true") }},
		{"how lines end there now", func() { p.GitIn(p.Dir, "config", "--worktree", "core.autocrlf", "input") }},
		{"what is staged", func() { p.GitIn(p.Dir, "add", "a.txt") }},
		{"what counts as a secret", func() { p.SecretPatterns = []string{"*.key"} }},
	} {
		c.do()
		if p.recognised() {
			t.Errorf("%s: it is taken for what it was", c.what)
		}
		p.likeness = nil
		if p.look(); !p.recognised() {
			t.Errorf("%s: it is not known again", c.what)
		}
	}
}

// What is included says how a worktree is to be understood, and only git knows when it is.
func TestThereIsNoLikenessWhereWorktreesIncludeWhatOthersDoNot(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(p *portrait){
		"by their branch":    func(p *portrait) { p.Git("config", "includeIf.onbranch:agency/**.path", "more") },
		"by a file":          func(p *portrait) { p.GitIn(p.Dir, "config", "--worktree", "include.path", "more") },
		"rules, and no file": func(p *portrait) { p.GitIn(p.Dir, "config", "--worktree", "core.excludesFile", "/nowhere") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPortrait(t)
			p.Git("config", "extensions.worktreeConfig", "true")
			p.likeness = nil
			p.look()
			before := p.likeness
			set(p)
			repo := repotest.OpenRepo(p.Lab)
			_, likeness, err := WorkTreeWithStatCache(t.Context(), p.mirror, p.WorktreeSpec, p.Git("rev-parse", "HEAD"), ReadConfigDigest(repo))
			p.Must(err)
			if p.recognised() || likeness != nil || before == nil {
				t.Errorf("it has one of %d bytes", len(likeness))
			}
		})
	}
}

// A worktree that was written to a moment ago has no likeness, or one by which the next moment is told from it.
func TestALikenessIsNeverTooYoungToTell(t *testing.T) {
	t.Parallel()
	p := newPortrait(t)
	name := filepath.Join(p.Dir, "dir", "b.txt")
	for n := range 10 {
		p.Must(os.WriteFile(name, []byte{byte('a' + n%2), '\n'}, 0o644))
		_, likeness, err := WorkTreeWithStatCache(t.Context(), p.mirror, p.WorktreeSpec, p.Git("rev-parse", "HEAD"), ReadConfigDigest(p.repo))
		p.Must(err)
		p.Must(os.WriteFile(name, []byte{byte('b' - n%2), '\n'}, 0o644))
		if TreeFromStatCache(p.repo, p.WorktreeSpec, ReadConfigDigest(p.repo), likeness) != "" {
			t.Fatalf("round %d: it is taken for what it was", n)
		}
	}
}

// Nor has one in which anything was written when the look began or since: on many a kernel the next write has the same time.
func TestWhatIsAsYoungAsTheLookHasNoLikeness(t *testing.T) {
	t.Parallel()
	p := newPortrait(t)
	for _, name := range []string{"dir/b.txt", "dir", "new", "new/untracked", "new/.gitignore"} {
		_, _, err := stableDiskTree(t.Context(), p.mirror, p.WorktreeSpec, p.Git("rev-parse", "HEAD"), func(g WorktreeContents) {
			if g.scan.startedAt = time.Now().UnixNano(); g.newStatCache(worktreeDigest{}) == nil {
				t.Errorf("%s: there is none of what is old", name)
			}
			at := g.scan.statNow(name).Ctime
			for i := range g.scan.result.stats { // as if nothing else were younger
				if g.scan.result.stats[i].Ctime > at {
					g.scan.result.stats[i].Ctime = 0
				}
			}
			if g.scan.startedAt = at; g.newStatCache(worktreeDigest{}) != nil {
				t.Errorf("%s: it is as young as the look", name)
			}
		})
		p.Must(err)
	}
}

// Whatever lies where a likeness should, it is that or nothing.
func FuzzParseLikeness(f *testing.F) {
	ground := worktreeDigest{1, 2, 3}
	seen := []pathStat{{".", git.FileStat{Ctime: 1}}}
	for n := range 40 {
		seen = append(seen, pathStat{fmt.Sprintf("dir/sub/%d", n), git.FileStat{Ctime: int64(n), Ino: 4}})
	}
	whole := encodeStatCache(ground, make([]byte, 20), seen)
	l := parseStatCache(whole, ground)
	if l == nil || l.tree != strings.Repeat("0", 40) || !slices.Equal(l.groups, []statGroup{{".", 1}, {"dir/sub", 40}}) {
		f.Fatalf("a whole one is read as %+v", l)
	}
	if name, was := l.entry(2); string(name) != "1\x00" || was != (git.FileStat{Ctime: 1, Ino: 4}) {
		f.Errorf("got %s %v", name, was)
	}
	if parseStatCache(whole, worktreeDigest{}) != nil {
		f.Error("one on other ground is read")
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
		l := parseStatCache(data, ground)
		if l == nil {
			return
		}
		for i := range len(l.nameEnds) / nameEndSize {
			l.entry(i)
		}
		if at >= 0 && at < len(whole) && flip != 0 && len(data) == len(whole) && string(data[:at]) == string(whole[:at]) {
			t.Errorf("byte %d is another, and nobody noticed", at)
		}
	})
}
