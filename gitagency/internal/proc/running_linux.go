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
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, false
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		name, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil || !named(strings.TrimSuffix(string(name), "\n")) {
			continue
		}
		p := Process{PID: pid, Args: words(dir, "cmdline"), Env: words(dir, "environ")}
		if stat, err := os.ReadFile(filepath.Join(dir, "stat")); err != nil || ended(string(stat)) {
			continue
		}
		if fi, err := os.Stat(dir); err == nil {
			p.UID = fi.Sys().(*syscall.Stat_t).Uid
		}
		switch _, err := os.Stat(filepath.Join(dir, "cwd")); {
		case errors.Is(err, fs.ErrPermission):
			p.Hidden = true
		case err != nil:
			continue // it has ended
		}
		processes = append(processes, p)
	}
	return processes, len(entries) > 0
}

// Supervisors lists the supervisors of tasks that have a directory for a label and hold it open, by their
// pids. Anybody may call a process like that; nobody holds a directory open that is not theirs to enter.
func Supervisors(label string) []int {
	var pids []int
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range found {
		dir := filepath.Dir(name)
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err == nil && slices.Equal(words(dir, "cmdline"), []string{supervisorName, label}) && holds(dir, label) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Holders says who has a file open, as far as that can be told.
func Holders(path string) []string {
	var holders []string
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range processes {
		if pid := filepath.Base(dir); pid != strconv.Itoa(os.Getpid()) && holds(dir, path) {
			holders = append(holders, fmt.Sprintf("pid %s (%s)", pid, strings.Join(words(dir, "cmdline"), " ")))
		}
	}
	return holders
}

// holds reports whether a process has a file open, also one that has been removed meanwhile.
func holds(process, path string) bool {
	file, err := os.Stat(path)
	descriptors, _ := filepath.Glob(filepath.Join(process, "fd", "*"))
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

// ended reads the state in "pid (name) state …", where a name may hold anything: a zombie changes nothing
// any more.
func ended(stat string) bool {
	after := strings.TrimSpace(stat[strings.LastIndexByte(stat, ')')+1:])
	return strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X")
}

func words(dir, name string) []string {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil || len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
}
