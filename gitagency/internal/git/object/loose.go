package object

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// ReadLoose reads the file of a loose object that our own git has written. It neither sets nor checks the id.
func ReadLoose(path string) (Raw, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Raw{}, err
	}
	kind, size, content, err := DecodeLoose(bytes.NewReader(data))
	if err != nil {
		return Raw{}, fmt.Errorf("%s: %w", path, err)
	}
	o := Raw{Kind: kind}
	if o.Content, err = io.ReadAll(content); err == nil && int64(len(o.Content)) != size {
		err = ErrTruncated
	}
	if err != nil {
		return Raw{}, fmt.Errorf("%s: %w", path, err)
	}
	return o, nil
}

// DecodeLoose decodes the header of a file of a loose object. The content that it returns is not checked; its end checks
// only that the compression is not damaged.
func DecodeLoose(file io.Reader) (kind string, size int64, content io.Reader, err error) {
	const longest = 32 // bytes of a header
	z, err := zlib.NewReader(file)
	if err != nil {
		return "", 0, nil, err
	}
	inflated := bufio.NewReaderSize(z, 1<<15)
	head, err := inflated.Peek(longest)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", 0, nil, err
	}
	header, _, ok := bytes.Cut(head, []byte{0})
	kind, digits, _ := strings.Cut(string(header), " ")
	size, err = strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || size < 0 {
		return "", 0, nil, ErrTruncated
	}
	_, err = inflated.Discard(len(header) + 1)
	return kind, size, inflated, err
}

// Reasons why an object is damaged.
const (
	DamagedUnreadable = "it is damaged: it cannot be read"
	DamagedHash       = "it is damaged: its content does not match its id"
)

// WrongKindReason is the reason why an object of another type is refused.
func WrongKindReason(want, have string) string { return "it must be a " + want + ", but is a " + have }

// LooseReader decodes files of loose objects, one after the other, and reuses its buffers.
type LooseReader struct {
	Format   Format
	input    bytes.Reader
	inflater io.ReadCloser
	output   bytes.Buffer
}

// Check checks that data is the file of a loose object of an id and a type. It returns the size of the object, which is
// below 0 where that is more than left, the bytes that may be read; or the reason why it is not such a file.
func (o *LooseReader) Check(data []byte, oid, want string, left int64) (size int64, why string) {
	const header = 64
	o.input.Reset(data)
	o.output.Reset()
	var err error
	if o.inflater == nil {
		o.inflater, err = zlib.NewReader(&o.input)
	} else {
		err = o.inflater.(zlib.Resetter).Reset(&o.input, nil)
	}
	if err != nil {
		o.inflater = nil
		return 0, DamagedUnreadable
	}
	_, err = o.output.ReadFrom(io.LimitReader(o.inflater, left+header))
	head, content, ok := bytes.Cut(o.output.Bytes(), []byte{0})
	kind, digits, _ := strings.Cut(string(head), " ")
	size, parseErr := strconv.ParseInt(digits, 10, 64)
	switch {
	case !ok || parseErr != nil || size < 0:
		return 0, DamagedUnreadable
	case kind != want:
		return 0, WrongKindReason(want, kind)
	case size > left:
		return -1, ""
	case err != nil || int64(len(content)) != size:
		return 0, DamagedUnreadable
	case HexOID(o.Format.HashSum(o.output.Bytes())) != oid:
		return 0, DamagedHash
	}
	return size, ""
}
