package durable

import (
	"fmt"
	"io/fs"
)

// Stamp tells a file from the same file after it was written to or replaced.
func Stamp(fi fs.FileInfo) string {
	return fmt.Sprintf("%d %d %s", fi.Size(), fi.ModTime().UnixNano(), inode(fi))
}
