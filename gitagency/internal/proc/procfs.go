package proc

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// listPIDs lists all processes. ok is false where that is impossible: only Linux has such a /proc.
func listPIDs() (all []int, ok bool) {
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

// procPath returns the path of a file about a process in /proc.
func procPath(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// procStat holds the first fields of /proc/<pid>/stat.
type procStat struct {
	state         byte
	parent, group int
	started       time.Duration // after the start of the machine
}

// isDead reports whether the process is a zombie or dead, and so cannot change anything any more.
func (s procStat) isDead() bool { return s.state == 'Z' || s.state == 'X' }

// readProcStat reads the stat of a process; ok is false when it is gone.
func readProcStat(pid int) (s procStat, ok bool) {
	text, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		return procStat{}, false
	}
	return parseProcStat(string(text))
}

// parseProcStat parses "pid (name) state parent group …", where the name may contain anything, also parentheses.
func parseProcStat(text string) (s procStat, ok bool) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 3 || len(fields[0]) != 1 {
		return procStat{}, false
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return procStat{}, false
	}
	group, err := strconv.Atoi(fields[2])
	s = procStat{state: fields[0][0], parent: parent, group: group}
	const startField, tick = 19, 10 * time.Millisecond // USER_HZ is 100 on every architecture of Linux that Go supports
	if len(fields) > startField {
		ticks, _ := strconv.ParseInt(fields[startField], 10, 64) // the kernel always writes a number
		s.started = time.Duration(ticks) * tick
	}
	return s, err == nil
}

// readNULList reads a list of NUL-terminated strings, such as a command line.
func readNULList(pid int, name string) []string {
	data, err := os.ReadFile(procPath(pid, name))
	if err != nil || len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
}
