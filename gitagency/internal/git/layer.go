package git

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// A layer is what somebody in a sandbox wrote over a git directory: the upper directory of an overlay. All
// of it is theirs, and more may be written while we look. So it is read name by name, through no link, and
// never by git.

// How much of a layer is looked at before it counts as changed.
const (
	mostLayerNames = 10_000
	mostLayerDepth = 32
	mostLayerTime  = 100 * time.Millisecond
)

// LayerFingerprint tells layers apart in which HEAD, the index or a ref of the worktree that goes by name
// may differ: with the same fingerprint nothing has changed, other than objects and logs. One that cannot
// be looked at, or is too large for it, never has the same fingerprint twice.
//
// It goes by what the kernel says of the files. Of that, nobody but the kernel writes the time of change.
func LayerFingerprint(upper, name string) (string, error) {
	root, err := openDir(unix.AT_FDCWD, upper)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: upper, Err: err}
	}
	p := layerPrint{
		sum: sha256.New(), until: time.Now().Add(mostLayerTime),
		shared: "worktrees/" + name + "/sharedindex.",
		skip: map[string]bool{
			"objects": true, "logs": true, "modules": true, "lfs": true,
			"worktrees/" + name + "/logs": true, "worktrees/" + name + "/modules": true,
		},
	}
	if err := p.dir(root, "", 0); err != nil {
		return "unknown-" + rand.Text(), nil
	}
	return hex.EncodeToString(p.sum.Sum(nil)), nil
}

type layerPrint struct {
	sum    hash.Hash
	skip   map[string]bool
	shared string // what the names of files begin with that an index shares
	names  int
	until  time.Time
}

var errTooMuch = errors.New("too much to look at")

// dir adds a directory, which it closes.
func (p *layerPrint) dir(fd int, at string, depth int) error {
	dir := os.NewFile(uintptr(fd), at)
	defer dir.Close()
	if depth > mostLayerDepth {
		return errTooMuch
	}
	fmt.Fprintf(p.sum, "opaque %q\n", overlayMark(fd, "opaque"))
	var names []string
	for {
		some, err := dir.Readdirnames(512)
		names = append(names, some...)
		p.names += len(some)
		switch {
		case err == io.EOF:
			slices.Sort(names)
			return p.files(fd, at, depth, names)
		case err != nil:
			return err
		case p.names > mostLayerNames || time.Now().After(p.until):
			return errTooMuch
		}
	}
}

func (p *layerPrint) files(fd int, at string, depth int, names []string) error {
	for _, name := range names {
		path := at + name
		// Whoever reads a split index touches the file that it shares; what counts of that is in the index.
		if p.skip[path] || strings.HasPrefix(path, p.shared) {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err // also where it is gone: somebody is at work
		}
		if st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 {
			// A name that is gone. They are all one file, which changes whenever there is one more.
			fmt.Fprintf(p.sum, "%q gone\n", path)
			continue
		}
		fmt.Fprintf(p.sum, "%q %d %o %d\n", path, st.Ino, st.Mode, st.Rdev)
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			// Of a directory the names count: lock files come and go in it.
			fmt.Fprintf(p.sum, "%d %d %d\n", st.Size, st.Ctim.Nano(), st.Mtim.Nano())
			continue
		}
		sub, err := openDir(fd, name)
		if err != nil {
			return err
		}
		if err := p.dir(sub, path+"/", depth+1); err != nil {
			return err
		}
		if time.Now().After(p.until) {
			return errTooMuch
		}
	}
	return nil
}

// Readdress lets a layer's own entry of a worktree name the place that the real one names, after both were
// moved: git takes an entry that leads nowhere for one that may be cleaned up. Nobody may be using the layer.
func (r *Repo) Readdress(upper, name string) error {
	entry := filepath.Join("worktrees", name)
	tree := r.RegisteredAt(name)
	had, err := LayerFile(upper, filepath.Join(entry, "gitdir"), 1<<16)
	if err != nil || !had.Found || tree == "" || treeOf(r.AdminDir(name), had.Data) == tree {
		return nil // what nobody can make sense of is told by who has to
	}
	return replaceLayered(upper, entry, "gitdir", []byte(filepath.Join(tree, ".git")+"\n"))
}

// replaceLayered replaces one file in a directory of a layer, and follows no link on the way.
func replaceLayered(upper, in, name string, data []byte) (err error) {
	dir, err := openDir(unix.AT_FDCWD, upper)
	if err != nil {
		return &fs.PathError{Op: "open", Path: upper, Err: err}
	}
	defer func() { unix.Close(dir) }()
	for part := range strings.SplitSeq(in, "/") {
		next, err := openDir(dir, part)
		if err != nil {
			return &fs.PathError{Op: "open", Path: filepath.Join(upper, in), Err: err}
		}
		unix.Close(dir)
		dir = next
	}
	fresh := name + "." + rand.Text()
	fd, err := unix.Openat(dir, fresh, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return &fs.PathError{Op: "create", Path: filepath.Join(upper, in, fresh), Err: err}
	}
	f := os.NewFile(uintptr(fd), filepath.Join(upper, in, fresh))
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = unix.Renameat(dir, fresh, dir, name)
	}
	if err != nil {
		return errors.Join(err, unix.Unlinkat(dir, fresh, 0))
	}
	return nil
}

