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

// tell asks everything that came of the program to end, and says how many that are. What is stopped would
// never hear of it, so it is woken.
func (c Containment) tell(h hunt, _ int) int {
	if c != PIDNamespace {
		return c.retell(h)
	}
	found := h.look()
	_ = syscall.Kill(-1, syscall.SIGTERM) // process 1 is not meant; that there is nobody is fine
	_ = syscall.Kill(-1, syscall.SIGCONT)
	return len(found)
}

// retell asks those who were not there the last time. The kernel, which knows everybody in a pid namespace,
// has missed nobody.
func (c Containment) retell(h hunt) int {
	if c == PIDNamespace {
		return 0
	}
	found := h.look()
	for _, pid := range found {
		_ = syscall.Kill(pid, syscall.SIGTERM) // one that is gone is fine
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	return len(found)
}

// finish ends everything for good. The kernel does that to a pid namespace when its first process exits,
// which the caller is about to do.
func (c Containment) finish(_ int, empty <-chan struct{}) {
	if c == PIDNamespace {
		os.Exit(0)
	}
	chase(func(round func(but []int)) { round(nil) }, empty)
}

// chase kills everything that came of us, but for what came of some: each does one round, and says who they are.
func chase(each func(round func(but []int)), empty <-chan struct{}) {
	// Whatever forks is stopped before anything is killed, look after look, until a look finds nobody new:
	// then nobody is left who could fork. What runs away by forking and exiting is always a child of ours,
	// and those are found fastest. What runs as another user, as under sudo, is not ours to kill; it is
	// waited for, but not for ever.
	const patience = 10 * time.Second
	pause := time.Millisecond
	for began := time.Now(); ; {
		found, touched := 0, false
		each(func(but []int) { found, touched = chaseOnce(but) })
		if pause = min(2*pause, 100*time.Millisecond); touched {
			pause, began = time.Millisecond, time.Now()
		}
		select {
		case <-empty:
			return
		case <-time.After(pause):
		}
		if found > 0 && time.Since(began) > patience {
			os.Exit(1) // without a word that all is gone
		}
	}
}

// chaseOnce is one round of a chase. It says how many it found, and whether any of them was ours to kill.
func chaseOnce(but []int) (found int, touched bool) {
	h := newHunt(but...)
	for calm := 0; calm < 2; calm++ {
		for _, pid := range h.look() {
			_ = syscall.Kill(pid, syscall.SIGSTOP) // one that is gone is fine, here and below
			calm = 0
		}
		for range 20 {
			for _, pid := range ownChildren() {
				if !h.ours[pid] && !slices.Contains(but, pid) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
	}
	for pid := range h.ours {
		touched = !errors.Is(syscall.Kill(pid, syscall.SIGKILL), syscall.EPERM) || touched
	}
	return len(h.ours), touched
}

// hunt looks for what came of us. Nobody is looked at twice: a look must take less time than what it looks
// for needs to multiply.
type hunt struct{ ours, others map[int]bool }

func newHunt(others ...int) hunt {
	h := hunt{ours: map[int]bool{}, others: map[int]bool{}}
	h.spare(others)
	return h
}

// spare takes some out of the hunt, with what came of them.
func (h hunt) spare(others []int) {
	for _, pid := range others {
		h.others[pid] = true
	}
}

// look lists the processes that came of us since the last look.
func (h hunt) look() []int {
	all, _ := pids()
	parent := map[int]int{}
	for _, pid := range all {
		if pid == os.Getpid() || h.ours[pid] || h.others[pid] {
			continue
		}
		if s, there := statusOf(pid); there && !s.ended() {
			parent[pid] = s.parent
		}
	}
	var found []int
	for pid := range parent {
		above, steps := parent[pid], 0
		for above > 1 && above != os.Getpid() && !h.ours[above] && steps <= len(parent) {
			above, steps = parent[above], steps+1
		}
		if above == os.Getpid() || h.ours[above] {
			found = append(found, pid)
		} else {
			h.others[pid] = true
		}
	}
	for _, pid := range found {
		h.ours[pid] = true
	}
	return found
}

// ownChildren lists our own, also those that were left to us. An older kernel does not tell.
func ownChildren() []int {
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

// leave: when nobody is left, there is nothing to do.
func (c Containment) leave(int) {}

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

// letGo lets a child go on that wants to be traced, without tracing it. The thread that started it asks.
func letGo(s stop) {
	_ = unix.PtraceDetach(s.pid)     // one that is gone is fine
	if s.signal != syscall.SIGTRAP { // that one was only for whoever traces
		_ = syscall.Kill(s.pid, s.signal)
	}
}
