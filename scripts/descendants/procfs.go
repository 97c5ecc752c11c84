package descendants

import (
	"os"
	"strconv"
	"strings"
)

// stat is what /proc/<pid>/stat says about a process.
type stat struct {
	parent  int
	started string // clock ticks after the boot
	isDead  bool   // nothing but its entry is left
}

// readStat reads the state of a process; ok is false if there is none.
func readStat(pid int) (s stat, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return s, false
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])) // the name before may contain anything
	const parent, started = 1, 19
	if len(fields) <= started {
		return s, false
	}
	s.parent, err = strconv.Atoi(fields[parent])
	s.started, s.isDead = fields[started], fields[0] == "Z" || fields[0] == "X"
	return s, err == nil
}

// pids lists the processes of this machine.
func pids() (all []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// Identity returns a text that tells a process from a later one with the same id; empty if it is gone.
func Identity(pid int) string {
	s, ok := readStat(pid)
	if !ok || s.isDead {
		return ""
	}
	return s.started
}
