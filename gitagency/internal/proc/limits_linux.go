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

	"golang.org/x/sys/unix"
)

// startLimited is syscall.ForkExec, and the program is bound before its first instruction. For that it
// starts as one who is traced: the kernel stops it when it has been loaded, and lets whoever made it do to
// it what only the program itself could do otherwise. Then it is let go, and nobody traces it.
//
// Nobody else may be waiting for children meanwhile. A program that is to become somebody else, as sudo
// is, stays who it is: that is what the kernel does to those who are traced.
func startLimited(path string, argv []string, attr *syscall.ProcAttr, l Limits) (pid int, err error) {
	if l.Processes > 0 && !l.apart {
		return 0, &limitError{"limit processes", errNotApart}
	}
	runtime.LockOSThread() // only the thread that made it may let it go
	defer runtime.UnlockOSThread()
	traced := *attr
	sys := *attr.Sys
	sys.Ptrace = true
	traced.Sys = &sys
	if pid, err = syscall.ForkExec(path, argv, &traced); err != nil {
		return 0, err
	}
	missed, err := awaitLoaded(pid)
	if err == nil {
		err = l.bind(pid)
	}
	if err == nil {
		err = os.NewSyscallError("ptrace", unix.PtraceDetach(pid))
	}
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = wait(pid)
		return 0, err
	}
	for _, sig := range missed {
		_ = unix.Kill(pid, sig) // one that is gone is fine
	}
	return pid, nil
}

// awaitLoaded waits until the program is there to be run. Signals that came meanwhile are for it.
func awaitLoaded(pid int) (missed []syscall.Signal, err error) {
	for {
		status, err := wait(pid)
		switch {
		case err != nil:
			return nil, os.NewSyscallError("wait4", err)
		case !status.Stopped():
			return nil, &limitError{"wait for the program", errors.New("it was killed before it began")}
		case status.StopSignal() == unix.SIGTRAP:
			return missed, nil
		}
		missed = append(missed, status.StopSignal())
		if err := unix.PtraceCont(pid, 0); err != nil {
			return nil, os.NewSyscallError("ptrace", err)
		}
	}
}

func wait(pid int) (status syscall.WaitStatus, err error) {
	for {
		_, err = syscall.Wait4(pid, &status, unix.WALL, nil)
		if !errors.Is(err, unix.EINTR) {
			return status, err
		}
	}
}

// bind sets every limit on a program that has not begun.
func (l Limits) bind(pid int) error {
	if l.Cgroup != nil { // first: what it had before it began is counted too
		if _, err := l.Cgroup.WriteString(strconv.Itoa(pid)); err != nil {
			return &limitError{"put into its cgroup", err}
		}
	}
	if l.Nice > 0 {
		if err := beNice(pid, l.Nice); err != nil {
			return &limitError{fmt.Sprintf("niceness %d", l.Nice), err}
		}
	}
	processes := int64(l.Processes)
	if processes > 0 {
		processes += int64(l.others + threads(os.Getpid()))
	}
	for _, r := range []struct {
		what  string
		which int
		most  int64
	}{
		{"limit the size of files", unix.RLIMIT_FSIZE, l.FileSize},
		{"limit data", unix.RLIMIT_DATA, l.Data},
		{"limit processes", unix.RLIMIT_NPROC, processes},
	} {
		if r.most <= 0 {
			continue
		}
		if err := lower(pid, r.which, uint64(r.most)); err != nil {
			return &limitError{r.what, err}
		}
	}
	return nil
}

// lower sets a limit of a process, for good, unless it is lower already.
func lower(pid, which int, most uint64) error {
	var was unix.Rlimit
	if err := unix.Prlimit(pid, which, nil, &was); err != nil {
		return err
	}
	most = min(most, was.Max)
	return unix.Prlimit(pid, which, &unix.Rlimit{Cur: min(most, was.Cur), Max: most}, nil)
}

func beNice(pid, niceness int) error {
	const top = 20 // the kernel counts from there down
	is, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
	if err != nil || top-is >= niceness {
		return err
	}
	return unix.Setpriority(unix.PRIO_PROCESS, pid, niceness)
}

// otherSupervisors is how many of what the kernel counts in our user namespace are threads of process 1, which
// is one of us, and of the other supervisors that it has started. A thread that is shut in cannot see this.
func otherSupervisors() int {
	count := 0
	if os.Getpid() != 1 {
		count += threads(1)
	}
	us, err := os.Stat(self())
	all, _ := pids()
	for _, pid := range all {
		status, there := statusOf(pid)
		if err != nil || !there || pid == os.Getpid() || status.parent != 1 {
			continue
		}
		// What a program left behind may be the same program as we are; but it has been shut in.
		exe, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
		if err == nil && os.SameFile(us, exe) && !shutIn(pid) {
			count += threads(pid)
		}
	}
	return count
}

// shutIn reports whether a process has given up its powers, as every program has that runs behind walls.
func shutIn(pid int) bool {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	return err != nil || !strings.Contains(string(data), "\nNoNewPrivs:\t0\n")
}

func threads(pid int) int {
	entries, _ := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task")) // one that is gone has none
	return len(entries)
}
