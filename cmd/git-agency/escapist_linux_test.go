package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// escapistMain is the "escapist" command of the test binary. It makes system calls that no shell command makes,
// and prints successes on stdout and errors on stderr.
func escapistMain() {
	if len(os.Args) < 2 || escapistCommands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "escapist: what?")
		os.Exit(2)
	}
	runtime.LockOSThread() // ptrace and namespaces are per thread
	// More time than any attempt needs: an attempt that hangs has failed.
	limit := 10 * time.Second
	if os.Args[1] == "hold" {
		limit = time.Minute // the script decides how long
	}
	time.AfterFunc(limit, func() {
		fmt.Fprintln(os.Stderr, "escapist: it takes too long")
		os.Exit(1)
	})
	targets := []string{""}
	if strings.Contains(strings.Join(os.Args, " "), "%/") {
		targets = strings.Fields(os.Getenv("TARGETS"))
	}
	failed := false
	for _, target := range targets {
		args := make([]string, len(os.Args)+4)
		for i, arg := range os.Args[2:] {
			args[i] = strings.ReplaceAll(arg, "%/", target+"/")
		}
		if err := escapistCommands[os.Args[1]](args); err != nil {
			fmt.Fprintf(os.Stderr, "escapist: %s: %v\n", os.Args[1], err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

const ownedText = "owned\n"

// insertedKey is what the seize command inserts into terminals.
const insertedKey = "~"

// escapistCommands are the subcommands of escapist. Their arguments are padded with empty strings; "%/" in an
// argument is replaced by each directory of $TARGETS.
var escapistCommands = map[string]func(args []string) error{
	// fchmod <file>: changes the mode through a read-only descriptor.
	"fchmod": func(args []string) error {
		f, err := os.Open(args[0])
		if err != nil {
			return err
		}
		return unix.Fchmod(int(f.Fd()), 0o777)
	},

	// tmpfile <dir> <name>: opens an O_TMPFILE file and links it.
	"tmpfile": func(args []string) error {
		fd, err := unix.Open(args[0], unix.O_TMPFILE|unix.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, filepath.Join(args[0], args[1]), unix.AT_SYMLINK_FOLLOW)
	},

	// rename <from> <to>: renames and never copies.
	"rename": func(args []string) error { return os.Rename(args[0], args[1]) },

	// exchange <a> <b>: exchanges two names by RENAME_EXCHANGE.
	"exchange": func(args []string) error {
		return unix.Renameat2(unix.AT_FDCWD, args[0], unix.AT_FDCWD, args[1], unix.RENAME_EXCHANGE)
	},

	// setxattr <file> <name> <value in hex>
	"setxattr": func(args []string) error {
		value, err := hex.DecodeString(args[2])
		return errors.Join(err, unix.Lsetxattr(args[0], args[1], value, 0))
	},

	// mmap <file>: writes through a shared mapping.
	"mmap": func(args []string) error {
		fd, err := unix.Open(args[0], unix.O_RDWR, 0)
		if err != nil {
			return err
		}
		m, err := unix.Mmap(fd, 0, 5, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		copy(m, ownedText)
		return unix.Munmap(m)
	},

	// path <file>: changes mode and content through an O_PATH descriptor.
	"path": func(args []string) error {
		fd, err := unix.Open(args[0], unix.O_PATH, 0)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("/proc/self/fd/%d", fd)
		return errors.Join(os.Chmod(name, 0o777), os.WriteFile(name, []byte(ownedText), 0))
	},

	// handle <any file> <type> <hex>: writes to the file of a handle, without path lookup.
	"handle": func(args []string) error {
		kind, err := strconv.Atoi(args[1])
		raw, hexErr := hex.DecodeString(args[2])
		if err = errors.Join(err, hexErr); err != nil {
			return err
		}
		at, err := unix.Open(args[0], unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		fd, err := unix.OpenByHandleAt(at, unix.NewFileHandle(int32(kind), raw), unix.O_WRONLY)
		if err != nil {
			return err
		}
		_, err = unix.Write(fd, []byte(ownedText))
		return err
	},

	// inherited <first> <last>: writes to open files, and to the file victim in open directories.
	"inherited": func(args []string) error {
		first, _ := strconv.Atoi(args[0])
		last, _ := strconv.Atoi(args[1])
		for fd := first; fd <= last; fd++ {
			var st unix.Stat_t
			if unix.Fstat(fd, &st) != nil {
				continue
			}
			switch st.Mode & unix.S_IFMT {
			case unix.S_IFREG:
				_, _ = unix.Write(fd, []byte(ownedText))
			case unix.S_IFDIR:
				if file, err := unix.Openat(fd, "victim", unix.O_WRONLY|unix.O_TRUNC, 0); err == nil {
					_, _ = unix.Write(file, []byte(ownedText))
				}
			}
		}
		return nil
	},

	// reopen <key>: writes through /proc/*/fd to files that other processes have open, but only to targets of
	// the run with this key.
	"reopen": func(args []string) error {
		links, err := filepath.Glob("/proc/[0-9]*/fd/*")
		for _, link := range links {
			to, err := os.Readlink(link)
			if err != nil || !strings.Contains(to, "/target-"+args[0]) {
				continue
			}
			for _, name := range []string{link, link + "/victim"} {
				if f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0); err == nil {
					_, _ = f.WriteString(ownedText)
					_ = f.Close()
				}
			}
		}
		return err
	},

	// bind <from> <to>: bind-mounts by mount(2), or else by open_tree and move_mount.
	"bind": func(args []string) error {
		err := unix.Mount(args[0], args[1], "", unix.MS_BIND|unix.MS_REC, "")
		if err == nil {
			return nil
		}
		fd, treeErr := unix.OpenTree(unix.AT_FDCWD, args[0], unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if treeErr != nil {
			return errors.Join(err, treeErr)
		}
		return unix.MoveMount(fd, "", unix.AT_FDCWD, args[1], unix.MOVE_MOUNT_F_EMPTY_PATH)
	},

	// remount: remounts every mount point writable.
	"remount": func([]string) error {
		table, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			return err
		}
		var errs []error
		for line := range strings.Lines(string(table)) {
			point := strings.Fields(line)[4]
			errs = append(errs, unix.Mount("", point, "", unix.MS_REMOUNT|unix.MS_BIND, ""))
			fd, err := unix.Open(point, unix.O_PATH, 0)
			if err == nil {
				err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	},

	// unmount <prefix>: unmounts every mount point with the prefix, to uncover the files below.
	"unmount": func(args []string) error {
		table, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			return err
		}
		for range 2 {
			for line := range strings.Lines(string(table)) {
				if point := strings.Fields(line)[4]; strings.HasPrefix(point, args[0]) {
					err = errors.Join(err, unix.Unmount(point, unix.MNT_DETACH))
				}
			}
		}
		return err
	},

	// chroot <dir> <file>: changes the root to dir and writes the file there.
	"chroot": func(args []string) error {
		if err := unix.Chroot(args[0]); err != nil {
			return err
		}
		return os.WriteFile(args[1], []byte(ownedText), 0o644)
	},

	// pivot <dir>: makes dir the root by pivot_root in a new mount namespace.
	"pivot": func(args []string) error {
		err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount(args[0], args[0], "", unix.MS_BIND|unix.MS_REC, ""), os.Chdir(args[0]), unix.PivotRoot(".", "."))
		if err == nil {
			fmt.Println("pivoted")
		}
		return err
	},

	// open <file>: opens the file for writing, and writes nothing.
	"open": func(args []string) error {
		fd, err := unix.Open(args[0], unix.O_WRONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			fmt.Println("opened", args[0])
			err = unix.Close(fd)
		}
		return err
	},

	// read <file>: opens the file for reading, and reads nothing.
	"read": func(args []string) error {
		fd, err := unix.Open(args[0], unix.O_RDONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			fmt.Println("opened", args[0])
			err = unix.Close(fd)
		}
		return err
	},

	// enter <pid>: enters the namespaces of another process.
	"enter": func(args []string) error {
		var errs []error
		for _, kind := range []string{"user", "mnt", "net", "pid", "ipc", "uts"} {
			fd, err := unix.Open("/proc/"+args[0]+"/ns/"+kind, unix.O_RDONLY, 0)
			if err == nil {
				err = errors.Join(unix.Unshare(unix.CLONE_FS), unix.Setns(fd, 0))
			}
			if err == nil {
				fmt.Println("entered", kind)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	},

	// ptrace <pid>: attaches to another process.
	"ptrace": func(args []string) error {
		pid, err := strconv.Atoi(args[0])
		if err == nil {
			err = unix.PtraceSeize(pid)
		}
		if err == nil {
			fmt.Println("seized")
		}
		return err
	},

	// memory <pid>: opens and reads the memory of another process.
	"memory": func(args []string) error {
		pid, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		f, memErr := os.OpenFile("/proc/"+args[0]+"/mem", os.O_RDWR, 0)
		if memErr == nil {
			fmt.Println("opened")
			memErr = f.Close()
		}
		var b [8]byte
		local := []unix.Iovec{{Base: &b[0], Len: 8}}
		_, err = unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
		if err == nil || errors.Is(err, unix.EFAULT) { // access was granted; nothing is mapped at that address
			fmt.Println("looked")
		}
		return errors.Join(memErr, err)
	},

	// fdof <pid> <n>: takes a descriptor of another process by pidfd_getfd.
	"fdof": func(args []string) error {
		pid, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return err
		}
		if _, err = unix.PidfdGetfd(fd, n, 0); err == nil {
			fmt.Println("got", n)
		}
		return err
	},

	// kill <pid>: sends SIGKILL by pid and by pidfd.
	"kill": func(args []string) error {
		pid, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err == nil {
			err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		return errors.Join(err, unix.Kill(pid, unix.SIGKILL))
	},

	// sees: prints "found" for each process with $MARK in its command line.
	"sees": func([]string) error {
		names, err := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, name := range names {
			if data, err := os.ReadFile(name); err == nil && bytes.Contains(data, []byte(os.Getenv("MARK"))) {
				fmt.Println("found", name)
			}
		}
		return err
	},

	// socket <family> <type> <protocol>: creates a socket.
	"socket": func(args []string) error {
		var n [3]int
		for i := range n {
			n[i], _ = strconv.Atoi(args[i])
		}
		fd, err := unix.Socket(n[0], n[1], n[2])
		if err == nil {
			fmt.Println("made a socket")
			err = unix.Close(fd)
		}
		return err
	},

	// say <network> <address> <word>: sends the word to a listener.
	"say": func(args []string) error { return sendLine(args[0], args[1], args[2]) },

	// mptcp <address> <word>: sends the word by Multipath TCP.
	"mptcp": func(args []string) error {
		addr, err := net.ResolveTCPAddr("tcp4", args[0])
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 262)
		if err != nil {
			return err
		}
		if err := unix.Connect(fd, &unix.SockaddrInet4{Port: addr.Port, Addr: [4]byte(addr.IP.To4())}); err != nil {
			return err
		}
		_, err = unix.Write(fd, []byte(args[1]+"\n"))
		return errors.Join(err, unix.Close(fd))
	},

	// near <dir> <name> <word>: sends the word to a stream socket in dir, whose path may exceed the limit.
	"near": func(args []string) error {
		if err := os.Chdir(args[0]); err != nil {
			return err
		}
		return sendLine("unix", args[1], args[2])
	},

	// datagram <dir> <name> <word>: sends the word to a datagram socket in dir.
	"datagram": func(args []string) error {
		if err := os.Chdir(args[0]); err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		return unix.Sendto(fd, []byte(args[2]+"\n"), 0, &unix.SockaddrUnix{Name: args[1]})
	},

	// given <dir> <name>: receives descriptors from a socket in dir and writes to them.
	"given": func(args []string) error {
		if err := os.Chdir(args[0]); err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: args[1]}); err != nil {
			return err
		}
		oob := make([]byte, unix.CmsgSpace(4))
		_, n, _, _, err := unix.Recvmsg(fd, make([]byte, 1), oob, 0)
		if err != nil {
			return err
		}
		messages, err := unix.ParseSocketControlMessage(oob[:n])
		if err != nil {
			return err
		}
		for _, m := range messages {
			fds, err := unix.ParseUnixRights(&m)
			if err != nil {
				return err
			}
			for _, fd := range fds {
				if _, err := unix.Write(fd, []byte(ownedText)); err != nil {
					return err
				}
			}
		}
		return nil
	},

	// talk <address> <text>: sends the text, quoted as in Go, and prints the answer.
	"talk": func(args []string) error {
		text, err := strconv.Unquote(`"` + args[1] + `"`)
		if err != nil {
			return err
		}
		conn, err := net.DialTimeout("tcp", args[0], 3*time.Second)
		if err != nil {
			return err
		}
		_ = conn.SetDeadline(time.Now().Add(3 * time.Second))
		for i, part := range strings.Split(text, "<then>") { // each further part is sent after an answer
			if i > 0 {
				answer := make([]byte, 4096)
				n, err := conn.Read(answer)
				os.Stdout.Write(answer[:n])
				if err != nil {
					return err
				}
			}
			if _, err := io.WriteString(conn, part); err != nil {
				return err
			}
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
		_, err = io.Copy(os.Stdout, conn)
		return err
	},

	// listen <address>: listens at a TCP address.
	"listen": func(args []string) error {
		l, err := net.Listen("tcp", args[0])
		if err == nil {
			fmt.Println("listens")
			err = l.Close()
		}
		return err
	},

	// seize: reads the keys of every terminal that it has open, or can open again through /proc, inserts input there, and
	// changes its modes and size. It prints which standard streams are terminals first.
	"seize": func([]string) error {
		var streams []string
		for fd := range 3 {
			if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
				streams = append(streams, strconv.Itoa(fd))
			}
		}
		terminals := make([]int, 21)
		for fd := range terminals {
			terminals[fd] = fd
		}
		links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
		if os.Getenv("AGENCY_ISOLATION") != "" { // without walls root can open the machine's console
			links = append(links, "/dev/console")
		}
		for _, name := range append(links, "/dev/tty") {
			// O_NONBLOCK: a named pipe without a reader must not block.
			if fd, err := unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0); err == nil {
				terminals = append(terminals, fd)
			}
		}
		fmt.Printf("terminals: %s\n", strings.Join(streams, " "))
		for _, fd := range terminals {
			modes, err := unix.IoctlGetTermios(fd, unix.TCGETS)
			if err != nil {
				continue
			}
			modes.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG
			_ = unix.IoctlSetTermios(fd, unix.TCSETS, modes) // the test looks at the terminal, here and below
			_ = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 7, Col: 7})
			_ = unix.SetNonblock(fd, true)
			keys := make([]byte, 100)
			if n, err := unix.Read(fd, keys); err == nil && strings.Trim(string(keys[:n]), insertedKey) != "" {
				fmt.Printf("seized %q\n", keys[:n])
			}
			_ = unix.SetNonblock(fd, false)
			inserted, paste := insertedKey[0], byte(3) // TIOCLINUX 3 pastes the selection of a console
			_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSTI, uintptr(unsafe.Pointer(&inserted)))
			_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCLINUX, uintptr(unsafe.Pointer(&paste)))
		}
		return nil
	},

	// type <text>: inserts input into the terminal on stdin by TIOCSTI.
	"type": func(args []string) error {
		for _, c := range []byte(args[0] + "\n") {
			if _, _, errno := unix.Syscall(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&c))); errno != 0 {
				return errno
			}
		}
		return nil
	},

	// lease <file>: takes a read lease of a file, as long as which another process waits to open it for writing.
	"lease": func(args []string) error {
		f, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
			return err
		}
		if w, err := os.OpenFile(args[0], os.O_WRONLY|unix.O_NONBLOCK, 0); !errors.Is(err, unix.EWOULDBLOCK) {
			return errors.Join(errors.New("a writer does not wait"), err, w.Close())
		}
		fmt.Println("writers wait")
		return nil
	},

	// hold <file> <kind>...: takes a lock of each kind on the files of $FILES, as far as it can, prints which it got, and
	// holds them until the first file, which it creates, is removed.
	"hold": func(args []string) error {
		for _, kind := range args[1:] {
			for _, path := range strings.Fields(os.Getenv("FILES")) {
				if kind == "" {
					continue
				}
				if err := holdLock(kind, path); err != nil {
					fmt.Println("no", kind, path, err)
				} else {
					fmt.Println("got", kind, path)
				}
			}
		}
		if err := os.WriteFile(args[0], nil, 0o600); err != nil {
			return err
		}
		for exists(args[0]) {
			time.Sleep(10 * time.Millisecond)
		}
		return nil
	},

	// asks <call>: makes a system call with zero arguments, which changes nothing. EPERM and ENOSYS are refusals;
	// any other result is an answer.
	"asks": func(args []string) error {
		calls := map[string]uintptr{
			"io_uring_setup": unix.SYS_IO_URING_SETUP, "bpf": unix.SYS_BPF, "add_key": unix.SYS_ADD_KEY, "keyctl": unix.SYS_KEYCTL,
			"request_key": unix.SYS_REQUEST_KEY, "userfaultfd": unix.SYS_USERFAULTFD, "perf_event_open": unix.SYS_PERF_EVENT_OPEN,
			"fsopen": unix.SYS_FSOPEN, "open_tree": unix.SYS_OPEN_TREE, "clone3": unix.SYS_CLONE3,
			"fanotify_init": unix.SYS_FANOTIFY_INIT, "openat2": unix.SYS_OPENAT2,
		}
		_, _, errno := unix.RawSyscall6(calls[args[0]], 0, 0, 0, 0, 0, 0)
		if errno != unix.EPERM && errno != unix.ENOSYS {
			fmt.Println("answered", errno)
		}
		return errno
	},

	// raise <name>: removes the file size limit and writes a file of 3 MiB.
	"raise": func(args []string) error {
		no := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
		err := errors.Join(unix.Setrlimit(unix.RLIMIT_FSIZE, &no), unix.Prlimit(os.Getppid(), unix.RLIMIT_FSIZE, &no, nil))
		return errors.Join(err, os.WriteFile(args[0], make([]byte, 3<<20), 0o644))
	},

	// become <uid>: changes the user id.
	"become": func(args []string) error {
		uid, err := strconv.Atoi(args[0])
		if err == nil {
			err = syscall.Setresuid(uid, uid, uid)
		}
		if err == nil {
			fmt.Println("became", unix.Getuid())
		}
		return err
	},

	// swap <name> <other> <seconds>: exchanges two names repeatedly.
	"swap": func(args []string) error {
		seconds, err := strconv.Atoi(args[2])
		for until := time.Now().Add(time.Duration(seconds) * time.Second); err == nil && time.Now().Before(until); {
			err = unix.Renameat2(unix.AT_FDCWD, args[0], unix.AT_FDCWD, args[1], unix.RENAME_EXCHANGE)
		}
		return err
	},
}

// sendLine connects to an address and sends word and a newline.
func sendLine(network, address, word string) error {
	conn, err := net.DialTimeout(network, address, 3*time.Second)
	if err != nil {
		return err
	}
	_, err = io.WriteString(conn, word+"\n")
	return errors.Join(err, conn.Close())
}

// holdLock takes a lock until the process ends.
func holdLock(kind, path string) error {
	flags := unix.O_RDONLY
	if kind == "write" {
		flags = unix.O_RDWR
	}
	fd, err := unix.Open(path, flags, 0)
	if err != nil {
		return err
	}
	switch kind {
	case "shared":
		return unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB)
	case "exclusive":
		return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	case "read":
		return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK})
	case "write":
		return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	}
	return fmt.Errorf("no such lock: %s", kind)
}
