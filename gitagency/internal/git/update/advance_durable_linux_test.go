package update

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/gittest"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
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
	for _, files := range []int{3, git.MaxLooseObjects + 20} { // a few are written one by one
		l := gittest.New(t)
		l.Write("control", strings.Repeat("control\n", 1000))
		if !unwritten(t, filepath.Join(l.Root, "control")) {
			t.Skip("this file system does not tell what is on the disk")
		}
		l.Must(os.Remove(filepath.Join(l.Root, "control")))
		base := l.Git("rev-parse", "HEAD")
		content := func(i int) string { return strings.Repeat(fmt.Sprint("file ", i, "\n"), 1000) } // no file system puts it elsewhere
		m := openMerger(l)
		tree := strings.Split(l.Git("ls-tree", "HEAD"), "\n")
		for i := range files {
			made := object.Raw{Kind: "blob", Oid: object.HashObject(object.SHA1, "blob", []byte(content(i))), Content: []byte(content(i))}
			l.Must(m.AddObjects(t.Context(), made))
			tree = append(tree, fmt.Sprintf("100644 blob %s\tnew%d", made.HexOID(), i))
		}
		who := object.Signature{Identity: object.Identity{Name: "A", Email: "a@example.com"}, When: "1700000000 +0100"}
		commit, err := m.CreateCommit(t.Context(), merge.CommitRequest{Tree: l.MakeTree(tree...), Parents: []string{base}, Author: who, Committer: who, Message: "many"})
		l.Must(err)
		k := &keeping{advancer: newAdvancer(l, commit), m: m}
		plans := 0
		l.Must(k.run("commit", func() error {
			must := []string{filepath.Join(l.Root, ".git/index"+index.DraftSuffix)}
			for i := range files {
				must = append(must, filepath.Join(l.Root, fmt.Sprint("new", i)))
			}
			found, err := filepath.Glob(filepath.Join(l.Root, ".git/agency", stagingPrefix+"*/plan"))
			plans = len(found)
			must = append(append(must, found...), m.PersistedPaths...)
			for _, path := range must {
				if unwritten(t, path) {
					t.Errorf("of %d files: %s is not on the disk", files, path)
				}
			}
			return err
		}))
		if plans != 1 || len(m.PersistedPaths) == 0 {
			t.Errorf("%d plans, and %q", plans, m.PersistedPaths)
		}
	}
}
