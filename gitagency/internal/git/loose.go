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

// readLoose reads the file of one object, which a git of ours has written.
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

// What can be wrong with an object.
const (
	unreadableObject = "it is damaged: nobody can read it"
	notItsName       = "it is damaged: it is not what its name says"
)

func notOfKind(want, have string) string { return "it is to be a " + want + " and is a " + have }

// opener reads the files of objects, one after the other.
type opener struct {
	format ObjectFormat
	in     bytes.Reader
	z      io.ReadCloser
	out    bytes.Buffer
}

// check says what is wrong with data as the file of an object of that name and kind, and how large the object is. The size
// is below zero where it has more than may be read.
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
