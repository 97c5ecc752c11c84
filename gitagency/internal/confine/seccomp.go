package confine

import (
	"maps"
	"slices"
)

// blockedCall is a system call that is refused: always, or unless its arguments are harmless.
type ban struct {
	call   string
	errno  uint32
	but    string    // which calls are refused, if not all; for people
	unless [][]check // the call is allowed if all checks of one of these agree
}

// Error numbers, equal on all architectures.
const (
	ePERM  = 1
	eNOSYS = 38
)

// argCheck checks the lower 32 bits of one argument: none that is checked here has more.
type check struct {
	arg  int
	mask uint32   // bits that matter
	in   []uint32 // allowed values of these bits
	not  bool     // values are forbidden instead
}

func without(arg int, bits uint32) check { return check{arg: arg, mask: bits, in: []uint32{0}} }
func isOne(arg int, of ...uint32) check  { return check{arg: arg, mask: ^uint32(0), in: of} }
func isNone(arg int, of ...uint32) check { return check{arg: arg, mask: ^uint32(0), in: of, not: true} }

// blockedCalls lists all refused system calls: those that reach other mounts and namespaces, the kernel and the
// settings of the machine, resources shared by all processes of a user, or bypass the other walls. Calls with arguments
// in memory, which a filter cannot read, are refused altogether.
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
		newNamespace = 0x7e020000 // CLONE_NEW*, except
		newTime      = 0x80       // CLONE_NEWTIME, which in clone is part of the signal number
		setUID       = 0o4000     // S_ISUID
		create       = 0o20000100 // O_CREAT and O_TMPFILE: without them the mode argument is undefined
	)
	return slices.Concat(
		always(ePERM,
			// mounts and namespaces
			"chroot", "fsconfig", "fsmount", "fsopen", "fspick", "mount", "mount_setattr", "move_mount", "open_by_handle_at",
			"open_tree", "open_tree_attr", "pivot_root", "setns", "umount2",
			// kernel code, rarely used and so little tested calls, and calls that no program here needs
			"bpf", "delete_module", "finit_module", "init_module", "ioperm", "iopl", "kexec_file_load", "kexec_load",
			"lookup_dcookie", "nfsservctl", "perf_event_open", "syslog", "uselib", "userfaultfd",
			// the machine and its settings
			"acct", "adjtimex", "clock_adjtime", "clock_settime", "quotactl", "quotactl_fd", "reboot", "setdomainname",
			"sethostname", "settimeofday", "swapoff", "swapon",
			// resources of the user, shared by processes in all namespaces
			"add_key", "fanotify_init", "keyctl", "request_key",
			// io_uring executes operations without passing the filter
			"io_uring_enter", "io_uring_register", "io_uring_setup",
		),
		// Programs fall back to older calls after ENOSYS; the arguments of these are in memory.
		always(eNOSYS, "clone3", "openat2"),
		[]ban{
			unless("clone", "new namespaces", all(without(0, newNamespace))),
			unless("unshare", "new namespaces", all(without(0, newNamespace|newTime))),

			// A terminal may be shared with the outside: TIOCSTI and the like would insert input there.
			unless("ioctl", "TIOCSTI, TIOCLINUX, TIOCSETD", all(isNone(1, 0x5412, 0x541c, 0x5423))),

			unless("socket", "families but AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK with NETLINK_ROUTE",
				all(isOne(0, 1, 2, 10)), all(isOne(0, 16), isOne(2, 0))),
			unless("socketpair", "families but AF_UNIX", all(isOne(0, 1))),

			// A setuid file made by an agent that runs as root gives root to every user outside.
			unless("chmod", "S_ISUID", all(without(1, setUID))),
			unless("creat", "S_ISUID", all(without(1, setUID))),
			unless("fchmod", "S_ISUID", all(without(1, setUID))),
			unless("fchmodat", "S_ISUID", all(without(2, setUID))),
			unless("fchmodat2", "S_ISUID", all(without(2, setUID))),
			unless("mknod", "S_ISUID", all(without(1, setUID))),
			unless("mknodat", "S_ISUID", all(without(2, setUID))),
			unless("open", "S_ISUID", all(without(1, create)), all(without(2, setUID))),
			unless("openat", "S_ISUID", all(without(2, create)), all(without(3, setUID))),

			// It creates a whiteout device, which in an upper directory marks a deleted file.
			unless("renameat2", "RENAME_WHITEOUT", all(without(4, 4))),
		},
	)
}

