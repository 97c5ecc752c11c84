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
func seqpacketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "namespace")
	if ours, err = newUnixConn(os.NewFile(uintptr(fds[0]), "namespace")); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// newUnixConn makes a connection from a descriptor, and closes the descriptor.
func newUnixConn(f *os.File) (*net.UnixConn, error) {
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
	maxPlanSize   = 128 << 10 // bytes of a plan, or of a message with one
	maxReplySize  = 16 << 10  // bytes of other messages
	maxMessageFDs = 32
)

// sendMessage sends one JSON message, with descriptors.
func sendMessage(to *net.UnixConn, message any, files ...*os.File) error {
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
func receiveMessage(from *net.UnixConn, message any) ([]int, error) {
	return receiveMessageUpTo(maxReplySize, from, message)
}

func receiveMessageUpTo(limit int, from *net.UnixConn, message any) ([]int, error) {
	data, rights := make([]byte, limit), make([]byte, unix.CmsgSpace(4*maxMessageFDs))
	n, m, flags, _, err := from.ReadMsgUnix(data, rights)
	if err != nil {
		return nil, err
	}
	files, err := parseFDs(rights[:m])
	switch {
	case err != nil:
	case n == 0:
		err = errors.New("the connection was closed")
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = errors.New("the message is too long")
	default:
		err = json.Unmarshal(data[:n], message)
	}
	if err != nil {
		closeFDs(files)
		return nil, err
	}
	return files, nil
}

func parseFDs(rights []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	for _, m := range messages {
		part, parseErr := unix.ParseUnixRights(&m)
		fds, err = append(fds, part...), errors.Join(err, parseErr)
	}
	return fds, err
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
