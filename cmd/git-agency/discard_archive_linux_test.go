package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/git-agency/git-agency/gitagency"
)

// archiveCase is a sandbox with contents that git refuses, or that no commit can hold.
type archiveCase struct {
	name    string
	make    func(l *lab, tree string)
	close   func(l *lab, tree string) // takes permissions away, after the contents were listed; may be nil
	archive bool                      // an archive is needed; otherwise the commit alone may hold everything
}

var archiveCases = []archiveCase{
	{name: "ordinary changes", make: func(l *lab, tree string) { l.makeChanges(filepath.Base(filepath.Dir(tree))) }},
	{name: "wrong working-tree-encoding", archive: true, make: func(l *lab, tree string) {
		l.write(filepath.Join(tree, ".gitattributes"), "*.txt working-tree-encoding=UTF-16\n")
		l.write(filepath.Join(tree, "odd.txt"), "odd")
	}},
	{name: "unknown working-tree-encoding", archive: true, make: func(l *lab, tree string) {
		l.write(filepath.Join(tree, ".gitattributes"), "*.txt working-tree-encoding=no-such-encoding\n")
		l.write(filepath.Join(tree, "odd.txt"), "odd")
	}},
	{name: "name with an ignorable character", make: func(l *lab, tree string) { l.write(filepath.Join(tree, ".g\u200cit", "config"), "x\n") }},
	{name: "name that NTFS takes for .git", archive: true, make: func(l *lab, tree string) { l.write(filepath.Join(tree, "dir", "git~1"), "x\n") }},
	{name: "backslash in a name", make: func(l *lab, tree string) { l.write(filepath.Join(tree, `a\..\.git`), "x\n") }},
	{name: "path beyond PATH_MAX", archive: true, make: func(l *lab, tree string) { makeDeepFile(l, tree, 40) }},
	{name: ".gitmodules is a symlink", make: func(l *lab, tree string) { l.symlink("readme", filepath.Join(tree, ".gitmodules")) }},
	{name: "nested repository", archive: true, make: func(l *lab, tree string) { makeNested(l, filepath.Join(tree, "vendor", "lib")) }},
	{name: "nested repository with work around it", archive: true, make: func(l *lab, tree string) {
		l.makeChanges(filepath.Base(filepath.Dir(tree)))
		makeNested(l, filepath.Join(tree, "sub"))
	}},
	{name: "ignored nested repository", archive: true, make: func(l *lab, tree string) {
		l.write(filepath.Join(tree, ".gitignore"), "vendor/\n")
		makeNested(l, filepath.Join(tree, "vendor", "lib"))
	}},
	{name: "names that are not UTF-8, in a nested repository", archive: true, make: func(l *lab, tree string) {
		makeNested(l, filepath.Join(tree, "lib"))
		l.write(filepath.Join(tree, "lib", "\xff\xfe=\n1", strings.Repeat("\xe4", 120)), "x\n")
	}},
	{name: "hard links in a nested repository", archive: true, make: func(l *lab, tree string) {
		makeNested(l, filepath.Join(tree, "lib"))
		l.write(filepath.Join(tree, "lib", "one"), "linked\n")
		l.check(os.Link(filepath.Join(tree, "lib", "one"), filepath.Join(tree, "lib", "two")))
	}},
	{name: "named pipe", archive: true, make: func(l *lab, tree string) { l.fifo(filepath.Join(tree, "pipe")) }},
	{name: "named pipe in place of a tracked file", archive: true, make: func(l *lab, tree string) { l.replaceByFIFO(filepath.Join(tree, "readme")) }},
	{name: ".gitignore is a named pipe", archive: true, make: func(l *lab, tree string) { l.fifo(filepath.Join(tree, ".gitignore")) }},
	{name: ".gitattributes below is a named pipe", archive: true, make: func(l *lab, tree string) { l.fifo(filepath.Join(tree, "sub", ".gitattributes")) }},
	{name: "socket", archive: true, make: func(l *lab, tree string) {
		dir, err := os.Open(tree)
		l.check(err)
		defer dir.Close()
		s, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/socket", dir.Fd())) // a path has at most 108 bytes
		l.check(err)
		s.(*net.UnixListener).SetUnlinkOnClose(false)
		l.check(s.Close())
	}},
	{name: "unreadable directory", make: func(l *lab, tree string) { l.write(filepath.Join(tree, "closed", "deep", "file"), "x\n") }, close: func(l *lab, tree string) {
		l.check(os.Chmod(filepath.Join(tree, "closed", "deep"), 0))
		l.check(os.Chmod(filepath.Join(tree, "closed"), 0))
	}},
	{name: "unreadable file", make: func(l *lab, tree string) { l.write(filepath.Join(tree, "closed"), "x\n") }, close: func(l *lab, tree string) { l.check(os.Chmod(filepath.Join(tree, "closed"), 0)) }},
	{name: "unreadable parts of a nested repository", archive: true, make: func(l *lab, tree string) {
		makeNested(l, filepath.Join(tree, "lib"))
		l.write(filepath.Join(tree, "lib", "closed", "file"), "x\n")
	}, close: func(l *lab, tree string) {
		l.check(os.Chmod(filepath.Join(tree, "lib", "closed", "file"), 0))
		l.check(os.Chmod(filepath.Join(tree, "lib", "closed"), 0o400))
	}},
	{name: "huge sparse file", archive: true, make: func(l *lab, tree string) { makeSparse(l, filepath.Join(tree, "disk.img"), 1<<40) }},
	{name: "huge sparse file in a nested repository", archive: true, make: func(l *lab, tree string) {
		makeNested(l, filepath.Join(tree, "lib"))
		makeSparse(l, filepath.Join(tree, "lib", "disk.img"), 1<<40)
	}},
	{name: "index that is no index", make: func(l *lab, tree string) {
		l.write(filepath.Join(tree, "new"), "x\n")
		l.write(filepath.Join(l.repo, ".git", "worktrees", filepath.Base(filepath.Dir(tree)), "index"), "no index\n")
	}},
	{name: "index that is a directory", make: func(l *lab, tree string) {
		index := filepath.Join(l.repo, ".git", "worktrees", filepath.Base(filepath.Dir(tree)), "index")
		l.check(os.Remove(index))
		l.write(filepath.Join(index, "in", "it"), "x\n")
	}},
	{name: "index that names a missing object", archive: true, make: func(l *lab, tree string) {
		l.git("-C", tree, "update-index", "--add", "--cacheinfo", "100644,"+strings.Repeat("ab", 20)+",lost")
	}},
	{name: "HEAD that is no HEAD", make: func(l *lab, tree string) {
		l.write(filepath.Join(tree, "new"), "x\n")
		l.write(filepath.Join(l.repo, ".git", "worktrees", filepath.Base(filepath.Dir(tree)), "HEAD"), "\x00\xff")
	}},
	{name: ".git is a repository", archive: true, make: func(l *lab, tree string) {
		l.check(os.Remove(filepath.Join(tree, ".git")))
		l.git("init", "-q", tree)
		l.git("-C", tree, "commit", "-q", "--allow-empty", "-m", "precious")
	}},
	{name: ".git is a named pipe", archive: true, make: func(l *lab, tree string) { l.replaceByFIFO(filepath.Join(tree, ".git")) }},
	{name: ".git is a symlink", archive: true, make: func(l *lab, tree string) {
		l.check(os.Remove(filepath.Join(tree, ".git")))
		l.symlink("/nonexistent", filepath.Join(tree, ".git"))
	}},
	{name: ".git leads elsewhere", archive: true, make: func(l *lab, tree string) { l.write(filepath.Join(tree, ".git"), "gitdir: /nonexistent\n") }},
	{name: "files in the directory of a submodule", archive: true, make: func(l *lab, tree string) {
		l.git("-C", tree, "update-index", "--add", "--cacheinfo", "160000,"+l.git("rev-parse", "HEAD")+",module")
		l.git("-C", tree, "commit", "-q", "-m", "a submodule")
		l.write(filepath.Join(tree, "module", "file"), "x\n")
	}},
}

