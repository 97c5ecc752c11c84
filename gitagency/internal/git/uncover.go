package git

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Uncover lets every object be seen that lies below a layer, also where the layer says that it is not there:
// a git that cleans up in a sandbox says so of whole directories, and whatever comes to lie there later would
// be missing. An object is what its name says, so no harm comes of one too many. Nobody may be using the
// layer. What is not as git makes it stays as it is.
//
// The age of the file at looked, which is ours, tells when this was done before: directories that have not changed
// since then are passed over. Who works in a sandbox can set any time of a file but the one that counts here.
func Uncover(upper, looked string) {
	now := time.Now()
	u := uncovering{until: now.Add(mostLayerTime)}
	if fi, err := os.Lstat(looked); err == nil && fi.ModTime().Before(now) { // else the clock was set back
		u.since = fi.ModTime().Add(-time.Second) // no file system tells times more coarsely than that
	}
	root, err := openDir(unix.AT_FDCWD, upper)
	if err != nil {
		return
	}
	defer unix.Close(root)
	if u.dir(root, "objects") != nil { // so that all of it is looked at again
		return
	}
	if !u.any { // since the last time that was written down
		return
	}
	if os.Chtimes(looked, now, now) != nil {
		if f, err := os.OpenFile(looked, os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			_ = errors.Join(os.Chtimes(looked, now, now), f.Close())
		}
	}
}

type uncovering struct {
	since, until time.Time
	any          bool // directory had changed
}

func (u *uncovering) dir(at int, name string) error {
	fd, err := openDir(at, name)
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	if overlayMark(fd, "opaque") != "" {
		for _, space := range overlaySpaces {
			_ = unix.Fremovexattr(fd, space+"opaque")
		}
	}
	var failed error // one that cannot be entered keeps nobody from the others
	for time.Now().Before(u.until) {
		some, err := dir.ReadDir(512)
		for _, e := range some {
			switch {
			case e.IsDir() && name == "objects" && (len(e.Name()) == 2 || e.Name() == "pack"):
				if u.changed(fd, e.Name()) {
					failed = errors.Join(failed, u.dir(fd, e.Name()))
				}
			case e.Type()&fs.ModeCharDevice != 0: // there are no others in a layer
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
	return errTooMuch
}

// changed reports whether a directory may have changed since it was looked at.
func (u *uncovering) changed(at int, name string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	changed := err != nil || !time.Unix(st.Ctim.Unix()).Before(u.since)
	u.any = u.any || changed
	return changed
}
