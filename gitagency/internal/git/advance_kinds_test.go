package git

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What git itself would have made of it is what comes of it, whatever is set, and however the index is kept.
func TestAdvanceMakesOfAWorktreeWhatGitWould(t *testing.T) {
	t.Parallel()
	set := func(args ...string) func(*lab) {
		return func(l *lab) { l.git(append([]string{"config"}, args...)...) }
	}
	run := func(args ...string) func(*lab) { return func(l *lab) { l.git(args...) } }
	attributes := func(tree string, l *lab) {
		l.put(tree, "text.txt", "one\ntwo\n")
		l.put(tree, "sub/text.txt", "one\ntwo\n")
		l.put(tree, ".gitattributes", "*.txt eol=crlf\nu16 text working-tree-encoding=UTF-16\n*.id ident\n*.rot filter=rot\n")
		l.put(tree, "sub/.gitattributes", "*.txt eol=lf\n")
		l.put(tree, "x.id", "$Id$\n")
		l.put(tree, "x.rot", "abc\n")
	}
	for _, c := range []struct {
		name  string
		init  []string
		do    func(*lab) // before the change
		set   func(*lab) // after it
		extra func(tree string, l *lab)
	}{
		{name: "an ordinary one"},
		{name: "SHA-256", init: []string{"--object-format=sha256"}},
		{name: "index of version 4", set: run("update-index", "--index-version", "4")},
		{name: "split index", set: run("update-index", "--split-index")},
		{name: "untracked cache", set: run("update-index", "--force-untracked-cache")},
		{name: "sparse, by directories", set: run("sparse-checkout", "set", "--cone", "--skip-checks", "deep", "f2d"), extra: attributes},
		{name: "sparse, with a sparse index", set: run("sparse-checkout", "set", "--cone", "--sparse-index", "deep", "d2f")},
		{name: "sparse, by patterns", set: run("sparse-checkout", "set", "--no-cone", "/*", "!/new/", "!/a.txt", "!/d2f")},
		{name: "no modes", set: set("core.fileMode", "false")},
		{name: "no links", do: set("core.symlinks", "false"), set: func(l *lab) {
			for _, name := range []string{"l2f", "link"} {
				l.must(os.Remove(filepath.Join(l.dir, name)))
			}
			l.git("checkout", "-q", "--", ".")
		}},
		{name: "line ends, for all", set: set("core.autocrlf", "true"), extra: attributes},
		{name: "line ends, for this worktree", set: func(l *lab) {
			l.git("config", "extensions.worktreeConfig", "true")
			l.git("config", "--worktree", "core.autocrlf", "true")
		}, extra: attributes},
		{name: "attributes", extra: attributes},
		{name: "attributes, untracked", set: func(l *lab) {
			l.write("dir/.gitattributes", "*.txt eol=crlf\n")
			l.write(".git/info/exclude", ".gitattributes\n")
		}},
		{name: "attributes that change", do: func(l *lab) { attributes(l.dir, l); l.git("add", "-A"); l.git("commit", "-qm", "attributes") }, extra: func(tree string, l *lab) {
			l.put(tree, ".gitattributes", "u16 text working-tree-encoding=UTF-16LE-BOM\n*.sh eol=crlf\n")
			l.must(os.Remove(filepath.Join(tree, "sub/.gitattributes")))
			l.put(tree, "sub/text.txt", "other\nlines\n")
			l.put(tree, "run3.sh", "other\nlines\n")
		}},
		{name: "a filter of the user's", set: func(l *lab) {
			l.configure("filter.rot.smudge", "tr a-y b-z")
			l.configure("filter.rot.clean", "tr b-z a-y")
		}, extra: attributes},
		{name: "a file that is not to be looked at", set: func(l *lab) {
			l.git("update-index", "--skip-worktree", "a.txt", "del.txt")
			l.must(os.Remove(filepath.Join(l.dir, "a.txt")))
			l.must(os.Remove(filepath.Join(l.dir, "del.txt")))
		}},
		{name: "files that are taken for unchanged", set: run("update-index", "--assume-unchanged", "keep.txt")},
		{name: "an index without a checksum", set: func(l *lab) {
			path := filepath.Join(l.dir, ".git/index")
			data, err := os.ReadFile(path)
			l.must(err)
			l.must(os.WriteFile(path, append(data[:len(data)-20], make([]byte, 20)...), 0o644))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := emptyLab(t)
			l.git(append([]string{"init", "-q", "-b", "main", "."}, c.init...)...)
			l.write("a.txt", "a\n")
			l.write("dir/b.txt", "b\n")
			l.write("stays", "stays\n")
			l.write("run.sh", "#!/bin/sh\n")
			l.must(os.Chmod(filepath.Join(l.dir, "run.sh"), 0o755))
			l.must(os.Symlink("a.txt", filepath.Join(l.dir, "link")))
			if c.do != nil {
				c.do(l)
			}
			to := variedAnd(l, c.extra)
			if c.set != nil {
				c.set(l)
			}
			l.write("stays", "dirty\n")
			// The same, for git to do.
			other := filepath.Join(tempDir(t), "other")
			l.shell("cp -a . " + other)
			l.in(other, "merge", "-q", "--ff-only", to)

			if c.name == "a file that is not to be looked at" {
				l.must(os.Remove(filepath.Join(other, "a.txt"))) // git puts it there, and does not look at it
			}

			ad := newAdvancer(l, to)
			ad.a.Trusted = strings.Contains(c.name, "this worktree")
			l.must(ad.advance())
			files := func(dir string) map[string]string {
				found := map[string]string{}
				for name, what := range states(t, dir) {
					if rel := strings.TrimPrefix(name, dir+"/"); rel != dir && !strings.HasPrefix(rel, ".git/") && rel != ".git" {
						found[rel] = what
					}
				}
				for _, args := range [][]string{{"ls-files", "-s"}, {"ls-files", "-t", "-v"}, {"status", "--porcelain=v2"}, {"diff", "--cached", "--raw"}, {"write-tree"}} {
					found[strings.Join(args, " ")] = l.in(dir, args...)
				}
				return found
			}
			requireSame(t, "what git made of it", files(l.dir), files(other))
			l.git("fsck", "--no-dangling")
			if data, _ := os.ReadFile(filepath.Join(l.dir, ".git/index")); c.name == "index of version 4" && data[7] != 4 {
				t.Errorf("the index has version %d", data[7])
			}
		})
	}
}

