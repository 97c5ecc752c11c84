package proc

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// initProcess is process 1 of a namespace. It runs the first program as its own child, which is fastest; for each
// program started while that one runs it starts a supervisor. All other processes in the namespace descend from these.
type initProcess struct {
	builder WallBuilder
	plan    []byte

	children initChildren
	events   chan func() // closures run by the event loop; only they change the fields below
	clients  map[*net.UnixConn]bool
	direct   *directRun // program that runs as our own child; nil: none
	joinable bool       // the creator has allowed others to join
	ending   bool       // the namespace was asked to terminate

	lastClient *net.UnixConn // client that left last, and waits for the namespace to be torn down
}

// directRun is a program that runs as a child of the init process.
type directRun struct{ terminateRequests chan os.Signal }

// runInit is the main function of an init process.
func runInit(b WallBuilder) {
	endRequests, prepared := make(chan os.Signal, 2), make(chan struct{})
	go func() { // in parallel with the planning and applying of the walls
		defer close(prepared)
		handleSignals(endRequests)
		preallocateThreads()
		if b.Prepare != nil {
			b.Prepare()
		}
	}()
	err := setCloseOnExec()
	_ = unix.Close(maxFD) // see initFDs; nothing else has this number yet
	client, connErr := newUnixConn(os.NewFile(controlFD, "client"))
	if err != nil || connErr != nil {
		return // without a message: the creator sees the connection end
	}
	plan := make([]byte, maxPlanSize)
	n, err := client.Read(plan)
	if err != nil {
		return
	}
	k := &initProcess{builder: b, plan: plan[:n], events: make(chan func(), 16), clients: map[*net.UnixConn]bool{}}
	k.children.supervisors = map[int]bool{}
	joinConn, err := k.applyWalls()
	if err != nil {
		_ = sendMessage(client, initReply{Error: err.Error(), NoFiles: errors.Is(err, unix.EMFILE)})
		return
	}
	<-prepared // before anything can run here
	if sendMessage(client, initReply{}) != nil {
		return
	}
	k.clients[client] = true
	sigchld := make(chan os.Signal, 1)
	signal.Notify(sigchld, syscall.SIGCHLD)
	go k.children.reap(sigchld, func(f func()) { k.events <- f })
	go k.serveClient(client)
	go k.acceptJoins(joinConn)
	for {
		select {
		case change := <-k.events:
			change()
		case <-endRequests:
			k.terminateAll()
		}
		idle := k.direct == nil && len(k.children.supervisorPIDs()) == 0
		if k.userCount() > 0 && !(k.ending && idle) {
			continue
		}
		if idle && (b.Dismantle == nil || b.Dismantle(k.plan) == nil) {
			k.notifyLast()
		}
		return
	}
}

// notifyLast closes all descriptors held for clients and then tells the last client that the namespace is gone.
func (k *initProcess) notifyLast() {
	held, err := strconv.Atoi(os.Args[3])
	if k.lastClient == nil || err != nil {
		return
	}
	for fd := controlFD + 1; fd <= controlFD+held; fd++ {
		_ = unix.Close(fd)
	}
	_ = sendMessage(k.lastClient, initReply{Last: true}) // a client that does not receive it waits for our exit
}

// userCount counts the clients for which the namespace stays open: observers and clients that joined too early are
// false.
func (k *initProcess) userCount() (n int) {
	for _, holds := range k.clients {
		if holds {
			n++
		}
	}
	return n
}

// applyWalls builds the walls and then opens the socket for clients that join.
func (k *initProcess) applyWalls() (joinConn *net.UnixConn, err error) {
	if os.Getpid() != 1 {
		return nil, errors.New("not process 1")
	}
	if k.builder.Apply == nil {
		return nil, errors.New("this program cannot build walls")
	}
	if err := k.builder.Apply(k.plan); err != nil {
		return nil, err
	}
	joinConn, clientEnd, err := seqpacketPair()
	if err != nil {
		return nil, err
	}
	defer clientEnd.Close()
	return joinConn, os.NewSyscallError("dup3", unix.Dup3(int(clientEnd.Fd()), joinFD, unix.O_CLOEXEC))
}

