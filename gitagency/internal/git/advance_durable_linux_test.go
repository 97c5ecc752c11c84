package git

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// unwritten reports whether something of a file is only in memory so far: the file system has not even decided where on the
// disk it goes.
func unwritten(t *testing.T, path string) bool {
	t.Helper()
	const (
		ioctl   = 0xc020660b // FS_IOC_FIEMAP
		delayed = 0x4        // FIEMAP_EXTENT_DELALLOC
		extents = 64         // more than a file of a test has
	)
	var ask struct {
		start, length               uint64
		flags, mapped, count, empty uint32
		extents                     [extents]struct {
			logical, physical, length uint64
			_                         [2]uint64
			flags                     uint32
			_                         [3]uint32
		}
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ask.length, ask.count = ^uint64(0), extents
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), ioctl, uintptr(unsafe.Pointer(&ask))); errno != 0 {
		t.Skipf("this file system does not tell what is on the disk: %v", errno)
	}
	if ask.mapped == extents {
		t.Fatalf("%s is in more than %d parts", path, extents)
	}
	for _, e := range ask.extents[:ask.mapped] {
		if e.flags&delayed != 0 {
			return true
		}
	}
	return false
}

// Promise: when the refs move, all that a landing has written for the person is on the disk: files, the new index, the plan
// by which it would be undone, and the objects. How it got there is not asked: the file system says so.
func TestWhatLandsIsOnTheDiskBeforeTheRefsMove(t *testing.T) {
	t.Parallel()
	for _, files := range []int{3, maxLooseObjects + 20} { // a few are written one by one
		l := newLab(t)
		l.write("control", strings.Repeat("control\n", 1000))
		if !unwritten(t, filepath.Join(l.dir, "control")) {
			t.Skip("this file system does not tell what is on the disk")
		}
		l.must(os.Remove(filepath.Join(l.dir, "control")))
		base := l.git("rev-parse", "HEAD")
		content := func(i int) string { return strings.Repeat(fmt.Sprint("file ", i, "\n"), 1000) } // no file system puts it elsewhere
		m := l.merger()
		tree := strings.Split(l.git("ls-tree", "HEAD"), "\n")
		for i := range files {
			made := rawObject{kind: "blob", oid: hashObject(SHA1, "blob", []byte(content(i))), content: []byte(content(i))}
			l.must(m.addObjects(t.Context(), made))
			tree = append(tree, fmt.Sprintf("100644 blob %s\tnew%d", made.hexOID(), i))
		}
		who := Signature{Identity{"A", "a@example.com"}, "1700000000 +0100"}
		commit, err := m.CreateCommit(t.Context(), CommitRequest{Tree: l.tree(tree...), Parents: []string{base}, Author: who, Committer: who, Message: "many"})
		l.must(err)
		k := &keeping{advancer: newAdvancer(l, commit), m: m}
		plans := 0
		l.must(k.run("commit", func() error {
			must := []string{filepath.Join(l.dir, ".git/index"+draftSuffix)}
			for i := range files {
				must = append(must, filepath.Join(l.dir, fmt.Sprint("new", i)))
			}
			found, err := filepath.Glob(filepath.Join(l.dir, ".git/agency", stagingPrefix+"*/plan"))
			plans = len(found)
			must = append(append(must, found...), m.persistedPaths...)
			for _, path := range must {
				if unwritten(t, path) {
					t.Errorf("of %d files: %s is not on the disk", files, path)
				}
			}
			return err
		}))
		if plans != 1 || len(m.persistedPaths) == 0 {
			t.Errorf("%d plans, and %q", plans, m.persistedPaths)
		}
	}
}
