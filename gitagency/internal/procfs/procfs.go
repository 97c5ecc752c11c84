// Package procfs reads what /proc says about processes: which there are, their state, parent, group, command line and
// environment. It only reads. A process may end between two calls, and any process chooses its own name and arguments,
// so callers must not trust those.
package procfs

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// PIDs lists all processes. ok is false where that is impossible: only Linux has such a /proc.
func PIDs() (all []int, ok bool) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, false
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // a partial list is better than none
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			all = append(all, pid)
		}
	}
	return all, len(all) > 0
}

// Path returns the path of a file about a process in /proc.
func Path(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// readFile is os.ReadFile with half as many system calls: os.File asks for the kind of every file and registers it with the
// poller, and a listing reads two files of every process.
func readFile(path string) ([]byte, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	data := make([]byte, 0, 1024)
	for {
		n, err := syscall.Read(fd, data[len(data):cap(data)])
		if err == syscall.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return data, err
		}
		data = slices.Grow(data[:len(data)+n], 1)
	}
}

// Stat holds some fields of /proc/<pid>/stat.
type Stat struct {
	State         byte
	Parent, Group int
	Started       time.Duration // after the start of the machine
}

// IsDead reports whether the process is a zombie or dead, and so cannot change anything any more.
func (s Stat) IsDead() bool { return s.State == 'Z' || s.State == 'X' }

// ReadStat reads the stat of a process; ok is false when it is gone.
func ReadStat(pid int) (s Stat, ok bool) {
	text, err := readFile(Path(pid, "stat"))
	if err != nil {
		return Stat{}, false
	}
	return parseStat(string(text))
}

// parseStat parses "pid (name) state parent group …", where the name may contain anything, also parentheses.
func parseStat(text string) (s Stat, ok bool) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 3 || len(fields[0]) != 1 {
		return Stat{}, false
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return Stat{}, false
	}
	group, err := strconv.Atoi(fields[2])
	s = Stat{State: fields[0][0], Parent: parent, Group: group}
	const startField, tick = 19, 10 * time.Millisecond // USER_HZ is 100 on every architecture of Linux that Go supports
	if len(fields) > startField {
		ticks, _ := strconv.ParseInt(fields[startField], 10, 64) // the kernel always writes a number
		s.Started = time.Duration(ticks) * tick
	}
	return s, err == nil
}

// ReadNULList reads a list of NUL-terminated strings, such as a command line.
func ReadNULList(pid int, name string) []string {
	data, err := readFile(Path(pid, name))
	if err != nil || len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
}
