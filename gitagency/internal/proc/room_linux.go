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

// Room is a set of namespaces with walls around them, in which several programs run at the same time: they
// see each other and what each of them does, and everything outside only as the walls let them. Process 1
// in it, the keeper, lives for as long as somebody has the room open. It is found by its label alone: no
// file and no name leads to it.
type Room struct {
	Plan   []byte // of the walls that stand
	Opened bool   // by us: nobody else was there
	Open   bool   // to others: else it ends with whoever opened it, and who joins has to go and come back

	conn   *net.UnixConn
	keeper int  // a descriptor of its process
	rising bool // the keeper has not said yet that the walls stand
	over   bool // and never will
}

// request is what is asked of a keeper, with descriptors beside it.
type request struct {
	Visit  bool   `json:"visit,omitempty"`  // by whoever joins: the room need not stay open for them
	LetIn  bool   `json:"let_in,omitempty"` // by whoever opened it: from now on it stays open for others too
	Run    bool   `json:"run,omitempty"`    // with: control, directory, three streams, and what is to be held
	Listen string `json:"listen,omitempty"`
	Dial   string `json:"dial,omitempty"`
	Count  bool   `json:"count,omitempty"`
	Leave  bool   `json:"leave,omitempty"`
}

// reply is the keeper's answer to all of these but Run, whose answers come by its control.
type reply struct {
	Refused string `json:"refused,omitempty"`
	Plan    []byte `json:"plan,omitempty"`
	Open    bool   `json:"open,omitempty"` // to whoever joins, and to LetIn
	Last    bool   `json:"last,omitempty"` // to Count: nobody else is there; to Leave: nothing is left of the room
}

// doorFD is where a keeper has the end of a connection that those who join it take from it. Whoever may
// trace the keeper may; nobody in the room may.
const doorFD = 200

// lastFD is the last descriptor that a keeper has room for.
const lastFD = 255

// patienceWithKeepers: one does little, and that at once, unless the machine is very busy.
const patienceWithKeepers = 30 * time.Second

// Open makes a room and goes into it. The caller sees to it that nobody else does so under the same label;
// what it holds for that, the keeper keeps open. A *WallError says what could not be built.
func (w Walls) Open(ctx context.Context, label string, hold ...*os.File) (*Room, error) {
	r, err := w.Begin(ctx, label, hold...)
	if err == nil {
		err = r.Stand(ctx)
	}
	if err != nil {
		return nil, err
	}
	if err := r.LetIn(); err != nil {
		return nil, &WallError{errors.Join(err, r.Close())}
	}
	return r, nil
}

// Begin is Open that does not wait for the walls, and lets nobody else in. Stand waits; before that nothing can be
// done with the room but to close it. LetIn lets others in.
func (w Walls) Begin(ctx context.Context, label string, hold ...*os.File) (_ *Room, err error) {
	ours, theirs, err := conversation()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = ours.Close()
		}
	}()
	drawn := Meanwhile(w.draw)
	keeper, err := w.fork(label, append([]*os.File{theirs}, hold...))
	_ = theirs.Close()
	plan, drawErr := drawn() // nobody may draw any more when the caller goes on
	if err != nil {
		return nil, &WallError{fmt.Errorf("namespaces: %w", err)}
	}
	r := &Room{Plan: plan, Opened: true, conn: ours, keeper: keeper, rising: true}
	if err = drawErr; err == nil {
		// One that is gone already has said why.
		if _, err = ours.Write(plan); err != nil && !errors.Is(err, syscall.EPIPE) {
			err = &WallError{err}
		} else {
			err = nil
		}
	}
	if err != nil {
		return nil, errors.Join(err, r.abandon())
	}
	return r, nil
}

// fork starts a keeper, and returns a descriptor of its process. It goes around os/exec, which would start a
// process beforehand to find out whether there are such descriptors.
func (w Walls) fork(label string, files []*os.File) (keeper int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return -1, err
	}
	defer null.Close()
	keeper = -1
	attr := &syscall.ProcAttr{Env: []string{"GOMAXPROCS=2"}, Dir: "/", Sys: w.namespaces()}
	attr.Sys.PidFD = &keeper
	for _, f := range slices.Concat([]*os.File{null, null, null}, roomy(files)) {
		fd := ^uintptr(0) // which is none
		if f != nil {
			fd = f.Fd()
		}
		attr.Files = append(attr.Files, fd)
	}
	pid, err := syscall.ForkExec(self(), []string{supervisorName, label, roleKeeper, strconv.Itoa(len(files) - 1)}, attr)
	if err != nil {
		return -1, err
	}
	if keeper == -1 {
		if keeper, err = unix.PidfdOpen(pid, 0); err != nil {
			err = os.NewSyscallError("pidfd_open", err)
		}
	}
	go func() { // whenever that may be; how it exits says nothing
		for {
			if _, err := syscall.Wait4(pid, nil, 0, nil); !errors.Is(err, syscall.EINTR) {
				return
			}
		}
	}()
	return keeper, err
}

