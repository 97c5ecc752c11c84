//go:build !linux

package mailbox

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"
)

// Watch calls changed with an empty name now and whenever the directory has changed, until ctx ends.
func Watch(ctx context.Context, dir string, changed func(name string)) error {
	for last := (time.Time{}); ; {
		fi, err := os.Lstat(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil && !fi.ModTime().Equal(last) {
			last = fi.ModTime()
			changed("")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(500 * time.Millisecond):
		}
	}
}
