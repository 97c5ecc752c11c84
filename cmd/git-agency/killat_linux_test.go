package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// killatFailed is the exit status for "no verdict": ptrace was refused or
	// something in killat itself went wrong. It is what env(1), timeout(1) and
	// others use for the same purpose.
	killatFailed = 125

	// killatKilled is the exit status after the tree was killed, the one a
	// shell gives for a command that died of SIGKILL.
	killatKilled = 128 + int(unix.SIGKILL)

	// killatExecFlag is the first argument of the killat that becomes the command.
	killatExecFlag = "-exec"

	// killatGrace bounds how long processes may outlive the command itself: a
	// daemon that it leaves must not hang the test.
	killatGrace = 3 * time.Second

	// killatCallLimit bounds the wait for a file system call to end.
	killatCallLimit = 2 * time.Second

	// killatReapLimit bounds the wait for processes that were sent SIGKILL.
	// Only one stuck inside the kernel takes longer than a few milliseconds.
	killatReapLimit = 20 * time.Second
)

// killatMain is the "killat" command of the test binary:
//
//	killat [-n N] [-count FILE] [-under DIR,DIR…] [-log FILE] -- argv…
//
// It runs argv under ptrace, numbers the file system mutations of the whole
// process tree from 1 in the order in which they are about to happen, and kills
// every process of the tree just before the Nth would be executed, when the N-1
// before it are complete. The disk then has the state of a power cut at that point,
// except that unsynced data is not lost.
//
// Calls that change nothing are no mutations: a call that fails because a name is
// missing, an open of an existing file for appending, a write to a pipe, a device or
// an unlinked file.
//
// With N == 0 it runs the command to its end and only counts. When the command
// ended before the Nth mutation the number of mutations is written to the
// -count FILE. With -under only mutations of files below one of the directories
// count. The -log FILE receives a line "number syscall path" for each mutation
// counted; the last line of a killed run is the one that did not happen.
//
// Exit status: the command's own (128+signal when it died of a signal) when it
// ended before N; 137 when the tree was killed at N; 125 when ptrace is refused
// or something else failed, with a message on stderr.
func killatMain() {
	run := killatRun
	if len(os.Args) > 1 && os.Args[1] == killatExecFlag {
		run = killatExec
	}
	status, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "killat:", err)
		status = killatFailed
	}
	os.Exit(status)
}

func killatRun(args []string) (int, error) {
	flags := flag.NewFlagSet("killat", flag.ContinueOnError)
	n := flags.Int("n", 0, "kill the tree just before the `N`th mutation (0: never)")
	countFile := flags.String("count", "", "write the number of mutations to `FILE`")
	under := flags.String("under", "", "count only what changes below `DIR,DIR…`")
	logFile := flags.String("log", "", "write a line for each mutation counted to `FILE`")
	if err := flags.Parse(args); err != nil {
		return 0, err
	}
	argv := flags.Args()
	if len(argv) == 0 || *n < 0 {
		return 0, errors.New("usage: killat [-n N] [-count FILE] [-under DIR,DIR…] [-log FILE] -- argv…")
	}
	calls, err := killatCalls()
	if err != nil {
		return 0, err
	}
	tree := &killatTree{n: *n, calls: calls, tracees: map[int]*killatTracee{}}
	if *under != "" {
		for dir := range strings.SplitSeq(*under, ",") {
			real, err := killatRealPath(dir)
			if err != nil {
				return 0, err
			}
			tree.under = append(tree.under, real)
		}
	}
	if *logFile != "" {
		f, err := os.Create(*logFile)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		tree.log = f
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return 0, err
	}

	// The kernel ties a tracee to the thread that traces it: every ptrace
	// request has to come from the thread that forked the command.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	// Orphans of the tree become our children instead of init's. So we can
	// reap them too, and "gone" does not depend on an init that reaps.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("prctl: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	argv = append([]string{os.Args[0], killatExecFlag, path}, argv...)
	root, err := syscall.ForkExec(self, argv, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{
			Ptrace: true,
			// Until PTRACE_O_EXITKILL is set this keeps the command from
			// outliving a killat that is killed.
			Pdeathsig: syscall.SIGKILL,
		},
	})
	if err != nil {
		// A refused PTRACE_TRACEME is reported here as well.
		return 0, fmt.Errorf("start under ptrace: %w", err)
	}
	status, err := tree.run(root)
	if err != nil {
		return 0, errors.Join(err, tree.kill())
	}
	if *countFile != "" && !tree.killed {
		err = os.WriteFile(*countFile, []byte(strconv.Itoa(tree.count)+"\n"), 0o666)
	}
	return status, err
}

