package seccomp

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// filterInput is a system call as a filter sees it.
type filterInput struct {
	number, arch uint32
	args         [6]uint64
}

// runFilter interprets a BPF program for one system call, as the kernel does.
func runFilter(t *testing.T, program []bpfInstruction, c filterInput) uint32 {
	t.Helper()
	data := make([]byte, 16+6*8)
	binary.LittleEndian.PutUint32(data, c.number)
	binary.LittleEndian.PutUint32(data[4:], c.arch)
	for i, arg := range c.args {
		binary.LittleEndian.PutUint64(data[16+8*i:], arg)
	}
	var a uint32
	for pc := 0; pc < len(program); pc++ {
		in := program[pc]
		over := in.jf
		switch in.code {
		case opLoadWord:
			a = binary.LittleEndian.Uint32(data[in.k:])
			continue
		case opAnd:
			a &= in.k
			continue
		case opReturn:
			return in.k
		case opJump:
			pc += int(in.k)
			continue
		case opJumpEqual:
			if a == in.k {
				over = in.jt
			}
		case opJumpGE:
			if a >= in.k {
				over = in.jt
			}
		default:
			t.Fatalf("%d: %+v", pc, in)
		}
		pc += int(over)
	}
	t.Fatalf("%+v: the program does not end", c)
	return 0
}

// fakeArchitecture has a number for every blocked call, some of them adjacent.
func fakeArchitecture() architecture {
	a := architecture{auditArch: 7, calls: map[string]uint32{}, foreignFrom: 1 << 30}
	for i, b := range blockedCalls() {
		a.calls[b.call] = uint32(i*i) / 3 // some are adjacent, some are not
	}
	// Numbers must be unique.
	used := map[uint32]bool{}
	for _, b := range blockedCalls() {
		for used[a.calls[b.call]] {
			a.calls[b.call]++
		}
		used[a.calls[b.call]] = true
	}
	return a
}

func TestFilterRefusesOnlyBlockedCalls(t *testing.T) {
	t.Parallel()
	a := fakeArchitecture()
	program := buildFilter(a, blockedCalls())
	byNumber := map[uint32]blockedCall{}
	for _, b := range blockedCalls() {
		byNumber[a.calls[b.call]] = b
	}
	for number := range uint32(5000) {
		b, banned := byNumber[number]
		want := uint32(retAllow)
		if banned && b.allowIf == nil {
			want = retErrno | b.errno
		}
		if got := runFilter(t, program, filterInput{number: number, arch: a.auditArch}); banned && b.allowIf != nil {
			continue
		} else if got != want {
			t.Errorf("%d %s: %#x instead of %#x", number, b.call, got, want)
		}
	}
	for number, want := range map[uint32]uint32{1<<30 - 1: retAllow, 1 << 30: retErrno | ePERM, 1<<30 + 59: retErrno | ePERM, 1<<32 - 2: retErrno | ePERM, 1<<32 - 1: retAllow} {
		if got := runFilter(t, program, filterInput{number: number, arch: a.auditArch}); got != want {
			t.Errorf("%d: %#x instead of %#x", number, got, want)
		}
	}
	for number := range uint32(500) {
		if got := runFilter(t, program, filterInput{number: number, arch: a.auditArch + 1}); got != retKill {
			t.Errorf("%d on another architecture: %#x", number, got)
		}
	}
	if len(program) > 1000 {
		t.Errorf("%d instructions", len(program))
	}
}