// acceptJoins accepts clients that join.
func (k *initProcess) acceptJoins(joinConn *net.UnixConn) {
	for {
		var req initRequest
		fds, err := receiveMessage(joinConn, &req)
		if err != nil {
			return
		}
		if len(fds) != 1 {
			closeFDs(fds)
			continue
		}
		client, err := newUnixConn(os.NewFile(uintptr(fds[0]), "client"))
		if err != nil {
			continue
		}
		k.events <- func() {
			if k.ending || sendMessage(client, initReply{Plan: k.plan, Joinable: k.joinable}) != nil {
				_ = client.Close()
				return
			}
			k.clients[client] = !req.Observe && k.joinable
			go k.serveClient(client)
		}
	}
}

// serveClient executes the requests of one client.
func (k *initProcess) serveClient(client *net.UnixConn) {
	for {
		var req initRequest
		fds, err := receiveMessage(client, &req)
		if err != nil {
			k.events <- func() { delete(k.clients, client); _ = client.Close() }
			return
		}
		k.events <- func() {
			switch {
			case req.Run && len(fds) >= 5 && !k.ending:
				k.runTask(fds)
			case req.Listen != "" && len(fds) == 1:
				listenAndSend(req.Listen, fds[0])
			case req.Dial != "" && len(fds) == 1:
				go dialAndSend(req.Dial, fds[0])
			case req.OpenDir != "" && len(fds) == 1:
				sendFile(fds[0], func() (*os.File, error) { return openMountPoint(req.OpenDir) })
			case req.CloneMount != "" && len(fds) == 1:
				sendFile(fds[0], func() (*os.File, error) { return cloneMount(req.CloneMount) })
			case req.AllowJoin:
				k.joinable = true
				_ = sendMessage(client, initReply{Joinable: true})
			case req.Count:
				_ = sendMessage(client, initReply{Last: len(k.clients) == 1})
			case req.Leave:
				if k.clients[client] && k.userCount() == 1 {
					k.lastClient = client
				} else {
					_ = sendMessage(client, initReply{})
				}
				delete(k.clients, client)
			default:
				closeFDs(fds)
			}
		}
	}
}

// runTask runs a program: as our own child, if there is none, else below a new supervisor.
func (k *initProcess) runTask(fds []int) {
	if k.direct != nil {
		_, _, err := k.children.startChild(supervisorChild, func() (int, error) { return k.forkSupervisor(fds) })
		if err != nil {
			s := supervisor{control: os.NewFile(uintptr(fds[0]), "control")}
			s.report(supervisorReport{StartError: err.Error()})
			_ = s.control.Close()
			fds = fds[1:]
		}
		closeFDs(fds)
		return
	}
	k.direct = &directRun{terminateRequests: make(chan os.Signal, 2)}
	go func(endRequests <-chan os.Signal) {
		k.runDirect(fds, endRequests)
		k.events <- func() { k.direct = nil }
	}(k.direct.terminateRequests)
}

// runDirect runs a program as our own child and supervises it.
func (k *initProcess) runDirect(fds []int, endRequests <-chan os.Signal) {
	s := supervisor{
		control: os.NewFile(uintptr(fds[0]), "control"), dir: os.NewFile(uintptr(fds[1]), "dir"), streams: [3]int(fds[2:5]),
		restrict: func(inRoot bool) error { return k.builder.Restrict(k.plan, inRoot) },
	}
	s.fdAt = func(n int) int { // the caller closes it, and the number may then be reused
		fd := fds[n]
		fds[n] = -1
		return fd
	}
	defer closeFDs(fds[5:])
	defer s.dir.Close()
	defer s.control.Close()
	defer func() { _ = unix.Shutdown(fds[0], unix.SHUT_RDWR) }() // all readers of the socket notice, including ours
	decoder := json.NewDecoder(s.control)
	err := decoder.Decode(&s.order)
	if err == nil {
		err = s.chdirVerified()
	}
	if err != nil {
		s.report(supervisorReport{StartError: err.Error()})
		closeFDs(fds[2:5])
		return
	}
	defer func() { s.releaseTerminal() }()
	var kids *children
	started := s.startAndReport(func(start func() (int, error)) (pid int, err error) {
		kids, pid, err = k.children.startChild(directChild, start)
		return pid, err
	})
	if !started {
		closeFDs(fds[2:5])
		return
	}
	s.superviseUntilGone(k, kids, s.readRequests(decoder.Buffered()), endRequests)
	s.report(supervisorReport{AllGone: true})
}

