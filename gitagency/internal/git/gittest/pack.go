package gittest

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"hash"
)

// Pack builds a pack entry by entry, with sizes and offsets that need not be true.
type Pack struct {
	entries []byte
	count   int
}

// Types of pack entries.
const (
	PackCommit   = 1
	PackTree     = 2
	PackBlob     = 3
	PackOfsDelta = 6
	PackRefDelta = 7
)

const packHeader = 12 // bytes

// Add adds an entry with a type, an uncompressed size, a base as the type encodes it, and content to compress. It
// returns the offset of the entry.
func (p *Pack) Add(kind byte, size int, base, content string) int {
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	_, _ = w.Write([]byte(content)) // a buffer takes everything
	_ = w.Close()
	return p.AddRaw(kind, size, base, z.String())
}

// AddRaw is Add with content that is compressed already.
func (p *Pack) AddRaw(kind byte, size int, base, compressed string) int {
	at, b := packHeader+len(p.entries), kind<<4|byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		p.entries = append(p.entries, b|0x80)
		b = byte(size & 0x7f)
	}
	p.entries = append(append(append(p.entries, b), base...), compressed...)
	p.count++
	return at
}

// OffsetTo returns the base of an offset delta: the entry at an offset, as seen from the entry that is added next.
func (p *Pack) OffsetTo(at int) string {
	back := packHeader + len(p.entries) - at
	offset := []byte{byte(back & 0x7f)}
	for back >>= 7; back > 0; back >>= 7 {
		back--
		offset = append([]byte{0x80 | byte(back&0x7f)}, offset...)
	}
	return string(offset)
}

// Bytes returns the pack with its header and checksum.
func (p *Pack) Bytes(h hash.Hash) []byte { return p.BytesWithCount(p.count, h) }

// BytesWithCount is Bytes with another number of objects in the header.
func (p *Pack) BytesWithCount(count int, h hash.Hash) []byte {
	pack := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), uint32(count))
	pack = append(pack, p.entries...)
	h.Write(pack)
	return h.Sum(pack)
}

// RepeatDelta returns a delta that copies all of its base, of at most 16 MiB, a number of times.
func RepeatDelta(baseSize, times int) string {
	delta := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(baseSize)), uint64(baseSize*times))
	for range times {
		delta = append(delta, 0xf0, byte(baseSize), byte(baseSize>>8), byte(baseSize>>16)) // copy from the beginning
	}
	return string(delta)
}

// AddBomb adds a blob of 8 MiB and blobs that are deltas of it, each of a size of about 500 bytes and standing for 512
// MiB.
func (p *Pack) AddBomb(deltas int) {
	const size = 8 << 20
	base := p.Add(PackBlob, size, "", string(make([]byte, size)))
	for i := range deltas {
		delta := RepeatDelta(size, 64-i%2) // two sizes, so that not all are the same object
		p.Add(PackOfsDelta, len(delta), p.OffsetTo(base), delta)
	}
}
