package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/procfs"
	"golang.org/x/sys/unix"
)

// selfExe is the path of the running executable, also when its file has been replaced meanwhile.
func selfExe() string { return "/proc/self/exe" }

// supportedContainments lists the containments to try, the best first.
func supportedContainments() []Containment { return []Containment{PIDNamespace, Subreaper} }

// setSysProcAttr makes the supervisor start in the namespaces that it needs. Root needs no user namespace, in which it
// would lose its rights to other users' files; everyone else keeps their uid in it.
func (c Containment) setSysProcAttr(attr *syscall.SysProcAttr) error {
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
	attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN} // to mount /proc; dropCapabilities drops it
	return nil
}

// setup makes the supervisor adopt orphaned descendants. As process 1 of a pid namespace it does so already, and only
// mounts a /proc that shows this namespace.
func (c Containment) setup() error {
	if c == Subreaper {
		return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	}
	if os.Getpid() != 1 {
		return errors.New("not process 1")
	}
	// Slave propagation: mounts outside still appear here, mounts here do not appear outside.
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// dropCapabilities drops the capabilities that only setup needed: the program must not have more rights than the user.
func (c Containment) dropCapabilities() error {
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

// terminate sends SIGTERM to all descendants of the program and returns their number. SIGCONT follows, because a stopped
// process does not handle SIGTERM.
func (c Containment) terminate(h descendants, _ int) int {
	if c != PIDNamespace {
		return c.terminateNew(h)
	}
	found := h.scan()
	_ = syscall.Kill(-1, syscall.SIGTERM) // not to process 1 itself; an error means that there are no others
	_ = syscall.Kill(-1, syscall.SIGCONT)
	return len(found)
}

// terminateNew sends SIGTERM to the descendants that appeared since the last call. In a pid namespace there is nothing
// to do: kill(-1) has reached every process.
func (c Containment) terminateNew(h descendants) int {
	if c == PIDNamespace {
		return 0
	}
	found := h.scan()
	for _, pid := range found {
		_ = syscall.Kill(pid, syscall.SIGTERM) // it may be gone already
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	return len(found)
}

// kill kills all descendants. For a pid namespace the kernel does that when process 1 exits, which is what kill does.
func (c Containment) kill(_ int, empty <-chan struct{}) {
	if c == PIDNamespace {
		os.Exit(0)
	}
	killDescendants(func(round func(excluded []int)) { round(nil) }, empty)
}

// killDescendants kills all our descendants in rounds, except excluded processes and those below them. each runs one
// round, and supplies the excluded pids.
func killDescendants(each func(round func(excluded []int)), empty <-chan struct{}) {
	// Processes are stopped before any is killed, scan after scan, until a scan finds no new one: then none is left
	// that could fork. A process that escapes by forking and exiting always becomes our child, and children are found
	// fastest. Processes of another user, as under sudo, cannot be killed by us; they are waited for, but not for ever.
	const patience = 10 * time.Second
	pause := time.Millisecond
	for start := time.Now(); ; {
		found, touched := 0, false
		each(func(excluded []int) { found, touched = killDescendantsOnce(excluded) })
		if pause = min(2*pause, 100*time.Millisecond); touched {
			pause, start = time.Millisecond, time.Now()
		}
		select {
		case <-empty:
			return
		case <-time.After(pause):
		}
		if found > 0 && time.Since(start) > patience {
			os.Exit(1) // without a report that all is gone
		}
	}
}

// killDescendantsOnce is one round of killDescendants. It returns how many processes it found, and whether it may
// signal any.
func killDescendantsOnce(excluded []int) (found int, touched bool) {
	h := newDescendants(excluded...)
	for idleScans := 0; idleScans < 2; idleScans++ {
		for _, pid := range h.scan() {
			_ = syscall.Kill(pid, syscall.SIGSTOP) // it may be gone already, here and below
			idleScans = 0
		}
		for range 20 {
			for _, pid := range childPIDs() {
				if !h.found[pid] && !slices.Contains(excluded, pid) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
	}
	for pid := range h.found {
		touched = !errors.Is(syscall.Kill(pid, syscall.SIGKILL), syscall.EPERM) || touched
	}
	return len(h.found), touched
}

// descendants finds our descendants in /proc. No process is examined twice: a scan must take less time than a fork bomb
// needs to multiply.
type descendants struct{ found, excluded map[int]bool }

func newDescendants(others ...int) descendants {
	h := descendants{found: map[int]bool{}, excluded: map[int]bool{}}
	h.exclude(others)
	return h
}

// exclude excludes processes and their descendants from the scans.
func (h descendants) exclude(others []int) {
	for _, pid := range others {
		h.excluded[pid] = true
	}
}

// scan lists the descendants that appeared since the last scan.
func (h descendants) scan() []int {
	all, _ := procfs.PIDs()
	parent := map[int]int{}
	for _, pid := range all {
		if pid == os.Getpid() || h.found[pid] || h.excluded[pid] {
			continue
		}
		if s, there := procfs.ReadStat(pid); there && !s.IsDead() {
			parent[pid] = s.Parent
		}
	}
	var found []int
	for pid := range parent {
		ancestor, steps := parent[pid], 0
		for ancestor > 1 && ancestor != os.Getpid() && !h.found[ancestor] && steps <= len(parent) {
			ancestor, steps = parent[ancestor], steps+1
		}
		if ancestor == os.Getpid() || h.found[ancestor] {
			found = append(found, pid)
		} else {
			h.excluded[pid] = true
		}
	}
	for _, pid := range found {
		h.found[pid] = true
	}
	return found
}

// childPIDs lists our children, including adopted orphans. An older kernel does not have this file.
func childPIDs() []int {
	var pids []int
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		data, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// release does nothing: no process is left.
func (c Containment) release(int) {}

// setCloseOnExec sets close-on-exec for all descriptors but the standard streams, including those that our parent
// leaked to us.
func setCloseOnExec() error {
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

// highestInheritable returns the highest descriptor that a child process would inherit from us.
func highestInheritable() (highest int) {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // a partial list is better than none
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd <= highest {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			highest = fd
		}
	}
	return highest
}

// reportStops makes wait report children that job control has stopped.
const reportStops = syscall.WUNTRACED

// detachTraced lets a child go on that wants to be traced, without tracing it, and reports whether it was such a child.
// It must run on the thread that forked it.
func detachTraced(s childStop) bool {
	if unix.PtraceDetach(s.pid) != nil {
		return false // not traced, or gone already
	}
	if s.signal != syscall.SIGTRAP { // SIGTRAP is only meant for a tracer
		_ = syscall.Kill(s.pid, s.signal)
	}
	return true
}
