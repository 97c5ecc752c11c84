package mailbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// bellFile is a FIFO in the mailbox. A process that sends a request writes the id of the request to it; the process that
// serves requests reads it, without using the processor while there are none. Unlike inotify, whose descriptors take
// milliseconds to close, it costs a command that sends no request microseconds.
const bellFile = ".bell"

// ErrNotServed reports that no process on the host serves the requests of the sandbox.
var ErrNotServed = errors.New("no process of git-agency outside of the sandbox serves its requests")

// Server serves the requests of one mailbox.
type Server struct {
	box  *Box
	bell *os.File
}

// NewServer starts to accept requests in the mailbox at a path; Serve handles them.
func NewServer(path string) (*Server, error) {
	box, err := Open(path)
	if err != nil {
		return nil, err
	}
	bell, err := box.openBell(unix.O_RDWR) // with O_RDONLY it would be at its end while no process has it open for writing
	if errors.Is(err, fs.ErrNotExist) {
		if err = box.dir.Mkfifo(bellFile, 0o600); err == nil || errors.Is(err, fs.ErrExist) {
			bell, err = box.openBell(unix.O_RDWR)
		}
	}
	if err != nil {
		return nil, errors.Join(err, box.Close())
	}
	return &Server{box, bell}, nil
}

// openBell opens the FIFO. Anything else in its place, which only a command of the sandbox can have put there, is removed.
func (b *Box) openBell(flags int) (*os.File, error) {
	f, err := b.dir.OpenFIFO(bellFile, flags)
	if flags == unix.O_RDWR && err != nil && !errors.Is(err, fs.ErrNotExist) {
		if err = b.dir.RemoveAll(bellFile); err == nil {
			err = fs.ErrNotExist
		}
	}
	return f, err
}

// Serve handles requests, one after the other, until ctx ends, and closes the server. An error of a single request is its
// reply.
func (s *Server) Serve(ctx context.Context, handle func(context.Context, Request) Reply) (err error) {
	defer func() { err = errors.Join(err, s.bell.Close(), s.box.Close()) }()
	defer context.AfterFunc(ctx, func() { _ = s.bell.SetReadDeadline(time.Unix(1, 0)) })()
	buffer := make([]byte, 64*(idLength+1))
	for {
		n, err := s.bell.Read(buffer)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for line := range bytes.SplitSeq(buffer[:n], []byte("\n")) {
			if id := string(line); ctx.Err() == nil && isValidID(id) {
				if err := s.serveOne(ctx, id, handle); err != nil {
					return err
				}
			}
		}
	}
}

// serveOne handles one request. It fails only if the mailbox cannot be used any more.
func (s *Server) serveOne(ctx context.Context, id string, handle func(context.Context, Request) Reply) error {
	request, asked, err := s.box.takeRequest(id)
	if !asked {
		return nil
	}
	reply := Reply{Failure: &Failure{}}
	if err == nil {
		reply = handle(ctx, request)
	} else {
		reply.Failure.Message = err.Error()
	}
	if err := s.box.writeReply(id, reply); errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return err
	}
	return nil // something in the place of the reply, which the sandbox has put there
}

// Send sends a request from inside of the sandbox and waits for the reply. The error is ErrNotServed if no process serves
// the mailbox.
func Send(ctx context.Context, path, verb string, args any) (reply Reply, err error) {
	box, err := Open(path)
	if err != nil {
		return reply, err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	request := Request{Verb: verb}
	if request.Args, err = json.Marshal(args); err != nil {
		return reply, err
	}
	data, err := json.Marshal(request)
	if err == nil && len(data) > maxRequestSize {
		err = errTooLarge{maxRequestSize}
	}
	if err != nil {
		return reply, err
	}
	bell, err := box.openBell(unix.O_WRONLY)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) {
		return reply, ErrNotServed
	}
	if err != nil {
		return reply, err
	}
	defer bell.Close()
	id := newID()
	if err := box.write(requestName(id), data); err != nil {
		return reply, err
	}
	defer func() { err = errors.Join(err, box.remove(requestName(id)), box.remove(replyName(id))) }()
	if _, err := bell.WriteString(id + "\n"); err != nil {
		return reply, err
	}
	return box.awaitReply(ctx, id, bell)
}

// awaitReply waits for the reply to a request.
func (b *Box) awaitReply(ctx context.Context, id string, bell *os.File) (reply Reply, err error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		data, _, err := b.read(replyName(id), maxReplySize)
		switch {
		case err == nil:
			return reply, json.Unmarshal(data, &reply)
		case !errors.Is(err, fs.ErrNotExist):
			return reply, err
		case !hasReader(bell):
			return reply, ErrNotServed
		}
		select {
		case <-ctx.Done():
			return reply, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// hasReader reports whether a process has a FIFO, which is open for writing, also open for reading.
func hasReader(fifo *os.File) bool {
	conn, err := fifo.SyscallConn()
	if err != nil {
		return false
	}
	var lost bool
	err = conn.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(poll, 0)
		lost = err == nil && poll[0].Revents&unix.POLLERR != 0
	})
	return err == nil && !lost
}
