package confine

import (
	"os"
	"strings"
	"testing"

	"github.com/git-agency/git-agency/gitagency/internal/walls"
	"golang.org/x/sys/unix"
)

// TestBoundDirectoryKeepsItsReadOnlyFile checks that a directory which is mounted on another receives what is written
// there, and that a file which is mounted in it can be neither changed nor removed, linked to or replaced.
func TestBoundDirectoryKeepsItsReadOnlyFile(t *testing.T) {
	if isParent(t) {
		dir := makeFiles(t, "tree/.agency/marker=marker", "tree/.agency/other=s3cret", "mailbox/")
		before := describeDir(t, dir+"/tree/.agency")
		p := walls.Plan{
			Writable: joinAll(dir, "tree"),
			Bound:    []walls.BindMount{{Path: dir + "/tree/.agency", Source: dir + "/mailbox"}, {Path: dir + "/tree/.agency/marker", Source: dir + "/tree/.agency/marker", ReadOnly: true}},
		}
		runInNamespaces(t, dir, p)
		runInNamespaces(t, dir, p) // with the content that the first left
		if got := readFiles(t, dir+"/mailbox", "question", "marker"); got != "new " {
			t.Errorf("the mailbox has %q", got)
		}
		if after := describeDir(t, dir+"/tree/.agency"); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		return
	}
	dir, p := applyPlan(t)
	restrictSelf(t, p)
	box := dir + "/tree/.agency"
	marker := box + "/marker"
	if got := readFiles(t, box, "marker"); got != "marker" || strings.Contains(listDir(t, box), "other") {
		t.Errorf("marker %q in %s", got, listDir(t, box))
	}
	if err := os.WriteFile(box+"/temp", []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(box+"/temp", box+"/question"); err != nil {
		t.Error(err)
	}
	requireErrno(t, "write", os.WriteFile(marker, []byte("evil"), 0o600), unix.EROFS)
	requireErrno(t, "truncate", os.Truncate(marker, 0), unix.EROFS)
	requireErrno(t, "chmod", os.Chmod(marker, 0), unix.EROFS)
	requireErrno(t, "remove", os.Remove(marker), unix.EBUSY)
	requireErrno(t, "replace", unix.Rename(box+"/question", marker), unix.EBUSY)
	requireErrno(t, "exchange", unix.Renameat2(unix.AT_FDCWD, box+"/question", unix.AT_FDCWD, marker, unix.RENAME_EXCHANGE), unix.EBUSY)
	requireErrno(t, "move", unix.Rename(marker, box+"/aside"), unix.EBUSY)
	requireErrno(t, "link", os.Link(marker, box+"/linked"), unix.EXDEV)
	requireErrno(t, "move the directory", unix.Rename(box, dir+"/tree/aside"), unix.EBUSY)
	requireErrno(t, "remove the directory", unix.Rmdir(box), unix.EBUSY)
}
