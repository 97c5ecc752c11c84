package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/procfs"
	"golang.org/x/sys/unix"
)

// forkExecLimited is syscall.ForkExec with limits that apply before the program's first instruction. The child starts
// with PTRACE_TRACEME: the kernel stops it after exec, we set the limits from outside, and then detach, so that it is
// not traced.
//
// No other goroutine may wait for children meanwhile. A setuid program such as sudo does not change its user: the kernel
// ignores setuid on exec of a traced process.
func forkExecLimited(path string, argv []string, attr *syscall.ProcAttr, l Limits) (pid int, err error) {
	if l.Processes > 0 && !l.inUserNamespace {
		return 0, &limitError{"limit processes", errNoUserNamespace}
	}
	runtime.LockOSThread() // ptrace: only the thread that forked the child may detach from it
	defer runtime.UnlockOSThread()
	traced := *attr
	sys := *attr.Sys
	sys.Ptrace = true
	traced.Sys = &sys
	if pid, err = syscall.ForkExec(path, argv, &traced); err != nil {
		return 0, err
	}
	pending, err := waitExecStop(pid)
	if err == nil {
		err = l.applyTo(pid)
	}
	if err == nil {
		err = os.NewSyscallError("ptrace", unix.PtraceDetach(pid))
	}
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = waitPID(pid)
		return 0, err
	}
	for _, sig := range pending {
		_ = unix.Kill(pid, sig) // it may be gone already
	}
	return pid, nil
}

// waitExecStop waits until the kernel stops the child after its exec. It returns the signals that the child got
// meanwhile, to be sent again.
func waitExecStop(pid int) (pending []syscall.Signal, err error) {
	for {
		status, err := waitPID(pid)
		switch {
		case err != nil:
			return nil, os.NewSyscallError("wait4", err)
		case !status.Stopped():
			return nil, &limitError{"wait for the program", errors.New("it was killed before it started")}
		case status.StopSignal() == unix.SIGTRAP:
			return pending, nil
		}
		pending = append(pending, status.StopSignal())
		if err := unix.PtraceCont(pid, 0); err != nil {
			return nil, os.NewSyscallError("ptrace", err)
		}
	}
}

func waitPID(pid int) (status syscall.WaitStatus, err error) {
	for {
		_, err = syscall.Wait4(pid, &status, unix.WALL, nil)
		if !errors.Is(err, unix.EINTR) {
			return status, err
		}
	}
}

// limitStarted sets every limit on a program of ours that runs already. One that has ended needs none. The kernel
// writes no core dump of it, which could be as large as l.Data: a limit of one byte also keeps it from a program that
// core_pattern names.
func (l Limits) limitStarted(pid int) error {
	if !l.isSet() {
		return nil
	}
	err := l.applyTo(pid)
	if err == nil {
		err = lowerRlimit(pid, unix.RLIMIT_CORE, 1, 1)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// applyTo sets every limit on a program.
func (l Limits) applyTo(pid int) error {
	if l.Cgroup != nil { // first, so that memory allocated before the start counts, too
		if _, err := l.Cgroup.WriteString(strconv.Itoa(pid)); err != nil {
			return &limitError{"move into its cgroup", err}
		}
	}
	if l.Nice > 0 {
		if err := raiseNiceness(pid, l.Nice); err != nil {
			return &limitError{fmt.Sprintf("niceness %d", l.Nice), err}
		}
	}
	processes := int64(l.Processes)
	if processes > 0 {
		processes += int64(l.otherThreads + countThreads(os.Getpid()))
	}
	for _, r := range []struct {
		what   string
		which  int
		most   int64
		excess int64 // how far the hard limit is above the soft limit
	}{
		// The soft limit ends the program with SIGXCPU, which tells it from other signals.
		{"limit processor time", unix.RLIMIT_CPU, int64((l.CPU + time.Second - 1) / time.Second), 1},
		{"limit the size of files", unix.RLIMIT_FSIZE, l.FileSize, 0},
		{"limit data", unix.RLIMIT_DATA, l.Data, 0},
		{"limit processes", unix.RLIMIT_NPROC, processes, 0},
	} {
		if r.most <= 0 {
			continue
		}
		if err := lowerRlimit(pid, r.which, uint64(r.most), uint64(r.most+r.excess)); err != nil {
			return &limitError{r.what, err}
		}
	}
	return nil
}

// maxRSS returns the most bytes of memory that a program used at once.
func maxRSS(state *os.ProcessState) int64 {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return int64(usage.Maxrss) << 10 // the kernel counts KiB
}

// lowerRlimit sets the soft and the hard limit of a process, unless they are lower already.
func lowerRlimit(pid, resource int, soft, hard uint64) error {
	var current unix.Rlimit
	if err := unix.Prlimit(pid, resource, nil, &current); err != nil {
		return err
	}
	return unix.Prlimit(pid, resource, &unix.Rlimit{Cur: min(soft, current.Cur), Max: min(hard, current.Max)}, nil)
}

func raiseNiceness(pid, niceness int) error {
	const top = 20 // the raw system call returns 20-nice
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
	if err != nil || top-raw >= niceness {
		return err
	}
	return unix.Setpriority(unix.PRIO_PROCESS, pid, niceness)
}

// countOtherSupervisorThreads counts the threads that the kernel counts in our user namespace for process 1, which is
// an init process of ours, and for the other supervisors that it has started. A thread restricted by the walls cannot
// read this.
func countOtherSupervisorThreads() int {
	count := 0
	if os.Getpid() != 1 {
		count += countThreads(1)
	}
	ownExe, err := os.Stat(selfExe())
	all, _ := procfs.PIDs()
	for _, pid := range all {
		status, ok := procfs.ReadStat(pid)
		if err != nil || !ok || pid == os.Getpid() || status.Parent != 1 {
			continue
		}
		// An orphan of a program may run our executable, too; but the walls have set its no_new_privs.
		exe, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
		if err == nil && os.SameFile(ownExe, exe) && !hasNoNewPrivs(pid) {
			count += countThreads(pid)
		}
	}
	return count
}

// hasNoNewPrivs reports whether a process has set no_new_privs, as every program behind walls has.
func hasNoNewPrivs(pid int) bool {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	return err != nil || !strings.Contains(string(data), "\nNoNewPrivs:\t0\n")
}

func countThreads(pid int) int {
	entries, _ := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task")) // a process that is gone has none
	return len(entries)
}