// forkSupervisor starts a supervisor for a program that runs beside another.
func (k *initProcess) forkSupervisor(fds []int) (int, error) {
	plan, err := unix.MemfdCreate("plan", unix.MFD_CLOEXEC)
	if err != nil {
		return 0, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(plan), "plan")
	defer file.Close()
	if _, err := file.WriteAt(k.plan, 0); err != nil {
		return 0, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	attr := &syscall.ProcAttr{Env: []string{"GOMAXPROCS=2"}, Dir: "/", Sys: &syscall.SysProcAttr{Setsid: true}}
	for range 3 {
		attr.Files = append(attr.Files, null.Fd())
	}
	for _, fd := range slices.Concat(fds[:5], []int{plan}, fds[5:]) {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	return syscall.ForkExec(selfExe(), []string{supervisorName, os.Args[1], roleSupervisor}, attr)
}

// planFD is the descriptor on which a supervisor in a namespace finds the plan of the walls.
const planFD = streamFD + 3

// namespaceSupervisor returns the supervisor that this process is, in a namespace.
func namespaceSupervisor(b WallBuilder) supervisor {
	s := newInheritedSupervisor()
	s.fdAt = func(n int) int { return controlFD + n + 1 } // the plan is in between
	s.restrict = func(inRoot bool) error {
		plan, err := io.ReadAll(io.NewSectionReader(os.NewFile(planFD, "plan"), 0, maxPlanSize))
		if err != nil {
			return err
		}
		return b.Restrict(plan, inRoot)
	}
	return s
}

// listenAndSend listens on the network of the namespace and sends the listener to a client.
func listenAndSend(address string, fd int) {
	to, err := newUnixConn(os.NewFile(uintptr(fd), "conversation"))
	if err != nil {
		return
	}
	defer to.Close()
	l, err := net.Listen("tcp", address)
	if err != nil {
		_ = sendMessage(to, initReply{Error: err.Error()})
		return
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		_ = sendMessage(to, initReply{Error: err.Error()})
		return
	}
	defer f.Close()
	_ = sendMessage(to, initReply{}, f)
}

// sendFile opens a file in the namespace and sends it to a client.
func sendFile(fd int, open func() (*os.File, error)) {
	to, err := newUnixConn(os.NewFile(uintptr(fd), "conversation"))
	if err != nil {
		return
	}
	defer to.Close()
	f, err := open()
	if err != nil {
		_ = sendMessage(to, initReply{Error: err.Error()})
		return
	}
	defer f.Close()
	_ = sendMessage(to, initReply{}, f)
}

// openMountPoint opens the top directory of the file system that is mounted at a path, without what is mounted below it.
func openMountPoint(path string) (*os.File, error) {
	mount, err := cloneMount(path)
	if err != nil {
		return nil, err
	}
	defer mount.Close()
	dir, err := unix.Openat(int(mount.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(dir), path), nil
}

// cloneMount returns a copy of the mount at a path, which is attached nowhere, without what is mounted below it.
func cloneMount(path string) (*os.File, error) {
	fail := func(err error) (*os.File, error) { return nil, &fs.PathError{Op: "open", Path: path, Err: err} }
	at, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return fail(err)
	}
	defer unix.Close(at)
	mount, err := unix.OpenTree(at, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return fail(err)
	}
	return os.NewFile(uintptr(mount), path), nil
}

// dialAndSend connects to a listener in the namespace and sends the connection to a client.
func dialAndSend(address string, fd int) {
	to, err := newUnixConn(os.NewFile(uintptr(fd), "conversation"))
	if err != nil {
		return
	}
	defer to.Close()
	conn, err := net.DialTimeout("tcp", address, initTimeout)
	if err != nil {
		_ = sendMessage(to, initReply{Error: err.Error()})
		return
	}
	defer conn.Close()
	f, err := conn.(*net.TCPConn).File()
	if err != nil {
		_ = sendMessage(to, initReply{Error: err.Error()})
		return
	}
	defer f.Close()
	_ = sendMessage(to, initReply{}, f)
}
