package confine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// listeningSockets returns the paths of sockets to which a process in this network namespace can connect. The kernel
// reports the name by which a socket was bound, which may be relative to a directory that only its process knows, or
// out of date: such a socket is searched for where it is likely to be, and may be missed.
func listeningSockets() []string {
	bound, err := queryBoundSockets()
	if err != nil { // such as in gVisor
		table, err := os.ReadFile("/proc/net/unix")
		if err != nil {
			return nil // there may be no /proc; code that needs it reports that
		}
		bound = parseUnixTable(string(table))
	}
	return locateSockets(bound)
}

// boundSocket is a socket with a name in the file system, as the kernel reports it.
type boundSocket struct {
	name  string // as given to bind(2), of any bytes
	inode uint32 // low bits of the inode number of its file; 0: unknown
	uid   int    // owner; -1: unknown
}

// Constants of linux/unix_diag.h.
const (
	unixDiagName = 0
	unixDiagVFS  = 1
	unixDiagUID  = 7

	showName = 1 << 0
	showVFS  = 1 << 1
	showUID  = 1 << 6
)

// States of Unix sockets: those of TCP.
const (
	stateUnconnected = 7 // datagram sockets
	stateListening   = 10
)

// unixDiagRequest is a netlink message with struct unix_diag_req.
type unixDiagRequest struct {
	header           unix.NlMsghdr
	family, protocol uint8
	_                uint16
	states           uint32
	inode            uint32
	show             uint32
	cookie           [2]uint32
}

const unixDiagMsgSize = 16 // struct unix_diag_msg

// queryBoundSockets asks the kernel for the sockets that accept connections or datagrams. Unlike /proc/net/unix, the
// answer is unambiguous for names with any bytes, and small.
func queryBoundSockets() ([]boundSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	req := unixDiagRequest{
		family: unix.AF_UNIX, states: 1<<stateUnconnected | 1<<stateListening, show: showName | showVFS | showUID, cookie: [2]uint32{^uint32(0), ^uint32(0)},
	}
	const size = int(unsafe.Sizeof(req))
	req.header = unix.NlMsghdr{Len: uint32(size), Type: unix.SOCK_DIAG_BY_FAMILY, Flags: unix.NLM_F_REQUEST | unix.NLM_F_DUMP}
	if err := unix.Sendto(fd, unsafe.Slice((*byte)(unsafe.Pointer(&req)), size), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("sendto", err)
	}
	var found []boundSocket
	buffer := make([]byte, 16<<10) // the kernel sends no more than that at once
	for {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return nil, os.NewSyscallError("recvfrom", err)
		}
		messages, err := syscall.ParseNetlinkMessage(buffer[:n])
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			switch {
			case m.Header.Type == unix.NLMSG_DONE:
				return found, nil
			case m.Header.Type == unix.NLMSG_ERROR && len(m.Data) >= 4:
				return nil, os.NewSyscallError("sock_diag", unix.Errno(-int32(binary.NativeEndian.Uint32(m.Data))))
			case len(m.Data) < unixDiagMsgSize:
				return nil, errors.New("sock_diag: a short message")
			}
			if s := parseUnixDiag(m.Data[unixDiagMsgSize:]); s.name != "" {
				found = append(found, s)
			}
		}
	}
}

// parseUnixDiag reads the attributes of a socket. The name is empty if it has none in the file system.
func parseUnixDiag(attributes []byte) boundSocket {
	s := boundSocket{uid: -1}
	for len(attributes) >= unix.SizeofRtAttr {
		size, kind := int(binary.NativeEndian.Uint16(attributes)), binary.NativeEndian.Uint16(attributes[2:])
		if size < unix.SizeofRtAttr || size > len(attributes) {
			break
		}
		value := attributes[unix.SizeofRtAttr:size]
		switch {
		case kind == unixDiagName:
			name, _, _ := bytes.Cut(value, []byte{0}) // an abstract name begins with a NUL byte
			s.name = string(name)
		case kind == unixDiagVFS && len(value) >= 8:
			s.inode = binary.NativeEndian.Uint32(value)
		case kind == unixDiagUID && len(value) >= 4:
			s.uid = int(binary.NativeEndian.Uint32(value))
		}
		attributes = attributes[min(len(attributes), (size+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1)):]
	}
	return s
}