// killatExec becomes the command args[1], with the argv that follows, after it
// installed a seccomp filter, which all descendants inherit. The filter stops only
// the few system calls that may count, where PTRACE_SYSCALL would stop every call
// twice: a tree of ten git processes takes a fifth of the time.
func killatExec(args []string) (int, error) {
	calls, err := killatCalls()
	if err != nil {
		return 0, err
	}
	filter := killatFilter(calls)
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// The filter belongs to the thread, so the same thread has to call exec.
	runtime.LockOSThread()
	// Without this only root may install a filter.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("prctl: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		return 0, fmt.Errorf("seccomp: %w", err)
	}
	return 0, fmt.Errorf("%s: %w", args[1], syscall.Exec(args[1], args[2:], os.Environ()))
}

// killatFilter returns a seccomp program that reports the calls to the tracer.
func killatFilter(calls map[uint64]killatCall) []unix.SockFilter {
	// Offsets in struct seccomp_data. The low half of an argument comes first:
	// all of the architectures of killatCalls are little-endian.
	const offsetNr, offsetArgs = 0, 16
	load := func(offset int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: uint32(offset)}
	}
	// skip jumps over the next count instructions unless the test succeeds.
	skip := func(test uint16, k uint32, count uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, K: k, Jf: count}
	}
	ret := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	filter := []unix.SockFilter{load(offsetNr)}
	for nr, call := range calls {
		if call.kind == killatOpen {
			// Nearly all opens only read.
			filter = append(filter,
				skip(unix.BPF_JEQ, uint32(nr), 4),
				load(offsetArgs+8*call.flags),
				skip(unix.BPF_JSET, unix.O_CREAT|unix.O_TRUNC, 1),
				ret(unix.SECCOMP_RET_TRACE),
				ret(unix.SECCOMP_RET_ALLOW))
			continue
		}
		filter = append(filter, skip(unix.BPF_JEQ, uint32(nr), 1), ret(unix.SECCOMP_RET_TRACE))
	}
	return append(filter, ret(unix.SECCOMP_RET_ALLOW))
}

// killatTree is a traced process tree.
type killatTree struct {
	n      int
	count  int
	under  []string
	log    io.Writer
	calls  map[uint64]killatCall
	killed bool // because the Nth mutation was reached

	// tracees holds the threads that wait4 has reported and that have not
	// ended. A new one enters with its own first stop, not with the fork event
	// of its parent: these two come in either order, and with the event the
	// new one may be dead and its number in use by a stranger.
	tracees map[int]*killatTracee
}

// killatTracee is the state of a traced thread.
type killatTracee struct {
	// started: the initial SIGSTOP of the new tracee was suppressed. Other
	// signals may be reported before it.
	started bool
	// counted: the system call in progress, last, was counted.
	counted bool
	last    killatSyscallInfo
	// restarted: last was interrupted by a signal and the kernel will issue it
	// again. Counting it twice would make the numbers depend on timing (the Go
	// runtime preempts with SIGURG).
	restarted bool
}

// killatSyscallInfo is struct ptrace_syscall_info of <linux/ptrace.h>. At the
// entry of a system call nr and args are the call; at its exit nr is the result.
type killatSyscallInfo struct {
	op   uint8
	_    [3]uint8
	arch uint32
	ip   uint64
	sp   uint64
	nr   uint64
	args [6]uint64
}

