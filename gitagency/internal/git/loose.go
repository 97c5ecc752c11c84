package git

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// readLooseObject reads the file of a loose object that our own git has written. Its id is not checked.
func readLoose(path string) (object, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return object{}, err
	}
	z, err := zlib.NewReader(bytes.NewReader(data))
	if err != nil {
		return object{}, err
	}
	all, err := io.ReadAll(z)
	if err != nil {
		return object{}, err
	}
	header, content, ok := bytes.Cut(all, []byte{0})
	kind, size, _ := strings.Cut(string(header), " ")
	if !ok || size != strconv.Itoa(len(content)) {
		return object{}, fmt.Errorf("%s: %w", path, errCutOff)
	}
	return object{kind: kind, content: content}, nil
}

// Reasons why an object is damaged.
const (
	unreadableObject = "it is damaged: nobody can read it"
	notItsName       = "it is damaged: it is not what its name says"
)

// wrongKind is the reason why an object of another type is refused.
func notOfKind(want, have string) string { return "it is to be a " + want + " and is a " + have }

// looseReader decodes files of loose objects, one after the other, and reuses its buffers.
type opener struct {
	format ObjectFormat
	in     bytes.Reader
	z      io.ReadCloser
	out    bytes.Buffer
}

// check checks that data is the file of a loose object of an id and a type. It returns the size of the object, which is
// below 0 where that is more than left, the bytes that may be read; or the reason why it is not such a file.
func (o *opener) check(data []byte, oid, want string, left int64) (size int64, why string) {
	const header = 64
	o.in.Reset(data)
	o.out.Reset()
	var err error
	if o.z == nil {
		o.z, err = zlib.NewReader(&o.in)
	} else {
		err = o.z.(zlib.Resetter).Reset(&o.in, nil)
	}
	if err != nil {
		o.z = nil
		return 0, unreadableObject
	}
	_, err = o.out.ReadFrom(io.LimitReader(o.z, left+header))
	head, content, ok := bytes.Cut(o.out.Bytes(), []byte{0})
	kind, digits, _ := strings.Cut(string(head), " ")
	size, parseErr := strconv.ParseInt(digits, 10, 64)
	switch {
	case !ok || parseErr != nil || size < 0:
		return 0, unreadableObject
	case kind != want:
		return 0, notOfKind(want, kind)
	case size > left:
		return -1, ""
	case err != nil || int64(len(content)) != size:
		return 0, unreadableObject
	case hexID(o.format.sum(o.out.Bytes())) != oid:
		return 0, notItsName
	}
	return size, ""
}
