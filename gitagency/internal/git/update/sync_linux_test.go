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

// hasDelayedExtents reports whether a part of a file is only in the page cache: the file system has not yet allocated
// blocks for it (delayed allocation).
func hasDelayedExtents(t *testing.T, path string) bool {
	t.Helper()
	const (
		ioctl   = 0xc020660b // FS_IOC_FIEMAP
		delayed = 0x4        // FIEMAP_EXTENT_DELALLOC
		extents = 64         // more extents than a file of this test has
	)
	var query struct {
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
	query.length, query.count = ^uint64(0), extents
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), ioctl, uintptr(unsafe.Pointer(&query))); errno != 0 {
		t.Skipf("this file system does not support FIEMAP: %v", errno)
	}
	if query.mapped == extents {
		t.Fatalf("%s has %d extents or more", path, extents)
	}
	for _, e := range query.extents[:query.mapped] {
		if e.flags&delayed != 0 {
			return true
		}
	}
	return false
}

// Promise: before the refs move, everything that the update wrote is on disk: files, the new index, the plan for undoing it,
// and the objects. The test does not look for fsync calls, but asks the file system.
func TestFilesAndObjectsAreSyncedBeforeCommit(t *testing.T) {
	t.Parallel()
	for _, files := range []int{3, git.MaxLooseObjects + 20} { // few files are synced one by one
		l := gittest.New(t)
		l.Write("control", strings.Repeat("control\n", 1000))
		if !hasDelayedExtents(t, filepath.Join(l.Root, "control")) {
			t.Skip("this file system does not delay allocation")
		}
		l.Must(os.Remove(filepath.Join(l.Root, "control")))
		base := l.Git("rev-parse", "HEAD")
		content := func(i int) string { return strings.Repeat(fmt.Sprint("file ", i, "\n"), 1000) } // too large for inline storage in the inode
		m := openMerger(l)
		tree := strings.Split(l.Git("ls-tree", "HEAD"), "\n")
		for i := range files {
			made := object.Raw{Kind: "blob", OID: object.HashObject(object.SHA1, "blob", []byte(content(i))), Content: []byte(content(i))}
			l.Must(m.AddObjects(t.Context(), made))
			tree = append(tree, fmt.Sprintf("100644 blob %s\tnew%d", made.HexOID(), i))
		}
		author := object.Signature{Identity: object.Identity{Name: "A", Email: "a@example.com"}, When: "1700000000 +0100"}
		commit, err := m.CreateCommit(t.Context(), merge.CommitRequest{Tree: l.MakeTree(tree...), Parents: []string{base}, Author: author, Committer: author, Message: "many"})
		l.Must(err)
		lab := &gcLab{updateLab: newUpdateLab(l, commit), merger: m}
		plans := 0
		l.Must(lab.runWithHook("commit", func() error {
			paths := []string{filepath.Join(l.Root, ".git/index"+index.DraftSuffix)}
			for i := range files {
				paths = append(paths, filepath.Join(l.Root, fmt.Sprint("new", i)))
			}
			found, err := filepath.Glob(filepath.Join(l.Root, ".git/agency", stagingPrefix+"*/plan"))
			plans = len(found)
			paths = append(append(paths, found...), m.PersistedPaths...)
			for _, path := range paths {
				if hasDelayedExtents(t, path) {
					t.Errorf("with %d files: %s is not on disk", files, path)
				}
			}
			return err
		}))
		if plans != 1 || len(m.PersistedPaths) == 0 {
			t.Errorf("found %d plans and the objects %q", plans, m.PersistedPaths)
		}
	}
}
