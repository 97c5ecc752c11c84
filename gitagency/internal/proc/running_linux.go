package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Running lists the programs that run now and go by a name that is asked for, not counting this one. ok
// says whether that can be told at all. A program that ends meanwhile may be listed or not.
func Running(named func(name string) bool) (processes []Process, ok bool) {
	all, ok := pids()
	for _, pid := range all {
		name, err := os.ReadFile(inProc(pid, "comm"))
		if pid == os.Getpid() || err != nil || !named(strings.TrimSuffix(string(name), "\n")) {
			continue
		}
		p := Process{PID: pid, Args: words(pid, "cmdline"), Env: words(pid, "environ")}
		if s, there := statusOf(pid); !there || s.ended() {
			continue
		}
		if fi, err := os.Stat(inProc(pid, "")); err == nil {
			p.UID = fi.Sys().(*syscall.Stat_t).Uid
		}
		switch _, err := os.Stat(inProc(pid, "cwd")); {
		case errors.Is(err, fs.ErrPermission):
			p.Hidden = true
		case err != nil:
			continue // it has ended
		}
		processes = append(processes, p)
	}
	return processes, ok
}

// Supervisors lists the supervisors of tasks that have a directory for a label and hold it open, by their
// pids. Anybody may call a process like that; nobody holds a directory open that is not theirs to enter.
func Supervisors(label string) []int {
	all, _ := pids()
	return slices.DeleteFunc(all, func(pid int) bool {
		args := words(pid, "cmdline")
		return len(args) < 2 || args[0] != supervisorName || args[1] != label || len(args) > 2 && args[2] != roleKeeper || !holds(pid, label)
	})
}

// Overseen is how many programs a supervisor sees to: one, unless it keeps a room, in which some have
// supervisors of their own.
func Overseen(supervisor int) int {
	if args := words(supervisor, "cmdline"); len(args) < 3 || args[2] != roleKeeper {
		return 1
	}
	all, _ := pids()
	beside, seat := 0, 0
	for _, pid := range all {
		if s, there := statusOf(pid); !there || s.parent != supervisor || s.ended() {
			continue
		}
		if args := words(pid, "cmdline"); len(args) == 3 && args[0] == supervisorName && args[2] == roleInside {
			beside++
		} else {
			seat = 1 // however many of its descendants were left to the keeper
		}
	}
	return beside + seat
}

// Programs says which programs the supervisors of a label see to, as somebody typed them, more or less.
func Programs(label string) []string {
	of, all := map[int][]int{}, Supervisors(label)
	some, _ := pids()
	for _, pid := range some {
		if s, there := statusOf(pid); there && !s.ended() {
			of[s.parent] = append(of[s.parent], pid)
		}
	}
	var programs []string
	for len(all) > 0 {
		next := of[all[0]]
		all = all[1:]
		for _, pid := range next {
			args := words(pid, "cmdline")
			switch {
			case len(args) == 0:
			case args[0] == supervisorName:
				all = append(all, pid)
			default:
				programs = append(programs, fmt.Sprintf("pid %d (%s)", pid, strings.Join(args, " ")))
			}
		}
	}
	slices.Sort(programs)
	return slices.Compact(programs)
}

// Holders says who has a file open, as far as that can be told.
func Holders(path string) []string {
	var holders []string
	all, _ := pids()
	for _, pid := range all {
		if pid != os.Getpid() && holds(pid, path) {
			holders = append(holders, fmt.Sprintf("pid %d (%s)", pid, strings.Join(words(pid, "cmdline"), " ")))
		}
	}
	return holders
}

// holds reports whether a process has a file open, also one that has been removed meanwhile.
func holds(pid int, path string) bool {
	file, err := os.Stat(path)
	descriptors, _ := filepath.Glob(inProc(pid, "fd/*"))
	return slices.ContainsFunc(descriptors, func(name string) bool {
		if err != nil {
			gone, err := os.Readlink(name)
			return err == nil && gone == path+" (deleted)"
		}
		fi, err := os.Stat(name)
		return err == nil && os.SameFile(fi, file)
	})
}

// Reaches reports whether a process stands in one of these directories or below, or one of the paths, as
// it would read them, leads there. Directories are compared by what they are: what is mounted twice, or
// seen from another namespace, has other names.
func (p Process) Reaches(dirs []fs.FileInfo, paths ...string) bool {
	at := filepath.Join("/proc", strconv.Itoa(p.PID))
	for _, path := range append([]string{"."}, paths...) {
		from := at + "/cwd/"
		if filepath.IsAbs(path) {
			from = at + "/root"
		}
		if below(from+path, dirs) {
			return true
		}
	}
	return false
}

// below reports whether a path leads to one of these directories, or into it.
func below(path string, dirs []fs.FileInfo) bool {
	fi, err := os.Stat(path)
	if err != nil || !fi.IsDir() {
		path = path[:strings.LastIndexByte(path, '/')] // what is not there yet would be made there; ".." is not to be read here
		fi, err = os.Stat(path)
	}
	for range 4096 { // no path is longer
		if err != nil || slices.ContainsFunc(dirs, func(dir fs.FileInfo) bool { return os.SameFile(dir, fi) }) {
			return err == nil
		}
		path += "/.."
		var above fs.FileInfo
		if above, err = os.Stat(path); err == nil && os.SameFile(above, fi) {
			return false // the root
		}
		fi = above
	}
	return false
}
