package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// encodedFile is an index file whose header has been checked. Every reader of index files begins with parseHeader, and
// all of them decode entries with decodeEntryHead.
type encodedFile struct {
	content []byte // the file without its checksum
	trailer []byte // the checksum; all zero where git was told to leave it out (index.skipHash)
	version uint32
	count   int // of the entries
	format  object.Format
	size    int // bytes of an object id
}

// parseHeader checks the header of an index file.
func parseHeader(data []byte, format object.Format) (encodedFile, error) {
	size := format.IDSize()
	if len(data) < headerSize+size {
		return encodedFile{}, errors.New("index: too short")
	}
	version, count := binary.BigEndian.Uint32(data[4:]), binary.BigEndian.Uint32(data[8:])
	content, trailer := data[:len(data)-size], data[len(data)-size:]
	switch {
	case string(data[:4]) != fileSignature:
		return encodedFile{}, errors.New("index: no signature")
	case version < 2 || version > 4:
		return encodedFile{}, fmt.Errorf("index: unsupported version %d", version)
	case int64(count) > int64(len(content)-headerSize)/int64(StatSize+size+3): // a flag word and one byte of name
		return encodedFile{}, fmt.Errorf("index: %d entries cannot be in %d bytes", count, len(data))
	}
	return encodedFile{content: content, trailer: trailer, version: version, count: int(count), format: format, size: size}, nil
}

// checkSum compares the hash of the content with the checksum in the file.
func (f encodedFile) checkSum(sum []byte) error {
	if !object.IsZero(f.trailer) && !bytes.Equal(sum, f.trailer) {
		return errors.New("index: wrong checksum")
	}
	return nil
}

// decodeEntryHead decodes the flags of the entry that data begins with, in any version. nameAt is the offset of its
// name. It is not ok where data ends before that.
func decodeEntryHead(data []byte, size int) (flags, extra uint16, nameAt int, ok bool) {
	nameAt = StatSize + size + 2
	if len(data) < nameAt {
		return 0, 0, 0, false
	}
	flags = binary.BigEndian.Uint16(data[nameAt-2:])
	if flags&flagExtended == 0 {
		return flags, 0, nameAt, true
	}
	if len(data) < nameAt+2 {
		return 0, 0, 0, false
	}
	return flags, binary.BigEndian.Uint16(data[nameAt:]), nameAt + 2, true
}

// parser parses the entries and extensions of an index file, and checks them.
type parser struct {
	encodedFile
	at int // offset of the next byte to parse

	trustNames bool   // the user's own git has checked the names
	rebuild    bool   // encode the entries again, as version 2 or 3, into body
	maxBody    int    // size that body must not exceed
	body       []byte // the entries as encoded again
	extended   bool   // an entry has extended flags
	nameless   bool   // an entry has no name
	redundant  bool   // an entry has room for extended flags, and none of them set

	name     []byte      // of the previous entry
	stage    uint16      // of the previous entry
	files    []prefixLen // prefixes of the previous name that are names of files
	nextName []byte      // memory for the next name of version 4, which continues the previous one
}

// prefixLen is the length of a prefix of a name that is also the whole name of a file.
type prefixLen int

// parser returns a parser of the file that is at its first entry.
func (f encodedFile) parser() parser { return parser{encodedFile: f, at: headerSize, maxBody: MaxSize} }

// entries parses and checks all entries.
func (p *parser) entries() error {
	for n := range p.count {
		if err := p.entry(); err != nil {
			return fmt.Errorf("index: entry %d: %w", n, err)
		}
	}
	return nil
}

// entry parses and checks the next entry.
func (p *parser) entry() error {
	start := p.at
	data := p.content[start:]
	if len(data) < StatSize+p.size+2 {
		return object.ErrTruncated
	}
	flags, extra, nameAt, ok := decodeEntryHead(data, p.size)
	if !ok || flags&flagExtended != 0 && p.version == 2 {
		return errors.New("invalid flags")
	}
	if flags&flagExtended != 0 {
		if extra&^(extendedSkipWorktree|extendedIntentToAdd) != 0 {
			return errors.New("unknown flags")
		}
		p.extended = p.extended || extra != 0
		p.redundant = p.redundant || extra == 0
	}
	p.at = start + nameAt
	stat, oid := data[:StatSize], data[StatSize:StatSize+p.size]
	name, err := p.readName(start, int(flags&flagNameLengthMask))
	if err != nil {
		return err
	}
	mode := binary.BigEndian.Uint32(stat[ModeOffset:])
	switch mode {
	case object.ModeFile, object.ModeExecutable, object.ModeSymlink, object.ModeGitlink:
	case object.ModeTree:
		return &NotPlainError{"sparse"}
	default:
		return fmt.Errorf("invalid mode %o", mode)
	}
	if extra&extendedIntentToAdd == 0 && object.IsZero(oid) {
		return errors.New("no object id")
	}
	if err := p.checkName(name, flags&flagStageMask, mode == object.ModeSymlink); err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	if p.rebuild {
		if len(p.body)+len(name)+StatSize+p.size+12 > p.maxBody {
			return ErrTooLarge
		}
		p.body = AppendEntry(p.body, stat, oid, flags, extra, name)
	}
	return nil
}