// variedAnd is varied, and more.
func variedAnd(l *lab, extra func(tree string, l *lab)) string {
	to := varied(l)
	if extra == nil {
		return to
	}
	tree := filepath.Join(tempDir(l.t), "more")
	l.git("worktree", "add", "-q", "--detach", tree, to)
	extra(tree, l)
	l.shell("cd " + tree + " && printf '\\377\\376a\\0b\\0' >u16") // in the encoding that the worktree has
	l.in(tree, "add", "-A")
	l.in(tree, "commit", "-q", "-m", "more")
	to = l.in(tree, "rev-parse", "HEAD")
	l.git("worktree", "remove", "-f", tree)
	return to
}

func TestAdvanceRunsNothingThatAnAgentCouldHaveWritten(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ran := filepath.Join(tempDir(t), "ran")
	for _, hook := range []string{"post-checkout", "post-merge", "reference-transaction", "post-index-change", "fsmonitor"} {
		l.put(l.dir, ".git/hooks/"+hook, "#!/bin/sh\ntouch "+ran+"\n")
		l.must(os.Chmod(filepath.Join(l.dir, ".git/hooks", hook), 0o755))
	}
	to := l.ahead(func(tree string) {
		l.put(tree, ".gitattributes", "*.x filter=own\n*.y filter=users\n")
		l.put(tree, "f.x", "abc\n")
		l.put(tree, "f.y", "abc\n")
	})
	l.configure("filter.users.smudge", "tr a-y b-z")
	l.configure("filter.users.clean", "tr b-z a-y")
	l.git("config", "core.fsmonitor", filepath.Join(l.dir, ".git/hooks/fsmonitor"))
	l.git("config", "filter.own.smudge", "touch "+ran+"; cat")
	l.git("config", "filter.own.clean", "cat")
	_ = os.Remove(ran)
	ad := newAdvancer(l, to)
	ad.a.Trusted = false
	before := ad.sum()
	var distrusted *UntrustedFilterError
	if _, err := ad.repo.Begin(t.Context(), ad.a); !errors.As(err, &distrusted) || distrusted.Filter != "own" || distrusted.Path != "f.x" {
		t.Errorf("got %v", err)
	}
	requireSame(t, "refused", ad.sum(), before)
	if exists(ran) {
		t.Error("something ran")
	}
	ad.a.Trusted = true
	l.must(ad.advance())
	if !exists(ran) {
		t.Error("the filter of somebody who is trusted did not run")
	}
	l.must(os.Remove(ran))
	if data, _ := os.ReadFile(filepath.Join(l.dir, "f.y")); string(data) != "bcd\n" {
		t.Errorf("what the user's filter made is %q", data)
	}
	if data, _ := os.ReadFile(filepath.Join(l.dir, "f.x")); string(data) != "abc\n" {
		t.Errorf("what the repository's filter made is %q", data)
	}
}

