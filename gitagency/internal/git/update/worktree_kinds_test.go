package update

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
)

// An update leaves the same files and index as git merge --ff-only, for every config and index format.
func TestUpdateMatchesGitMerge(t *testing.T) {
	t.Parallel()
	set := func(args ...string) func(*gittest.Fixture) {
		return func(l *gittest.Fixture) { l.Git(append([]string{"config"}, args...)...) }
	}
	run := func(args ...string) func(*gittest.Fixture) { return func(l *gittest.Fixture) { l.Git(args...) } }
	attributes := func(tree string, l *gittest.Fixture) {
		l.WriteIn(tree, "text.txt", "one\ntwo\n")
		l.WriteIn(tree, "sub/text.txt", "one\ntwo\n")
		l.WriteIn(tree, ".gitattributes", "*.txt eol=crlf\nu16 text working-tree-encoding=UTF-16\n*.id ident\n*.rot filter=rot\n")
		l.WriteIn(tree, "sub/.gitattributes", "*.txt eol=lf\n")
		l.WriteIn(tree, "x.id", "$Id$\n")
		l.WriteIn(tree, "x.rot", "abc\n")
	}
	for i, c := range []struct {
		name  string
		init  []string
		do    func(*gittest.Fixture) // before the new commit is made
		set   func(*gittest.Fixture) // after it was made
		extra func(tree string, l *gittest.Fixture)
	}{
		{name: "plain"},
		{name: "SHA-256", init: []string{"--object-format=sha256"}},
		{name: "index of version 4", set: run("update-index", "--index-version", "4")},
		{name: "split index", set: run("update-index", "--split-index")},
		{name: "untracked cache", set: run("update-index", "--force-untracked-cache")},
		{name: "sparse checkout, cone mode", set: run("sparse-checkout", "set", "--cone", "--skip-checks", "deep", "f2d"), extra: attributes},
		{name: "sparse checkout, sparse index", set: run("sparse-checkout", "set", "--cone", "--sparse-index", "deep", "d2f")},
		{name: "sparse checkout, no-cone mode", set: run("sparse-checkout", "set", "--no-cone", "/*", "!/new/", "!/a.txt", "!/d2f")},
		{name: "core.fileMode=false", set: set("core.fileMode", "false")},
		{name: "core.symlinks=false", do: set("core.symlinks", "false"), set: func(l *gittest.Fixture) {
			for _, name := range []string{"l2f", "link"} {
				l.Must(os.Remove(filepath.Join(l.Root, name)))
			}
			l.Git("checkout", "-q", "--", ".")
		}},
		{name: "core.autocrlf", set: set("core.autocrlf", "true"), extra: attributes},
		{name: "core.autocrlf of this worktree", set: func(l *gittest.Fixture) {
			l.Git("config", "extensions.worktreeConfig", "true")
			l.Git("config", "--worktree", "core.autocrlf", "true")
		}, extra: attributes},
		{name: "attributes", extra: attributes},
		{name: "untracked attributes", set: func(l *gittest.Fixture) {
			l.Write("dir/.gitattributes", "*.txt eol=crlf\n")
			l.Write(".git/info/exclude", ".gitattributes\n")
		}},
		{name: "changed attributes", do: func(l *gittest.Fixture) {
			attributes(l.Root, l)
			l.Git("add", "-A")
			l.Git("commit", "-qm", "attributes")
		}, extra: func(tree string, l *gittest.Fixture) {
			l.WriteIn(tree, ".gitattributes", "u16 text working-tree-encoding=UTF-16LE-BOM\n*.sh eol=crlf\n")
			l.Must(os.Remove(filepath.Join(tree, "sub/.gitattributes")))
			l.WriteIn(tree, "sub/text.txt", "other\nlines\n")
			l.WriteIn(tree, "run3.sh", "other\nlines\n")
		}},
		{name: "filter of the user", set: func(l *gittest.Fixture) {
			l.ConfigureGlobal("filter.rot.smudge", "tr a-y b-z")
			l.ConfigureGlobal("filter.rot.clean", "tr b-z a-y")
		}, extra: attributes},
		{name: "skip-worktree files", set: func(l *gittest.Fixture) {
			l.Git("update-index", "--skip-worktree", "a.txt", "del.txt")
			l.Must(os.Remove(filepath.Join(l.Root, "a.txt")))
			l.Must(os.Remove(filepath.Join(l.Root, "del.txt")))
		}},
		{name: "assume-unchanged file", set: run("update-index", "--assume-unchanged", "keep.txt")},
		{name: "index without checksum", set: func(l *gittest.Fixture) {
			path := filepath.Join(l.Root, ".git/index")
			data, err := os.ReadFile(path)
			l.Must(err)
			l.Must(os.WriteFile(path, append(data[:len(data)-20], make([]byte, 20)...), 0o644))
		}},
	} {
		if testing.Short() && i%3 == 2 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := gittest.NewEmpty(t)
			l.Git(append([]string{"init", "-q", "-b", "main", "."}, c.init...)...)
			l.Write("a.txt", "a\n")
			l.Write("dir/b.txt", "b\n")
			l.Write("stays", "stays\n")
			l.Write("run.sh", "#!/bin/sh\n")
			l.Must(os.Chmod(filepath.Join(l.Root, "run.sh"), 0o755))
			l.Must(os.Symlink("a.txt", filepath.Join(l.Root, "link")))
			if c.do != nil {
				c.do(l)
			}
			to := makeVariedCommitWith(l, c.extra)
			if c.set != nil {
				c.set(l)
			}
			l.Write("stays", "dirty\n")
			// A copy of the repository, in which git does the same.
			other := filepath.Join(gittest.TempDir(t), "other")
			l.Shell("cp -a . " + other)
			l.GitIn(other, "merge", "-q", "--ff-only", to)

			if c.name == "skip-worktree files" {
				l.Must(os.Remove(filepath.Join(other, "a.txt"))) // git merge writes it in spite of skip-worktree
			}

			lab := newUpdateLab(l, to)
			lab.spec.Trusted = strings.Contains(c.name, "this worktree")
			l.Must(lab.runAll())
			files := func(dir string) map[string]string {
				found := map[string]string{}
				for name, what := range gittest.DiskState(t, dir) {
					if rel := strings.TrimPrefix(name, dir+"/"); rel != dir && !strings.HasPrefix(rel, ".git/") && rel != ".git" {
						found[rel] = what
					}
				}
				for _, args := range [][]string{{"ls-files", "-s"}, {"ls-files", "-t", "-v"}, {"status", "--porcelain=v2"}, {"diff", "--cached", "--raw"}, {"write-tree"}} {
					found[strings.Join(args, " ")] = l.GitIn(dir, args...)
				}
				return found
			}
			gittest.RequireSame(t, "compared with git merge", files(l.Root), files(other))
			l.Git("fsck", "--no-dangling")
			if data, _ := os.ReadFile(filepath.Join(l.Root, ".git/index")); c.name == "index of version 4" && data[7] != 4 {
				t.Errorf("the index has version %d", data[7])
			}
		})
	}
}