// run traces the tree until it has ended or was killed and returns the exit
// status for killat.
func (k *killatTree) run(root int) (int, error) {
	var ws unix.WaitStatus
	// The command stops with a SIGTRAP after its execve.
	if err := killatWait(root, &ws); err != nil {
		return 0, err
	}
	if !ws.Stopped() {
		return 0, fmt.Errorf("the command ended before it was traced: %#x", uint32(ws))
	}
	k.tracees[root] = &killatTracee{started: true}
	const options = unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACECLONE |
		unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_EXITKILL | unix.PTRACE_O_TRACESYSGOOD |
		unix.PTRACE_O_TRACESECCOMP
	if err := unix.PtraceSetOptions(root, options); err != nil {
		return 0, fmt.Errorf("ptrace options: %w", err)
	}
	if err := k.resume(root, 0); err != nil {
		return 0, err
	}

	status, flags := 0, unix.WALL
	var deadline time.Time // set when the command itself has ended
	for {
		// Checked in every round, not only when idle: a process that keeps
		// writing keeps this loop busy.
		if !deadline.IsZero() && time.Now().After(deadline) {
			fmt.Fprintf(os.Stderr, "killat: killing what still runs %v after the command\n", killatGrace)
			return status, k.kill()
		}
		// The kernel reports the newest tracee first: on a busy machine, one that
		// keeps writing would hide that the command has ended.
		pid, err := 0, error(nil)
		if deadline.IsZero() {
			pid, err = unix.Wait4(root, &ws, flags|unix.WNOHANG, nil)
		}
		if pid == 0 && err == nil {
			pid, err = unix.Wait4(-1, &ws, flags, nil)
		}
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ECHILD:
			return status, nil
		case err != nil:
			return 0, fmt.Errorf("wait4: %w", err)
		case pid == 0:
			time.Sleep(time.Millisecond)
			continue
		case ws.Exited(), ws.Signaled():
			// An orphan is reported twice: as a tracee, then as our child.
			delete(k.tracees, pid)
			if pid != root {
				continue
			}
			status = ws.ExitStatus()
			if ws.Signaled() {
				status = 128 + int(ws.Signal())
			}
			// From here on the wait must not block.
			flags |= unix.WNOHANG
			deadline = time.Now().Add(killatGrace)
			continue
		case !ws.Stopped():
			continue
		}
		sig, err := k.stopped(pid, ws)
		if err != nil {
			return 0, err
		}
		if k.killed {
			return killatKilled, errors.Join(k.waitCountedCalls(), k.kill())
		}
		if err := k.resume(pid, sig); err != nil {
			return 0, err
		}
	}
}

// stopped handles a tracee that has stopped and returns the signal to resume it
// with.
func (k *killatTree) stopped(pid int, ws unix.WaitStatus) (unix.Signal, error) {
	t := k.tracees[pid]
	if t == nil {
		t = &killatTracee{}
		k.tracees[pid] = t
	}
	sig := ws.StopSignal()
	switch event := int(ws >> 16); {
	case event == unix.PTRACE_EVENT_SECCOMP, sig == unix.SIGTRAP|0x80: // PTRACE_O_TRACESYSGOOD
		return 0, k.syscallStop(pid, t)
	case event == unix.PTRACE_EVENT_EXEC:
		// A thread that executes a program takes over the id of the leader, and
		// its former id ends without a report.
		if former, err := unix.PtraceGetEventMsg(pid); err == nil && int(former) != pid {
			delete(k.tracees, int(former))
		}
		*t = killatTracee{started: true}
		return 0, nil
	case event != 0:
		// A fork: the child has a stop of its own.
		return 0, nil
	case sig == unix.SIGSTOP && !t.started:
		t.started = true
		return 0, nil
	case sig == unix.SIGSTOP, sig == unix.SIGTSTP, sig == unix.SIGTTIN, sig == unix.SIGTTOU:
		// Either the signal is about to be delivered, or it was and this is the
		// stop it caused, which has no siginfo. The latter is resumed at once: a
		// tracee not attached by PTRACE_SEIZE could not be woken by SIGCONT.
		if !killatHasSiginfo(pid) {
			return 0, nil
		}
	}
	return sig, nil
}

// syscallStop handles a tracee at the entry of a system call, or at the exit of one
// that was counted.
func (k *killatTree) syscallStop(pid int, t *killatTracee) error {
	var info killatSyscallInfo
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(pid),
		unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno == unix.ESRCH {
		return nil // killed meanwhile; wait4 will report it
	}
	if errno != 0 {
		return fmt.Errorf("PTRACE_GET_SYSCALL_INFO: %w", errno)
	}
	switch info.op {
	case unix.PTRACE_SYSCALL_INFO_EXIT:
		t.counted = false
		// ERESTARTSYS, ERESTARTNOINTR and ERESTARTNOHAND of the kernel's
		// <linux/errno.h>, which user space never sees.
		result := int64(info.nr)
		t.restarted = result == -512 || result == -513 || result == -514
	case unix.PTRACE_SYSCALL_INFO_SECCOMP:
		call, ok := k.calls[info.nr]
		if !ok {
			return nil
		}
		if call.kind == killatSync {
			if file, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, int32(info.args[0]))); err == nil && k.log != nil {
				fmt.Fprintln(k.log, "-", call.name, file)
			}
			return nil
		}
		if t.restarted && info.nr == t.last.nr && info.args == t.last.args {
			t.restarted, t.counted = false, true
			return nil
		}
		what, err := call.mutates(pid, info.args, k.under)
		if what == "" || err != nil {
			return err
		}
		k.count++
		if k.log != nil {
			fmt.Fprintln(k.log, k.count, call.name, what)
		}
		if k.count == k.n {
			k.killed = true
			return nil
		}
		t.counted, t.restarted, t.last = true, false, info
	}
	return nil
}

