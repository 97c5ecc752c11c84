package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// self is the program that runs, also when its file has been replaced meanwhile.
func self() string { return "/proc/self/exe" }

// containments are the ways to try, the best first.
func containments() []Containment { return []Containment{PIDNamespace, Subreaper} }

// ask lets the supervisor start in the namespaces that it needs. Root needs no user namespace, and would
// lose its say over other users' files in one; everybody else stays who they are there.
func (c Containment) ask(attr *syscall.SysProcAttr) error {
	if c != PIDNamespace {
		return nil
	}
	attr.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWNS
	if os.Geteuid() == 0 {
		return nil
	}
	attr.Cloneflags |= unix.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
	attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN} // to mount /proc; settle drops it
	return nil
}

// enter makes the supervisor the one who gets what loses its parent. In a pid namespace it is that already,
// and needs a /proc that shows the processes there are.
func (c Containment) enter() error {
	if c == Subreaper {
		return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	}
	if os.Getpid() != 1 {
		return errors.New("not process 1")
	}
	// What is mounted outside still appears here, nothing that is mounted here appears outside.
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// settle gives up what only enter needed: the program shall have no more power than whoever runs it.
func (c Containment) settle() error {
	if c != PIDNamespace || os.Geteuid() == 0 {
		return nil
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return os.NewSyscallError("capset", unix.Capset(&header, &none[0]))
}

// signal sends a signal to everything that came of the program, and says to how many.
func (c Containment) signal(_ int, sig syscall.Signal) int {
	if c == PIDNamespace {
		reached := len(living())
		_ = syscall.Kill(-1, sig) // process 1 is not meant; that there is nobody is fine
		return reached
	}
	found := descendants()
	for _, pid := range found {
		_ = syscall.Kill(pid, sig) // one that is gone is fine
	}
	return len(found)
}

// finish ends everything for good. The kernel does that to a pid namespace when its first process exits,
// which the caller is about to do.
func (c Containment) finish(program int, empty <-chan struct{}) {
	if c == PIDNamespace {
		os.Exit(0)
	}
	// Something that forks faster than we kill is stopped first. Each round finds what the one before it
	// could not know of; in the end there is nobody left who could fork.
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		if c.signal(program, syscall.SIGSTOP) > 0 {
			c.signal(program, syscall.SIGKILL)
		}
		select {
		case <-empty:
			return
		case <-time.After(pause):
		}
	}
}

// leave: when nobody is left, there is nothing to do.
func (c Containment) leave(int) {}

// living lists the processes of our pid namespace but for us.
func living() []int {
	var pids []int
	for pid := range parents() {
		if pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// descendants lists the processes that came of us.
func descendants() []int {
	parent := parents()
	var pids []int
	for pid := range parent {
		for above, steps := pid, 0; above > 1 && steps <= len(parent); steps++ {
			if above = parent[above]; above == os.Getpid() {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

// parents says of every process that is not a zombie which one is its parent.
func parents() map[int]int {
	parent := map[int]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended meanwhile
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		if err != nil || len(fields) < 2 || ended(string(data)) {
			continue
		}
		if ppid, err := strconv.Atoi(fields[1]); err == nil {
			parent[pid] = ppid
		}
	}
	return parent
}

// closeOnExec keeps from the program every descriptor but the three that it is given, also those that
// whoever started us had forgotten about.
func closeOnExec() error {
	err := unix.CloseRange(3, 1<<32-1, unix.CLOSE_RANGE_CLOEXEC)
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
		return os.NewSyscallError("close_range", err)
	}
	entries, err := os.ReadDir("/proc/self/fd") // an older kernel
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return err
}

func duplicate(from, to int) error { return os.NewSyscallError("dup3", unix.Dup3(from, to, 0)) }
