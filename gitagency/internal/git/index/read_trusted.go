package index

import (
	"bytes"
	"fmt"

	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// ReadTrusted reads an index that our own git has written, and checks only that its entries can be decoded: not their
// names, the extensions or the checksum. An index of version 4, whose names depend on each other, is read by Read.
func ReadTrusted(data []byte, format object.Format) (File, error) {
	f, err := parseHeader(data, format)
	if err != nil {
		return File{}, err
	}
	if f.version == 4 {
		return Read(data, format)
	}
	end, ok := f.entriesEnd()
	if !ok {
		return File{}, fmt.Errorf("index: %w", object.ErrTruncated)
	}
	return File{Format: format, Extended: f.version == 3, Count: f.count, Body: f.content[headerSize:end:end]}, nil
}

// checksums are the checksums of an index file: of all of it, and of the file without its extensions.
type checksums struct {
	all, entries []byte
	end          int // offset behind the entries; 0 when it is not known
}

// sums hashes the content of the file, which takes as long as parsing it.
func (f encodedFile) sums() (s checksums) {
	h, content := f.format.NewHash(), f.content
	if f.version < 4 {
		if end, ok := f.entriesEnd(); ok {
			h.Write(content[:end])
			s.entries, s.end, content = h.Sum(nil), end, content[end:]
		}
	}
	h.Write(content)
	s.all = h.Sum(nil)
	return s
}

// entriesEnd returns the offset behind the entries of a file of version 2 or 3.
func (f encodedFile) entriesEnd() (end int, ok bool) {
	end, ok = skimEntries(f.content[headerSize:], f.count, f.size, nil)
	return headerSize + end, ok
}

// skimEntries returns the length of the first count entries of version 2 or 3 in body, and writes the offset of each
// into starts, unless that is nil.
func skimEntries(body []byte, count, size int, starts []int) (end int, ok bool) {
	for i := range count {
		length, ok := entryLength(body[end:], size)
		if !ok {
			return 0, false
		}
		if starts != nil {
			starts[i] = end
		}
		end += length
	}
	return end, true
}

// entryLength returns the length of the entry of version 2 or 3 that data begins with.
func entryLength(data []byte, size int) (int, bool) {
	flags, _, nameAt, ok := decodeEntryHead(data, size)
	if !ok {
		return 0, false
	}
	length := int(flags & flagNameLengthMask)
	if length == flagNameLengthMask {
		length = bytes.IndexByte(data[nameAt:], 0)
	}
	if length < 0 || paddedLength(nameAt+length) > len(data) {
		return 0, false
	}
	return paddedLength(nameAt + length), true
}
