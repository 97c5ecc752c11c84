package lock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/nightlyone/lockfile"
	"golang.org/x/sys/unix"
)

// Holder describes the process that holds the lock, for messages; no decision depends on it.
type Holder struct {
	PID     int       `json:"pid"`
	Command string    `json:"command"`
	Host    string    `json:"host"`
	Since   time.Time `json:"since"`
}

// String returns a phrase for the middle of a sentence: "pid 4711 (git agency start wt, 12s, host x)".
func (h Holder) String() string {
	if h.PID <= 0 {
		return "an unknown process"
	}
	text := fmt.Sprintf("pid %d", h.PID)
	if h.hasDied() {
		// The lock is still held, so a child that inherited the descriptor must be alive.
		text = fmt.Sprintf("a child of pid %d, which has died", h.PID)
	}
	var details []string
	if h.Command != "" {
		details = append(details, h.Command)
	}
	if !h.Since.IsZero() {
		// Another host's clock may be ahead of ours.
		details = append(details, max(0, time.Since(h.Since)).Round(time.Second).String())
	}
	if h.Host != "" {
		details = append(details, "host "+h.Host)
	}
	if len(details) > 0 {
		text += " (" + strings.Join(details, ", ") + ")"
	}
	return printable(text)
}

// hasDied reports whether the holder certainly ran on this host and is gone. A pid namespace that shares our host name
// can defeat this test, one more reason to use it only for the wording of a message.
func (h Holder) hasDied() bool {
	host, err := os.Hostname()
	return err == nil && h.Host == host && errors.Is(unix.Kill(h.PID, 0), unix.ESRCH)
}

// printable replaces unprintable characters, so that another user's label cannot send control sequences to our terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// currentHolder returns the Holder that describes this process.
func currentHolder(command string) Holder {
	host, _ := os.Hostname() // a label without a host is still useful
	return Holder{PID: os.Getpid(), Command: command, Host: host, Since: time.Now().UTC()}
}

// writeHolder writes h as the first line of the lock file f.
func writeHolder(f *os.File, h Holder) error {
	line, err := json.Marshal(h)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	// Write first, then truncate the rest of a longer predecessor: a concurrent reader of the first line finds the old
	// or the new holder, never none.
	if _, err := f.WriteAt(line, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(line)))
}

// readHolder reads the line of writeHolder. An unreadable label gives the zero Holder.
func readHolder(f *os.File) Holder {
	const limit = 64 << 10 // far more than any label needs
	text, err := io.ReadAll(io.NewSectionReader(f, 0, limit))
	if err != nil {
		return Holder{}
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	var h Holder
	if json.Unmarshal(line, &h) != nil {
		return Holder{}
	}
	return h
}

// writePidFile writes the pid file of dir. The caller holds the flock, so no other process is writing here, and all
// existing files were left by dead processes.
func writePidFile(dir string) (lockfile.Lockfile, error) {
	orphanErr := removeOrphanPidFiles(dir)
	path := filepath.Join(dir, pidFileName)
	// Remove the old file without asking the library about its owner. The library would answer "busy" for a holder
	// killed so recently that its pid still exists, for a pid that was reused, and for a pid of another pid namespace;
	// it would fail on a file that it may not read, and hang on a FIFO.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", errors.Join(orphanErr, err)
	}
	pidFile, err := lockfile.New(path)
	if err != nil {
		return "", errors.Join(orphanErr, err)
	}
	if err := pidFile.TryLock(); err != nil {
		return "", errors.Join(orphanErr, fmt.Errorf("write pid file %s: %w", path, err))
	}
	return pidFile, orphanErr
}

// removePidFile removes our own pid file; a file that is gone or belongs to another process is ignored.
func removePidFile(pidFile lockfile.Lockfile) error {
	if pidFile == "" {
		return nil
	}
	if err := pidFile.Unlock(); err != nil && !errors.Is(err, lockfile.ErrRogueDeletion) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove pid file %s: %w", string(pidFile), err)
	}
	return nil
}

// removeOrphanPidFiles removes the temporary files (lock.<digits>) of processes that were killed while the lockfile
// library wrote their pid file.
func removeOrphanPidFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		digits, ours := strings.CutPrefix(e.Name(), pidFileName+".")
		if !ours || digits == "" || strings.Trim(digits, "0123456789") != "" || !e.Type().IsRegular() {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
