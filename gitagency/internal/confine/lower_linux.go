package confine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// lowerFilesystems are the types of file systems that every kernel accepts as the lower layer of an overlay. Others it may
// refuse, as those that compare names in their own way (vfat), that mount on access (autofs) or that are stacked (overlays).
var lowerFilesystems = []int64{
	unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.F2FS_SUPER_MAGIC,
}

const noLowerLayer = "its file system cannot be the lower layer of an overlay"

// lowerLayers finds out which file systems can be the lower layers of overlays, and tries each unusual one once.
type lowerLayers struct {
	mu    sync.Mutex
	tried map[uint64]string // by device
}

// whyNot returns the reason why the file system of dir cannot be a lower layer; empty if it can, or if it cannot be tried. It
// does not try a file system that also has the directory accepted, since that one is known to work.
func (l *lowerLayers) whyNot(dir, accepted string) string {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || slices.Contains(lowerFilesystems, int64(fs.Type)) {
		return "" // a directory that is gone fails when it is mounted
	}
	var st, usual unix.Stat_t
	if unix.Stat(dir, &st) != nil || unix.Stat(accepted, &usual) == nil && st.Dev == usual.Dev {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	why, known := l.tried[st.Dev]
	if !known {
		if isRefusedAsLower(dir) {
			why = noLowerLayer
		}
		l.tried[st.Dev] = why
	}
	return why
}

// WhyNoOverlay returns the reason why the file system of a directory cannot hold the layers of an overlay; empty if it can. The
// directory need not exist.
func WhyNoOverlay(dir string) string {
	for !isDir(dir) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
	return (&lowerLayers{tried: map[uint64]string{}}).whyNot(dir, "")
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// isRefusedAsLower reports whether no overlay can be mounted on dir although one can be on a new directory.
func isRefusedAsLower(dir string) bool {
	scratch, err := os.MkdirTemp("", "git-agency-overlay-*")
	if err != nil {
		return false
	}
	defer os.RemoveAll(scratch)
	if scratch, err = guard.Resolve(scratch); err != nil { // a plan contains no symbolic links
		return false
	}
	own := filepath.Join(scratch, "lower")
	if err := os.Mkdir(own, 0o700); err != nil {
		return false
	}
	return tryLower(scratch, "a", dir) != nil && tryLower(scratch, "b", own) == nil
}

// tryLower builds walls with an overlay on a directory, and removes them again.
func tryLower(scratch, name, dir string) error {
	plan, err := walls.MakeTrialPlan(walls.HostNetwork, InspectMachine())
	if err != nil {
		return err
	}
	l := walls.OverlayMount{Path: dir, Upper: filepath.Join(scratch, name, "upper"), Work: filepath.Join(scratch, name, "work")}
	if err := errors.Join(os.MkdirAll(l.Upper, 0o700), os.Mkdir(l.Work, 0o700)); err != nil {
		return err
	}
	plan.Overlays, plan.Private, plan.Volatile = []walls.OverlayMount{l}, nil, true
	ns, err := startNamespace(context.Background(), plan, os.DevNull) // it takes milliseconds; a plan has no context
	if err != nil {
		return err
	}
	return ns.Close()
}