// draw has the walls drawn.
func (w Walls) draw() ([]byte, error) {
	plan, err := w.Plan, error(nil)
	if w.Draw != nil {
		plan, err = w.Draw()
	}
	if err == nil && len(plan) > maxMessage {
		err = &WallError{errors.New("the plan is too long: there is too much to hide, or to let pass")}
	}
	return plan, err
}

// Stand waits until the walls stand. If they do not, there is no room.
func (r *Room) Stand(ctx context.Context) error {
	if !r.rising {
		return nil
	}
	r.rising = false
	if _, err := r.hear(ctx, maxWords); err != nil {
		return errors.Join(err, r.abandon())
	}
	return nil
}

// LetIn has the room stay open for those who join from now on, also when we are gone.
func (r *Room) LetIn() error {
	_ = r.conn.SetDeadline(time.Now().Add(patienceWithKeepers))
	err := send(r.conn, request{LetIn: true})
	var answer reply
	if err == nil {
		_, err = receive(r.conn, &answer)
	}
	r.Open = answer.Open
	return errors.Join(err, r.conn.SetDeadline(time.Time{}))
}

// abandon ends a room that never was one.
func (r *Room) abandon() error {
	r.over = true
	_ = r.conn.Close() // the keeper may still wait to be told what to build
	r.ended(patienceWithKeepers)
	return unix.Close(r.keeper)
}

// roomy has the kernel make a table for as many descriptors as a keeper will need, by giving it the last of
// them. While it has only one thread, that costs nothing; later, each time the table grows, every processor
// has to be waited for.
func roomy(files []*os.File) []*os.File {
	return append(files, append(make([]*os.File, lastFD-orderFD-len(files)), files[0])...)
}

// namespaces are those of a room. Everybody stays who they are in it. The powers are those of the namespaces
// alone, and the keeper's; no program gets them.
func (w Walls) namespaces() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Setsid:      true,
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP, unix.CAP_DAC_OVERRIDE},
	}
	if os.Geteuid() == 0 { // who may name everybody there is: else their files would look like nobody's
		attr.UidMappings = identities("/proc/self/uid_map", attr.UidMappings)
		attr.GidMappings = identities("/proc/self/gid_map", attr.GidMappings)
		attr.GidMappingsEnableSetgroups = maySetGroups()
	}
	if w.Network {
		attr.Cloneflags |= unix.CLONE_NEWNET
	}
	return attr
}

// maySetGroups: whoever is root in a namespace alone may not, and can then not allow it to others either.
func maySetGroups() bool {
	may, err := os.ReadFile("/proc/self/setgroups")
	return err == nil && string(may) == "allow\n"
}

// identities maps everybody who exists in our own namespace to themselves.
func identities(file string, otherwise []syscall.SysProcIDMap) (all []syscall.SysProcIDMap) {
	data, err := os.ReadFile(file)
	if err != nil {
		return otherwise
	}
	for line := range strings.Lines(string(data)) {
		var first, outside, count int
		if _, err := fmt.Sscan(line, &first, &outside, &count); err != nil {
			return otherwise
		}
		all = append(all, syscall.SysProcIDMap{ContainerID: first, HostID: first, Size: count})
	}
	return all
}

// Join goes into the room that is open under a label. ErrNoRoom is also one that is just being closed.
func Join(ctx context.Context, label string) (*Room, error) { return knock(ctx, label, request{}) }

// Visit is Join for those who only look on: the room does not stay open for them.
func Visit(ctx context.Context, label string) (*Room, error) {
	return knock(ctx, label, request{Visit: true})
}

func knock(ctx context.Context, label string, as request) (*Room, error) {
	for _, pid := range Supervisors(label) {
		r, err := join(ctx, pid, as)
		switch {
		case err == nil || context.Cause(ctx) != nil:
			return r, err
		case errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS): // which will not change by itself
			return nil, &WallError{fmt.Errorf("join the commands that run there: %w", err)}
		}
	}
	return nil, ErrNoRoom
}

func join(ctx context.Context, pid int, as request) (_ *Room, err error) {
	keeper, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unix.Close(keeper))
		}
	}()
	fd, err := unix.PidfdGetfd(keeper, doorFD, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_getfd", err)
	}
	door, err := asConn(os.NewFile(uintptr(fd), "door"))
	if err != nil {
		return nil, err
	}
	defer door.Close()
	ours, theirs, err := conversation()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = ours.Close()
		}
	}()
	err = send(door, as, theirs)
	_ = theirs.Close()
	if err != nil {
		return nil, err
	}
	r := &Room{conn: ours, keeper: keeper}
	answer, err := r.hear(ctx, 2*maxMessage) // as a plan is longer in there
	r.Plan, r.Open = answer.Plan, answer.Open
	return r, err
}

