package index

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"golang.org/x/sys/unix"
)

// Editable is the index of the user's own worktree, read to replace some of its entries. It is trusted to be what the
// user's git wrote: names are not checked, and entries that do not change are not decoded.
type Editable struct {
	File
	FileVersion uint32      // version of the file
	ModTime     time.Time   // mtime of the file
	Stamp       string      // durable.StatFingerprint of the file, which tells whether it was replaced
	Perm        fs.FileMode // permissions of the file; 0 where there is none
	Starts      []int       // offset of each entry in the body
	cacheTree   []byte      // TREE extension (cache tree); nil where there is none
}

// ParseEditable parses an index file for editing.
func ParseEditable(data []byte, format object.Format) (*Editable, error) {
	f, err := parseHeader(data, format)
	if err != nil {
		return nil, err
	}
	sum := proc.Async(func() ([]byte, error) { return format.HashSum(f.content), nil })
	defer func() { _, _ = sum() }()
	x := &Editable{File: File{Format: format, Count: f.count, Extended: f.version == 3}, FileVersion: f.version, Starts: make([]int, f.count)}
	p := f.parser()
	p.trustNames, p.rebuild = true, true
	body := f.content[headerSize:]
	if f.version == 4 {
		if err := p.entries(); err != nil {
			return nil, err
		}
		body, x.Extended = p.body, p.extended
	}
	end, ok := skimEntries(body, x.Count, f.size, x.Starts)
	if !ok {
		return nil, fmt.Errorf("index: %w", object.ErrTruncated)
	}
	if x.Body = body[:end:end]; f.version < 4 {
		p.at = headerSize + end
	}
	at := p.at
	if err := p.extensions(); err != nil {
		return nil, err
	}
	x.cacheTree = findExtension(f.content[at:], cacheTreeName)
	got, _ := sum()
	if err := f.checkSum(got); err != nil {
		return nil, err
	}
	return x, nil
}

// findExtension returns the data of the extension of a name, among extensions that were checked before.
func findExtension(left []byte, name string) []byte {
	for len(left) >= 8 {
		length := int(binary.BigEndian.Uint32(left[4:]))
		if string(left[:4]) == name {
			return left[8 : 8+length]
		}
		left = left[8+length:]
	}
	return nil
}

// EntryAt decodes the entry at a position.
func (x *Editable) EntryAt(i int) Entry {
	e, _ := NextEntry(x.Body[x.Starts[i]:], x.Format.IDSize())
	return e
}

// AnyUnmerged reports whether an entry is in conflict: its stage is not 0.
func (x *Editable) AnyUnmerged() bool {
	size := x.Format.IDSize()
	for _, start := range x.Starts {
		if flags, _, _, _ := decodeEntryHead(x.Body[start:], size); flags&flagStageMask != 0 {
			return true
		}
	}
	return false
}

// Find returns the position of the first entry whose name is not before name, and whether it has that name.
func (x *Editable) Find(name string) (int, bool) {
	size := x.Format.IDSize()
	i := sort.Search(len(x.Starts), func(i int) bool {
		e, _ := NextEntry(x.Body[x.Starts[i]:], size)
		return string(e.Name) >= name
	})
	return i, i < len(x.Starts) && string(x.EntryAt(i).Name) == name
}

// EntryChange is the new entry of a name; without an oid, the entry is removed.
type EntryChange struct {
	Name         string
	Mode         uint32
	OID          []byte
	Stat         []byte
	SkipWorktree bool
}

// Edited is an index with some entries replaced. Its other entries are slices of the original.
type Edited struct {
	*Editable
	parts     [][]byte // the entries, in order
	count     int
	extended  bool
	cacheTree []byte
}

