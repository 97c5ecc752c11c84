package proc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Namespace is a set of kernel namespaces with walls around them, in which several programs run at the same time: they
// see each other's processes and files, and everything outside only as the walls allow. Its process 1, the init
// process, lives for as long as a client uses the namespace. It is found by the label on its command line: no file
// refers to it.
type Namespace struct {
	Plan     []byte // plan of the walls in force
	Created  bool   // created by this process, not joined
	Joinable bool   // others may join; a namespace without this ends with its creator, and a client that joined must leave and join again

	conn      *net.UnixConn
	initPIDFD int  // pidfd of the init process
	pending   bool // the init process has not reported yet that the walls are in force
	aborted   bool // given up before the walls were in force
}

// initRequest is a request to the init process, sent with descriptors.
type initRequest struct {
	Observe   bool   `json:"visit,omitempty"`  // on joining: the namespace need not stay open for this client
	AllowJoin bool   `json:"let_in,omitempty"` // by the creator: from now on the namespace also stays open for others
	Run       bool   `json:"run,omitempty"`    // with descriptors: control, directory, three streams, and those to hold open
	Listen    string `json:"listen,omitempty"`
	Dial      string `json:"dial,omitempty"`
	OpenDir   string `json:"open_dir,omitempty"`

	CloneMount string `json:"clone_mount,omitempty"`

	Count bool `json:"count,omitempty"`
	Leave bool `json:"leave,omitempty"`
}

// initReply is the init process's reply to all of these but Run, whose reports come through its control socket.
type initReply struct {
	Error    string `json:"refused,omitempty"`
	NoFiles  bool   `json:"no_files,omitempty"` // the reason of Error is EMFILE
	Plan     []byte `json:"plan,omitempty"`
	Joinable bool   `json:"open,omitempty"` // reply to a join, and to AllowJoin
	Last     bool   `json:"last,omitempty"` // reply to Count: there is no other client; to Leave: the namespace is gone
}

// joinFD is the descriptor of an init process from which clients that join take a socket, with pidfd_getfd. That needs
// the right to ptrace the init process, which no process inside the namespace has. The number is small because the
// limit of open files may be, and reserved from the start by /dev/null, from which nothing can be taken.
const joinFD = 40

// maxFD is the highest descriptor that the table of an init process is sized for, unless the limit of open files is low.
const maxFD = 255

// initTimeout is how long to wait for an init process: its work takes no time unless the machine is very busy.
const initTimeout = 30 * time.Second

// StartNamespace creates a namespace and uses it. The caller makes sure that no other process does so under the
// same label; the init process keeps the files in hold open. A *WallError says what could not be built.
func (w Walls) StartNamespace(ctx context.Context, label string, hold ...*os.File) (*Namespace, error) {
	r, err := w.BeginNamespace(ctx, label, hold...)
	if err == nil {
		err = r.WaitReady(ctx)
	}
	if err != nil {
		return nil, err
	}
	if err := r.AllowJoin(); err != nil {
		return nil, &WallError{errors.Join(err, r.Close())}
	}
	return r, nil
}

// BeginNamespace is StartNamespace that neither waits for the walls nor allows others to join. Until WaitReady has
// returned, the namespace can only be closed. AllowJoin allows others to join.
func (w Walls) BeginNamespace(ctx context.Context, label string, hold ...*os.File) (_ *Namespace, err error) {
	ours, theirs, err := seqpacketPair()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = ours.Close()
		}
	}()
	waitPlan := Async(w.resolvePlan)
	pidfd, err := w.forkInit(label, append([]*os.File{theirs}, hold...))
	_ = theirs.Close()
	plan, planErr := waitPlan() // wait: the plan must not be in progress when the caller goes on
	if err != nil {
		return nil, &WallError{fmt.Errorf("namespaces: %w", err)}
	}
	r := &Namespace{Plan: plan, Created: true, conn: ours, initPIDFD: pidfd, pending: true}
	if err = planErr; err == nil {
		// EPIPE: an init process that is gone has sent the reason before.
		if _, err = ours.Write(plan); err != nil && !errors.Is(err, syscall.EPIPE) {
			err = &WallError{err}
		} else {
			err = nil
		}
	}
	if err != nil {
		return nil, errors.Join(err, r.abort())
	}
	return r, nil
}

