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

// Holder says who has the lock, for people; nothing decides on it.
type Holder struct {
	PID     int       `json:"pid"`
	Command string    `json:"command"`
	Host    string    `json:"host"`
	Since   time.Time `json:"since"`
}

// String names the holder in the middle of a sentence: "pid 4711 (git agency start wt, 12s, host x)".
func (h Holder) String() string {
	if h.PID <= 0 {
		return "an unknown process"
	}
	who := fmt.Sprintf("pid %d", h.PID)
	if h.died() {
		// Yet the lock is held, so a child that inherited it lives on.
		who = fmt.Sprintf("a child of pid %d, which has died", h.PID)
	}
	var about []string
	if h.Command != "" {
		about = append(about, h.Command)
	}
	if !h.Since.IsZero() {
		// Another host's clock may be ahead of ours.
		about = append(about, max(0, time.Since(h.Since)).Round(time.Second).String())
	}
	if h.Host != "" {
		about = append(about, "host "+h.Host)
	}
	if len(about) > 0 {
		who += " (" + strings.Join(about, ", ") + ")"
	}
	return printable(who)
}

// died reports whether the holder certainly ran on this host and does not any more. A pid namespace that shares
// our host name can fool it, one more reason why it only words a message.
func (h Holder) died() bool {
	host, err := os.Hostname()
	return err == nil && h.Host == host && errors.Is(unix.Kill(h.PID, 0), unix.ESRCH)
}

// printable keeps what another user wrote into the label from steering our terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// thisProcess is the holder we are.
func thisProcess(command string) Holder {
	host, _ := os.Hostname() // a label without a host is still a label
	return Holder{PID: os.Getpid(), Command: command, Host: host, Since: time.Now().UTC()}
}

// writeHolder makes h the first line of the lock file f.
func writeHolder(f *os.File, h Holder) error {
	line, err := json.Marshal(h)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	// Write first, then cut off what a longer predecessor left: whoever reads the first line meanwhile
	// finds the old one or the new one, never none.
	if _, err := f.WriteAt(line, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(line)))
}

// readHolder reads what writeHolder wrote. Whatever does not read well is nobody.
func readHolder(f *os.File) Holder {
	const enough = 64 << 10 // whatever somebody put there, a label is shorter
	text, err := io.ReadAll(io.NewSectionReader(f, 0, enough))
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

// writePidFile writes the pid file of dir. The caller holds the flock, hence nobody else is at work here and
// whatever lies here was left by the dead.
func writePidFile(dir string) (lockfile.Lockfile, error) {
	left := removeOrphans(dir)
	path := filepath.Join(dir, pidName)
	// Remove first, ask never. The library would answer "busy" for a holder killed so recently that its pid is
	// still there, for a pid that was given to another process, and for one of another pid namespace; it would
	// fail on a file it may not read, and hang on a fifo.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", errors.Join(left, err)
	}
	pidFile, err := lockfile.New(path)
	if err != nil {
		return "", errors.Join(left, err)
	}
	if err := pidFile.TryLock(); err != nil {
		return "", errors.Join(left, fmt.Errorf("write pid file %s: %w", path, err))
	}
	return pidFile, left
}

// removePidFile removes a pid file of ours; one that is gone or no longer ours is not missed.
func removePidFile(pidFile lockfile.Lockfile) error {
	if pidFile == "" {
		return nil
	}
	if err := pidFile.Unlock(); err != nil && !errors.Is(err, lockfile.ErrRogueDeletion) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove pid file %s: %w", string(pidFile), err)
	}
	return nil
}

// removeOrphans removes the temporary files, lock.<digits>, of processes killed while the library wrote
// their pid file.
func removeOrphans(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		digits, ours := strings.CutPrefix(e.Name(), pidName+".")
		if !ours || digits == "" || strings.Trim(digits, "0123456789") != "" || !e.Type().IsRegular() {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