// TestDiscardEndsEverySandbox discards sandboxes with all kinds of contents that git refuses or cannot hold, and
// restores them: discard succeeds, and the same bytes come back.
func TestDiscardEndsEverySandbox(t *testing.T) {
	t.Parallel()
	var names []string
	for _, c := range archiveCases {
		names = append(names, c.name)
	}
	forEachCase(t, names, newSweepLab, func(l *lab, number int, _ func()) {
		t, c := l.t, archiveCases[number]
		id := l.agency("start", "wt")
		tree := l.agency("path", id)
		c.make(l, tree)
		before := l.listTree(tree)
		if c.close != nil {
			c.close(l, tree)
		}
		o := l.try(nil, "git-agency", "discard", id)
		if o.code != 0 {
			t.Fatalf("discard exited with %d: %s", o.code, o.stderr)
		}
		tar := filepath.Join(l.repoData(), "trash", id+".tar")
		if exists(filepath.Dir(tree)) || c.archive && !exists(tar) {
			t.Fatalf("the tree is left (%t), or the archive is missing (%t)\n%s", exists(filepath.Dir(tree)), !exists(tar), o.stderr)
		}
		if exists(tar) != strings.Contains(o.stderr, "kept as an archive: "+tar) {
			t.Errorf("the archive is there (%t): %s", exists(tar), o.stderr)
		}
		thorough := !testing.Short() || number%2 == 0
		if thorough {
			if found := l.findings(); len(found) > 0 {
				t.Errorf("doctor found %+v", found)
			}
		}
		var shown gitagency.Invocation
		l.check(json.Unmarshal([]byte(l.agency("show", "--json", id)), &shown))
		if exists(tar) != (shown.TrashArchive != "") || exists(tar) && shown.TrashArchive != tar {
			t.Errorf("trash_archive is %q", shown.TrashArchive)
		}

		restored := l.agency("restore", id)
		again := l.agency("path", restored)
		if d := dumpDiff(before, l.listTree(again)); d != "" {
			t.Errorf("the restored tree differs:\n%s", d)
		}
		if found := l.findings(); len(found) > 0 {
			t.Errorf("doctor found %+v", found)
		}
		if !thorough {
			return
		}
		// The restored sandbox can be used and ended again.
		l.agency("exec", restored, "--", "true")
		l.agency("discard", restored)
		l.agency("prune", "--expire", "now")
		if exists(tar) || exists(filepath.Join(l.repoData(), "trash", restored+".tar")) {
			t.Error("prune left an archive")
		}
	})
}