// forkInit starts an init process and returns its pidfd. It does not use os/exec, which would first start another
// process to find out whether the kernel supports pidfds.
func (w Walls) forkInit(label string, files []*os.File) (pidfd int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return -1, err
	}
	defer null.Close()
	pidfd = -1
	attr := &syscall.ProcAttr{Env: []string{"GOMAXPROCS=2"}, Dir: "/", Sys: w.sysProcAttr()}
	attr.Sys.PidFD = &pidfd
	if attr.Files, err = initFDs(null, files, OpenFilesLimit()); err != nil {
		return -1, err
	}
	pid, err := syscall.ForkExec(selfExe(), []string{supervisorName, label, roleInit, strconv.Itoa(len(files) - 1)}, attr)
	if err != nil {
		return -1, err
	}
	if pidfd == -1 {
		if pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
			err = os.NewSyscallError("pidfd_open", err)
		}
	}
	go reapProcess(pid)
	return pidfd, err
}

// resolvePlan returns the plan, made by MakePlan if that is set.
func (w Walls) resolvePlan() ([]byte, error) {
	plan, err := w.Plan, error(nil)
	if w.MakePlan != nil {
		plan, err = w.MakePlan()
	}
	if err == nil && len(plan) > maxPlanSize {
		err = &WallError{errors.New("the plan of the walls is too large: too many paths to hide or to grant")}
	}
	return plan, err
}

// WaitReady waits until the walls are in force. If that fails, the namespace is gone.
func (r *Namespace) WaitReady(ctx context.Context) error {
	if !r.pending {
		return nil
	}
	r.pending = false
	if _, err := r.receiveFirstReply(ctx, maxReplySize); err != nil {
		return errors.Join(err, r.abort())
	}
	return nil
}

// AllowJoin makes the namespace stay open for clients that join from now on, also after its creator has left.
func (r *Namespace) AllowJoin() error {
	_ = r.conn.SetDeadline(time.Now().Add(initTimeout))
	err := sendMessage(r.conn, initRequest{AllowJoin: true})
	var answer initReply
	if err == nil {
		_, err = receiveMessage(r.conn, &answer)
	}
	r.Joinable = answer.Joinable
	return errors.Join(err, r.conn.SetDeadline(time.Time{}))
}

// abort ends a namespace whose walls never were in force.
func (r *Namespace) abort() error {
	r.aborted = true
	_ = r.conn.Close() // the init process may still be waiting for the plan
	r.waitEnded(initTimeout)
	return unix.Close(r.initPIDFD)
}

// initFDs returns the descriptor table of an init process: null for the standard streams and joinFD, and files from
// controlFD on. Where the limit of open files allows it, a descriptor with the highest number makes the kernel allocate
// the table at its final size. While the process has one thread that is free; later, each growth waits for an RCU grace
// period.
func initFDs(null *os.File, files []*os.File, limit uint64) ([]uintptr, error) {
	if controlFD+len(files) > joinFD {
		return nil, syscall.EMFILE
	}
	highest := joinFD
	if limit > 2*maxFD { // the fork moves descriptors above the table for a moment
		highest = maxFD
	}
	fds := slices.Repeat([]uintptr{^uintptr(0)}, highest+1) // an invalid descriptor: the slot stays closed
	for i, f := range files {
		fds[controlFD+i] = f.Fd()
	}
	for _, fd := range []int{0, 1, 2, joinFD, highest} {
		fds[fd] = null.Fd()
	}
	return fds, nil
}

// sysProcAttr returns the namespaces of an init process. User and group ids stay the same inside. The capabilities apply
// to these namespaces only and belong to the init process; no program gets them.
func (w Walls) sysProcAttr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Setsid:      true,
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP, unix.CAP_DAC_OVERRIDE, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_CHROOT},
	}
	if os.Geteuid() == 0 { // root may map all ids; unmapped owners of files would appear as "nobody"
		attr.UidMappings = identityMappings("/proc/self/uid_map", attr.UidMappings)
		attr.GidMappings = identityMappings("/proc/self/gid_map", attr.GidMappings)
		attr.GidMappingsEnableSetgroups = setgroupsAllowed()
	}
	if w.OwnNetwork {
		attr.Cloneflags |= unix.CLONE_NEWNET
	}
	return attr
}

// setgroupsAllowed reports whether setgroups is allowed here: root of a user namespace may lack it, and can then not
// allow it to a child namespace either.
func setgroupsAllowed() bool {
	may, err := os.ReadFile("/proc/self/setgroups")
	return err == nil && string(may) == "allow\n"
}

// identityMappings maps every id that exists in our own user namespace to itself.
func identityMappings(file string, fallback []syscall.SysProcIDMap) (all []syscall.SysProcIDMap) {
	data, err := os.ReadFile(file)
	if err != nil {
		return fallback
	}
	for line := range strings.Lines(string(data)) {
		var first, outside, count int
		if _, err := fmt.Sscan(line, &first, &outside, &count); err != nil {
			return fallback
		}
		all = append(all, syscall.SysProcIDMap{ContainerID: first, HostID: first, Size: count})
	}
	return all
}

