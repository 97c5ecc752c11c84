package status

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"golang.org/x/sys/unix"
)

// newLayeredRepo creates a repository with directories, a symlink, an executable, a submodule that is not checked out and
// ignored files, and a branch called other with a different commit.
func newLayeredRepo(t *testing.T) *gittest.Fixture {
	t.Helper()
	l := gittest.New(t)
	for _, dir := range []string{"", "d0/", "d0/deep/", "d1/", "d1/x/y/", "d2/"} {
		for n := range 3 {
			l.Write(fmt.Sprintf("%sf%d", dir, n), fmt.Sprintf("%s %d\n", dir, n))
		}
	}
	l.Write(".gitignore", "*.o\n/out/\n")
	l.Write("d1/.gitignore", "!keep.o\n")
	l.Write("d0.txt", "sorts between d0 and d0/\n")
	l.Git("add", "-A")
	l.Git("update-index", "--add", "--cacheinfo", "160000,"+l.Git("rev-parse", "HEAD")+",sub")
	l.Git("commit", "-q", "-m", "second")
	l.Git("checkout", "-q", "-b", "other")
	l.Git("rm", "-q", "-r", "d1/x", "d0.txt", "f2")
	l.Write("d1/x", "file in place of a directory\n")
	l.Write("f2/new", "directory in place of a file\n")
	l.Write("d0/f0", "changed\n")
	l.Write("d3/new", "new\n")
	l.Git("add", "-A")
	l.Git("commit", "-q", "-m", "other")
	l.Git("checkout", "-q", "main")
	return l
}

// What the layers contain must be what git finds where they are mounted, whatever programs do there.
func TestOverlayScanAgreesWithGit(t *testing.T) {
	t.Parallel()
	if !inMountNamespace(t) {
		return
	}
	seeds, rounds := 2, 10
	if !testing.Short() {
		seeds, rounds = 20, 30
	}
	for seed := range seeds {
		for lowers := 1; lowers <= 2; lowers++ {
			t.Run(fmt.Sprintf("seed-%d-lowers-%d", seed, lowers), func(t *testing.T) {
				o := newOverlayWorktree(newLayeredRepo(t))
				if lowers == 2 {
					o.addLower("other")
				}
				o.mount()
				o.compare("nothing changed")
				p := &programs{overlayWorktree: o, Rand: rand.New(rand.NewPCG(uint64(seed), uint64(lowers)))}
				for round := range rounds {
					var done []string
					for range 1 + p.IntN(5) {
						done = append(done, p.change())
					}
					o.compare(fmt.Sprintf("round %d: %s", round, strings.Join(done, "; ")))
				}
			})
		}
	}
}

// programs change files at random in a mounted overlay.
type programs struct {
	*overlayWorktree
	*rand.Rand
	count int
}

// paths lists the files or directories of the worktree, without FIFOs and the submodule.
func (p *programs) paths(dirs bool) (names []string) {
	_ = filepath.WalkDir(p.w.Tree, func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(p.w.Tree, path)
		switch {
		case err != nil || name == ".":
		case name == ".git" || name == "sub":
			if e.IsDir() {
				return fs.SkipDir
			}
		case e.IsDir() == dirs && e.Type()&fs.ModeNamedPipe == 0:
			names = append(names, name)
		}
		return nil
	})
	return names
}

func (p *programs) pick(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return names[p.IntN(len(names))]
}

func (p *programs) file() string { return p.pick(p.paths(false)) }
func (p *programs) dir() string  { return p.pick(p.paths(true)) }

// newName returns the path of a new file in some directory; some are ignored, some sort before the names below a directory.
func (p *programs) newName() string {
	p.count++
	return filepath.Join(p.pick(append(p.paths(true), ".", "out")), p.pick([]string{"n", "n.o", "keep.o", "d0-", "x."})+p.pick([]string{"", fmt.Sprint(p.count)}))
}

