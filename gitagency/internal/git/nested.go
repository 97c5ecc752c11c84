package git

import (
	"os"
	"path/filepath"
)

// SpecialFileError reports a FIFO, socket or device where git would read a file, and block.
type SpecialFileError struct{ Path string }

func (e *SpecialFileError) Error() string {
	return e.Path + " is not a regular file, and git would block on it; remove it first"
}

// ParentsAreDirs reports whether every parent of a path is a directory, and none a symlink.
func ParentsAreDirs(tree, name string) bool {
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if fi, err := os.Lstat(filepath.Join(tree, dir)); err != nil || !fi.IsDir() {
			return false
		}
	}
	return true
}
