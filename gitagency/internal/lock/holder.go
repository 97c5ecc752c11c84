package lock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/nightlyone/lockfile"
	"golang.org/x/sys/unix"
)

// Holder describes the process that holds the lock, for messages; no decision depends on it. Its exported fields are the
// label, which the last process that took the lock has written.
type Holder struct {
	PID     int       `json:"pid"`
	Command string    `json:"command"`
	Host    string    `json:"host"`
	Since   time.Time `json:"since"`
	Offset  int64     `json:"offset,omitempty"` // file offset of the descriptor that carries the lock; children inherit it

	found []process // processes of which /proc shows that they hold the lock
}

// process is a process that holds a lock.
type process struct {
	pid     int
	command string
	offset  int64 // file offset of the descriptor that carries the lock
}

func (p process) String() string {
	if p.command == "" {
		return fmt.Sprintf("pid %d", p.pid)
	}
	return fmt.Sprintf("pid %d (%s)", p.pid, p.command)
}

// findHolder describes the process that holds the lock of f.
func findHolder(f *os.File) Holder {
	h := readHolder(f)
	h.found = findProcesses(f, h.PID)
	return h
}

// String returns a phrase for the middle of a sentence: "pid 4711 (git agency start wt, 12s, host x)". It names the
// process that holds the lock even if that has written no label, as far as the process can be found.
func (h Holder) String() string {
	labelled := fmt.Sprintf("pid %d%s", h.PID, h.details())
	died := ""
	if h.hasDied() {
		died = ", which has died"
	}
	switch {
	case len(h.found) == 0 && h.PID <= 0:
		return "an unknown process"
	case len(h.found) == 0 && died != "":
		return printable("an unknown process, after " + labelled + died)
	case len(h.found) == 0 || slices.ContainsFunc(h.found, func(p process) bool { return p.pid == h.PID }):
		return printable(labelled)
	}
	for _, p := range h.found {
		if h.Offset != 0 && p.offset == h.Offset { // it has inherited the descriptor
			return printable(p.String() + ", started by " + labelled + died)
		}
	}
	return printable(h.found[0].String())
}

// details returns what the label says besides the pid, in parentheses.
func (h Holder) details() string {
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
	if len(details) == 0 {
		return ""
	}
	return " (" + strings.Join(details, ", ") + ")"
}

// hasDied reports whether the process of the label certainly ran on this host and is gone. A pid namespace that shares
// our host name can defeat this test, one more reason to use it only for the wording of a message.
func (h Holder) hasDied() bool {
	host, err := os.Hostname()
	return err == nil && h.PID > 0 && h.Host == host && errors.Is(unix.Kill(h.PID, 0), unix.ESRCH)
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

// writeHolder writes the label of this process as the first line of the lock file f. It moves the file offset of f to
// the random one in the label: a process with a descriptor of the same offset has inherited it from us.
func writeHolder(f *os.File, command string) error {
	host, _ := os.Hostname() // a label without a host is still useful
	offset, err := f.Seek(1+int64(rand.Int32N(math.MaxInt32)), io.SeekStart)
	if err != nil {
		return err
	}
	h := Holder{PID: os.Getpid(), Command: command, Host: host, Since: time.Now().UTC(), Offset: offset}
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

// writePidFile writes the pid file of dir. The caller holds the lock, so no other process is writing here, and all
// existing files were left by dead processes.
func writePidFile(dir string) (lockfile.Lockfile, error) {
	orphanErr := removeOrphans(dir)
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

// removeOrphans removes the temporary files of processes that were killed while the lockfile library wrote their pid
// file (lock.<digits>), or while they replaced the lock file.
func removeOrphans(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		digits, isPidFile := strings.CutPrefix(e.Name(), pidFileName+".")
		isPidFile = isPidFile && digits != "" && strings.Trim(digits, "0123456789") == ""
		path := filepath.Join(dir, e.Name())
		switch {
		case !e.Type().IsRegular():
			continue
		case isPidFile, e.Name() == replacementName: // no process replaces the lock file while we hold it
			err = os.Remove(path)
		case e.Name() == replaceGuardName:
			err = removeUnlocked(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// removeUnlocked removes a lock file, unless a process holds its lock.
func removeUnlocked(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := writeLock(f, false); errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	} else if err != nil {
		return err
	}
	if current, err := isCurrent(f, path); !current || err != nil {
		return err
	}
	return os.Remove(path)
}
