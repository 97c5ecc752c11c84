//go:build !linux

package rootfs

import (
	"errors"
	"io/fs"
)

func open(string, string) (fs.FileInfo, error) { return nil, errors.ErrUnsupported }

func count(string, string) (int, error) { return 0, errors.ErrUnsupported }

func readFile(string, string, int64) (string, error) { return "", errors.ErrUnsupported }
