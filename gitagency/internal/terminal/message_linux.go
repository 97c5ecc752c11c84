package terminal

import (
	"encoding/binary"
	"io"

	"golang.org/x/sys/unix"
)

// Messages of a client to its host: one byte for the kind, two for the length of the content. The host sends nothing but
// output.
const (
	sizeMessage = 's' // size of its terminal: rows, columns, width and height; the first message of every client
	keysMessage = 'k' // what was typed
)

const maxMessage = 1<<16 - 1

func writeMessage(w io.Writer, kind byte, content []byte) error {
	for {
		part := content[:min(len(content), maxMessage)]
		content = content[len(part):]
		message := append(binary.BigEndian.AppendUint16([]byte{kind}, uint16(len(part))), part...)
		if _, err := w.Write(message); err != nil || len(content) == 0 {
			return err
		}
	}
}

func readMessage(r io.Reader) (kind byte, content []byte, err error) {
	var header [3]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	content = make([]byte, binary.BigEndian.Uint16(header[1:]))
	_, err = io.ReadFull(r, content)
	return header[0], content, err
}

func formatSize(size unix.Winsize) (content []byte) {
	for _, n := range []uint16{size.Row, size.Col, size.Xpixel, size.Ypixel} {
		content = binary.BigEndian.AppendUint16(content, n)
	}
	return content
}

// parseSize returns the size in a message; zero if it has none.
func parseSize(content []byte) unix.Winsize {
	if len(content) != 8 {
		return unix.Winsize{}
	}
	n := func(i int) uint16 { return binary.BigEndian.Uint16(content[2*i:]) }
	return unix.Winsize{Row: n(0), Col: n(1), Xpixel: n(2), Ypixel: n(3)}
}