// hear hears the first words of the keeper: what walls there are, or why there are none.
func (r *Room) hear(ctx context.Context, most int) (answer reply, err error) {
	defer context.AfterFunc(ctx, func() { _ = r.conn.SetDeadline(time.Now()) })()
	_, err = receiveUpTo(most, r.conn, &answer)
	switch {
	case context.Cause(ctx) != nil:
		return answer, context.Cause(ctx)
	case err != nil:
		return answer, &WallError{fmt.Errorf("the keeper did not begin: %w", err)}
	case answer.Refused != "":
		return answer, &WallError{errors.New(answer.Refused)}
	}
	return answer, nil
}

// Run runs a task in the room, as Task.Run does outside of one.
func (r *Room) Run(ctx context.Context, t Task) (Ending, error) {
	t.room = r
	return t.Run(ctx)
}

func (r *Room) handOver(files []*os.File) error { return send(r.conn, request{Run: true}, files...) }

// Listen listens on the network of the room, for us alone.
func (r *Room) Listen(ctx context.Context, address string) (net.Listener, error) {
	f, err := r.connect(ctx, request{Listen: address})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileListener(f)
}

// Dial connects to something that listens in the room.
func (r *Room) Dial(ctx context.Context, address string) (net.Conn, error) {
	f, err := r.connect(ctx, request{Dial: address})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileConn(f)
}

// connect asks for something that comes as a descriptor, on a connection of its own.
func (r *Room) connect(ctx context.Context, what request) (*os.File, error) {
	ours, theirs, err := conversation()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	err = send(r.conn, what, theirs)
	_ = theirs.Close()
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = ours.SetDeadline(time.Now()) })()
	var answer reply
	files, err := receive(ours, &answer)
	switch {
	case context.Cause(ctx) != nil:
		err = context.Cause(ctx)
	case err != nil:
		err = fmt.Errorf("the keeper of the room: %w", err)
	case answer.Refused != "":
		err = errors.New(answer.Refused)
	case len(files) != 1:
		err = errors.New("the keeper of the room sent nothing")
	}
	if err != nil {
		closeAll(files)
		return nil, err
	}
	return os.NewFile(uintptr(files[0]), "received"), nil
}

// Alone reports whether nobody else has the room open.
func (r *Room) Alone() bool {
	_ = r.conn.SetDeadline(time.Now().Add(patienceWithKeepers))
	defer func() { _ = r.conn.SetDeadline(time.Time{}) }()
	if send(r.conn, request{Count: true}) != nil {
		return false
	}
	var answer reply
	_, err := receive(r.conn, &answer)
	return err == nil && answer.Last
}

// Wait waits until the room has ended. It is for those who run nothing there.
func (r *Room) Wait(ctx context.Context) error {
	_ = r.conn.SetReadDeadline(time.Time{})
	defer context.AfterFunc(ctx, func() { _ = r.conn.SetReadDeadline(time.Now()) })()
	for {
		if _, err := receive(r.conn, &reply{}); err != nil { // nothing more is said on it
			return context.Cause(ctx)
		}
	}
}

// Close leaves the room. When nobody else is there, nothing of it is left when Close returns, other than a
// keeper that holds nothing any more and is about to be gone.
func (r *Room) Close() error {
	switch {
	case r.over:
		return nil
	case r.rising:
		return r.abandon()
	}
	_ = r.conn.SetDeadline(time.Now().Add(patienceWithKeepers))
	err := send(r.conn, request{Leave: true})
	var answer reply
	if err == nil {
		_, err = receive(r.conn, &answer)
	}
	closeErr := r.conn.Close()
	if err != nil && !r.ended(patienceWithKeepers) {
		closeErr = errors.Join(closeErr, errors.New("the keeper of the room does not end"), err)
	}
	return errors.Join(closeErr, unix.Close(r.keeper))
}

// EndedWithin reports whether everything in the room is gone, because somebody wanted it to, or will be in time.
func (r *Room) EndedWithin(t time.Duration) bool { return r.ended(t) }

// ended reports whether the keeper is gone, and with it everything in the room, or will be in time.
func (r *Room) ended(within time.Duration) bool {
	for end := time.Now().Add(within); ; {
		left := max(time.Until(end), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(r.keeper), Events: unix.POLLIN}}, int(left.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n > 0
		}
	}
}
