package confine

import (
	"maps"
	"slices"
)

// ban is a system call that is refused: always, or unless its arguments are harmless.
type ban struct {
	call   string
	errno  uint32
	but    string    // what is refused, if not everything; for people
	unless [][]check // the call is let through if all checks of one of these agree
}

// The errors, whose numbers are the same on all architectures.
const (
	ePERM  = 1
	eNOSYS = 38
)

// check looks at one argument, of which it sees the lower half: none that is checked here has more.
type check struct {
	arg  int
	mask uint32   // the bits that matter
	in   []uint32 // what they may be
	not  bool     // what they may not be
}

func without(arg int, bits uint32) check { return check{arg: arg, mask: bits, in: []uint32{0}} }
func isOne(arg int, of ...uint32) check  { return check{arg: arg, mask: ^uint32(0), in: of} }
func isNone(arg int, of ...uint32) check { return check{arg: arg, mask: ^uint32(0), in: of, not: true} }

// bans is everything that is refused: ways to other mounts and namespaces, to the kernel and the settings
// of the machine, to what users share, and around the other walls. What takes its arguments from memory
// cannot be judged by them and is refused altogether.
func bans() []ban {
	always := func(errno uint32, calls ...string) (bans []ban) {
		for _, call := range calls {
			bans = append(bans, ban{call: call, errno: errno})
		}
		return bans
	}
	unless := func(call, but string, checks ...[]check) ban {
		return ban{call: call, errno: ePERM, but: but, unless: checks}
	}
	all := func(checks ...check) []check { return checks }

	const (
		newNamespace = 0x7e020000 // CLONE_NEW*, but for
		newTime      = 0x80       // CLONE_NEWTIME, which in clone is part of a signal's number
		setUID       = 0o4000     // S_ISUID
		create       = 0o20000100 // O_CREAT and O_TMPFILE: without them anything may stand for a mode
	)
	return slices.Concat(
		always(ePERM,
			// other mounts, other views
			"chroot", "fsconfig", "fsmount", "fsopen", "fspick", "mount", "mount_setattr", "move_mount", "open_by_handle_at",
			"open_tree", "open_tree_attr", "pivot_root", "setns", "umount2",
			// the kernel: what it runs, what it was never asked before, what nobody here needs
			"bpf", "delete_module", "finit_module", "init_module", "ioperm", "iopl", "kexec_file_load", "kexec_load",
			"lookup_dcookie", "nfsservctl", "perf_event_open", "syslog", "uselib", "userfaultfd",
			// the machine and its settings
			"acct", "adjtimex", "clock_adjtime", "clock_settime", "quotactl", "quotactl_fd", "reboot", "setdomainname",
			"sethostname", "settimeofday", "swapoff", "swapon",
			// what belongs to a user, wherever its processes are
			"add_key", "fanotify_init", "keyctl", "request_key",
			// around this wall: what is asked there passes no filter
			"io_uring_enter", "io_uring_register", "io_uring_setup",
		),
		// What programs do another way if the kernel does not have it; their arguments are in memory.
		always(eNOSYS, "clone3", "openat2"),
		[]ban{
			unless("clone", "new namespaces", all(without(0, newNamespace))),
			unless("unshare", "new namespaces", all(without(0, newNamespace|newTime))),

			// A terminal may be somebody's outside: what is typed there must be typed by them.
			unless("ioctl", "TIOCSTI, TIOCLINUX, TIOCSETD", all(isNone(1, 0x5412, 0x541c, 0x5423))),

			unless("socket", "families but AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK with NETLINK_ROUTE",
				all(isOne(0, 1, 2, 10)), all(isOne(0, 16), isOne(2, 0))),
			unless("socketpair", "families but AF_UNIX", all(isOne(0, 1))),

			// Made by an agent that runs as root, it makes root of everybody outside.
			unless("chmod", "S_ISUID", all(without(1, setUID))),
			unless("creat", "S_ISUID", all(without(1, setUID))),
			unless("fchmod", "S_ISUID", all(without(1, setUID))),
			unless("fchmodat", "S_ISUID", all(without(2, setUID))),
			unless("fchmodat2", "S_ISUID", all(without(2, setUID))),
			unless("mknod", "S_ISUID", all(without(1, setUID))),
			unless("mknodat", "S_ISUID", all(without(2, setUID))),
			unless("open", "S_ISUID", all(without(1, create)), all(without(2, setUID))),
			unless("openat", "S_ISUID", all(without(2, create)), all(without(3, setUID))),

			// It makes a device, one that says in a layer that something is gone.
			unless("renameat2", "RENAME_WHITEOUT", all(without(4, 4))),
		},
	)
}

