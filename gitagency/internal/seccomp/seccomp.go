// Package seccomp builds and installs the filter that refuses system calls to programs behind walls. It knows which calls
// are refused, and nothing about who is confined and why.
package seccomp

import (
	"maps"
	"slices"
)

// blockedCall is a system call that is refused: always, or unless its arguments are harmless.
type blockedCall struct {
	call        string
	errno       uint32
	blockedPart string       // which calls are refused, if not all; for people
	allowIf     [][]argCheck // the call is allowed if all checks of one of these agree
}

// Error numbers, equal on all architectures.
const (
	ePERM  = 1
	eNOSYS = 38
)

// argCheck checks the lower 32 bits of one argument: none that is checked here has more.
type argCheck struct {
	arg    int
	mask   uint32   // bits that matter
	values []uint32 // allowed values of these bits
	negate bool     // values are forbidden instead
}

func bitsClear(arg int, bits uint32) argCheck {
	return argCheck{arg: arg, mask: bits, values: []uint32{0}}
}

func equalsAny(arg int, of ...uint32) argCheck {
	return argCheck{arg: arg, mask: ^uint32(0), values: of}
}

func equalsNone(arg int, of ...uint32) argCheck {
	return argCheck{arg: arg, mask: ^uint32(0), values: of, negate: true}
}

// blockedCalls lists all refused system calls: those that reach other mounts and namespaces, the kernel and the
// settings of the machine, resources shared by all processes of a user, or bypass the other walls. Calls with arguments
// in memory, which a filter cannot read, are refused altogether.
func blockedCalls() []blockedCall {
	always := func(errno uint32, calls ...string) (bans []blockedCall) {
		for _, call := range calls {
			bans = append(bans, blockedCall{call: call, errno: errno})
		}
		return bans
	}
	unless := func(call, but string, checks ...[]argCheck) blockedCall {
		return blockedCall{call: call, errno: ePERM, blockedPart: but, allowIf: checks}
	}
	all := func(checks ...argCheck) []argCheck { return checks }

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
		[]blockedCall{
			unless("clone", "new namespaces", all(bitsClear(0, newNamespace))),
			unless("unshare", "new namespaces", all(bitsClear(0, newNamespace|newTime))),

			// A terminal may be shared with the outside: TIOCSTI and the like would insert input there.
			unless("ioctl", "TIOCSTI, TIOCLINUX, TIOCSETD", all(equalsNone(1, 0x5412, 0x541c, 0x5423))),

			// A lease or delegation on a file that a process outside opens for writing stops that process for up to
			// /proc/sys/fs/lease-break-time. Directory notification (dnotify) goes with them: inotify has replaced it.
			unless("fcntl", "F_SETLEASE, F_NOTIFY, F_SETDELEG", all(equalsNone(1, 1024, 1026, 1040))),

			unless("socket", "families but AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK with NETLINK_ROUTE",
				all(equalsAny(0, 1, 2, 10)), all(equalsAny(0, 16), equalsAny(2, 0))),
			unless("socketpair", "families but AF_UNIX", all(equalsAny(0, 1))),

			// A setuid file made by an agent that runs as root gives root to every user outside.
			unless("chmod", "S_ISUID", all(bitsClear(1, setUID))),
			unless("creat", "S_ISUID", all(bitsClear(1, setUID))),
			unless("fchmod", "S_ISUID", all(bitsClear(1, setUID))),
			unless("fchmodat", "S_ISUID", all(bitsClear(2, setUID))),
			unless("fchmodat2", "S_ISUID", all(bitsClear(2, setUID))),
			unless("mknod", "S_ISUID", all(bitsClear(1, setUID))),
			unless("mknodat", "S_ISUID", all(bitsClear(2, setUID))),
			unless("open", "S_ISUID", all(bitsClear(1, create)), all(bitsClear(2, setUID))),
			unless("openat", "S_ISUID", all(bitsClear(2, create)), all(bitsClear(3, setUID))),

			// It creates a whiteout device, which in an upper directory marks a deleted file.
			unless("renameat2", "RENAME_WHITEOUT", all(bitsClear(4, 4))),
		},
	)
}

// withoutSockets returns the refused calls of a program that needs no socket at all.
func withoutSockets(blocked []blockedCall) []blockedCall {
	blocked = slices.Clone(blocked)
	for i, b := range blocked {
		if b.call == "socket" || b.call == "socketpair" {
			blocked[i] = blockedCall{call: b.call, errno: ePERM}
		}
	}
	return blocked
}