// change makes one change and returns a description. Errors do not matter: then nothing, or less, has changed.
func (p *programs) change() string {
	at := func(name string) string { return filepath.Join(p.w.Tree, name) }
	write := func(name string, flags int) {
		_ = os.MkdirAll(filepath.Dir(at(name)), 0o755)
		if f, err := os.OpenFile(at(name), os.O_WRONLY|os.O_CREATE|flags, 0o644); err == nil {
			_, _ = fmt.Fprintf(f, "%d\n", p.IntN(10))
			_ = f.Close()
		}
	}
	git := func(args ...string) { _, _ = p.TryGit(p.w.Tree, args...) }
	outside := filepath.Join(p.Root, "d0") // with files of the same names; not in a loop, which git does not report
	file, dir, name := p.file(), p.dir(), p.newName()
	changes := []struct {
		what string
		do   func()
	}{
		{"write " + file, func() { write(file, os.O_TRUNC) }},
		{"append " + file, func() { write(file, os.O_APPEND) }},
		{"create " + name, func() { write(name, os.O_EXCL) }},
		{"chmod +x " + file, func() { _ = os.Chmod(at(file), 0o755) }},
		{"chmod -x " + file, func() { _ = os.Chmod(at(file), 0o644) }},
		{"touch " + file, func() { _ = os.Chtimes(at(file), time.Unix(1, 0), time.Unix(int64(p.IntN(3)), 0)) }},
		{"rm " + file, func() { _ = os.Remove(at(file)) }},
		{"rm -rf " + dir, func() { _ = os.RemoveAll(at(dir)) }},
		{"recreate " + dir, func() {
			_ = os.RemoveAll(at(dir))
			write(dir+"/f0", os.O_TRUNC)
			write(dir+"/f9", os.O_TRUNC)
		}},
		{"mkdir " + name, func() { _ = os.MkdirAll(at(name), 0o755) }},
		{"mv " + file + " " + name, func() { _ = os.Rename(at(file), at(name)) }},
		{"mv " + file + " over another", func() { _ = os.Rename(at(file), at(p.file())) }},
		{"mv " + dir + " " + name, func() {
			if !strings.HasPrefix(name, dir+"/") && os.CopyFS(at(name), os.DirFS(at(dir))) == nil {
				_ = os.RemoveAll(at(dir))
			}
		}},
		{"rename directory " + dir + " " + name, func() { _ = os.Rename(at(dir), at(name)) }}, // of a new directory
		{"file in place of " + dir, func() { _ = os.RemoveAll(at(dir)); write(dir, os.O_TRUNC) }},
		{"directory in place of " + file, func() { _ = os.Remove(at(file)); write(file+"/f0", os.O_TRUNC) }},
		{"symlink in place of " + file, func() { _ = os.Remove(at(file)); _ = os.Symlink(outside, at(file)) }},
		{"symlink in place of " + dir, func() { _ = os.RemoveAll(at(dir)); _ = os.Symlink(outside, at(dir)) }},
		{"ln " + file + " " + name, func() { _ = os.Link(at(file), at(name)) }},
		{"mkfifo " + name, func() { _ = unix.Mkfifo(at(name+".fifo"), 0o644) }},
		{"write sub/x", func() { write("sub/x", os.O_TRUNC) }},
		{"rm -rf sub", func() { _ = os.RemoveAll(at("sub")) }},
		{"git add " + file, func() { git("add", "--", file) }},
		{"git add -A", func() { git("add", "-A") }},
		{"git add -N .", func() { git("add", "-N", ".") }},
		{"git rm --cached " + file, func() { git("rm", "-q", "--cached", "--", file) }},
		{"git rm -r --cached " + dir, func() { git("rm", "-q", "-r", "--cached", "--", dir) }},
		{"git rm -r " + dir, func() { git("rm", "-q", "-r", "-f", "--", dir) }},
		{"git mv " + file + " " + name, func() { git("mv", "--", file, name) }},
		{"git checkout other", func() { git("checkout", "-q", "-f", "--detach", "other") }},
		{"git checkout main", func() { git("checkout", "-q", "--detach", "main") }},
		{"git reset --hard", func() { git("reset", "-q", "--hard") }},
		{"git reset", func() { git("reset", "-q") }},
		{"git read-tree other", func() { git("read-tree", "other") }},
		{"git clean", func() { git("clean", "-q", "-fdx") }},
		{"git update-index --refresh", func() { git("update-index", "-q", "--refresh") }},
	}
	c := changes[p.IntN(len(changes))]
	c.do()
	return c.what
}

