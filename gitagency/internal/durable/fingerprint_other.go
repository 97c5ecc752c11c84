//go:build !linux

package durable

import "io/fs"

func inodeFingerprint(fs.FileInfo) string { return "" }