// Forbidden is what no program inside may ask of the kernel, sorted: names of system calls, some with what
// of them is refused.
func Forbidden() []string {
	var names []string
	for _, b := range bans() {
		if b.but != "" {
			b.call += " (" + b.but + ")"
		}
		names = append(names, b.call)
	}
	slices.Sort(names)
	return names
}

// architecture is what a filter must know of a machine.
type architecture struct {
	audit   uint32            // what the kernel calls it
	calls   map[string]uint32 // the numbers of the calls; some do not have all
	foreign uint32            // numbers from here on belong to another way of calling; 0 for none
}

// instruction is one of the kernel's classic BPF.
type instruction struct {
	code   uint16
	jt, jf uint8 // how many to pass over, if so and if not
	k      uint32
}

const (
	loadWord  = 0x20 // from the offset k of what is known about a call
	jump      = 0x05
	jumpEqual = 0x15
	jumpFrom  = 0x35 // greater or equal
	andWith   = 0x54
	giveBack  = 0x06

	offNumber, offArch, offArgs = 0, 4, 16

	doAllow = 0x7fff0000
	doErrno = 0x00050000
	doKill  = 0x80000000
)

// filter is the program that judges every system call. Calls that are always allowed are known to the
// kernel as such before it runs any: only numbers were looked at.
func filter(a architecture) []instruction {
	var (
		allow   = []instruction{{code: giveBack, k: doAllow}}
		verdict = map[uint32][]instruction{}
	)
	for _, b := range bans() {
		if number, there := a.calls[b.call]; there {
			verdict[number] = b.program()
		}
	}
	spans := []span{{0, allow}}
	put := func(from uint32, does []instruction) {
		if spans[len(spans)-1].from == from {
			spans = spans[:len(spans)-1]
		}
		if len(spans) == 0 || !slices.Equal(spans[len(spans)-1].does, does) {
			spans = append(spans, span{from, does})
		}
	}
	for _, number := range slices.Sorted(maps.Keys(verdict)) {
		put(number, verdict[number])
		put(number+1, allow)
	}
	if a.foreign != 0 {
		put(a.foreign, refuse(ePERM))
		put(^uint32(0), allow) // no number: what a debugger puts in place of a call that shall not be made
	}

	program := []instruction{
		{code: loadWord, k: offArch},
		{code: jumpEqual, jt: 1, k: a.audit},
		{code: giveBack, k: doKill}, // a program for another machine, with other numbers
		{code: loadWord, k: offNumber},
	}
	return append(program, search(spans)...)
}

// span is what is done about the numbers from one to the next span's.
type span struct {
	from uint32
	does []instruction // which ends the program
}

// search finds the span of a number in the fewest steps.
func search(spans []span) []instruction {
	if len(spans) == 1 {
		return spans[0].does
	}
	half := len(spans) / 2
	low, high := search(spans[:half]), search(spans[half:])
	program := []instruction{{code: jumpFrom, jt: uint8(len(low)), k: spans[half].from}}
	if len(low) > 255 { // further than such a jump goes
		program = []instruction{{code: jumpFrom, jf: 1, k: spans[half].from}, {code: jump, k: uint32(len(low))}}
	}
	return slices.Concat(program, low, high)
}

// program judges a call that is known to be this one.
func (b ban) program() []instruction {
	program := refuse(b.errno)
	for _, checks := range slices.Backward(b.unless) {
		let := []instruction{{code: giveBack, k: doAllow}}
		for _, c := range slices.Backward(checks) {
			let = slices.Concat(c.program(len(let)), let)
		}
		program = slices.Concat(let, program)
	}
	return program
}

func refuse(errno uint32) []instruction { return []instruction{{code: giveBack, k: doErrno | errno}} }

// program goes on behind itself if the check agrees, and otherwise passes over what is there.
func (c check) program(over int) []instruction {
	program := []instruction{{code: loadWord, k: uint32(offArgs + 8*c.arg)}}
	if c.mask != ^uint32(0) {
		program = append(program, instruction{code: andWith, k: c.mask})
	}
	for i, value := range c.in {
		left := len(c.in) - 1 - i
		next := instruction{code: jumpEqual, k: value}
		switch {
		case c.not:
			next.jt = uint8(left + over)
		case left == 0:
			next.jf = uint8(over)
		default:
			next.jt = uint8(left)
		}
		program = append(program, next)
	}
	return program
}