func (k *killatTree) resume(pid int, sig unix.Signal) error {
	resume := unix.PtraceCont
	if t := k.tracees[pid]; t != nil && t.counted {
		resume = unix.PtraceSyscall // stop again at the exit of this call
	}
	// ESRCH: it was killed while it was stopped, by an exit_group or execve of
	// another thread or by SIGKILL. wait4 will report it.
	if err := resume(pid, int(sig)); err != nil && err != unix.ESRCH {
		return fmt.Errorf("ptrace: %w", err)
	}
	return nil
}

// waitCountedCalls waits for counted calls that other threads still execute, and
// resumes no tracee. Otherwise such a call may or may not happen, as the kernel
// skips a call that has not begun when SIGKILL arrives.
func (k *killatTree) waitCountedCalls() error {
	deadline := time.Now().Add(killatCallLimit)
	for {
		busy := false
		for _, t := range k.tracees {
			busy = busy || t.counted
		}
		if !busy || time.Now().After(deadline) {
			return nil
		}
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WALL|unix.WNOHANG, nil)
		switch {
		case err == unix.EINTR:
		case err == unix.ECHILD:
			return nil
		case err != nil:
			return fmt.Errorf("wait4: %w", err)
		case pid == 0:
			time.Sleep(100 * time.Microsecond)
		case !ws.Stopped():
			delete(k.tracees, pid)
		case k.tracees[pid] == nil:
			k.tracees[pid] = &killatTracee{}
		default:
			// The next stop of a busy tracee is the exit of its call.
			k.tracees[pid].counted = false
		}
	}
}

// kill kills every tracee and returns when all are gone and reaped. Those
// stopped at the entry of a system call will not execute it: the kernel skips
// the call when a fatal signal is pending after the stop.
func (k *killatTree) kill() error {
	for pid := range k.tracees {
		_ = unix.Kill(pid, unix.SIGKILL) // fails only for an exited process
	}
	deadline := time.Now().Add(killatReapLimit)
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WALL|unix.WNOHANG, nil)
		switch {
		case err == unix.EINTR:
		case err == unix.ECHILD:
			return nil
		case err != nil:
			return fmt.Errorf("wait4: %w", err)
		case pid == 0:
			if time.Now().After(deadline) {
				return errors.New("killed processes do not end")
			}
			time.Sleep(100 * time.Microsecond)
		case ws.Stopped():
			// A child forked before its parent was killed. It has not run yet.
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

func killatWait(pid int, ws *unix.WaitStatus) error {
	for {
		_, err := unix.Wait4(pid, ws, unix.WALL, nil)
		if err != unix.EINTR {
			return err
		}
	}
}

func killatHasSiginfo(pid int) bool {
	var siginfo [128]byte
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GETSIGINFO, uintptr(pid),
		0, uintptr(unsafe.Pointer(&siginfo)), 0, 0)
	return errno == 0
}

// killatCall describes a mutating system call: the argument indexes of its operands.
type killatCall struct {
	name  string
	kind  killatKind
	paths []killatPath
	fd    int // killatOnFd
	flags int // killatOpen and killatOpenHow
}

type killatKind int

const (
	killatOnPath   killatKind = iota // changes directory entries: a final symlink is not followed
	killatOnTarget                   // changes the file to which the path resolves
	killatOpen                       // depends on the open flags
	killatOpenHow                    // depends on the open flags in a struct open_how
	killatOnFd                       // changes an open file
	killatSync                       // changes nothing a reader could see, so it is logged but not counted
)

// killatPath is an operand: path is the index of the path, dir the one of the
// file descriptor it is relative to or -1 where that is the working directory.
type killatPath struct {
	dir, path int
	// removes: the call removes this name, and fails if it does not exist. Git
	// unlinks a dozen possible leftovers without a check; kills before each of
	// these would test the same state a dozen times.
	removes bool
}