func TestFilterChecksArguments(t *testing.T) {
	t.Parallel()
	a := fakeArchitecture()
	program := buildFilter(a, blockedCalls())
	const high = 0xabcd << 32 // upper 32 bits, which the kernel ignores
	for _, c := range []struct {
		call    string
		args    [6]uint64
		refused bool
	}{
		{"clone", [6]uint64{0}, false},
		{"clone", [6]uint64{0x01200011}, false},        // fork
		{"clone", [6]uint64{0x003d0f00}, false},        // pthread_create
		{"clone", [6]uint64{0x4111}, false},            // Go's exec
		{"clone", [6]uint64{0x80 | 0x11}, false},       // bit of the exit signal, not a flag
		{"clone", [6]uint64{0x10000000}, true},         // NEWUSER
		{"clone", [6]uint64{0x00020000}, true},         // NEWNS
		{"clone", [6]uint64{0x40000000 | 0x11}, true},  // NEWNET
		{"clone", [6]uint64{high | 0x02000000}, true},  // NEWCGROUP
		{"clone", [6]uint64{0, 0x10000000}, false},     // second argument, not the flags
		{"unshare", [6]uint64{0x200 | 0x400}, false},   // FS, FILES
		{"unshare", [6]uint64{0x80}, true},             // NEWTIME
		{"unshare", [6]uint64{0x10000000}, true},       //
		{"ioctl", [6]uint64{0, 0x5401}, false},         // TCGETS
		{"ioctl", [6]uint64{0x5412, 0, 0x5412}, false}, // not in the request argument
		{"ioctl", [6]uint64{0, 0x5412}, true},
		{"ioctl", [6]uint64{0, high | 0x5412}, true},
		{"ioctl", [6]uint64{0, 0x541c}, true},
		{"ioctl", [6]uint64{0, 0x5423}, true},
		{"fcntl", [6]uint64{3, 1}, false},          // F_GETFD
		{"fcntl", [6]uint64{3, 1025}, false},       // F_GETLEASE
		{"fcntl", [6]uint64{3, 1030}, false},       // F_DUPFD_CLOEXEC
		{"fcntl", [6]uint64{3, 37}, false},         // F_OFD_SETLK
		{"fcntl", [6]uint64{1024, 3, 1024}, false}, // not in the command argument
		{"fcntl", [6]uint64{3, 1024}, true},        // F_SETLEASE
		{"fcntl", [6]uint64{3, high | 1024}, true},
		{"fcntl", [6]uint64{3, 1026}, true}, // F_NOTIFY
		{"fcntl", [6]uint64{3, 1040}, true}, // F_SETDELEG
		{"socket", [6]uint64{1, 1}, false},
		{"socket", [6]uint64{2, 1, 262}, false}, // MPTCP reaches nothing without a network
		{"socket", [6]uint64{10, 2, 17}, false},
		{"socket", [6]uint64{16, 3, 0}, false},
		{"socket", [6]uint64{16, 3, 9}, true},
		{"socket", [6]uint64{16, 3, high}, false},
		{"socket", [6]uint64{0}, true},
		{"socket", [6]uint64{17, 3}, true},
		{"socket", [6]uint64{38, 5}, true},
		{"socket", [6]uint64{40, 1}, true},
		{"socket", [6]uint64{high | 40, 1}, true},
		{"socketpair", [6]uint64{1}, false},
		{"socketpair", [6]uint64{30}, true},
		{"chmod", [6]uint64{0, 0o2755}, false},
		{"chmod", [6]uint64{0, 0o4755}, true},
		{"fchmod", [6]uint64{0o4000, 0o4000}, true},
		{"fchmodat", [6]uint64{0, 0o4000, 0o755}, false},
		{"fchmodat", [6]uint64{0, 0, 0o6755}, true},
		{"fchmodat2", [6]uint64{0, 0, 0o4755}, true},
		{"mknod", [6]uint64{0, 0o104755}, true},
		{"mknodat", [6]uint64{0, 0, 0o104755}, true},
		{"creat", [6]uint64{0, 0o4755}, true},
		{"creat", [6]uint64{0, 0o755}, false},
		{"open", [6]uint64{0, 0o101, 0o644}, false},
		{"open", [6]uint64{0, 0o1, 0o4644}, false}, // without O_CREAT the mode is ignored
		{"open", [6]uint64{0, 0o101, 0o4644}, true},
		{"openat", [6]uint64{0, 0, 0, 0xffff}, false},
		{"openat", [6]uint64{0, 0, 0o100, 0xffff}, true},
		{"openat", [6]uint64{0, 0, 0o20200002, 0o4700}, true}, // O_TMPFILE
		{"openat", [6]uint64{0, 0, 0o100, 0o777}, false},
		{"renameat2", [6]uint64{0, 0, 0, 0, 3}, false},
		{"renameat2", [6]uint64{0, 0, 0, 0, 4}, true},
	} {
		want := uint32(retAllow)
		if c.refused {
			want = retErrno | ePERM
		}
		if got := runFilter(t, program, filterInput{a.calls[c.call], a.auditArch, c.args}); got != want {
			t.Errorf("%s%#x: %#x instead of %#x", c.call, c.args, got, want)
		}
	}
}

func TestFilterWithoutSocketsRefusesThem(t *testing.T) {
	t.Parallel()
	a := fakeArchitecture()
	usual, program := buildFilter(a, blockedCalls()), buildFilter(a, withoutSockets(blockedCalls()))
	for number := range uint32(5000) {
		c := filterInput{number: number, arch: a.auditArch, args: [6]uint64{1, 1}} // AF_UNIX, SOCK_STREAM
		want := runFilter(t, usual, c)
		if number == a.calls["socket"] || number == a.calls["socketpair"] {
			want = retErrno | ePERM
		}
		if got := runFilter(t, program, c); got != want {
			t.Errorf("%d: %#x instead of %#x", number, got, want)
		}
	}
}

func TestManualListsBlockedCalls(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile(filepath.FromSlash("../../../cmd/git-agency/manual/git-agency.1.md"))
	if err != nil {
		t.Fatal(err)
	}
	var altogether, inPart []string
	for _, call := range describeBlockedCalls() {
		if name, what, some := strings.Cut(call, " "); some {
			inPart = append(inPart, "`"+name+"` "+what)
		} else {
			altogether = append(altogether, "`"+name+"`")
		}
	}
	words := strings.Join(strings.Fields(string(manual)), " ")
	for _, want := range []string{" Altogether: " + strings.Join(altogether, ", ") + ". ", " In part: " + strings.Join(inPart, "; ") + ". "} {
		if !strings.Contains(words, want) {
			t.Errorf("the manual does not say %q", want)
		}
	}
}

func TestDescribeBlockedCalls(t *testing.T) {
	t.Parallel()
	names := describeBlockedCalls()
	if !slices.IsSorted(names) || len(names) != len(blockedCalls()) {
		t.Errorf("%q", names)
	}
	seen := map[string]bool{}
	for _, name := range names {
		call, _, _ := strings.Cut(name, " ")
		if seen[call] {
			t.Errorf("%s is blocked twice", call)
		}
		seen[call] = true
	}
	for _, want := range []string{"mount", "ioctl (TIOCSTI, TIOCLINUX, TIOCSETD)", "clone (new namespaces)", "clone3"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %q in %q", want, names)
		}
	}
}

// describeBlockedCalls lists the system calls that no program inside may make, sorted; some with the part that is
// refused.
func describeBlockedCalls() []string {
	var names []string
	for _, b := range blockedCalls() {
		if b.blockedPart != "" {
			b.call += " (" + b.blockedPart + ")"
		}
		names = append(names, b.call)
	}
	slices.Sort(names)
	return names
}
