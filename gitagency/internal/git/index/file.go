// Package index reads, edits and writes git index files (versions 2 to 4). It works on the bytes of one file and never
// looks at a worktree or runs git. It reports an index that it cannot represent, a split or sparse one, as a
// *NotPlainError, so that the caller has git expand it.
package index

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"iter"

	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// File is the entries of an index file, read as data, without git and without its extensions. Git trusts its index: it
// takes the extensions for what it would find itself, and assumes that it has checked the names.
type File struct {
	Format   object.Format
	Extended bool // an entry has extended flags, which need version 3
	Count    int
	Body     []byte // the entries, encoded as in version 2 or 3
	sum      []byte // checksum of the file that Write makes of them; nil when it is not known yet
}

// NotPlainError is an index that does not hold every entry itself: a split or a sparse one. Git can write a plain index
// of it, where git may be trusted with it.
type NotPlainError struct {
	Kind string // "split" or "sparse"
}

func (e *NotPlainError) Error() string { return "the index is a " + e.Kind + " index" }

const (
	headerSize           = 12
	StatSize             = 40      // bytes of ctime, mtime, device, inode, mode, owner and size, before the object id
	ModeOffset           = 24      // offset of the mode among them
	maxPathLength        = 4095    // PATH_MAX; longer names would let a small index of version 4 decode to a large one
	MaxSize              = 1 << 30 // bytes of an index as version 2 or 3; version 4 is much shorter
	flagAssumeUnchanged  = 1 << 15 // assume unchanged
	flagExtended         = 1 << 14 // two bytes of extended flags follow
	flagStageMask        = 3 << 12
	flagNameLengthMask   = 1<<12 - 1 // length of the name, or this maximum for longer ones
	extendedSkipWorktree = 1 << 14   // skip-worktree
	extendedIntentToAdd  = 1 << 13   // intent-to-add
	fileSignature        = "DIRC"
)

// ErrTooLarge reports an index whose entries take more memory than allowed. A small file of version 4, in which names share
// prefixes, may have large ones.
var ErrTooLarge = errors.New("the index is too large")

// Read is ReadWithin with MaxSize.
func Read(data []byte, format object.Format) (File, error) { return ReadWithin(data, format, MaxSize) }

// ReadWithin reads an index file of any version that git writes. It refuses a file that git would not have written, and names
// that must not be checked out on some file system. The data must not change afterwards: the index may be a part of it.
// The error is a *NotPlainError for a split or sparse index, and ErrTooLarge if its entries are longer than limit.
func ReadWithin(data []byte, format object.Format, limit int) (File, error) {
	f, err := parseHeader(data, format)
	if err != nil {
		return File{}, err
	}
	sums := proc.Async(func() (checksums, error) { return f.sums(), nil })
	p := f.parser()
	p.rebuild, p.maxBody = f.version == 4, limit
	if err := p.entries(); err != nil {
		return File{}, err
	}
	end := p.at
	if err := p.extensions(); err != nil {
		return File{}, err
	}
	if p.redundant { // entries are longer than git writes them
		p = f.parser()
		p.rebuild, p.maxBody = true, limit
		if err := p.entries(); err != nil {
			return File{}, err
		}
	}
	x := File{Format: format, Extended: p.extended, Count: f.count, Body: p.body}
	sum, _ := sums()
	if !p.rebuild {
		x.Body = f.content[headerSize:end:end]
		if f.version == x.version() && end == sum.end {
			x.sum = sum.entries
		}
	}
	if err := f.checkSum(sum.all); err != nil {
		return File{}, err
	}
	return x, nil
}

// Append adds the entry of a merged file, whose name is after those of all others.
func (x *File) Append(stat, oid, name []byte) {
	x.Body = AppendEntry(x.Body, stat, oid, uint16(min(len(name), flagNameLengthMask)), 0, name)
	x.Count++
	x.sum = nil // it was that of the entries before
}

// AppendEntry encodes an entry as version 2 or 3 does.
func AppendEntry(body, stat, oid []byte, flags, extra uint16, name []byte) []byte {
	start := len(body)
	body = append(append(body, stat...), oid...)
	if flags &^= flagExtended; extra != 0 {
		flags |= flagExtended
	}
	body = binary.BigEndian.AppendUint16(body, flags)
	if extra != 0 {
		body = binary.BigEndian.AppendUint16(body, extra)
	}
	body = append(body, name...)
	var nothing [8]byte
	return append(body, nothing[:paddedLength(len(body)-start)-(len(body)-start)]...)
}

// paddedLength returns the length of an entry with its padding: one to eight NULs, up to a multiple of eight.
func paddedLength(length int) int { return (length + 8) &^ 7 }

// version returns the oldest version that can hold the index.
func (x File) version() uint32 {
	if x.Extended {
		return 3
	}
	return 2
}

// Write writes an index file in the oldest version that can hold the entries, without extensions.
func (x File) Write(w io.Writer) error { return x.writeWith(w, nil) }

