package git

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// SkimIndex reads an index of our own repository, where nobody wants to deceive us, without checking more of it
// than that it can be read.
func SkimIndex(data []byte, format ObjectFormat) (Index, error) {
	size := format.size()
	if len(data) < indexHeader+size || binary.BigEndian.Uint32(data[4:]) > 3 {
		return ReadIndex(data, format)
	}
	x := Index{format: format, count: int(binary.BigEndian.Uint32(data[8:]))}
	end, ok := entriesEnd(data[:len(data)-size], x.count, size)
	if !ok {
		return Index{}, fmt.Errorf("index: %w", errCutOff)
	}
	x.body = data[indexHeader:end:end]
	return x, nil
}

// indexSums are the checksums of an index file: of all of it, and as it would be without its extensions.
type indexSums struct {
	all, entries []byte
	end          int // of the entries; 0 when that is not known
}

// sumIndex sums up the content of an index file, which takes as long as all the rest.
func sumIndex(content []byte, version uint32, count int, format ObjectFormat) (s indexSums) {
	h := format.hash()
	if version < 4 {
		if end, ok := entriesEnd(content, count, format.size()); ok {
			h.Write(content[:end])
			s.entries, s.end, content = h.Sum(nil), end, content[end:]
		}
	}
	h.Write(content)
	s.all = h.Sum(nil)
	return s
}

// entriesEnd is where the entries of an index file of version 2 or 3 end.
func entriesEnd(content []byte, count, size int) (int, bool) {
	at := indexHeader
	for range count {
		length, ok := entryLength(content[at:], size)
		if !ok {
			return 0, false
		}
		at += length
	}
	return at, true
}

// entryLength is how long the entry is that data begins with, in version 2 or 3.
func entryLength(data []byte, size int) (int, bool) {
	at := indexStat + size + 2
	if len(data) < at+2 {
		return 0, false
	}
	flags := binary.BigEndian.Uint16(data[at-2:])
	if flags&flagExtend != 0 {
		at += 2
	}
	length := int(flags & flagLength)
	if length == flagLength {
		length = bytes.IndexByte(data[at:], 0)
	}
	if length < 0 || padded(at+length) > len(data) {
		return 0, false
	}
	return padded(at + length), true
}