// killatCalls returns the system calls of interest by number: the mutating ones,
// fsync and fdatasync. Writes through a shared mapping are no calls and not covered.
func killatCalls() (map[uint64]killatCall, error) {
	at := func(dir, path int) []killatPath { return []killatPath{{dir: dir, path: path}} }
	remove := func(dir, path int) []killatPath { return []killatPath{{dir: dir, path: path, removes: true}} }
	rename := func(dir, path, newDir, newPath int) []killatPath {
		return append(remove(dir, path), at(newDir, newPath)...)
	}
	calls := map[uint64]killatCall{
		unix.SYS_OPENAT:          {name: "openat", kind: killatOpen, paths: at(0, 1), flags: 2},
		unix.SYS_OPENAT2:         {name: "openat2", kind: killatOpenHow, paths: at(0, 1), flags: 2},
		unix.SYS_MKDIRAT:         {name: "mkdirat", paths: at(0, 1)},
		unix.SYS_RENAMEAT2:       {name: "renameat2", paths: rename(0, 1, 2, 3)},
		unix.SYS_LINKAT:          {name: "linkat", paths: at(2, 3)},
		unix.SYS_SYMLINKAT:       {name: "symlinkat", paths: at(1, 2)},
		unix.SYS_UNLINKAT:        {name: "unlinkat", paths: remove(0, 1)},
		unix.SYS_WRITE:           {name: "write", kind: killatOnFd},
		unix.SYS_PWRITE64:        {name: "pwrite64", kind: killatOnFd},
		unix.SYS_WRITEV:          {name: "writev", kind: killatOnFd},
		unix.SYS_PWRITEV:         {name: "pwritev", kind: killatOnFd},
		unix.SYS_PWRITEV2:        {name: "pwritev2", kind: killatOnFd},
		unix.SYS_SENDFILE:        {name: "sendfile", kind: killatOnFd},
		unix.SYS_COPY_FILE_RANGE: {name: "copy_file_range", kind: killatOnFd, fd: 2},
		unix.SYS_TRUNCATE:        {name: "truncate", kind: killatOnTarget, paths: at(-1, 0)},
		unix.SYS_FTRUNCATE:       {name: "ftruncate", kind: killatOnFd},
		unix.SYS_FCHMOD:          {name: "fchmod", kind: killatOnFd},
		unix.SYS_FCHMODAT:        {name: "fchmodat", kind: killatOnTarget, paths: at(0, 1)},
		unix.SYS_FCHMODAT2:       {name: "fchmodat2", kind: killatOnTarget, paths: at(0, 1)},
		unix.SYS_FSYNC:           {name: "fsync", kind: killatSync},
		unix.SYS_FDATASYNC:       {name: "fdatasync", kind: killatSync},
		unix.SYS_UTIMENSAT:       {name: "utimensat", kind: killatOnTarget, paths: at(0, 1)},
	}
	// Package unix has the older calls only for the architectures that have
	// them, so a file for all of them needs the numbers, here those of
	// arch/x86/entry/syscalls/syscall_64.tbl and asm-generic/unistd.h.
	switch runtime.GOARCH {
	case "amd64":
		for nr, call := range map[uint64]killatCall{
			2:   {name: "open", kind: killatOpen, paths: at(-1, 0), flags: 1},
			82:  {name: "rename", paths: rename(-1, 0, -1, 1)},
			83:  {name: "mkdir", paths: at(-1, 0)},
			84:  {name: "rmdir", paths: remove(-1, 0)},
			85:  {name: "creat", kind: killatOnTarget, paths: at(-1, 0)},
			86:  {name: "link", paths: at(-1, 1)},
			87:  {name: "unlink", paths: remove(-1, 0)},
			88:  {name: "symlink", paths: at(-1, 1)},
			90:  {name: "chmod", kind: killatOnTarget, paths: at(-1, 0)},
			132: {name: "utime", kind: killatOnTarget, paths: at(-1, 0)},
			235: {name: "utimes", kind: killatOnTarget, paths: at(-1, 0)},
			261: {name: "futimesat", kind: killatOnTarget, paths: at(0, 1)},
			264: {name: "renameat", paths: rename(0, 1, 2, 3)},
		} {
			calls[nr] = call
		}
	case "arm64":
		calls[38] = killatCall{name: "renameat", paths: rename(0, 1, 2, 3)}
	case "riscv64", "loong64":
		// These architectures never had the older calls.
	default:
		// Missing some calls silently would be worse than not running.
		return nil, errors.New("the system calls of " + runtime.GOARCH + " are not known")
	}
	return calls, nil
}

