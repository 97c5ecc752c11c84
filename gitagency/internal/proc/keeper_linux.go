package proc

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// initProcess is process 1 of a namespace. It runs the first program as its own child, which is fastest; for each
// program started while that one runs it starts a supervisor. All other processes in the namespace descend from these.
type keeper struct {
	builder Builder
	plan    []byte

	family family
	events chan func() // closures run by the event loop; only they change the fields below
	leases map[*net.UnixConn]bool
	seat   *sitting // program that runs as our own child; nil: none
	open   bool     // the creator has allowed others to join
	ending bool     // the namespace was asked to terminate

	last *net.UnixConn // client that left last, and waits for the namespace to be torn down
}

// directRun is a program that runs as a child of the init process.
type sitting struct{ asked chan os.Signal }

// runInit is the main function of an init process.
func keep(b Builder) {
	endRequests, prepared := make(chan os.Signal, 2), make(chan struct{})
	go func() { // in parallel with the planning and applying of the walls
		defer close(prepared)
		heed(endRequests)
		gatherThreads()
		if b.Ready != nil {
			b.Ready()
		}
	}()
	err := closeOnExec()
	_ = unix.Close(lastFD) // see padFDTable
	client, connErr := asConn(os.NewFile(orderFD, "lease"))
	if err != nil || connErr != nil {
		return // without a message: the creator sees the connection end
	}
	plan := make([]byte, maxMessage)
	n, err := client.Read(plan)
	if err != nil {
		return
	}
	k := &keeper{builder: b, plan: plan[:n], events: make(chan func(), 16), leases: map[*net.UnixConn]bool{}}
	k.family.beside = map[int]bool{}
	joinConn, err := k.raise()
	if err != nil {
		_ = send(client, reply{Refused: err.Error()})
		return
	}
	<-prepared // before anything can run here
	if send(client, reply{}) != nil {
		return
	}
	k.leases[client] = true
	sigchld := make(chan os.Signal, 1)
	signal.Notify(sigchld, syscall.SIGCHLD)
	go k.family.reap(sigchld, func(f func()) { k.events <- f })
	go k.serve(client)
	go k.admit(joinConn)
	for {
		select {
		case change := <-k.events:
			change()
		case <-endRequests:
			k.end()
		}
		idle := k.seat == nil && len(k.family.others()) == 0
		if k.holders() > 0 && !(k.ending && idle) {
			continue
		}
		if idle && (b.Clear == nil || b.Clear(k.plan) == nil) {
			k.farewell()
		}
		return
	}
}

// notifyLast closes all descriptors held for clients and then tells the last client that the namespace is gone.
func (k *keeper) farewell() {
	held, err := strconv.Atoi(os.Args[3])
	if k.last == nil || err != nil {
		return
	}
	for fd := orderFD + 1; fd <= orderFD+held; fd++ {
		_ = unix.Close(fd)
	}
	_ = send(k.last, reply{Last: true}) // a client that does not receive it waits for our exit
}

// userCount counts the clients for which the namespace stays open: observers and clients that joined too early are
// false.
func (k *keeper) holders() (n int) {
	for _, holds := range k.leases {
		if holds {
			n++
		}
	}
	return n
}

// applyWalls builds the walls and then opens the socket for clients that join.
func (k *keeper) raise() (joinConn *net.UnixConn, err error) {
	if os.Getpid() != 1 {
		return nil, errors.New("not process 1")
	}
	if k.builder.Raise == nil {
		return nil, errors.New("nobody here can build walls")
	}
	if err := k.builder.Raise(k.plan); err != nil {
		return nil, err
	}
	joinConn, clientEnd, err := conversation()
	if err != nil {
		return nil, err
	}
	defer clientEnd.Close()
	return joinConn, os.NewSyscallError("dup3", unix.Dup3(int(clientEnd.Fd()), doorFD, unix.O_CLOEXEC))
}

// acceptJoins accepts clients that join.
func (k *keeper) admit(joinConn *net.UnixConn) {
	for {
		var req request
		fds, err := receive(joinConn, &req)
		if err != nil {
			return
		}
		if len(fds) != 1 {
			closeAll(fds)
			continue
		}
		client, err := asConn(os.NewFile(uintptr(fds[0]), "lease"))
		if err != nil {
			continue
		}
		k.events <- func() {
			if k.ending || send(client, reply{Plan: k.plan, Open: k.open}) != nil {
				_ = client.Close()
				return
			}
			k.leases[client] = !req.Visit && k.open
			go k.serve(client)
		}
	}
}

// serveClient executes the requests of one client.
func (k *keeper) serve(client *net.UnixConn) {
	for {
		var req request
		fds, err := receive(client, &req)
		if err != nil {
			k.events <- func() { delete(k.leases, client); _ = client.Close() }
			return
		}
		k.events <- func() {
			switch {
			case req.Run && len(fds) >= 5 && !k.ending:
				k.run(fds)
			case req.Listen != "" && len(fds) == 1:
				listen(req.Listen, fds[0])
			case req.Dial != "" && len(fds) == 1:
				go dial(req.Dial, fds[0])
			case req.LetIn:
				k.open = true
				_ = send(client, reply{Open: true})
			case req.Count:
				_ = send(client, reply{Last: len(k.leases) == 1})
			case req.Leave:
				if k.leases[client] && k.holders() == 1 {
					k.last = client
				} else {
					_ = send(client, reply{})
				}
				delete(k.leases, client)
			default:
				closeAll(fds)
			}
		}
	}
}

