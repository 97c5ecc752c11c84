package settings

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
)

// readNoSymlinks reads a regular file of at most limit bytes at an absolute path, and follows no symbolic link: one that was
// not there when the path was checked could lead to any file.
func readNoSymlinks(path string, limit int64) (data []byte, err error) {
	name, ok := strings.CutPrefix(path, "/")
	if !ok || name == "" {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fs.ErrNotExist}
	}
	root, err := beneath.Open("/")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	file, _, err := root.OpenFile(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	data, err = io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("larger than %d bytes", limit)}
	}
	return data, err
}