// mutates returns the path or paths that the call of the thread tid, which is
// stopped at its entry, can change below one of the directories under (none:
// anywhere), or "".
func (c *killatCall) mutates(tid int, args [6]uint64, under []string) (string, error) {
	if c.kind == killatOnFd {
		return killatFilePath(tid, int32(args[c.fd]), under), nil
	}
	follow := c.kind == killatOnTarget
	opens, truncates := false, false
	if c.kind == killatOpen || c.kind == killatOpenHow {
		flags := args[c.flags]
		if c.kind == killatOpenHow {
			var how [8]byte // the first member of struct open_how
			ok, err := killatReadMemory(tid, flags, how[:])
			if !ok || err != nil {
				return "", err
			}
			flags = binary.NativeEndian.Uint64(how[:])
		}
		create, exclusive := flags&unix.O_CREAT != 0, flags&unix.O_EXCL != 0
		opens = true
		truncates = flags&unix.O_TRUNC != 0 && flags&unix.O_ACCMODE != unix.O_RDONLY && !(create && exclusive)
		if !create && !truncates {
			return "", nil
		}
		follow = flags&unix.O_NOFOLLOW == 0 && !(create && exclusive)
	}
	var real []string
	counts := false
	for _, operand := range c.paths {
		path, err := killatReadString(tid, args[operand.path])
		if err != nil {
			return "", err
		}
		if path == "" && c.kind != killatOnTarget {
			return "", nil // the call will fail
		}
		dir := int32(unix.AT_FDCWD)
		if operand.dir >= 0 {
			dir = int32(args[operand.dir])
		}
		name, mode := killatResolve(tid, dir, path, follow)
		if name == "" {
			return "", nil // the call will fail
		}
		if mode == 0 && operand.removes {
			return "", nil // the call will fail
		}
		if opens && mode != 0 && (!truncates || mode&unix.S_IFMT != unix.S_IFREG) {
			return "", nil // opening an existing file does not change it: /dev/null, a log
		}
		real = append(real, name)
		counts = counts || killatIsCounted(name, under)
	}
	if !counts {
		return "", nil
	}
	return strings.Join(real, " "), nil
}

// killatFilePath returns the path of an open file whose changes survive a crash, or
// "" for pipes, sockets, terminals, memfds and unlinked files.
func killatFilePath(tid int, fd int32, under []string) string {
	link := fmt.Sprintf("/proc/%d/fd/%d", tid, fd)
	name, err := os.Readlink(link)
	if err != nil || !killatIsCounted(name, under) {
		return ""
	}
	var st unix.Stat_t
	if err := unix.Stat(link, &st); err != nil || st.Nlink == 0 {
		return ""
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return ""
	}
	return name
}

// killatIsCounted reports whether the path is that of a real file (the link of
// /proc to a pipe reads "pipe:[…]") below one of the directories.
func killatIsCounted(path string, under []string) bool {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "/proc/") || strings.HasPrefix(path, "/sys/") {
		return false
	}
	for _, dir := range under {
		if path == dir || dir == "/" || strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return len(under) == 0
}

// killatResolve returns the real path, as the kernel sees it, of a path operand
// of the thread tid and the mode of the file there (0: no file). The path is ""
// when not even its directory exists. An empty operand means the descriptor dir
// itself, as with futimens or AT_EMPTY_PATH.
//
// The kernel resolves the path with an O_PATH descriptor: the file itself is not
// opened, and ".." and symlinks are resolved correctly.
func killatResolve(tid int, dir int32, path string, follow bool) (string, uint32) {
	name := path
	if !strings.HasPrefix(path, "/") {
		name = fmt.Sprintf("/proc/%d/fd/%d", tid, dir)
		if dir == unix.AT_FDCWD {
			name = fmt.Sprintf("/proc/%d/cwd", tid)
		}
		if path != "" {
			name += "/" + path
		}
	}
	if follow || path == "" {
		if real, mode := killatEntryPath(name, ""); real != "" || path == "" {
			return real, mode
		}
	}
	name = strings.TrimRight(name, "/")
	i := strings.LastIndexByte(name, '/')
	return killatEntryPath(name[:max(i, 0)]+"/", name[i+1:])
}

// killatEntryPath returns the real path and the mode of the entry base in the
// directory name, or of name itself if base is empty.
func killatEntryPath(name, base string) (string, uint32) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", 0
	}
	defer unix.Close(fd)
	real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return "", 0
	}
	var st unix.Stat_t
	if err := unix.Fstatat(fd, base, &st, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW); err != nil {
		st.Mode = 0
	}
	if base != "" {
		real = filepath.Join(real, base)
	}
	return real, st.Mode
}

