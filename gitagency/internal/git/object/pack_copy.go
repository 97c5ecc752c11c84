package object

import (
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// PackSize is the size of the objects in a pack.
type PackSize struct {
	Objects  int
	Inflated int64 // bytes of all objects and deltas, uncompressed, and of the objects that the deltas make
	Largest  int64 // bytes of the largest object that git reads into memory: any but a blob that is no delta
}

// ErrPackTooLarge reports a pack whose objects are larger than the limit.
var ErrPackTooLarge = errors.New("the objects of the pack are too large")

// InvalidPackError is a pack that git would not have written.
type InvalidPackError struct {
	Offset int64 // of the entry
	Why    string
}

func (e *InvalidPackError) Error() string {
	return fmt.Sprintf("the pack is invalid at offset %d: %s", e.Offset, e.Why)
}

// CopyPack copies a pack from src to dst and adds up its objects, in constant memory. It inflates every entry, but
// applies no delta: a delta begins with the size of the object that it makes. So a few kilobytes that stand for many
// gigabytes are found without the work of making them.
//
// It stops with ErrPackTooLarge where the objects are larger than limit bytes together; a limit of 0 is none. Then dst
// has not got the entry that is too large. It stops with an *InvalidPackError where the pack cannot be parsed. Then dst
// has got some bytes of that entry, so that its reader can report the error, too. It reads nothing after the pack.
func CopyPack(dst io.Writer, src io.Reader, format Format, limit int64) (PackSize, error) {
	if limit <= 0 {
		limit = math.MaxInt64
	}
	c := packCopier{in: copyReader{src: src, dst: dst, buffer: make([]byte, 64<<10)}, idSize: format.IDSize(), left: uint64(limit)}
	err := c.copy()
	if c.in.err != nil { // a failure of src or dst, which the parser may have taken for an invalid pack
		return c.size, c.in.err
	}
	if errors.Is(err, ErrPackTooLarge) {
		return c.size, err
	}
	// After an error the rest of the buffer goes to dst as well: the reader there can tell what is wrong.
	return c.size, errors.Join(err, c.in.flush(err != nil))
}

type packCopier struct {
	in     copyReader
	zlib   io.ReadCloser // reused from entry to entry; nil before the first
	idSize int
	left   uint64 // bytes up to the limit
	size   PackSize
	entry  int64 // offset of the current entry
}

// Types of pack entries.
const (
	packCommit   = 1
	packBlob     = 3
	packTag      = 4
	packOfsDelta = 6
	packRefDelta = 7
)

func (c *packCopier) copy() error {
	var header [12]byte // "PACK", version, number of objects
	if _, err := io.ReadFull(&c.in, header[:]); err != nil {
		return c.invalid("it ends in its header")
	}
	if version := binary.BigEndian.Uint32(header[4:]); string(header[:4]) != "PACK" || version != 2 && version != 3 {
		return c.invalid("it does not begin as a pack")
	}
	for range binary.BigEndian.Uint32(header[8:]) {
		c.entry = c.in.offset()
		if err := c.copyEntry(); err != nil {
			return err
		}
		c.size.Objects++
	}
	c.entry = c.in.offset()
	return c.skip(c.idSize) // checksum, which git checks
}

// copyEntry copies one object or delta.
func (c *packCopier) copyEntry() error {
	kind, size, err := c.readEntryHeader()
	if err != nil {
		return err
	}
	if err := c.add(size); err != nil {
		return err
	}
	isDelta := false
	switch {
	case kind == packOfsDelta:
		isDelta, err = true, c.skipBaseOffset()
	case kind == packRefDelta:
		isDelta, err = true, c.skip(c.idSize)
	case kind < packCommit || kind > packTag:
		return c.invalid(fmt.Sprintf("there is no type %d", kind))
	}
	if err != nil {
		return err
	}
	if kind != packBlob {
		c.size.Largest = max(c.size.Largest, int64(size))
	}
	return c.inflate(size, isDelta)
}

// inflate reads the compressed data of an entry, which must have this size.
func (c *packCopier) inflate(size uint64, isDelta bool) error {
	if err := c.openZlib(); err != nil {
		return c.invalid(err.Error())
	}
	data := io.LimitedReader{R: c.zlib, N: int64(size)}
	if isDelta {
		made, err := readDeltaSize(&data)
		if err != nil {
			return c.invalid(err.Error())
		}
		if err := c.add(made); err != nil {
			return err
		}
		c.size.Largest = max(c.size.Largest, int64(made))
	}
	if _, err := io.Copy(io.Discard, &data); err != nil {
		return c.invalid(err.Error())
	}
	var more [1]byte
	if n, err := c.zlib.Read(more[:]); data.N > 0 || n > 0 || err != io.EOF {
		return c.invalid("an object has another size than its header says")
	}
	return nil
}

func (c *packCopier) openZlib() (err error) {
	if c.zlib == nil {
		c.zlib, err = zlib.NewReader(&c.in)
		return err
	}
	return c.zlib.(zlib.Resetter).Reset(&c.in, nil)
}

// readDeltaSize reads the beginning of a delta: the size of its base, and of the object that it makes of it.
func readDeltaSize(delta io.Reader) (made uint64, err error) {
	b := byteReader{r: delta}
	if _, err := binary.ReadUvarint(&b); err != nil {
		return 0, fmt.Errorf("size of the base of a delta: %w", err)
	}
	made, err = binary.ReadUvarint(&b)
	if err == nil && made > math.MaxInt64 {
		err = errors.New("it overflows")
	}
	if err != nil {
		return 0, fmt.Errorf("size of an object that a delta makes: %w", err)
	}
	return made, nil
}

// byteReader reads single bytes.
type byteReader struct {
	r    io.Reader
	last [1]byte
}

func (b *byteReader) ReadByte() (byte, error) {
	_, err := io.ReadFull(b.r, b.last[:])
	return b.last[0], err
}

// readEntryHeader reads the type and the uncompressed size of an entry.
func (c *packCopier) readEntryHeader() (kind byte, size uint64, err error) {
	b, err := c.in.ReadByte()
	kind, size = b>>4&7, uint64(b&15)
	for shift := 4; err == nil && b&0x80 != 0; shift += 7 {
		if b, err = c.in.ReadByte(); shift > 56 {
			return 0, 0, c.invalid("a size overflows")
		}
		size |= uint64(b&0x7f) << shift
	}
	if err != nil {
		return 0, 0, c.invalid("it ends before its last object")
	}
	return kind, size, nil
}

// skipBaseOffset reads how far before the entry its base begins.
func (c *packCopier) skipBaseOffset() error {
	b, err := c.in.ReadByte()
	offset := uint64(b & 0x7f)
	for err == nil && b&0x80 != 0 {
		if offset >= math.MaxInt64>>7 {
			return c.invalid("an offset overflows")
		}
		b, err = c.in.ReadByte()
		offset = (offset+1)<<7 | uint64(b&0x7f)
	}
	if err != nil || offset == 0 || offset >= uint64(c.entry) {
		return c.invalid("the base of a delta is not in the pack")
	}
	return nil
}

func (c *packCopier) skip(n int) error {
	for range n {
		if _, err := c.in.ReadByte(); err != nil {
			return c.invalid("it is cut off")
		}
	}
	return nil
}

// add counts bytes against the limit.
func (c *packCopier) add(size uint64) error {
	if size > c.left {
		return ErrPackTooLarge
	}
	c.left -= size
	c.size.Inflated += int64(size)
	return nil
}

func (c *packCopier) invalid(why string) error { return &InvalidPackError{c.entry, why} }

// copyReader reads src and writes to dst what was read from it before. It is an io.ByteReader, so that zlib reads no
// byte too many.
type copyReader struct {
	src       io.Reader
	dst       io.Writer
	buffer    []byte
	next, end int   // the unread part of buffer
	written   int64 // bytes before buffer
	err       error // failure of src or dst, other than the end of src
}

func (r *copyReader) offset() int64 { return r.written + int64(r.next) }

// fill writes the buffer, which was read to its end, and reads the next.
func (r *copyReader) fill() error {
	if err := r.flush(false); err != nil {
		return err
	}
	n, err := 0, error(nil)
	for n == 0 && err == nil {
		n, err = r.src.Read(r.buffer)
	}
	if r.next, r.end = 0, n; n > 0 {
		return nil
	}
	if err != io.EOF {
		r.err = err
	}
	return err
}

// flush writes the part of the buffer that was read, or all of it, and empties it.
func (r *copyReader) flush(all bool) error {
	n := r.next
	if all {
		n = r.end
	}
	if n == 0 {
		return nil
	}
	if _, err := r.dst.Write(r.buffer[:n]); err != nil {
		r.err = err
		return err
	}
	r.written += int64(n)
	r.next, r.end = 0, 0
	return nil
}

func (r *copyReader) ReadByte() (byte, error) {
	if r.next == r.end {
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	r.next++
	return r.buffer[r.next-1], nil
}

func (r *copyReader) Read(p []byte) (int, error) {
	if r.next == r.end {
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.buffer[r.next:r.end])
	r.next += n
	return n, nil
}