// The scan of an unchanged overlay must look at no lower file: it is right even if these are gone.
func TestOverlayScanLooksAtNoUnchangedFile(t *testing.T) {
	t.Parallel()
	o := newOverlayWorktree(newLayeredRepo(t))
	tree := o.Git("rev-parse", "main^{tree}")
	o.Must(os.Rename(o.layer.Lowers[0], o.layer.Lowers[0]+".moved"))
	o.Must(os.Mkdir(o.layer.Lowers[0], 0o755))
	o.Must(os.MkdirAll(o.layer.Upper+"/d1/x", 0o755)) // as after a chmod
	if got, g := o.collect(t.Context(), o.spec()); got != tree || len(g.LeftOut) > 0 {
		t.Errorf("the tree is %s without %v, want %s", got, g.LeftOut, tree)
	}
	count, err := CountChanges(t.Context(), o.repo, o.spec(), CountRequest{Head: o.headOfEntry(), HeadTree: tree})
	if o.Must(err); count != 0 {
		t.Errorf("%d changes", count)
	}
}

// A file that was copied to the upper directory and staged is recognised by the inode number that overlayfs shows.
func TestOverlayScanRecognisesStagedCopies(t *testing.T) {
	t.Parallel()
	if !inMountNamespace(t) {
		return
	}
	o := newOverlayWorktree(newLayeredRepo(t))
	o.mount()
	f, err := os.OpenFile(filepath.Join(o.w.Tree, "d0/f0"), os.O_WRONLY|os.O_APPEND, 0)
	o.Must(err)
	_, err = f.WriteString("more\n")
	o.Must(errors.Join(err, f.Close(), os.Chtimes(f.Name(), time.Unix(1, 0), time.Unix(1, 0)))) // older than the index
	o.GitIn(o.w.Tree, "add", "d0/f0")
	_, g := o.collect(t.Context(), o.spec())
	if slices.Contains(g.scan.result.statuses, entryModified) {
		t.Error("the file would be read")
	}
}

// A second scan finds every change after the first.
func TestOverlayRecheckFindsChanges(t *testing.T) {
	t.Parallel()
	if !inMountNamespace(t) {
		return
	}
	for name, change := range map[string]func(o *overlayWorktree) error{
		"new file":                func(o *overlayWorktree) error { return os.WriteFile(o.w.Tree+"/new", nil, 0o644) },
		"changed lower file":      func(o *overlayWorktree) error { return os.WriteFile(o.w.Tree+"/d1/x/y/f0", nil, 0o644) },
		"removed lower file":      func(o *overlayWorktree) error { return os.Remove(o.w.Tree + "/d1/x/y/f0") },
		"removed lower directory": func(o *overlayWorktree) error { return os.RemoveAll(o.w.Tree + "/d1/x") },
		"changed upper file":      func(o *overlayWorktree) error { return os.WriteFile(o.w.Tree+"/d0/f0", []byte("again\n"), 0o644) },
		"removed upper directory": func(o *overlayWorktree) error { return os.RemoveAll(o.w.Tree + "/d0") },
		"untracked file":          func(o *overlayWorktree) error { return os.WriteFile(o.w.Tree+"/d2/f1", []byte("again\n"), 0o644) },
		"file in an untracked directory": func(o *overlayWorktree) error {
			return os.WriteFile(o.w.Tree+"/d2/deep/er", nil, 0o644)
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			o := newOverlayWorktree(newLayeredRepo(t))
			o.mount()
			o.WriteIn(o.w.Tree, "d0/f0", "changed\n")
			o.GitIn(o.w.Tree, "rm", "-q", "-r", "--cached", "d2")
			o.WriteIn(o.w.Tree, "d2/deep/x", "x\n")
			g := o.collectQuietly(o.spec())
			o.Must(change(o))
			if err := g.CheckStable(t.Context()); !errors.As(err, new(*StillChangingError)) {
				t.Errorf("after the change: %v", err)
			}
		})
	}
}