// LayeredEntry is where a layer keeps an entry of its own for a worktree, which hides the real one; empty where the
// real one shows through.
func LayeredEntry(upper, name string) string {
	if upper == "" {
		return ""
	}
	at, err := openDir(unix.AT_FDCWD, upper)
	for _, part := range []string{"worktrees", name} {
		if err != nil {
			return ""
		}
		var next int
		next, err = openDir(at, part)
		unix.Close(at)
		at = next
	}
	if err != nil {
		return ""
	}
	defer unix.Close(at)
	if overlayMark(at, "opaque") != "y" {
		return ""
	}
	return filepath.Join(upper, "worktrees", name)
}

// Layered is what a layer has to say of one file.
type Layered struct {
	Found   bool // the layer has it
	Gone    bool // the layer says that it is not there, whatever lies below
	Data    []byte
	ModTime time.Time
}

// LayerFile reads one regular file of at most limit bytes. Where the layer says nothing, what lies below it
// counts.
func LayerFile(upper, rel string, limit int64) (Layered, error) {
	fail := func(err error) (Layered, error) {
		return Layered{}, &fs.PathError{Op: "read", Path: filepath.Join(upper, rel), Err: err}
	}
	if !filepath.IsLocal(rel) {
		return fail(errors.New("not in the layer"))
	}
	dir, err := openDir(unix.AT_FDCWD, upper)
	if err != nil {
		return fail(err)
	}
	defer func() { unix.Close(dir) }()
	parts := strings.Split(filepath.Clean(rel), "/")
	opaque := false
	for i, part := range parts {
		opaque = opaque || overlayMark(dir, "opaque") == "y"
		var st unix.Stat_t
		err := unix.Fstatat(dir, part, &st, unix.AT_SYMLINK_NOFOLLOW)
		kind := st.Mode & unix.S_IFMT
		switch {
		case err == unix.ENOENT:
			return Layered{Gone: opaque}, nil
		case err != nil:
			return fail(err)
		case kind == unix.S_IFCHR && st.Rdev == 0:
			return Layered{Gone: true}, nil
		case i == len(parts)-1:
			if kind != unix.S_IFREG {
				return fail(errors.New("not a regular file"))
			}
			found, err := readLayered(dir, part, limit)
			if err != nil {
				return fail(err)
			}
			return found, nil
		case kind == unix.S_IFREG && st.Size == 0: // possibly the other kind of a name that is gone
			if f, err := readLayered(dir, part, 0); err == nil && f.Gone {
				return f, nil
			}
			return fail(unix.ENOTDIR)
		}
		next, err := openDir(dir, part)
		if err != nil {
			return fail(err)
		}
		unix.Close(dir)
		dir = next
	}
	return fail(errors.New("no name"))
}

func readLayered(dir int, name string, limit int64) (Layered, error) {
	// Not blocking: it may have become a pipe just now.
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Layered{}, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	fi, err := f.Stat()
	switch {
	case err != nil:
		return Layered{}, err
	case !fi.Mode().IsRegular():
		return Layered{}, errors.New("not a regular file")
	case fi.Size() == 0 && overlayMark(fd, "whiteout") != "":
		return Layered{Gone: true}, nil
	case fi.Size() > limit:
		return Layered{}, fmt.Errorf("larger than %d bytes", limit)
	}
	data := durable.Memory(fi.Size())
	if n, err := io.ReadFull(f, data); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return Layered{}, err
	} else {
		data = data[:n] // somebody may have made it shorter; what reads it says whether that makes sense
	}
	return Layered{Found: true, Data: data, ModTime: fi.ModTime()}, nil
}

// openDir opens a directory, through no link if it has a directory to start from.
func openDir(at int, name string) (int, error) {
	for {
		fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

var overlaySpaces = []string{"user.overlay.", "trusted.overlay."}

// overlayMark is what overlayfs noted on a file for itself, by either of the names it goes by; empty when
// it noted nothing. What is written in a sandbox under such a name gets another.
func overlayMark(fd int, mark string) string {
	for _, space := range overlaySpaces {
		value := make([]byte, 16)
		n, err := unix.Fgetxattr(fd, space+mark, value)
		switch {
		case err == nil && n == 0:
			return "set" // a mark without a value is one too
		case err == nil:
			return string(value[:n])
		}
	}
	return ""
}