// writeWith is Write with encoded extensions.
func (x File) writeWith(w io.Writer, extensions []byte) error {
	head := make([]byte, 0, headerSize)
	head = append(head, fileSignature...)
	head = binary.BigEndian.AppendUint32(head, x.version())
	head = binary.BigEndian.AppendUint32(head, uint32(x.Count))
	sum := x.sum
	if sum == nil || len(extensions) > 0 {
		h := x.Format.NewHash()
		h.Write(head)
		h.Write(x.Body)
		h.Write(extensions)
		sum = h.Sum(nil)
	}
	for _, part := range [][]byte{head, x.Body, extensions, sum} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// Encode returns the index file that Write writes.
func (x File) Encode() []byte { return x.encode(nil) }

// EncodeWithCacheTree is Encode with a TREE extension, the one of an index with the same entries.
func (x File) EncodeWithCacheTree(trees []byte) []byte { return x.encode(appendCacheTree(nil, trees)) }

// encode is Encode with encoded extensions.
func (x File) encode(extensions []byte) []byte {
	b := bytes.NewBuffer(make([]byte, 0, headerSize+len(x.Body)+len(extensions)+x.Format.IDSize()))
	_ = x.writeWith(b, extensions) // a bytes.Buffer does not fail
	return b.Bytes()
}

// Entry is one entry of an index. Oid, Name and Stat are slices of the index.
type Entry struct {
	Mode  uint32
	Stage int
	OID   []byte
	Name  []byte
	Stat  []byte // the file's stat data when it was staged

	flags, extendedFlags uint16 // as encoded; 0 in an entry that was not decoded
	SkipWorktree         bool   // skip-worktree
	IntentToAdd          bool   // intent-to-add
}

// needsBlob reports whether the entry needs a blob of this repository. The commit of a submodule is in another one.
func (e Entry) needsBlob() bool { return e.Mode != object.ModeGitlink && !object.IsZero(e.OID) }

// AllEntries iterates over the entries.
func (x File) AllEntries() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for left := x.Body; len(left) > 0; {
			var e Entry
			if e, left = NextEntry(left, x.Format.IDSize()); !yield(e) {
				return
			}
		}
	}
}

// NextEntry decodes the first entry of the body of an index, which was checked before, and returns the rest.
func NextEntry(left []byte, size int) (Entry, []byte) {
	flags, extra, at, _ := decodeEntryHead(left, size)
	length := int(flags & flagNameLengthMask)
	if length == flagNameLengthMask {
		length = bytes.IndexByte(left[at:], 0)
	}
	return Entry{
		Mode: binary.BigEndian.Uint32(left[ModeOffset:]), Stage: int(flags&flagStageMask) >> 12,
		OID: left[StatSize : StatSize+size], Name: left[at : at+length], Stat: left[:StatSize],
		flags: flags, extendedFlags: extra, SkipWorktree: extra&extendedSkipWorktree != 0, IntentToAdd: extra&extendedIntentToAdd != 0,
	}, left[paddedLength(at+length):]
}

// NewBlobs lists the blobs that this index needs and an earlier one does not, each once.
func (x File) NewBlobs(before File) []string {
	if bytes.Equal(x.Body, before.Body) {
		return nil
	}
	// Most entries are the same but for their stat data; these are compared as bytes.
	now, left, size := x.Body, before.Body, before.Format.IDSize()
	var e, was Entry
	wanted, order := map[string]bool{}, []string(nil)
	for len(now) > 0 {
		at := now
		e, now = NextEntry(now, x.Format.IDSize())
		if n := len(at) - len(now); len(left) >= n && bytes.Equal(at[StatSize:n], left[StatSize:n]) && bytes.Equal(at[ModeOffset:ModeOffset+4], left[ModeOffset:ModeOffset+4]) {
			left = left[n:]
			continue
		}
		for len(left) > 0 && entryBefore(was, e) {
			was, left = NextEntry(left, size)
		}
		if !e.needsBlob() || was.needsBlob() && bytes.Equal(was.OID, e.OID) || wanted[string(e.OID)] {
			continue
		}
		wanted[string(e.OID)] = true
		order = append(order, string(e.OID))
	}
	if len(order) == 0 {
		return nil
	}
	var first [256]bool // first bytes of the ids, which save most of the map lookups
	for _, oid := range order {
		first[oid[0]] = true
	}
	for e := range before.AllEntries() {
		if first[e.OID[0]] && e.needsBlob() { // the commit of a submodule need not be in this repository
			delete(wanted, string(e.OID))
		}
	}
	var missing []string
	for _, oid := range order {
		if wanted[oid] {
			missing = append(missing, hex.EncodeToString([]byte(oid)))
		}
	}
	return missing
}

// entryBefore reports whether a comes before b in an index.
func entryBefore(a, b Entry) bool {
	c := bytes.Compare(a.Name, b.Name)
	return c < 0 || c == 0 && a.Stage < b.Stage
}