// A filter that fails leaves everything as it is: what git would have written is not what the person would have.
func TestAdvanceStopsWhereAFilterFails(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	to := l.ahead(func(tree string) { l.put(tree, ".gitattributes", "*.x filter=f\n"); l.put(tree, "f.x", "abc\n") })
	l.configure("filter.f.smudge", "./not/there")
	ad := newAdvancer(l, to)
	before := ad.sum()
	if err := ad.advance(); err == nil {
		t.Error("it went well")
	}
	requireSame(t, "failed", ad.sum(), before)
}

func TestAdvanceAndSubmodules(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	one, two := l.git("rev-parse", "HEAD"), strings.Repeat("12", 20)
	link := func(path, oid string) { l.git("update-index", "--add", "--cacheinfo", "160000,"+oid+","+path) }
	for _, path := range []string{"moves", "goes", "full", "tofile", "tofilefull"} {
		link(path, one)
		l.must(os.Mkdir(filepath.Join(l.dir, path), 0o755))
	}
	l.write("frommod", "x\n")
	l.git("add", "frommod")
	l.git("commit", "-q", "-m", "modules")
	for _, path := range []string{"full", "tofilefull", "moves"} {
		l.git("init", "-q", path)
		l.write(path+"/mine", "mine\n")
	}
	index := filepath.Join(tempDir(t), "index")
	env := l.env
	make := func(full bool) string {
		l.env = append(append([]string{}, env...), "GIT_INDEX_FILE="+index)
		defer func() { l.env = env }()
		l.git("read-tree", "HEAD")
		link("moves", two)
		link("comes", two)
		link("frommod", two)
		blob := l.git("rev-parse", "HEAD:a.txt")
		l.git("rm", "-q", "--cached", "goes", "full", "tofile", "tofilefull")
		l.git("update-index", "--add", "--cacheinfo", "100644,"+blob+",tofile")
		if full {
			l.git("update-index", "--add", "--cacheinfo", "100644,"+blob+",tofilefull")
		}
		return l.git("commit-tree", "-p", "HEAD", "-m", "x", l.git("write-tree"))
	}
	ad := newAdvancer(l, make(true))
	before := ad.sum()
	if _, err := ad.repo.Begin(t.Context(), ad.a); over(err) != "tofilefull submodule" {
		t.Errorf("%q, %v", over(err), err)
	}
	requireSame(t, "refused", ad.sum(), before)

	ad.a.New = make(false)
	x, _, err := ad.until("commit")
	if !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	l.must(x.Undo(t.Context()))
	requireSame(t, "undone", ad.sum(), before)
	l.must(ad.advance())
	if got := l.git("rev-parse", "main"); got != ad.a.New {
		t.Errorf("main is at %s", got)
	}
	for path, is := range map[string]fs.FileMode{"comes": fs.ModeDir, "frommod": fs.ModeDir, "tofile": 0, "moves/mine": 0, "full/mine": 0, "tofilefull/mine": 0} {
		if fi, err := os.Lstat(filepath.Join(l.dir, path)); err != nil || fi.Mode().Type() != is {
			t.Errorf("%s: %v, %v", path, fi, err)
		}
	}
	if exists(filepath.Join(l.dir, "goes")) {
		t.Error("an empty one is still there")
	}
	if got := l.git("diff", "--cached", "--name-only"); got != "" {
		t.Errorf("staged: %s", got)
	}
}

func TestAdvanceOfManyFiles(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ad := newAdvancer(l, l.git("rev-parse", "main"))
	var info strings.Builder
	blob := l.git("rev-parse", "main:a.txt")
	for i := range 5000 {
		fmt.Fprintf(&info, "100644 %s\tmany/%d/%d\n", blob, i%50, i)
	}
	l.write("../info", info.String())
	l.write("../more.sh", "export GIT_INDEX_FILE=../many.index; git read-tree main && git update-index --index-info <../info && git commit-tree -p main -m many $(git write-tree) >../many")
	l.shell("sh ../more.sh")
	many, err := os.ReadFile(filepath.Join(l.dir, "../many"))
	l.must(err)
	ad.a.New = strings.TrimSpace(string(many))
	l.must(ad.advance())
	ad.landed("")
	if got := len(states(t, filepath.Join(l.dir, "many"))); got != 5051 {
		t.Errorf("there are %d", got)
	}
}

func TestAdvanceRefusesWhereItMayNotWrite(t *testing.T) {
	t.Parallel()
	if !unprivileged(t) {
		return
	}
	l := newLab(t)
	ad := newAdvancer(l, varied(l))
	for _, dir := range []string{"dir", ".", "d2f/y", ".git"} {
		path := filepath.Join(l.dir, dir)
		l.must(os.Chmod(path, 0o555))
		before := ad.sum()
		err := ad.advance()
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: %v", dir, err)
		}
		requireSame(t, dir, ad.sum(), before)
		l.must(os.Chmod(path, 0o755))
	}
	l.must(ad.advance())
	ad.landed("")
}