// architecture holds the properties of a CPU architecture that a filter needs.
type architecture struct {
	auditArch   uint32            // AUDIT_ARCH_* constant
	calls       map[string]uint32 // system call numbers; some architectures lack some calls
	foreignFrom uint32            // numbers from here on belong to another ABI, such as x32; 0: none
}

// bpfInstruction is an instruction of classic BPF.
type bpfInstruction struct {
	code   uint16
	jt, jf uint8 // number of instructions to skip if the condition holds, and if not
	k      uint32
}

const (
	opLoadWord  = 0x20 // at the offset k of struct seccomp_data
	opJump      = 0x05
	opJumpEqual = 0x15
	opJumpGE    = 0x35 // greater or equal
	opAnd       = 0x54
	opReturn    = 0x06

	offNumber, offArch, offArgs = 0, 4, 16

	retAllow = 0x7fff0000
	retErrno = 0x00050000
	retKill  = 0x80000000
)

// buildFilter returns the program that checks every system call. The kernel finds out in advance for which numbers the
// result is always "allow", because only the number is read then, and does not run the program for those.
func buildFilter(a architecture, blocked []blockedCall) []bpfInstruction {
	var (
		allow    = []bpfInstruction{{code: opReturn, k: retAllow}}
		programs = map[uint32][]bpfInstruction{}
	)
	for _, b := range blocked {
		if number, there := a.calls[b.call]; there {
			programs[number] = b.compile()
		}
	}
	spans := []numberRange{{0, allow}}
	addRange := func(from uint32, code []bpfInstruction) {
		if spans[len(spans)-1].from == from {
			spans = spans[:len(spans)-1]
		}
		if len(spans) == 0 || !slices.Equal(spans[len(spans)-1].program, code) {
			spans = append(spans, numberRange{from, code})
		}
	}
	for _, number := range slices.Sorted(maps.Keys(programs)) {
		addRange(number, programs[number])
		addRange(number+1, allow)
	}
	if a.foreignFrom != 0 {
		addRange(a.foreignFrom, returnErrno(ePERM))
		addRange(^uint32(0), allow) // -1, which a tracer sets to skip a system call
	}

	program := []bpfInstruction{
		{code: opLoadWord, k: offArch},
		{code: opJumpEqual, jt: 1, k: a.auditArch},
		{code: opReturn, k: retKill}, // a program for another architecture, with other numbers
		{code: opLoadWord, k: offNumber},
	}
	return append(program, buildSearch(spans)...)
}

// numberRange is a range of system call numbers, up to the next range, with its program.
type numberRange struct {
	from    uint32
	program []bpfInstruction // always ends with a return
}

// buildSearch returns a binary search for the range of a number.
func buildSearch(spans []numberRange) []bpfInstruction {
	if len(spans) == 1 {
		return spans[0].program
	}
	half := len(spans) / 2
	low, high := buildSearch(spans[:half]), buildSearch(spans[half:])
	program := []bpfInstruction{{code: opJumpGE, jt: uint8(len(low)), k: spans[half].from}}
	if len(low) > 255 { // too far for the 8 bits of a conditional jump
		program = []bpfInstruction{{code: opJumpGE, jf: 1, k: spans[half].from}, {code: opJump, k: uint32(len(low))}}
	}
	return slices.Concat(program, low, high)
}

// compile returns the program for this system call.
func (b blockedCall) compile() []bpfInstruction {
	program := returnErrno(b.errno)
	for _, checks := range slices.Backward(b.allowIf) {
		allow := []bpfInstruction{{code: opReturn, k: retAllow}}
		for _, c := range slices.Backward(checks) {
			allow = slices.Concat(c.compile(len(allow)), allow)
		}
		program = slices.Concat(allow, program)
	}
	return program
}

func returnErrno(errno uint32) []bpfInstruction {
	return []bpfInstruction{{code: opReturn, k: retErrno | errno}}
}

// compile continues after itself if the check agrees, and otherwise skips the next over instructions.
func (c argCheck) compile(over int) []bpfInstruction {
	program := []bpfInstruction{{code: opLoadWord, k: uint32(offArgs + 8*c.arg)}}
	if c.mask != ^uint32(0) {
		program = append(program, bpfInstruction{code: opAnd, k: c.mask})
	}
	for i, value := range c.values {
		left := len(c.values) - 1 - i
		next := bpfInstruction{code: opJumpEqual, k: value}
		switch {
		case c.negate:
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