// WithChanges returns the index with some entries replaced; changes are sorted by name.
func (x *Editable) WithChanges(changes []EntryChange) *Edited {
	size := x.Format.IDSize()
	y := &Edited{Editable: x, count: x.Count, extended: x.Extended, cacheTree: x.cacheTree}
	copied, names := 0, make([]string, len(changes))
	for n, c := range changes {
		names[n] = c.Name
		i, there := x.Find(c.Name)
		start := len(x.Body)
		if i < len(x.Starts) {
			start = x.Starts[i]
		}
		y.parts = append(y.parts, x.Body[copied:start])
		copied = start
		flags, extra := uint16(min(len(c.Name), flagNameLengthMask)), uint16(0)
		if there {
			n, _ := entryLength(x.Body[start:], size)
			copied += n
			y.count--
			flags |= x.EntryAt(i).flags & flagAssumeUnchanged
		}
		if c.OID == nil {
			continue
		}
		if c.SkipWorktree {
			extra |= extendedSkipWorktree
			y.extended = true
		}
		y.count++
		y.parts = append(y.parts, AppendEntry(nil, c.Stat, c.OID, flags, extra, []byte(c.Name)))
	}
	y.parts = append(y.parts, x.Body[copied:])
	if len(changes) > 0 {
		y.cacheTree = invalidateCacheTree(x.cacheTree, size, names)
	}
	return y
}

// write writes an index file of version 4 if the original was one, or else of the oldest version that can hold the
// entries.
func (y *Edited) write(to io.Writer) error {
	version := uint32(2)
	switch {
	case y.FileVersion == 4:
		version = 4
	case y.extended:
		version = 3
	}
	const room = 64 << 10
	sum := y.Format.NewHash()
	w := bufio.NewWriterSize(io.MultiWriter(sum, to), room) // Flush returns the first error
	head := append(make([]byte, 0, headerSize), fileSignature...)
	head = binary.BigEndian.AppendUint32(head, version)
	_, _ = w.Write(binary.BigEndian.AppendUint32(head, uint32(y.count)))
	if version == 4 {
		_, _ = w.Write(appendVersion4(nil, bytes.Join(y.parts, nil), y.Format.IDSize()))
	} else {
		for _, part := range y.parts {
			_, _ = w.Write(part)
		}
	}
	if y.cacheTree != nil {
		_, _ = w.Write(appendCacheTree(nil, y.cacheTree))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := to.Write(sum.Sum(nil))
	return err
}

// appendVersion4 encodes entries as version 4 does, where each name leaves out the prefix that it shares with the
// previous one.
func appendVersion4(file, body []byte, size int) []byte {
	var before []byte
	for len(body) > 0 {
		e, rest := NextEntry(body, size)
		head := StatSize + size + 2
		if e.flags&flagExtended != 0 {
			head += 2
		}
		file = append(file, body[:head]...)
		same := object.CommonPrefixLen(before, e.Name)
		file = appendVarint(file, uint64(len(before)-same))
		file = append(append(file, e.Name[same:]...), 0)
		before, body = e.Name, rest
	}
	return file
}

// appendVarint encodes a number as decodeVarint decodes it.
func appendVarint(file []byte, n uint64) []byte {
	var digits [10]byte
	at := len(digits) - 1
	digits[at] = byte(n & 0x7f)
	for n >>= 7; n > 0; n >>= 7 {
		n--
		at--
		digits[at] = 0x80 | byte(n&0x7f)
	}
	return append(file, digits[at:]...)
}

// EncodeStat encodes the stat data of a file as an index entry has it.
func EncodeStat(st *unix.Stat_t, mode uint32) []byte {
	stat := make([]byte, 0, StatSize)
	size := uint32(st.Size)
	if size == 0 && st.Size != 0 {
		size = 1 << 31 // as git does: 0 means that the file must be read again
	}
	for _, word := range []uint32{
		uint32(st.Ctim.Sec), uint32(st.Ctim.Nsec), uint32(st.Mtim.Sec), uint32(st.Mtim.Nsec),
		uint32(st.Dev), uint32(st.Ino), mode, st.Uid, st.Gid, size,
	} {
		stat = binary.BigEndian.AppendUint32(stat, word)
	}
	return stat
}

// CompareChanges compares changes in the order of an index.
func CompareChanges(a, b EntryChange) int { return cmp.Compare(a.Name, b.Name) }