// makeVariedCommitWith makes a commit on top of makeVariedCommit, with further changes.
func makeVariedCommitWith(l *gittest.Fixture, extra func(tree string, l *gittest.Fixture)) string {
	to := makeVariedCommit(l)
	if extra == nil {
		return to
	}
	tree := filepath.Join(gittest.TempDir(l.T), "more")
	l.Git("worktree", "add", "-q", "--detach", tree, to)
	extra(tree, l)
	l.Shell("cd " + tree + " && printf '\\377\\376a\\0b\\0' >u16") // in the working-tree-encoding
	l.GitIn(tree, "add", "-A")
	l.GitIn(tree, "commit", "-q", "-m", "more")
	to = l.GitIn(tree, "rev-parse", "HEAD")
	l.Git("worktree", "remove", "-f", tree)
	return to
}

// An update runs no hooks and no fsmonitor, and a filter of the repository's config only if that is trusted.
func TestUpdateRunsNoHooksOrUntrustedFilters(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	ran := filepath.Join(gittest.TempDir(t), "ran")
	for _, hook := range []string{"post-checkout", "post-merge", "reference-transaction", "post-index-change", "fsmonitor"} {
		l.WriteIn(l.Root, ".git/hooks/"+hook, "#!/bin/sh\ntouch "+ran+"\n")
		l.Must(os.Chmod(filepath.Join(l.Root, ".git/hooks", hook), 0o755))
	}
	to := commitOnMain(l, func(tree string) {
		l.WriteIn(tree, ".gitattributes", "*.x filter=own\n*.y filter=users\n")
		l.WriteIn(tree, "f.x", "abc\n")
		l.WriteIn(tree, "f.y", "abc\n")
	})
	l.ConfigureGlobal("filter.users.smudge", "tr a-y b-z")
	l.ConfigureGlobal("filter.users.clean", "tr b-z a-y")
	l.Git("config", "core.fsmonitor", filepath.Join(l.Root, ".git/hooks/fsmonitor"))
	l.Git("config", "filter.own.smudge", "touch "+ran+"; cat")
	l.Git("config", "filter.own.clean", "cat")
	_ = os.Remove(ran)
	lab := newUpdateLab(l, to)
	lab.spec.Trusted = false
	before := lab.diskState()
	var untrusted *git.UntrustedFilterError
	if _, err := Begin(t.Context(), lab.repo, lab.spec); !errors.As(err, &untrusted) || untrusted.Filter != "own" || untrusted.Path != "f.x" {
		t.Errorf("got %v", err)
	}
	gittest.RequireSame(t, "refused", lab.diskState(), before)
	if gittest.Exists(ran) {
		t.Error("a hook or a filter ran")
	}
	lab.spec.Trusted = true
	l.Must(lab.runAll())
	if !gittest.Exists(ran) {
		t.Error("the filter of the trusted config did not run")
	}
	l.Must(os.Remove(ran))
	if data, _ := os.ReadFile(filepath.Join(l.Root, "f.y")); string(data) != "bcd\n" {
		t.Errorf("the user's filter wrote %q", data)
	}
	if data, _ := os.ReadFile(filepath.Join(l.Root, "f.x")); string(data) != "abc\n" {
		t.Errorf("the repository's filter wrote %q", data)
	}
}

