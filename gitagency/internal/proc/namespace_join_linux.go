package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// JoinNamespace joins the namespace of a label. The error is ErrNoNamespace also for one that is just being closed.
func JoinNamespace(ctx context.Context, label string) (*Namespace, error) {
	return joinByLabel(ctx, label, initRequest{})
}

// ObserveNamespace is JoinNamespace for clients that only watch: the namespace does not stay open for them.
func ObserveNamespace(ctx context.Context, label string) (*Namespace, error) {
	return joinByLabel(ctx, label, initRequest{Observe: true})
}

func joinByLabel(ctx context.Context, label string, req initRequest) (*Namespace, error) {
	for _, pid := range FindSupervisors(label) {
		r, err := joinPID(ctx, pid, req)
		switch {
		case err == nil || context.Cause(ctx) != nil:
			return r, err
		case errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS): // these do not go away by trying again
			return nil, &WallError{fmt.Errorf("join the namespaces of the running commands: %w", err)}
		}
	}
	return nil, ErrNoNamespace
}

func joinPID(ctx context.Context, pid int, req initRequest) (_ *Namespace, err error) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unix.Close(pidfd))
		}
	}()
	fd, err := unix.PidfdGetfd(pidfd, joinFD, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_getfd", err)
	}
	joinConn, err := newUnixConn(os.NewFile(uintptr(fd), "join"))
	if err != nil {
		return nil, err
	}
	defer joinConn.Close()
	ours, theirs, err := seqpacketPair()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = ours.Close()
		}
	}()
	err = sendMessage(joinConn, req, theirs)
	_ = theirs.Close()
	if err != nil {
		return nil, err
	}
	r := &Namespace{conn: ours, initPIDFD: pidfd}
	answer, err := r.receiveFirstReply(ctx, 2*maxPlanSize) // the plan is longer in JSON (base64)
	r.Plan, r.Joinable = answer.Plan, answer.Joinable
	return r, err
}

// receiveFirstReply receives the first reply of the init process: the plan of the walls, or why there are none.
func (r *Namespace) receiveFirstReply(ctx context.Context, limit int) (answer initReply, err error) {
	defer context.AfterFunc(ctx, func() { _ = r.conn.SetDeadline(time.Now()) })()
	_, err = receiveMessageUpTo(limit, r.conn, &answer)
	switch {
	case context.Cause(ctx) != nil:
		return answer, context.Cause(ctx)
	case err != nil:
		return answer, &WallError{fmt.Errorf("the init process of the namespaces did not start: %w", err)}
	case answer.NoFiles:
		return answer, &WallError{fmt.Errorf("%s%w", strings.TrimSuffix(answer.Error, unix.EMFILE.Error()), unix.EMFILE)}
	case answer.Error != "":
		return answer, &WallError{errors.New(answer.Error)}
	}
	return answer, nil
}

// StartHelper starts this executable again under another argv[0], for which it calls RunHelper, outside of the
// namespace and in its own session. It has a descriptor that is readable when the namespace has ended as 3, and files
// from 4 on. It is not waited for.
func (r *Namespace) StartHelper(argv []string, files ...*os.File) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	attr := &syscall.ProcAttr{Env: []string{"GOMAXPROCS=2"}, Dir: "/", Sys: &syscall.SysProcAttr{Setsid: true}}
	attr.Files = []uintptr{null.Fd(), null.Fd(), null.Fd(), uintptr(r.initPIDFD)}
	for _, f := range files {
		attr.Files = append(attr.Files, f.Fd())
	}
	pid, err := syscall.ForkExec(selfExe(), argv, attr)
	if err == nil {
		go reapProcess(pid)
	}
	runtime.KeepAlive(files)
	return err
}

// reapProcess waits for a child whose exit status is of no interest.
func reapProcess(pid int) {
	for {
		if _, err := syscall.Wait4(pid, nil, 0, nil); !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