// makeNested makes a repository with a commit, a staged and an untracked file.
func makeNested(l *lab, dir string) {
	l.t.Helper()
	l.git("init", "-q", dir)
	l.write(filepath.Join(dir, "committed"), "c\n")
	l.git("-C", dir, "add", ".")
	l.git("-C", dir, "commit", "-q", "-m", "precious")
	l.write(filepath.Join(dir, "staged"), "s\n")
	l.git("-C", dir, "add", ".")
	l.write(filepath.Join(dir, "run"), "#!/bin/sh\n")
	l.check(os.Chmod(filepath.Join(dir, "run"), 0o755))
	l.check(os.MkdirAll(filepath.Join(dir, "empty"), 0o755))
	l.symlink("../../../../../../etc/passwd", filepath.Join(dir, "link"))
}

// makeSparse makes a file with a little data at its beginning, in its middle and at its end.
func makeSparse(l *lab, path string, size int64) {
	l.t.Helper()
	f, err := os.Create(path)
	l.check(err)
	defer f.Close()
	for _, at := range []int64{0, size / 2, size - 5} {
		_, err := f.WriteAt([]byte("data\n"), at)
		if errors.Is(err, syscall.EFBIG) {
			l.t.Skipf("the file system has no files of %d bytes", size)
		}
		l.check(err)
	}
}

