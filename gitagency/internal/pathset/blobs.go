package pathset

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

const (
	maxInMemory = 4 << 20  // size of the largest file that is read into memory
	maxPending  = 64 << 20 // size of the blobs that are kept in memory until they are written
	maxWritten  = 32 << 20 // size of the largest blob that is read into memory to be written to a file
)

// blobWriter writes files as blobs, byte for byte: no filter and no conversion of line ends applies.
type blobWriter struct {
	repo    *git.Repo // nil: only ids are computed
	pending []object.Raw
	size    int
	seen    map[string]bool
}

func newBlobWriter(repo *git.Repo) *blobWriter {
	return &blobWriter{repo: repo, seen: map[string]bool{}}
}

// add writes content as a blob.
func (w *blobWriter) add(ctx context.Context, content []byte) (string, error) {
	oid := object.HashObject(format, "blob", content)
	if w.repo != nil && !w.seen[string(oid)] {
		w.seen[string(oid)] = true
		w.pending = append(w.pending, object.Raw{Kind: "blob", OID: oid, Content: content})
		if w.size += len(content); w.size > maxPending {
			if err := w.flush(ctx); err != nil {
				return "", err
			}
		}
	}
	return hex.EncodeToString(oid), nil
}

// flush writes the blobs that are still in memory.
func (w *blobWriter) flush(ctx context.Context) error {
	if len(w.pending) == 0 {
		return nil
	}
	err := w.repo.WriteObjects(ctx, format, w.pending)
	w.pending, w.size = nil, 0
	return err
}

// addLeaf writes a file or symbolic link of a directory, unless check, which may be nil, returns an error. ok is false for anything else,
// and for a name that leads to nothing any more.
func (w *blobWriter) addLeaf(ctx context.Context, dir *beneath.Dir, name string, check func(*unix.Stat_t) error) (leaf Leaf, ok bool, err error) {
	var st unix.Stat_t
	if err := dir.Lstat(name, &st); err != nil {
		if beneath.IsGone(err) {
			err = nil
		}
		return leaf, false, err
	}
	if check != nil {
		if err := check(&st); err != nil {
			return leaf, false, err
		}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		target, err := dir.Readlink(name)
		if err != nil {
			return leaf, false, err
		}
		leaf.Mode = object.ModeSymlink
		leaf.OID, err = w.add(ctx, []byte(target))
		return leaf, err == nil, err
	case unix.S_IFREG:
		leaf.Mode = object.ModeFile
		if st.Mode&0o100 != 0 {
			leaf.Mode = object.ModeExecutable
		}
		leaf.OID, err = w.addFile(ctx, dir, name, st.Size)
		return leaf, err == nil, err
	}
	return leaf, false, nil
}

// addFile writes a regular file. A large one is read by git, from the open file, so that no name is looked up again.
func (w *blobWriter) addFile(ctx context.Context, dir *beneath.Dir, name string, size int64) (oid string, err error) {
	if size <= maxInMemory {
		content, st, err := dir.ReadFile(name, maxInMemory)
		if err == nil && st.Size <= maxInMemory {
			return w.add(ctx, content)
		}
		if err != nil && st.Size <= maxInMemory {
			return "", err
		}
	}
	f, _, err := dir.OpenFile(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return w.hashLarge(ctx, f)
}

// hashLarge is addFile for an open file.
func (w *blobWriter) hashLarge(ctx context.Context, f *os.File) (string, error) {
	if w.repo == nil {
		return hashFile(f)
	}
	p := git.RunOptions{Stdin: fmt.Sprintf("/proc/%d/fd/%d\n", os.Getpid(), f.Fd())}
	out, err := w.repo.RunWrite(ctx, p, "hash-object", "-w", "--no-filters", "--stdin-paths")
	oid := strings.TrimSpace(string(out))
	if err == nil && !object.IsOID(oid) {
		err = fmt.Errorf("git hash-object answered %q", oid)
	}
	return oid, err
}

// hashFile returns the id that the content of a file has as a blob.
func hashFile(f *os.File) (string, error) {
	fi, err := f.Stat()
	if err != nil {
		return "", err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", fi.Size())
	n, err := io.Copy(h, f)
	if err == nil && n != fi.Size() {
		err = fmt.Errorf("%s changed while it was read", f.Name())
	}
	return hex.EncodeToString(h.Sum(nil)), err
}

// ReadBlob returns the content of a blob, which must exist.
func ReadBlob(cat *git.CatFile, oid string) ([]byte, error) {
	found, content, err := cat.Read(oid, "blob", maxWritten)
	if err == nil && content == nil {
		err = &object.IncompleteError{OID: oid, Want: "blob", Have: found.Type}
	}
	return content, err
}

// WriteBlob writes a blob, which must exist, to a file.
func WriteBlob(ctx context.Context, repo *git.Repo, cat *git.CatFile, oid string, f *os.File) error {
	_, sizes, err := cat.LookupSizes(oid)
	if err != nil {
		return err
	}
	if sizes[0] > maxWritten {
		_, err := repo.RunRead(ctx, git.RunOptions{Stdout: f}, "cat-file", "blob", oid)
		return err
	}
	content, err := ReadBlob(cat, oid)
	if err == nil {
		_, err = f.Write(content)
	}
	return err
}

// PermLike returns the permissions of a file, but whether its owner may execute it is a property of mode. Permissions to execute change
// only with that.
func PermLike(perm fs.FileMode, mode uint32) fs.FileMode {
	executable := mode == object.ModeExecutable
	if executable == (perm&0o100 != 0) {
		return perm
	}
	perm &^= 0o111
	if executable {
		perm |= perm & 0o444 >> 2
	}
	return perm
}