// An update stops when a filter fails, and changes nothing: git would write the unfiltered content.
func TestUpdateStopsWhenFilterFails(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	to := commitOnMain(l, func(tree string) {
		l.WriteIn(tree, ".gitattributes", "*.x filter=f\n")
		l.WriteIn(tree, "f.x", "abc\n")
	})
	l.ConfigureGlobal("filter.f.smudge", "./not/there")
	lab := newUpdateLab(l, to)
	before := lab.diskState()
	if err := lab.runAll(); err == nil {
		t.Error("the update succeeded")
	}
	gittest.RequireSame(t, "failed", lab.diskState(), before)
}

func TestUpdateOfSubmodules(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	one, two := l.Git("rev-parse", "HEAD"), strings.Repeat("12", 20)
	link := func(path, oid string) { l.Git("update-index", "--add", "--cacheinfo", "160000,"+oid+","+path) }
	for _, path := range []string{"moves", "goes", "full", "tofile", "tofilefull"} {
		link(path, one)
		l.Must(os.Mkdir(filepath.Join(l.Root, path), 0o755))
	}
	l.Write("frommod", "x\n")
	l.Git("add", "frommod")
	l.Git("commit", "-q", "-m", "modules")
	for _, path := range []string{"full", "tofilefull", "moves"} {
		l.Git("init", "-q", path)
		l.Write(path+"/mine", "mine\n")
	}
	index := filepath.Join(gittest.TempDir(t), "index")
	env := l.Env
	makeCommit := func(full bool) string {
		l.Env = append(append([]string{}, env...), "GIT_INDEX_FILE="+index)
		defer func() { l.Env = env }()
		l.Git("read-tree", "HEAD")
		link("moves", two)
		link("comes", two)
		link("frommod", two)
		blob := l.Git("rev-parse", "HEAD:a.txt")
		l.Git("rm", "-q", "--cached", "goes", "full", "tofile", "tofilefull")
		l.Git("update-index", "--add", "--cacheinfo", "100644,"+blob+",tofile")
		if full {
			l.Git("update-index", "--add", "--cacheinfo", "100644,"+blob+",tofilefull")
		}
		return l.Git("commit-tree", "-p", "HEAD", "-m", "x", l.Git("write-tree"))
	}
	lab := newUpdateLab(l, makeCommit(true))
	before := lab.diskState()
	if _, err := Begin(t.Context(), lab.repo, lab.spec); describeOverlaps(err) != "tofilefull submodule" {
		t.Errorf("%q, %v", describeOverlaps(err), err)
	}
	gittest.RequireSame(t, "refused", lab.diskState(), before)

	lab.spec.New = makeCommit(false)
	tx, _, err := lab.runUntil("commit")
	if !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	l.Must(tx.Undo(t.Context()))
	gittest.RequireSame(t, "undone", lab.diskState(), before)
	l.Must(lab.runAll())
	if got := l.Git("rev-parse", "main"); got != lab.spec.New {
		t.Errorf("main is at %s", got)
	}
	for path, is := range map[string]fs.FileMode{"comes": fs.ModeDir, "frommod": fs.ModeDir, "tofile": 0, "moves/mine": 0, "full/mine": 0, "tofilefull/mine": 0} {
		if fi, err := os.Lstat(filepath.Join(l.Root, path)); err != nil || fi.Mode().Type() != is {
			t.Errorf("%s: %v, %v", path, fi, err)
		}
	}
	if gittest.Exists(filepath.Join(l.Root, "goes")) {
		t.Error("the empty directory of a removed submodule still exists")
	}
	if got := l.Git("diff", "--cached", "--name-only"); got != "" {
		t.Errorf("staged: %s", got)
	}
}

