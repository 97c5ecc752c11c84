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

// keeper is process 1 of a room. The first program that runs there is its own child, because that is the
// fastest; for each that comes while another runs it starts a supervisor. Everything else in the room came
// of these, or was left by one of them.
type keeper struct {
	builder Builder
	plan    []byte

	family family
	events chan func() // everything below is changed by one goroutine alone
	leases map[*net.UnixConn]bool
	seat   *sitting // the program that runs as a child of ours; nil is none
	open   bool     // who opened the room has let others in
	ending bool     // somebody wants the room to be empty

	last *net.UnixConn // of who left as the last, and waits to hear that nothing is left of the room
}

// sitting is a program that runs in the seat.
type sitting struct{ asked chan os.Signal }

// keep is what a keeper does with its life.
func keep(b Builder) {
	asked, gathered := make(chan os.Signal, 2), make(chan struct{})
	go func() { // while the walls are being planned, and raised
		defer close(gathered)
		heed(asked)
		gatherThreads()
		if b.Ready != nil {
			b.Ready()
		}
	}()
	err := closeOnExec()
	_ = unix.Close(lastFD) // see roomy
	lease, connErr := asConn(os.NewFile(orderFD, "lease"))
	if err != nil || connErr != nil {
		return // without a word: whoever waits for one will know
	}
	plan := make([]byte, maxMessage)
	n, err := lease.Read(plan)
	if err != nil {
		return
	}
	k := &keeper{builder: b, plan: plan[:n], events: make(chan func(), 16), leases: map[*net.UnixConn]bool{}}
	k.family.beside = map[int]bool{}
	door, err := k.raise()
	if err != nil {
		_ = send(lease, reply{Refused: err.Error()})
		return
	}
	<-gathered // before anything can run here
	if send(lease, reply{}) != nil {
		return
	}
	k.leases[lease] = true
	some := make(chan os.Signal, 1)
	signal.Notify(some, syscall.SIGCHLD)
	go k.family.reap(some, func(f func()) { k.events <- f })
	go k.serve(lease)
	go k.admit(door)
	for {
		select {
		case change := <-k.events:
			change()
		case <-asked:
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

// farewell lets go of everything that somebody else might wait for, and says so.
func (k *keeper) farewell() {
	held, err := strconv.Atoi(os.Args[3])
	if k.last == nil || err != nil {
		return
	}
	for fd := orderFD + 1; fd <= orderFD+held; fd++ {
		_ = unix.Close(fd)
	}
	_ = send(k.last, reply{Last: true}) // who does not hear it waits for our end
}

// holders counts the leases for which the room stays open: those of visitors are false, and of whoever came too early.
func (k *keeper) holders() (n int) {
	for _, holds := range k.leases {
		if holds {
			n++
		}
	}
	return n
}

// raise builds the walls, and opens the door for whoever joins.
func (k *keeper) raise() (door *net.UnixConn, err error) {
	if os.Getpid() != 1 {
		return nil, errors.New("not process 1")
	}
	if k.builder.Raise == nil {
		return nil, errors.New("nobody here can build walls")
	}
	if err := k.builder.Raise(k.plan); err != nil {
		return nil, err
	}
	door, outside, err := conversation()
	if err != nil {
		return nil, err
	}
	defer outside.Close()
	return door, os.NewSyscallError("dup3", unix.Dup3(int(outside.Fd()), doorFD, unix.O_CLOEXEC))
}

// admit lets in who joins.
func (k *keeper) admit(door *net.UnixConn) {
	for {
		var knock request
		fds, err := receive(door, &knock)
		if err != nil {
			return
		}
		if len(fds) != 1 {
			closeAll(fds)
			continue
		}
		lease, err := asConn(os.NewFile(uintptr(fds[0]), "lease"))
		if err != nil {
			continue
		}
		k.events <- func() {
			if k.ending || send(lease, reply{Plan: k.plan, Open: k.open}) != nil {
				_ = lease.Close()
				return
			}
			k.leases[lease] = !knock.Visit && k.open
			go k.serve(lease)
		}
	}
}

// serve does what one who has the room open asks for.
func (k *keeper) serve(lease *net.UnixConn) {
	for {
		var ask request
		fds, err := receive(lease, &ask)
		if err != nil {
			k.events <- func() { delete(k.leases, lease); _ = lease.Close() }
			return
		}
		k.events <- func() {
			switch {
			case ask.Run && len(fds) >= 5 && !k.ending:
				k.run(fds)
			case ask.Listen != "" && len(fds) == 1:
				listen(ask.Listen, fds[0])
			case ask.Dial != "" && len(fds) == 1:
				go dial(ask.Dial, fds[0])
			case ask.LetIn:
				k.open = true
				_ = send(lease, reply{Open: true})
			case ask.Count:
				_ = send(lease, reply{Last: len(k.leases) == 1})
			case ask.Leave:
				if k.leases[lease] && k.holders() == 1 {
					k.last = lease
				} else {
					_ = send(lease, reply{})
				}
				delete(k.leases, lease)
			default:
				closeAll(fds)
			}
		}
	}
}

// run runs a program: in the seat, if that is free.
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
	go func(asked <-chan os.Signal) {
		k.sit(fds, asked)
		k.events <- func() { k.seat = nil }
	}(k.seat.asked)
}

// sit runs a program as a child of ours.
func (k *keeper) sit(fds []int, asked <-chan os.Signal) {
	s := supervisor{
		control: os.NewFile(uintptr(fds[0]), "control"), dir: os.NewFile(uintptr(fds[1]), "dir"), streams: [3]int(fds[2:5]),
		shut: func() error { return k.builder.Shut(k.plan) },
	}
	s.at = func(n int) int { // from then on it is the caller's to close, and its number somebody else's
		fd := fds[n]
		fds[n] = -1
		return fd
	}
	defer closeAll(fds[5:])
	defer s.dir.Close()
	defer s.control.Close()
	defer func() { _ = unix.Shutdown(fds[0], unix.SHUT_RDWR) }() // which whoever reads from it notices, here too
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
	var set *children
	begun := s.begin(func(start func() (int, error)) (pid int, err error) {
		set, pid, err = k.family.start(inSeat, start)
		return pid, err
	})
	if !begun {
		closeAll(fds[2:5])
		return
	}
	s.oversee(k, set, s.requests(decoder.Buffered()), asked)
	s.say(answer{Gone: true})
}

// forkInside starts a supervisor for a program that runs beside another.
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

// planFD is where a supervisor in a room finds the plan of the walls.
const planFD = streamFD + 3

// inside is a supervisor in a room.
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

// listen listens for somebody.
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

// dial connects somebody with what listens here.
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

// end asks every program in the room to end, and when asked again, ends them at once.
func (k *keeper) end() {
	k.ending = true
	if k.seat != nil {
		select {
		case k.seat.asked <- syscall.SIGTERM:
		default: // it has been asked often enough
		}
	}
	for _, pid := range k.family.others() {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
}

// tell asks what came of the program in the seat to end. When nothing else is there, the kernel misses nobody.
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
		k.family.alone(func(beside []int) {
			if others = beside; len(others) == 0 {
				_ = syscall.Kill(-1, syscall.SIGKILL) // everybody but us, at once: nobody is left who could fork
			}
		})
		if len(others) > 0 {
			// Round by round, with nobody being started meanwhile: a supervisor that no list knows yet would be
			// taken for what is chased, and one that is stopped before it is itself, stops us.
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