// parseUnixTable parses /proc/net/unix. A line that does not begin a record continues the name of the last one, which
// contained a newline.
func parseUnixTable(table string) []boundSocket {
	var found []boundSocket
	named := false // the record of the last line has a name
	for line := range strings.Lines(table) {
		line = strings.TrimSuffix(line, "\n")
		fields := strings.Fields(line) // number, references, protocol, flags, type, state, inode, name
		switch {
		case len(fields) >= 7 && strings.HasSuffix(fields[0], ":") && len(fields[1]) == 8 && len(fields[4]) == 4:
			rest := line // names that begin with @ are abstract, with few exceptions
			for _, f := range fields[:7] {
				rest = rest[strings.Index(rest, f)+len(f):]
			}
			if named = len(rest) > 1 && rest[1] != '@'; named {
				found = append(found, boundSocket{name: rest[1:], uid: -1})
			}
		case named:
			found[len(found)-1].name += "\n" + line
		}
	}
	return found
}

// locateSockets returns the paths at which sockets exist, among them those of the given sockets, as far as they can be
// found.
func locateSockets(bound []boundSocket) []string {
	search := socketSearch{
		found: map[string]bool{}, searched: map[string]bool{},
		workingDirs: sync.OnceValue(func() []string { return withParents(processDirs("cwd", os.Readlink)) }),
		startDirs:   sync.OnceValue(func() []string { return withParents(processDirs("environ", readPWD)) }),
	}
	for _, s := range bound {
		switch {
		case filepath.IsAbs(s.name):
			search.locate(s, "/")
		case s.uid >= 0 && s.uid != os.Geteuid() && os.Geteuid() != 0:
			// The directories of another user's process cannot be read.
		case !search.locate(s, search.workingDirs()...):
			search.locate(s, search.startDirs()...)
		}
	}
	return slices.Sorted(maps.Keys(search.found))
}

// socketSearch is a search for the files of sockets.
type socketSearch struct {
	found                  map[string]bool // paths of sockets
	searched               map[string]bool // directories
	workingDirs, startDirs func() []string // where a relative name may start
}

// locate looks for a socket below each of some directories, and reports whether it was found. Where its name does not
// lead to it, because its file was renamed, all sockets in that directory are found.
func (f socketSearch) locate(s boundSocket, bases ...string) (located bool) {
	for _, base := range bases {
		path := filepath.Join(base, s.name)
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK {
			f.found[path] = true
			located = located || s.inode == 0 || s.inode == uint32(st.Ino)
		}
	}
	for _, base := range bases {
		if located {
			break
		}
		f.findAllIn(filepath.Dir(filepath.Join(base, s.name)))
	}
	return located
}

// findAllIn finds all sockets in a directory.
func (f socketSearch) findAllIn(dir string) {
	if f.searched[dir] {
		return
	}
	f.searched[dir] = true
	entries, _ := os.ReadDir(dir) // one that does not exist or cannot be listed has none to find
	for _, e := range entries {
		if e.Type() == fs.ModeSocket {
			f.found[filepath.Join(dir, e.Name())] = true
		}
	}
}

// processDirs reads a directory from a file of each process in /proc. Processes of other users, and those that have just
// ended, have none.
func processDirs(file string, read func(path string) (string, error)) []string {
	var dirs []string
	processes, _ := os.ReadDir("/proc")
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		if dir, err := read(filepath.Join("/proc", p.Name(), file)); err == nil && filepath.IsAbs(dir) {
			dirs = append(dirs, filepath.Clean(dir))
		}
	}
	return dirs
}

// readPWD returns the variable PWD of an environment: the directory in which a shell started the process.
func readPWD(environ string) (string, error) {
	variables, err := os.ReadFile(environ)
	for variable := range bytes.SplitSeq(variables, []byte{0}) {
		if dir, ok := bytes.CutPrefix(variable, []byte("PWD=")); ok {
			return string(dir), nil
		}
	}
	return "", err
}

// withParents returns directories and all above them: a process may have changed to a subdirectory since it bound a
// socket.
func withParents(dirs []string) []string {
	all := map[string]bool{}
	for _, dir := range dirs {
		for ; !all[dir]; dir = filepath.Dir(dir) {
			all[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
