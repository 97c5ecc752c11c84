package outlet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"strconv"
	"syscall"
	"time"
)

// Reply codes of RFC 1928.
const (
	socksSucceeded           = 0
	socksGeneralFailure      = 1
	socksNotAllowed          = 2
	socksNetworkUnreachable  = 3
	socksHostUnreachable     = 4
	socksConnectionRefused   = 5
	socksCommandNotSupported = 7
	socksAddressNotSupported = 8
)

// serveSOCKS5 serves a client of RFC 1928: CONNECT without authentication, and nothing else.
func (s *handler) serveSOCKS5(ctx context.Context, client bufferedConn, in *bufio.Reader) {
	var hello [2]byte
	if _, err := io.ReadFull(in, hello[:]); err != nil {
		return
	}
	methods := make([]byte, hello[1])
	if _, err := io.ReadFull(in, methods); err != nil {
		return
	}
	if !bytes.Contains(methods, []byte{0}) {
		client.Write([]byte{5, 0xff}) // no acceptable authentication method
		closeGracefully(client, in)
		return
	}
	if _, err := client.Write([]byte{5, 0}); err != nil {
		return
	}

	var request [4]byte // version, command, reserved, type of address
	if _, err := io.ReadFull(in, request[:]); err != nil || request[0] != 5 {
		return
	}
	asked, t, wrong := readSOCKSTarget(in, request[3])
	if wrong != nil && asked == "" {
		if errors.Is(wrong, errSOCKSAddress) {
			s.writeSOCKSError(client, in, socksAddressNotSupported)
		}
		return
	}
	if command := request[1]; command != 1 {
		r := &deniedError{reason: "SOCKS command " + strconv.Itoa(int(command)) + " is not supported"}
		switch command {
		case 2:
			r.reason = "connections to the sandbox (SOCKS BIND) are not among its outputs"
		case 3:
			r.reason = "UDP (SOCKS UDP ASSOCIATE) is not among the outputs of this sandbox"
		}
		s.recordDenial(KindSOCKS, asked, r)
		s.writeSOCKSError(client, in, socksCommandNotSupported)
		return
	}
	if wrong != nil {
		s.recordDenial(KindSOCKS, asked, &deniedError{reason: wrong.Error()})
		s.writeSOCKSError(client, in, socksNotAllowed)
		return
	}

	upstream, err := s.dialAndRecord(ctx, KindSOCKS, t)
	if err != nil {
		s.writeSOCKSError(client, in, socksReplyCode(err))
		return
	}
	client.SetDeadline(time.Now().Add(s.limits.HeadTimeout))
	if _, err := client.Write(encodeSOCKSReply(socksSucceeded)); err != nil {
		upstream.Close()
		return
	}
	clearDeadline(client)
	relay(ctx, client, bufferedConn{upstream, upstream}, s.limits.IdleTimeout)
}

func (s *handler) writeSOCKSError(client bufferedConn, in io.Reader, code byte) {
	client.SetDeadline(time.Now().Add(s.limits.HeadTimeout))
	client.Write(encodeSOCKSReply(code))
	closeGracefully(client, in)
}

// encodeSOCKSReply encodes a reply. It omits the local address of the connection, which the sandbox need not know.
func encodeSOCKSReply(code byte) []byte { return []byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0} }

var errSOCKSAddress = errors.New("unknown address type")

// readSOCKSTarget reads the target, as written and parsed. asked is empty when it could not be read.
func readSOCKSTarget(in io.Reader, kind byte) (asked string, t target, err error) {
	size := 0
	switch kind {
	case 1:
		size = 4
	case 4:
		size = 16
	case 3:
		var length [1]byte
		if _, err := io.ReadFull(in, length[:]); err != nil {
			return "", target{}, err
		}
		size = int(length[0])
	default:
		return "", target{}, errSOCKSAddress
	}
	raw := make([]byte, size+2)
	if _, err := io.ReadFull(in, raw); err != nil {
		return "", target{}, err
	}
	t.port = binary.BigEndian.Uint16(raw[size:])
	if kind == 3 {
		asked = string(raw[:size])
		t.host, err = parseHost(asked)
		asked += ":" + strconv.Itoa(int(t.port))
	} else {
		addr, _ := netip.AddrFromSlice(raw[:size])
		t.host = host{addr: addr.Unmap()}
		asked = t.String()
	}
	if err == nil && t.port == 0 {
		err = errors.New("port 0 is not valid")
	}
	return asked, t, err
}

func socksReplyCode(err error) byte {
	var r *deniedError
	switch {
	case errors.As(err, &r):
		return socksNotAllowed
	case errors.Is(err, syscall.ECONNREFUSED):
		return socksConnectionRefused
	case errors.Is(err, syscall.ENETUNREACH):
		return socksNetworkUnreachable
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, context.DeadlineExceeded), isDNSError(err):
		return socksHostUnreachable
	}
	return socksGeneralFailure
}

// rejectSOCKS4 rejects a SOCKS4 client, whose requests contain addresses instead of names.
func rejectSOCKS4(client bufferedConn) {
	client.Write([]byte{0, 0x5b, 0, 0, 0, 0, 0, 0})
	closeGracefully(client, client.reader)
}