// makeDeepFile makes a file whose path is longer than PATH_MAX.
func makeDeepFile(l *lab, tree string, levels int) {
	l.t.Helper()
	at, err := os.OpenRoot(tree)
	l.check(err)
	name := strings.Repeat("d", 200)
	for range levels {
		l.check(at.Mkdir(name, 0o755))
		next, err := at.OpenRoot(name)
		l.check(errors.Join(err, at.Close()))
		at = next
	}
	l.check(errors.Join(at.WriteFile("deep", []byte("deep\n"), 0o644), at.Close()))
}

func (l *lab) fifo(path string) {
	l.t.Helper()
	l.check(syscall.Mkfifo(path, 0o600))
}

func (l *lab) replaceByFIFO(path string) {
	l.t.Helper()
	l.check(os.Remove(path))
	l.fifo(path)
}

func (l *lab) symlink(target, path string) {
	l.t.Helper()
	l.check(os.Symlink(target, path))
}

func (l *lab) check(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// listTree lists the files of a tree with their content, as far as a restore brings them back: without the markers, the
// .git file of the sandbox, sockets and empty directories outside of repositories.
func (l *lab) listTree(tree string) string {
	l.t.Helper()
	root, err := os.OpenRoot(tree)
	l.check(err)
	var lines []string
	l.listDir(root, tree, "", &lines)
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func (l *lab) listDir(root *os.Root, tree, at string, lines *[]string) {
	l.t.Helper()
	defer root.Close()
	d, err := root.Open(".")
	l.check(err)
	names, err := d.ReadDir(-1)
	l.check(errors.Join(err, d.Close()))
	for _, e := range names {
		path := filepath.Join(at, e.Name())
		line := fmt.Sprintf("%q %s", path, e.Type())
		switch {
		case path == ".agency" || path == ".git" && l.isOwnGitFile(root, tree) || e.Type()&fs.ModeSocket != 0:
			continue
		case path == ".git" || path == gitReplacement:
			path = gitReplacement // the restored sandbox has a .git of its own
			line = fmt.Sprintf("%q %s", path, e.Type())
		}
		switch {
		case e.IsDir():
			below, err := root.OpenRoot(e.Name())
			l.check(err)
			l.listDir(below, tree, path, lines)
			continue
		case e.Type()&fs.ModeSymlink != 0:
			to, err := root.Readlink(e.Name())
			l.check(err)
			line += " -> " + to
		case e.Type().IsRegular():
			line += l.describeFile(root, e.Name())
		}
		*lines = append(*lines, line+"\n")
	}
}

// isOwnGitFile reports whether the .git of a tree is the file that git wrote.
func (l *lab) isOwnGitFile(root *os.Root, tree string) bool {
	fi, err := root.Lstat(".git")
	return err == nil && fi.Mode().IsRegular() && l.read(filepath.Join(tree, ".git")) == "gitdir: "+filepath.Join(l.repo, ".git", "worktrees", filepath.Base(filepath.Dir(tree)))+"\n"
}

// gitReplacement is the name of the restored entry that was in the place of the sandbox's .git file.
const gitReplacement = ".git.discarded"

// describeFile returns size, whether it is executable, and a hash of the content of a file; of a huge file only of some
// places.
func (l *lab) describeFile(root *os.Root, name string) string {
	l.t.Helper()
	f, err := root.Open(name)
	l.check(err)
	defer f.Close()
	fi, err := f.Stat()
	l.check(err)
	sum := sha256.New()
	if size := fi.Size(); size > 1<<30 {
		for _, at := range []int64{0, size / 2, size - 4096} {
			_, err = io.Copy(sum, io.NewSectionReader(f, at, 4096))
			l.check(err)
		}
	} else {
		_, err = io.Copy(sum, f)
		l.check(err)
	}
	return fmt.Sprintf(" %d %t %x", fi.Size(), fi.Mode()&0o100 != 0, sum.Sum(nil))
}
