package overlay

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"golang.org/x/sys/unix"
)

// RemoveObjectWhiteouts removes the whiteouts and opaque marks from objects/ in an overlay upper directory, so that
// every object of the lower directory is visible: a gc in a sandbox hides whole directories, and objects that the
// repository gets later would be missing there. An object's name is its hash, so an additional object does no harm.
// The overlay must not be mounted. Below objects/ only pack and the directories of loose objects are cleaned.
//
// The mtime of the file at stampPath, which is ours, is the time of the last run: directories with an older ctime are
// skipped. A sandbox can set every time of a file but the ctime.
func RemoveObjectWhiteouts(upper, stampPath string) {
	now := time.Now()
	u := whiteoutRemover{deadline: now.Add(maxUpperTime)}
	if fi, err := os.Lstat(stampPath); err == nil && fi.ModTime().Before(now) { // otherwise the clock was set back
		u.since = fi.ModTime().Add(-time.Second) // the coarsest timestamp granularity of any file system
	}
	root, err := OpenDirAt(unix.AT_FDCWD, upper)
	if err != nil {
		return
	}
	defer unix.Close(root)
	if u.cleanDir(root, "objects") != nil { // incomplete: the next run scans everything again
		return
	}
	if !u.foundChanged { // nothing new since the time in the stamp file
		return
	}
	if os.Chtimes(stampPath, now, now) != nil {
		if f, err := os.OpenFile(stampPath, os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			_ = errors.Join(os.Chtimes(stampPath, now, now), f.Close())
		}
	}
}

// whiteoutRemover is one run of RemoveObjectWhiteouts.
type whiteoutRemover struct {
	since, deadline time.Time
	foundChanged    bool // a directory had changed
}

// cleanDir removes the marks from a directory and, in objects/, from the subdirectories that have changed.
func (u *whiteoutRemover) cleanDir(at int, name string) error {
	fd, err := OpenDirAt(at, name)
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	if beneath.OverlayXattr(fd, "opaque") != "" {
		for _, space := range beneath.OverlayXattrPrefixes {
			_ = unix.Fremovexattr(fd, space+"opaque")
		}
	}
	var failed error // a directory that cannot be opened does not stop the others
	for time.Now().Before(u.deadline) {
		some, err := dir.ReadDir(512)
		for _, e := range some {
			switch {
			case e.IsDir() && name == "objects" && (len(e.Name()) == 2 || e.Name() == "pack"):
				if u.hasChanged(fd, e.Name()) {
					failed = errors.Join(failed, u.cleanDir(fd, e.Name()))
				}
			case e.Type()&fs.ModeCharDevice != 0: // a whiteout; a sandbox cannot create other device files
				failed = errors.Join(failed, unix.Unlinkat(fd, e.Name(), 0))
			}
		}
		if err == io.EOF {
			return failed
		}
		if err != nil {
			return errors.Join(failed, err)
		}
	}
	return ErrLimitExceeded
}

// hasChanged reports whether a directory may have changed since the last run.
func (u *whiteoutRemover) hasChanged(at int, name string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	changed := err != nil || !time.Unix(st.Ctim.Unix()).Before(u.since)
	u.foundChanged = u.foundChanged || changed
	return changed
}