// DescribeBlockedCalls lists the system calls that no program inside may make, sorted; some with the part that is
// refused.
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

// architecture holds the properties of a CPU architecture that a filter needs.
type architecture struct {
	audit   uint32            // AUDIT_ARCH_* constant
	calls   map[string]uint32 // system call numbers; some architectures lack some calls
	foreign uint32            // numbers from here on belong to another ABI, such as x32; 0: none
}

// bpfInstruction is an instruction of classic BPF.
type instruction struct {
	code   uint16
	jt, jf uint8 // number of instructions to skip if the condition holds, and if not
	k      uint32
}

const (
	loadWord  = 0x20 // at the offset k of struct seccomp_data
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

// buildFilter returns the program that checks every system call. The kernel finds out in advance for which numbers the
// result is always "allow", because only the number is read then, and does not run the program for those.
func filter(a architecture) []instruction {
	var (
		allow    = []instruction{{code: giveBack, k: doAllow}}
		programs = map[uint32][]instruction{}
	)
	for _, b := range bans() {
		if number, there := a.calls[b.call]; there {
			programs[number] = b.program()
		}
	}
	spans := []span{{0, allow}}
	addRange := func(from uint32, code []instruction) {
		if spans[len(spans)-1].from == from {
			spans = spans[:len(spans)-1]
		}
		if len(spans) == 0 || !slices.Equal(spans[len(spans)-1].does, code) {
			spans = append(spans, span{from, code})
		}
	}
	for _, number := range slices.Sorted(maps.Keys(programs)) {
		addRange(number, programs[number])
		addRange(number+1, allow)
	}
	if a.foreign != 0 {
		addRange(a.foreign, refuse(ePERM))
		addRange(^uint32(0), allow) // -1, which a tracer sets to skip a system call
	}

	program := []instruction{
		{code: loadWord, k: offArch},
		{code: jumpEqual, jt: 1, k: a.audit},
		{code: giveBack, k: doKill}, // a program for another architecture, with other numbers
		{code: loadWord, k: offNumber},
	}
	return append(program, search(spans)...)
}

// numberRange is a range of system call numbers, up to the next range, with its program.
type span struct {
	from uint32
	does []instruction // always ends with a return
}

// buildSearch returns a binary search for the range of a number.
func search(spans []span) []instruction {
	if len(spans) == 1 {
		return spans[0].does
	}
	half := len(spans) / 2
	low, high := search(spans[:half]), search(spans[half:])
	program := []instruction{{code: jumpFrom, jt: uint8(len(low)), k: spans[half].from}}
	if len(low) > 255 { // too far for the 8 bits of a conditional jump
		program = []instruction{{code: jumpFrom, jf: 1, k: spans[half].from}, {code: jump, k: uint32(len(low))}}
	}
	return slices.Concat(program, low, high)
}

// compile returns the program for this system call.
func (b ban) program() []instruction {
	program := refuse(b.errno)
	for _, checks := range slices.Backward(b.unless) {
		allow := []instruction{{code: giveBack, k: doAllow}}
		for _, c := range slices.Backward(checks) {
			allow = slices.Concat(c.program(len(allow)), allow)
		}
		program = slices.Concat(allow, program)
	}
	return program
}

func refuse(errno uint32) []instruction { return []instruction{{code: giveBack, k: doErrno | errno}} }

// compile continues after itself if the check agrees, and otherwise skips the next over instructions.
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