// killatReadString reads a NUL-terminated string from the memory of a tracee. It
// returns "" for a null pointer, which utimensat takes for the descriptor itself,
// and for an invalid one, with which the call will fail.
func killatReadString(tid int, addr uint64) (string, error) {
	var s []byte
	page := uint64(os.Getpagesize())
	for addr != 0 && len(s) < unix.PathMax {
		// Up to the end of the page: the next may not exist.
		buf := make([]byte, min(page-addr%page, 256))
		ok, err := killatReadMemory(tid, addr, buf)
		if !ok || err != nil {
			return "", err
		}
		for i, b := range buf {
			if b == 0 {
				return string(append(s, buf[:i]...)), nil
			}
		}
		s = append(s, buf...)
		addr += uint64(len(buf))
	}
	return "", nil
}

// killatReadMemory fills buf from the memory of a tracee. It returns false when the
// address is invalid or the tracee has exited, and an error when memory cannot be
// read at all: then no path-based call would ever be counted.
func killatReadMemory(tid int, addr uint64, buf []byte) (bool, error) {
	local := []unix.Iovec{{Base: &buf[0]}}
	local[0].SetLen(len(buf))
	remote := []unix.RemoteIovec{{Base: uintptr(addr), Len: len(buf)}}
	n, err := unix.ProcessVMReadv(tid, local, remote, 0)
	if err == unix.EFAULT || err == unix.ESRCH {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("process_vm_readv: %w", err)
	}
	return n == len(buf), nil
}

// killatRealPath resolves the symlinks of a path whose last elements need not
// exist yet.
func killatRealPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) && path != "/" {
		real, err = killatRealPath(filepath.Dir(path))
		real = filepath.Join(real, filepath.Base(path))
	}
	return real, err
}

