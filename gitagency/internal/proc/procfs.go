package proc

import (
	"os"
	"strconv"
	"strings"
)

// pids lists the processes there are. ok says whether that can be told: only Linux has such a /proc.
func pids() (all []int, ok bool) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, false
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // what could be read is better than nothing
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			all = append(all, pid)
		}
	}
	return all, len(all) > 0
}

// inProc is a file that tells something about a process.
func inProc(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// status is what the first fields of /proc/<pid>/stat say.
type status struct {
	state         byte
	parent, group int
}

// ended: a zombie changes nothing any more.
func (s status) ended() bool { return s.state == 'Z' || s.state == 'X' }

// statusOf looks a process up; ok is false for one that is gone.
func statusOf(pid int) (s status, ok bool) {
	text, err := os.ReadFile(inProc(pid, "stat"))
	if err != nil {
		return status{}, false
	}
	return parseStatus(string(text))
}

// parseStatus reads "pid (name) state parent group …", where a name may hold anything, also parentheses.
func parseStatus(text string) (s status, ok bool) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 3 || len(fields[0]) != 1 {
		return status{}, false
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return status{}, false
	}
	group, err := strconv.Atoi(fields[2])
	return status{fields[0][0], parent, group}, err == nil
}

// words reads a list of strings that end with NUL, such as a command line.
func words(pid int, name string) []string {
	data, err := os.ReadFile(inProc(pid, name))
	if err != nil || len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
}