// readName reads the name and the padding of the entry that began at start.
func (p *parser) readName(start, length int) ([]byte, error) {
	rest := p.content[p.at:]
	if p.version == 4 {
		drop, n := decodeVarint(rest)
		if n == 0 || drop > uint64(len(p.name)) {
			return nil, errors.New("invalid prefix length of the name")
		}
		rest = rest[n:]
		end := bytes.IndexByte(rest[:min(len(rest), maxPathLength+1)], 0)
		if end < 0 {
			return nil, object.ErrTruncated
		}
		keep := len(p.name) - int(drop)
		if keep+end > maxPathLength || min(keep+end, flagNameLengthMask) != length {
			return nil, errors.New("wrong length of the name")
		}
		p.at += n + end + 1
		p.nextName = append(append(p.nextName[:0], p.name[:keep]...), rest[:end]...)
		return p.nextName, nil
	}
	if length == flagNameLengthMask {
		if length = bytes.IndexByte(rest[:min(len(rest), maxPathLength+1)], 0); length < flagNameLengthMask {
			return nil, errors.New("wrong length of the name")
		}
	}
	next := start + paddedLength(p.at-start+length)
	if next > len(p.content) {
		return nil, object.ErrTruncated
	}
	if !object.IsZero(p.content[p.at+length : next]) {
		return nil, errors.New("invalid padding after the name")
	}
	p.at = next
	return rest[:length:length], nil
}

// decodeVarint decodes the number of bytes that version 4 drops from the end of the previous name. n is the length of
// the number, and 0 when it is invalid.
func decodeVarint(data []byte) (drop uint64, n int) {
	for n < len(data) && n < 4 {
		b := data[n]
		n++
		drop = drop<<7 | uint64(b&0x7f)
		if b&0x80 == 0 {
			return drop, n
		}
		drop++
	}
	return 0, 0
}

// checkName checks that a name follows the previous one in git's order and may be checked out, and makes it the
// previous.
func (p *parser) checkName(name []byte, stage uint16, link bool) error {
	same := object.CommonPrefixLen(p.name, name)
	switch {
	case len(name) == 0:
		p.nameless = true // as in a split index, whose names are in the shared index
		p.setPrevious(name, stage)
		return nil
	case same == len(name) && same == len(p.name):
		if p.stage == 0 || stage <= p.stage {
			return errors.New("duplicate entry")
		}
	case same == len(name) || same < len(p.name) && name[same] < p.name[same]:
		return errors.New("out of order")
	}
	if bytes.IndexByte(name[same:], 0) >= 0 {
		return errors.New("NUL byte in the name")
	}
	// The common prefix was checked with the previous name, except for its last component, which may be longer now.
	if why := PathProblem(name, bytes.LastIndexByte(name[:same], '/')+1, link); why != "" && !p.trustNames {
		return errors.New(why)
	}
	// A file, and an entry below it as if it were a directory: where the file is a symbolic link, git would write
	// through it. Unmerged entries can be both. Names with a common prefix are neighbours, so every file that this
	// entry may lie below is a prefix of it, and prefixes shorter than the common one were compared before.
	for len(p.files) > 0 && int(p.files[len(p.files)-1]) > same {
		p.files = p.files[:len(p.files)-1]
	}
	if stage == 0 {
		if top := len(p.files) - 1; top >= 0 && int(p.files[top]) == same && len(name) > same && name[same] == '/' {
			return errors.New("a parent directory of it is a file")
		}
		p.files = append(p.files, prefixLen(len(name)))
	}
	p.setPrevious(name, stage)
	return nil
}

// setPrevious makes an entry the previous one.
func (p *parser) setPrevious(name []byte, stage uint16) {
	p.stage = stage
	if p.version == 4 {
		p.nextName = p.name // names of version 4 alternate between two buffers
	}
	p.name = name
}

// extensions checks the extensions behind the entries, and refuses those that git must understand.
func (p *parser) extensions() error {
	for p.at < len(p.content) {
		if len(p.content)-p.at < 8 {
			return errors.New("index: garbage after the entries")
		}
		name, length := p.content[p.at:p.at+4], binary.BigEndian.Uint32(p.content[p.at+4:])
		if p.at += 8; uint64(length) > uint64(len(p.content)-p.at) {
			return fmt.Errorf("index: extension %q: %w", name, object.ErrTruncated)
		}
		p.at += int(length)
		switch {
		case string(name) == "link":
			return &NotPlainError{"split"}
		case string(name) == "sdir":
			return &NotPlainError{"sparse"}
		case name[0] < 'A' || name[0] > 'Z':
			return fmt.Errorf("index: unknown extension %q", name)
		}
	}
	if p.nameless {
		return errors.New("index: an entry without a name")
	}
	return nil
}
