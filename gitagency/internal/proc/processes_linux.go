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

	"github.com/git-agency/git-agency/gitagency/internal/procfs"
)

// ListProcesses lists the running processes whose name (comm) matches, without this one. ok is false where processes
// cannot be listed. A process that ends meanwhile may be listed or not.
func ListProcesses(named func(name string) bool) (processes []Process, ok bool) {
	all, ok := procfs.PIDs()
	for _, pid := range all {
		name, err := os.ReadFile(procfs.Path(pid, "comm"))
		if pid == os.Getpid() || err != nil || !named(strings.TrimSuffix(string(name), "\n")) {
			continue
		}
		s, there := procfs.ReadStat(pid)
		if !there || s.IsDead() {
			continue
		}
		p := Process{PID: pid, Parent: s.Parent, Args: procfs.ReadNULList(pid, "cmdline"), Env: procfs.ReadNULList(pid, "environ")}
		if fi, err := os.Stat(procfs.Path(pid, "")); err == nil {
			p.UID = fi.Sys().(*syscall.Stat_t).Uid
		}
		switch _, err := os.Stat(procfs.Path(pid, "cwd")); {
		case errors.Is(err, fs.ErrPermission):
			p.CwdHidden = true
		case err != nil:
			continue // the process has ended
		}
		processes = append(processes, p)
	}
	return processes, ok
}

// FindSupervisors returns the pids of the supervisors whose label is this directory and which hold it open. Any process
// can fake the command line, but only a process that may enter the directory can hold it open.
func FindSupervisors(label string) []int {
	all, _ := procfs.PIDs()
	return slices.DeleteFunc(all, func(pid int) bool {
		args := procfs.ReadNULList(pid, "cmdline")
		return len(args) < 2 || args[0] != supervisorName || args[1] != label || len(args) > 2 && args[2] != roleInit || !hasOpen(pid, label)
	})
}

// CountTasks counts the tasks of a supervisor: one, except for an init process, some of whose tasks have their own
// supervisors.
func CountTasks(supervisor int) int {
	if args := procfs.ReadNULList(supervisor, "cmdline"); len(args) < 3 || args[2] != roleInit {
		return 1
	}
	all, _ := procfs.PIDs()
	supervised, direct := 0, 0
	for _, pid := range all {
		if s, there := procfs.ReadStat(pid); !there || s.Parent != supervisor || s.IsDead() {
			continue
		}
		if args := procfs.ReadNULList(pid, "cmdline"); len(args) == 3 && args[0] == supervisorName && args[2] == roleSupervisor {
			supervised++
		} else {
			direct = 1 // however many orphans the init process has adopted
		}
	}
	return supervised + direct
}

// TaskCommands describes the programs below the supervisors of a label, by pid and command line.
func TaskCommands(label string) []string {
	childrenOf, queue := map[int][]int{}, FindSupervisors(label)
	processes, _ := procfs.PIDs()
	for _, pid := range processes {
		if s, there := procfs.ReadStat(pid); there && !s.IsDead() {
			childrenOf[s.Parent] = append(childrenOf[s.Parent], pid)
		}
	}
	var programs []string
	for len(queue) > 0 {
		next := childrenOf[queue[0]]
		queue = queue[1:]
		for _, pid := range next {
			args := procfs.ReadNULList(pid, "cmdline")
			switch {
			case len(args) == 0:
			case args[0] == supervisorName:
				queue = append(queue, pid)
			default:
				programs = append(programs, fmt.Sprintf("pid %d (%s)", pid, strings.Join(args, " ")))
			}
		}
	}
	slices.Sort(programs)
	return slices.Compact(programs)
}

// FileUsers describes the processes that have a file open, as far as they are visible to us, like fuser(1).
func FileUsers(path string) []string {
	var holders []string
	all, _ := procfs.PIDs()
	for _, pid := range all {
		if pid != os.Getpid() && hasOpen(pid, path) {
			holders = append(holders, fmt.Sprintf("pid %d (%s)", pid, strings.Join(procfs.ReadNULList(pid, "cmdline"), " ")))
		}
	}
	return holders
}

// hasOpen reports whether a process has a file open, also one that has been removed meanwhile.
func hasOpen(pid int, path string) bool {
	file, err := os.Stat(path)
	descriptors, _ := filepath.Glob(procfs.Path(pid, "fd/*"))
	return slices.ContainsFunc(descriptors, func(name string) bool {
		if err != nil {
			gone, err := os.Readlink(name)
			return err == nil && gone == path+" (deleted)"
		}
		fi, err := os.Stat(name)
		return err == nil && os.SameFile(fi, file)
	})
}

// UsesDirs reports whether the current directory of a process is in or below one of these directories, or whether one of
// the paths, resolved from the process's point of view, leads there. Directories are compared by device and inode:
// bind mounts and other mount namespaces give them other names.
func (p Process) UsesDirs(dirs []fs.FileInfo, paths ...string) bool {
	procDir := filepath.Join("/proc", strconv.Itoa(p.PID))
	for _, path := range append([]string{"."}, paths...) {
		base := procDir + "/cwd/"
		if filepath.IsAbs(path) {
			base = procDir + "/root"
		}
		if isBelow(base+path, dirs) {
			return true
		}
	}
	return false
}

// isBelow reports whether a path leads to one of these directories or below it.
func isBelow(path string, dirs []fs.FileInfo) bool {
	fi, err := os.Stat(path)
	if err != nil || !fi.IsDir() {
		path = path[:strings.LastIndexByte(path, '/')] // a missing file would be created in its parent; keep "..", which must follow symlinks
		fi, err = os.Stat(path)
	}
	for range 4096 { // no path has more elements
		if err != nil || slices.ContainsFunc(dirs, func(dir fs.FileInfo) bool { return os.SameFile(dir, fi) }) {
			return err == nil
		}
		path += "/.."
		var parent fs.FileInfo
		if parent, err = os.Stat(path); err == nil && os.SameFile(parent, fi) {
			return false // the root directory
		}
		fi = parent
	}
	return false
}