// Run runs a task in the namespace, as Task.Run does outside of one.
func (r *Namespace) Run(ctx context.Context, t Task) (TaskResult, error) {
	t.namespace = r
	return t.Run(ctx)
}

func (r *Namespace) sendTask(files []*os.File) error {
	return sendMessage(r.conn, initRequest{Run: true}, files...)
}

// ListenFile returns the descriptor of a listener on the network of the namespace.
func (r *Namespace) ListenFile(ctx context.Context, address string) (*os.File, error) {
	return r.requestFD(ctx, initRequest{Listen: address}, address)
}

// Listen returns a listener on the network of the namespace.
func (r *Namespace) Listen(ctx context.Context, address string) (net.Listener, error) {
	f, err := r.ListenFile(ctx, address)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileListener(f)
}

// Dial connects to a listener in the namespace.
func (r *Namespace) Dial(ctx context.Context, address string) (net.Conn, error) {
	f, err := r.requestFD(ctx, initRequest{Dial: address}, address)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileConn(f)
}

// OpenDir opens the top directory of a file system that is mounted in the namespace, at a path without symbolic links. Other
// file systems that are mounted below it there are not visible through it.
func (r *Namespace) OpenDir(ctx context.Context, path string) (*os.File, error) {
	return r.requestFD(ctx, initRequest{OpenDir: path}, path)
}

// requestFD sends a request whose reply is a descriptor, and receives it on a separate connection.
func (r *Namespace) requestFD(ctx context.Context, req initRequest, name string) (*os.File, error) {
	ours, theirs, err := seqpacketPair()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	err = sendMessage(r.conn, req, theirs)
	_ = theirs.Close()
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = ours.SetDeadline(time.Now()) })()
	var answer initReply
	files, err := receiveMessage(ours, &answer)
	switch {
	case context.Cause(ctx) != nil:
		err = context.Cause(ctx)
	case err != nil:
		err = fmt.Errorf("init process of the namespaces: %w", err)
	case answer.Error != "":
		err = errors.New(answer.Error)
	case len(files) != 1:
		err = errors.New("the init process of the namespaces sent no descriptor")
	}
	if err != nil {
		closeFDs(files)
		return nil, err
	}
	return os.NewFile(uintptr(files[0]), name), nil
}

// IsSoleUser reports whether no other client uses the namespace.
func (r *Namespace) IsSoleUser() bool {
	_ = r.conn.SetDeadline(time.Now().Add(initTimeout))
	defer func() { _ = r.conn.SetDeadline(time.Time{}) }()
	if sendMessage(r.conn, initRequest{Count: true}) != nil {
		return false
	}
	var answer initReply
	_, err := receiveMessage(r.conn, &answer)
	return err == nil && answer.Last
}

// Wait waits until the namespace has ended. It is for clients that run no task there.
func (r *Namespace) Wait(ctx context.Context) error {
	_ = r.conn.SetReadDeadline(time.Time{})
	defer context.AfterFunc(ctx, func() { _ = r.conn.SetReadDeadline(time.Now()) })()
	for {
		if _, err := receiveMessage(r.conn, &initReply{}); err != nil { // no reply is expected: only the end of the connection ends the wait
			return context.Cause(ctx)
		}
	}
}

// Close leaves the namespace. If there is no other client, nothing of the namespace is left when Close returns, except
// for an init process that holds no descriptors any more and is about to exit.
func (r *Namespace) Close() error {
	switch {
	case r.aborted:
		return nil
	case r.pending:
		return r.abort()
	}
	_ = r.conn.SetDeadline(time.Now().Add(initTimeout))
	err := sendMessage(r.conn, initRequest{Leave: true})
	var answer initReply
	if err == nil {
		_, err = receiveMessage(r.conn, &answer)
	}
	closeErr := r.conn.Close()
	if err != nil && !r.waitEnded(initTimeout) {
		closeErr = errors.Join(closeErr, errors.New("the init process of the namespaces does not exit"), err)
	}
	return errors.Join(closeErr, unix.Close(r.initPIDFD))
}

// EndedWithin reports whether all processes in the namespace are gone, or are gone within t, because it was asked to
// terminate.
func (r *Namespace) EndedWithin(t time.Duration) bool { return r.waitEnded(t) }

// waitEnded reports whether the init process, and so every process in the namespace, is gone within the given time.
func (r *Namespace) waitEnded(timeout time.Duration) bool {
	for deadline := time.Now().Add(timeout); ; {
		left := max(time.Until(deadline), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(r.initPIDFD), Events: unix.POLLIN}}, int(left.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n > 0
		}
	}
}
