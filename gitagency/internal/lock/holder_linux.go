package lock

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// findProcesses lists the processes that hold a lock on the file f, as far as their descriptors are visible to us. If
// likely is one of them, it looks no further. Locks of fcntl come first: an flock excludes them only from a directory.
func findProcesses(f *os.File, likely int) []process {
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	if byFcntl, _ := locksOf(likely, info); len(byFcntl) > 0 {
		return byFcntl
	}
	entries, _ := os.ReadDir("/proc")
	var byFcntl, byFlock []process
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			a, b := locksOf(pid, info)
			byFcntl, byFlock = append(byFcntl, a...), append(byFlock, b...)
		}
	}
	if len(byFcntl) > 0 {
		return byFcntl
	}
	return byFlock
}

// locksOf returns the process pid, once for each of its descriptors that carries a lock on the file info: those with a
// lock of fcntl and those with an flock.
func locksOf(pid int, info os.FileInfo) (byFcntl, byFlock []process) {
	if pid <= 0 {
		return nil, nil
	}
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	descriptors, _ := os.ReadDir(dir + "/fdinfo") // unreadable for processes of other users
	for _, d := range descriptors {
		text, err := os.ReadFile(dir + "/fdinfo/" + d.Name())
		if err != nil || !bytes.Contains(text, []byte("\nlock:")) {
			continue
		}
		// Only now: the file of any other descriptor may be on a file system that does not answer.
		if opened, err := os.Stat(dir + "/fd/" + d.Name()); err != nil || !os.SameFile(opened, info) {
			continue
		}
		offset, kinds := parseFdinfo(string(text))
		p := process{pid: pid, command: commandOf(dir), offset: offset}
		if slices.Contains(kinds, "OFDLCK") || slices.Contains(kinds, "POSIX") {
			byFcntl = append(byFcntl, p)
		} else if slices.Contains(kinds, "FLOCK") {
			byFlock = append(byFlock, p)
		}
	}
	return byFcntl, byFlock
}

// parseFdinfo returns the file offset of a descriptor and the kinds of its locks, from lines such as
// "lock: 1: OFDLCK ADVISORY WRITE -1 08:01:4711 0 EOF".
func parseFdinfo(text string) (offset int64, kinds []string) {
	for line := range strings.Lines(text) {
		switch fields := strings.Fields(line); {
		case len(fields) >= 2 && fields[0] == "pos:":
			offset, _ = strconv.ParseInt(fields[1], 10, 64) // the kernel writes a number
		case len(fields) >= 3 && fields[0] == "lock:":
			kinds = append(kinds, fields[2])
		}
	}
	return offset, kinds
}

// commandOf returns the command line of a process, shortened, or else its name.
func commandOf(dir string) string {
	const longest = 80
	text, _ := os.ReadFile(dir + "/cmdline")
	command := strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " "))
	if command == "" { // it has ended but was not waited for, or has overwritten its command line
		text, _ = os.ReadFile(dir + "/comm")
		command = strings.TrimSpace(string(text))
	}
	if runes := []rune(command); len(runes) > longest {
		command = string(runes[:longest]) + "…"
	}
	return command
}
