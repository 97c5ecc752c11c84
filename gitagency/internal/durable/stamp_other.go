//go:build !linux

package durable

import "io/fs"

func inode(fs.FileInfo) string { return "" }