// runTask runs a program: as our own child, if there is none, else below a new supervisor.
func (k *keeper) run(fds []int) {
	if k.seat != nil {
		_, _, err := k.family.start(beside, func() (int, error) { return k.forkInside(fds) })
		if err != nil {
			s := supervisor{control: os.NewFile(uintptr(fds[0]), "control")}
			s.say(answer{Failed: err.Error()})
			_ = s.control.Close()
			fds = fds[1:]
		}
		closeAll(fds)
		return
	}
	k.seat = &sitting{asked: make(chan os.Signal, 2)}
	go func(endRequests <-chan os.Signal) {
		k.sit(fds, endRequests)
		k.events <- func() { k.seat = nil }
	}(k.seat.asked)
}

// runDirect runs a program as our own child and supervises it.
func (k *keeper) sit(fds []int, endRequests <-chan os.Signal) {
	s := supervisor{
		control: os.NewFile(uintptr(fds[0]), "control"), dir: os.NewFile(uintptr(fds[1]), "dir"), streams: [3]int(fds[2:5]),
		shut: func() error { return k.builder.Shut(k.plan) },
	}
	s.at = func(n int) int { // the caller closes it, and the number may then be reused
		fd := fds[n]
		fds[n] = -1
		return fd
	}
	defer closeAll(fds[5:])
	defer s.dir.Close()
	defer s.control.Close()
	defer func() { _ = unix.Shutdown(fds[0], unix.SHUT_RDWR) }() // all readers of the socket notice, including ours
	decoder := json.NewDecoder(s.control)
	err := decoder.Decode(&s.order)
	if err == nil {
		err = s.stand()
	}
	if err != nil {
		s.say(answer{Failed: err.Error()})
		closeAll(fds[2:5])
		return
	}
	var kids *children
	started := s.begin(func(start func() (int, error)) (pid int, err error) {
		kids, pid, err = k.family.start(inSeat, start)
		return pid, err
	})
	if !started {
		closeAll(fds[2:5])
		return
	}
	s.oversee(k, kids, s.requests(decoder.Buffered()), endRequests)
	s.say(answer{Gone: true})
}

// forkSupervisor starts a supervisor for a program that runs beside another.
func (k *keeper) forkInside(fds []int) (int, error) {
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
	return syscall.ForkExec(self(), []string{supervisorName, os.Args[1], roleInside}, attr)
}

// planFD is the descriptor on which a supervisor in a namespace finds the plan of the walls.
const planFD = streamFD + 3

// namespaceSupervisor returns the supervisor that this process is, in a namespace.
func inside(b Builder) supervisor {
	s := inherited()
	s.at = func(n int) int { return orderFD + n + 1 } // the plan is in between
	s.shut = func() error {
		plan, err := io.ReadAll(io.NewSectionReader(os.NewFile(planFD, "plan"), 0, maxMessage))
		if err != nil {
			return err
		}
		return b.Shut(plan)
	}
	return s
}

// listenAndSend listens on the network of the namespace and sends the listener to a client.
func listen(address string, fd int) {
	to, err := asConn(os.NewFile(uintptr(fd), "conversation"))
	if err != nil {
		return
	}
	defer to.Close()
	l, err := net.Listen("tcp", address)
	if err != nil {
		_ = send(to, reply{Refused: err.Error()})
		return
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		_ = send(to, reply{Refused: err.Error()})
		return
	}
	defer f.Close()
	_ = send(to, reply{}, f)
}

// dialAndSend connects to a listener in the namespace and sends the connection to a client.
func dial(address string, fd int) {
	to, err := asConn(os.NewFile(uintptr(fd), "conversation"))
	if err != nil {
		return
	}
	defer to.Close()
	conn, err := net.DialTimeout("tcp", address, patienceWithKeepers)
	if err != nil {
		_ = send(to, reply{Refused: err.Error()})
		return
	}
	defer conn.Close()
	f, err := conn.(*net.TCPConn).File()
	if err != nil {
		_ = send(to, reply{Refused: err.Error()})
		return
	}
	defer f.Close()
	_ = send(to, reply{}, f)
}

// terminateAll asks every program in the namespace to end; on a second call they are killed.
func (k *keeper) end() {
	k.ending = true
	if k.seat != nil {
		select {
		case k.seat.asked <- syscall.SIGTERM:
		default: // enough requests are queued
		}
	}
	for _, pid := range k.family.others() {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
}

// terminate sends SIGTERM to the direct program and its descendants. When there are no other supervisors it signals the
// whole namespace, where the kernel misses no process.
func (k *keeper) tell(h hunt, program int) (found int) {
	k.family.alone(func(others []int) {
		h.spare(others)
		if len(others) > 0 {
			found = Subreaper.tell(h, program)
		} else {
			found = PIDNamespace.tell(h, program)
		}
	})
	return found
}

func (k *keeper) retell(h hunt) (found int) {
	k.family.alone(func(others []int) {
		h.spare(others)
		found = Subreaper.retell(h)
	})
	return found
}

func (k *keeper) finish(_ int, empty <-chan struct{}) {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		var others []int
		k.family.alone(func(pids []int) {
			if others = pids; len(others) == 0 {
				_ = syscall.Kill(-1, syscall.SIGKILL) // all but process 1, atomically: no process is left that could fork
			}
		})
		if len(others) > 0 {
			// In rounds during which no supervisor can be started: a supervisor that is in no list yet would be
			// taken for a descendant, and a child that is stopped between fork and exec blocks us.
			chase(k.family.alone, empty)
			return
		}
		select {
		case <-empty:
			return
		case <-time.After(pause):
		}
	}
}

func (k *keeper) leave(int) {}