func TestUpdateOfManyFiles(t *testing.T) {
	t.Parallel()
	l := gittest.New(t)
	lab := newUpdateLab(l, l.Git("rev-parse", "main"))
	var info strings.Builder
	blob := l.Git("rev-parse", "main:a.txt")
	for i := range 2000 {
		fmt.Fprintf(&info, "100644 %s\tmany/%d/%d\n", blob, i%50, i)
	}
	l.Write("../info", info.String())
	l.Write("../more.sh", "export GIT_INDEX_FILE=../many.index; git read-tree main && git update-index --index-info <../info && git commit-tree -p main -m many $(git write-tree) >../many")
	l.Shell("sh ../more.sh")
	many, err := os.ReadFile(filepath.Join(l.Root, "../many"))
	l.Must(err)
	lab.spec.New = strings.TrimSpace(string(many))
	l.Must(lab.runAll())
	lab.requireLanded("")
	if got := len(gittest.DiskState(t, filepath.Join(l.Root, "many"))); got != 2051 {
		t.Errorf("found %d files and directories, want 2051", got)
	}
}

func TestUpdateRefusesWithoutWritePermission(t *testing.T) {
	t.Parallel()
	if !gittest.Unprivileged(t) {
		return
	}
	l := gittest.New(t)
	lab := newUpdateLab(l, makeVariedCommit(l))
	for _, dir := range []string{"dir", ".", "d2f/y", ".git"} {
		path := filepath.Join(l.Root, dir)
		l.Must(os.Chmod(path, 0o555))
		before := lab.diskState()
		err := lab.runAll()
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: %v", dir, err)
		}
		gittest.RequireSame(t, dir, lab.diskState(), before)
		l.Must(os.Chmod(path, 0o755))
	}
	l.Must(lab.runAll())
	lab.requireLanded("")
}
