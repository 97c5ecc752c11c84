package proc

import (
	"encoding/json"
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// seqpacketPair makes a pair of connected SOCK_SEQPACKET sockets, which carry whole messages with descriptors: one end
// for us, one to hand over.
func conversation() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "room")
	if ours, err = asConn(os.NewFile(uintptr(fds[0]), "room")); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// newUnixConn makes a connection from a descriptor, and closes the descriptor.
func asConn(f *os.File) (*net.UnixConn, error) {
	conn, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("not a local connection"), conn.Close())
	}
	return unixConn, nil
}

// Limits of one message.
const (
	maxMessage = 128 << 10 // bytes of a plan, or of a message with one
	maxWords   = 16 << 10  // bytes of other messages
	maxFiles   = 32
)

// sendMessage sends one JSON message, with descriptors.
func send(to *net.UnixConn, message any, files ...*os.File) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd()) // Fd also makes a pipe blocking, as programs expect
		}
		rights = unix.UnixRights(fds...)
	}
	_, _, err = to.WriteMsgUnix(data, rights, nil)
	return err
}

// receiveMessage receives one JSON message and returns the descriptors that came with it.
func receive(from *net.UnixConn, message any) ([]int, error) {
	return receiveUpTo(maxWords, from, message)
}

func receiveUpTo(limit int, from *net.UnixConn, message any) ([]int, error) {
	data, rights := make([]byte, limit), make([]byte, unix.CmsgSpace(4*maxFiles))
	n, m, flags, _, err := from.ReadMsgUnix(data, rights)
	if err != nil {
		return nil, err
	}
	files, err := filesIn(rights[:m])
	switch {
	case err != nil:
	case n == 0:
		err = errors.New("the connection has ended")
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = errors.New("the message is too long")
	default:
		err = json.Unmarshal(data[:n], message)
	}
	if err != nil {
		closeAll(files)
		return nil, err
	}
	return files, nil
}

func filesIn(rights []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	for _, m := range messages {
		part, parseErr := unix.ParseUnixRights(&m)
		fds, err = append(fds, part...), errors.Join(err, parseErr)
	}
	return fds, err
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
