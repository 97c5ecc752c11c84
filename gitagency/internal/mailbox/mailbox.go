// Package mailbox is the directory through which the commands of a sandbox and git-agency on the host communicate: the
// questions of an agent with their answers, and requests with their replies. The host reads all of it as untrusted data: the sandbox may put
// anything there at any moment.
//
// It knows neither git nor records, nor the meaning of a request. It never follows a symbolic link, never
// blocks on a FIFO that the sandbox made, and never reads more than a limit.
package mailbox

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// Box is an open mailbox.
type Box struct {
	path string
	tree *guard.Tree
	dir  *guard.DirHandle
}

// Open opens the mailbox at a path, which must not be a symbolic link.
func Open(path string) (*Box, error) {
	tree, err := guard.OpenOwnTree(path)
	if err != nil {
		return nil, err
	}
	dir, err := tree.OpenTop()
	if err != nil {
		return nil, errors.Join(err, tree.Close())
	}
	return &Box{path: path, tree: tree, dir: dir}, nil
}

// Close closes the mailbox.
func (b *Box) Close() error { return errors.Join(b.dir.Close(), b.tree.Close()) }

// errTooLarge reports a file that is larger than it may be.
type errTooLarge struct{ limit int64 }

func (e errTooLarge) Error() string { return fmt.Sprintf("it has more than %d bytes", e.limit) }

// read returns the content of a regular file of at most limit bytes, and its metadata.
func (b *Box) read(name string, limit int64) ([]byte, guard.Info, error) {
	f, err := b.dir.OpenFile(name)
	if err != nil {
		return nil, guard.Info{}, err
	}
	defer f.Close()
	fi, err := guard.Fstat(f)
	if err != nil {
		return nil, fi, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = errTooLarge{limit}
	}
	return data, fi, err
}

// write writes a file, all of it or nothing. It replaces a file or symbolic link of that name, and follows none.
func (b *Box) write(name string, data []byte) error {
	return b.writeAs(data, func(temp string) error { return b.dir.MoveAs(temp, b.dir, name) })
}

// writeNew is write that fails with fs.ErrExist if the name exists.
func (b *Box) writeNew(name string, data []byte) error {
	return b.writeAs(data, func(temp string) error { return b.dir.MoveAsNoReplace(temp, b.dir, name) })
}

// writeAs writes a temporary file, and removes it again if place fails to give it its name.
func (b *Box) writeAs(data []byte, place func(temp string) error) error {
	temp := ".tmp-" + newID()
	f, err := b.dir.CreateFile(temp, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = place(temp)
	}
	if err != nil {
		err = errors.Join(err, b.remove(temp))
	}
	return err
}

// remove removes a file; a missing one is no error.
func (b *Box) remove(name string) error {
	err := b.dir.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// newID returns the random part of a name.
func newID() string {
	var id [idLength / 2]byte
	_, _ = rand.Read(id[:]) // it never fails
	return hex.EncodeToString(id[:])
}

// idLength is the number of characters of an id.
const idLength = 16

func isValidID(id string) bool {
	return len(id) == idLength && strings.Trim(id, "0123456789abcdef") == ""
}
