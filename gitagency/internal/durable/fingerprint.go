package durable

import (
	"fmt"
	"io/fs"
)

// StatFingerprint returns a string that changes when a file is written to or replaced.
func StatFingerprint(fi fs.FileInfo) string {
	return fmt.Sprintf("%d %d %s", fi.Size(), fi.ModTime().UnixNano(), inodeFingerprint(fi))
}
