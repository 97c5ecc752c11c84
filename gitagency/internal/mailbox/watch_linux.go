package mailbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Watch calls changed with the name of each file that is closed after writing, or renamed into the directory, until ctx
// ends; and with an empty name first, and whenever names were lost. It uses no processor while nothing happens. The kernel may
// take milliseconds to end a watch.
func Watch(ctx context.Context, dir string, changed func(name string)) (err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer func() { err = errors.Join(err, events.Close()) }()
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO|unix.IN_ONLYDIR|unix.IN_DONT_FOLLOW); err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	defer context.AfterFunc(ctx, func() { _ = events.SetReadDeadline(time.Unix(1, 0)) })()
	changed("")
	buffer := make([]byte, 64<<10)
	for {
		n, err := events.Read(buffer)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("watch %s: %w", dir, err)
		}
		const header = 16
		for left := buffer[:n]; len(left) >= header; {
			end := header + int(binary.NativeEndian.Uint32(left[12:]))
			mask, text := binary.NativeEndian.Uint32(left[4:]), left[header:end]
			left = left[end:]
			if mask&unix.IN_IGNORED != 0 {
				return fmt.Errorf("watch %s: it was removed", dir)
			}
			name, _, _ := bytes.Cut(text, []byte{0}) // none in an event that others were lost
			changed(string(name))
		}
	}
}