// TestKillatKillsProcessTree runs killat as scripts do, by the command name that
// TestMain knows.
func TestKillatKillsProcessTree(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	killat := filepath.Join(t.TempDir(), "killat")
	if err := os.Symlink(exe, killat); err != nil {
		t.Fatal(err)
	}

	// run runs killat in dir and checks its exit status and that no process
	// outlives it. It returns what the -count file holds, or -1.
	run := func(t *testing.T, dir string, want int, args ...string) int {
		t.Helper()
		mark := "KILLAT_TEST=" + t.TempDir()
		countFile := filepath.Join(t.TempDir(), "count")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, killat, append([]string{"-count", countFile}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(killatGitEnv(), mark)
		// Processes that hold the output open after killat has ended are found below.
		cmd.WaitDelay = time.Second
		out, err := cmd.CombinedOutput()
		status := cmd.ProcessState.ExitCode()
		if status == killatFailed && strings.Contains(string(out), unix.EPERM.Error()) {
			t.Skipf("ptrace or seccomp is not permitted here: %s", out)
		}
		if status != want {
			t.Fatalf("killat %q: %v, want status %d\n%s", args, err, want, out)
		}
		if alive := killatProcesses(mark); len(alive) > 0 {
			t.Fatalf("killat %q left processes alive: %q", args, alive)
		}
		text, err := os.ReadFile(countFile)
		if errors.Is(err, os.ErrNotExist) {
			return -1
		}
		count, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		return count
	}
	entries := func(t *testing.T, dir string) string {
		t.Helper()
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range list {
			names = append(names, e.Name())
		}
		return strings.Join(names, " ")
	}

	t.Run("exactly the first N-1 mutations happen", func(t *testing.T) {
		t.Parallel()
		// Each mkdir is a process of its own. Only three of the five count with
		// -under, which is given by another name than the command uses.
		const script = `mkdir a1; mkdir ../out/b1; echo >/dev/null; mkdir a2; mkdir ../out/b2; mkdir a3; exit 7`
		for n, want := range []string{"a1 a2 a3/b1 b2", "/", "a1/b1", "a1 a2/b1 b2", "a1 a2 a3/b1 b2"} {
			dir := t.TempDir()
			in, out, link := filepath.Join(dir, "in"), filepath.Join(dir, "out"), filepath.Join(dir, "link")
			if err := errors.Join(os.Mkdir(in, 0o777), os.Mkdir(out, 0o777), os.Symlink("in", link)); err != nil {
				t.Fatal(err)
			}
			status, wantCount := killatKilled, -1
			if n == 0 || n > 3 {
				status, wantCount = 7, 3
			}
			count := run(t, in, status, "-n", strconv.Itoa(n), "-under", dir+"/none,"+link, "--", "sh", "-c", script)
			if count != wantCount {
				t.Errorf("n=%d: count %d, want %d", n, count, wantCount)
			}
			if got := entries(t, in) + "/" + entries(t, out); got != want {
				t.Errorf("n=%d: made %q, want %q", n, got, want)
			}
		}
	})

	t.Run("exactly N-1 concurrent mutations happen", func(t *testing.T) {
		t.Parallel()
		for n := 1; n <= 8; n++ {
			dir := t.TempDir()
			run(t, dir, killatKilled, "-n", strconv.Itoa(n), "-under", dir,
				"--", "sh", "-c", "for i in 1 2 3 4 5 6 7 8; do mkdir $i & done; wait")
			if got := len(strings.Fields(entries(t, dir))); got != n-1 {
				t.Errorf("n=%d: %d mutations happened", n, got)
			}
		}
	})

	t.Run("background and other sessions", func(t *testing.T) {
		t.Parallel()
		script := `sleep 60 & (sleep 60 & exec sleep 60) & mkdir a; mkdir b; wait`
		if _, err := exec.LookPath("setsid"); err == nil {
			script = `setsid sh -c "sleep 60; :" & setsid -f sleep 60; ` + script
		}
		dir := t.TempDir()
		run(t, dir, killatKilled, "-n", "2", "-under", dir, "--", "sh", "-c", script)
		if got := entries(t, dir); got != "a" {
			t.Errorf("made %q, want only a", got)
		}
	})

	t.Run("exit status", func(t *testing.T) {
		t.Parallel()
		run(t, t.TempDir(), 0, "--", "true")
		run(t, t.TempDir(), 3, "--", "sh", "-c", "exit 3")
		run(t, t.TempDir(), 128+int(unix.SIGTERM), "--", "sh", "-c", "kill -TERM $$")
		run(t, t.TempDir(), killatFailed, "--", "no-such-command-anywhere")
		run(t, t.TempDir(), killatFailed)
	})

	t.Run("processes that outlive the command", func(t *testing.T) {
		t.Parallel()
		run(t, t.TempDir(), 3, "--", "sh", "-c", "sleep 60 & while :; do echo; done >out & exit 3")
	})

	t.Run("git", func(t *testing.T) {
		t.Parallel()
		template := t.TempDir()
		for _, args := range [][]string{
			{"init", "-q"},
			{"commit", "-q", "--allow-empty", "-m", "one"},
		} {
			cmd := exec.Command("git", args...)
			cmd.Dir, cmd.Env = template, killatGitEnv()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("git %q: %v\n%s", args, err, out)
			}
		}
		worktreeAdd := func(n, status int) int {
			t.Helper()
			dir := t.TempDir()
			repo := filepath.Join(dir, "repo")
			if err := os.CopyFS(repo, os.DirFS(template)); err != nil {
				t.Fatal(err)
			}
			return run(t, repo, status, "-n", strconv.Itoa(n), "-under", dir,
				"--", "git", "worktree", "add", "-q", "-b", "x", "../wt")
		}
		count := worktreeAdd(0, 0)
		if count < 10 {
			t.Fatalf("git worktree add: only %d mutations counted", count)
		}
		for n := 1; n <= count; n += killStep(4, 1) {
			worktreeAdd(n, killatKilled)
		}
		if again := worktreeAdd(count+1, 0); again != count {
			t.Errorf("git worktree add: %d mutations, then %d", count, again)
		}
	})
}

// killatGitEnv returns an environment in which git does not depend on the user's
// configuration or the time, so that object names and their directories are the
// same in each run.
func killatGitEnv() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=/nonexistent",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_AUTHOR_DATE=1700000000 +0000",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_COMMITTER_DATE=1700000000 +0000",
	}
}

// killatProcesses returns the pids and names of the processes that have mark in
// their environment, which all descendants of a process inherit.
func killatProcesses(mark string) []string {
	var alive []string
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		// The read fails or is empty for an exited process and for a zombie.
		if env, err := os.ReadFile(file); err == nil && strings.Contains("\x00"+string(env), "\x00"+mark+"\x00") {
			name, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "comm"))
			alive = append(alive, filepath.Base(filepath.Dir(file))+" "+strings.TrimSpace(string(name)))
		}
	}
	return alive
}
