package git

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io"
	"iter"
	"math/bits"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Index is the entries of an index file, read as data, without git and without its extensions. Git trusts its index: it
// takes the extensions for what it would find itself, and assumes that it has checked the names.
type Index struct {
	format   ObjectFormat
	extended bool // an entry has extended flags, which need version 3
	count    int
	body     []byte // the entries, encoded as in version 2 or 3
	sum      []byte // the checksum of the file that write makes of them; nil when it is not known yet
}

// NotPlainError is an index that does not hold every entry itself: a split or a sparse one. Git can write a plain index of
// it, where git may be trusted with it.
type NotPlainError struct {
	Kind string // "split" or "sparse"
}

func (e *NotPlainError) Error() string { return "the index is a " + e.Kind + " one" }

const (
	indexHeaderSize      = 12
	statSize             = 40      // bytes of ctime, mtime, device, inode, mode, owner and size, before the object id
	modeOffset           = 24      // offset of the mode among them
	maxPathLength        = 4095    // PATH_MAX; longer names would let a small index of version 4 decode to a large one
	maxIndexSize         = 1 << 30 // bytes of an index as version 2 or 3; version 4 is much shorter
	flagAssumeUnchanged  = 1 << 15 // assume unchanged
	flagExtended         = 1 << 14 // two bytes of extended flags follow
	flagStageMask        = 3 << 12
	flagNameLengthMask   = 1<<12 - 1 // length of the name, or this maximum for longer ones
	extendedSkipWorktree = 1 << 14   // skip-worktree
	extendedIntentToAdd  = 1 << 13   // intent-to-add
	indexSignature       = "DIRC"
)

// Modes of entries.
const (
	modeFile       = 0o100644
	modeExecutable = 0o100755
	modeSymlink    = 0o120000
	modeGitlink    = 0o160000
	modeTree       = 0o040000 // only in a sparse index, or in a tree
)

// ReadIndex reads an index file of any version that git writes. It refuses a file that git would not have written, and names
// that must not be checked out on some file system. The data must not change afterwards: the index may be a part of it.
// The error is a *NotPlainError for a split or sparse index.
func ReadIndex(data []byte, format ObjectFormat) (Index, error) {
	f, err := openIndexFile(data, format)
	if err != nil {
		return Index{}, err
	}
	sums := proc.Async(func() (indexSums, error) { return f.sums(), nil })
	p := f.parser()
	p.rebuild = f.version == 4
	if err := p.entries(); err != nil {
		return Index{}, err
	}
	end := p.at
	if err := p.extensions(); err != nil {
		return Index{}, err
	}
	if p.redundant { // entries are longer than git writes them
		p = f.parser()
		p.rebuild = true
		if err := p.entries(); err != nil {
			return Index{}, err
		}
	}
	x := Index{format: format, extended: p.extended, count: f.count, body: p.body}
	sum, _ := sums()
	if !p.rebuild {
		x.body = f.content[indexHeaderSize:end:end]
		if f.version == x.version() && end == sum.end {
			x.sum = sum.entries
		}
	}
	if err := f.checkSum(sum.all); err != nil {
		return Index{}, err
	}
	return x, nil
}

// appendEntry encodes an entry as version 2 or 3 does.
func appendEntry(body, stat, oid []byte, flags, extra uint16, name []byte) []byte {
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
func (x Index) version() uint32 {
	if x.extended {
		return 3
	}
	return 2
}

// write writes an index file in the oldest version that can hold the entries, without extensions.
func (x Index) write(w io.Writer) error {
	head := make([]byte, 0, indexHeaderSize)
	head = append(head, indexSignature...)
	head = binary.BigEndian.AppendUint32(head, x.version())
	head = binary.BigEndian.AppendUint32(head, uint32(x.count))
	sum := x.sum
	if sum == nil {
		h := x.format.newHash()
		h.Write(head)
		h.Write(x.body)
		sum = h.Sum(nil)
	}
	for _, part := range [][]byte{head, x.body, sum} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// Encode returns the index file that write writes.
func (x Index) Encode() []byte {
	var b bytes.Buffer
	_ = x.write(&b) // a bytes.Buffer does not fail
	return b.Bytes()
}

// indexEntry is one entry of an index, of which its parts are slices.
type indexEntry struct {
	mode  uint32
	stage int
	oid   []byte
	name  []byte
	stat  []byte // the file's stat data when it was staged

	flags, extendedFlags uint16 // as encoded; 0 in an entry that was not decoded
	skipWorktree         bool   // skip-worktree
	intentToAdd          bool   // intent-to-add
}

// needsBlob reports whether the entry needs a blob of this repository. The commit of a submodule is in another one.
func (e indexEntry) needsBlob() bool { return e.mode != modeGitlink && !isZero(e.oid) }

// allEntries iterates over the entries.
func (x Index) allEntries() iter.Seq[indexEntry] {
	return func(yield func(indexEntry) bool) {
		for left := x.body; len(left) > 0; {
			var e indexEntry
			if e, left = nextIndexEntry(left, x.format.idSize()); !yield(e) {
				return
			}
		}
	}
}

// nextIndexEntry decodes the first entry of the body of an index, which was checked before, and returns the rest.
func nextIndexEntry(left []byte, size int) (indexEntry, []byte) {
	flags, extra, at, _ := decodeEntryHead(left, size)
	length := int(flags & flagNameLengthMask)
	if length == flagNameLengthMask {
		length = bytes.IndexByte(left[at:], 0)
	}
	return indexEntry{
		mode: binary.BigEndian.Uint32(left[modeOffset:]), stage: int(flags&flagStageMask) >> 12,
		oid: left[statSize : statSize+size], name: left[at : at+length], stat: left[:statSize],
		flags: flags, extendedFlags: extra, skipWorktree: extra&extendedSkipWorktree != 0, intentToAdd: extra&extendedIntentToAdd != 0,
	}, left[paddedLength(at+length):]
}

// MissingBlobs lists the blobs that this index needs and an earlier one does not, each once.
func (x Index) MissingBlobs(before Index) []string {
	if bytes.Equal(x.body, before.body) {
		return nil
	}
	// Most entries are the same but for their stat data; these are compared as bytes.
	now, left, size := x.body, before.body, before.format.idSize()
	var e, was indexEntry
	wanted, order := map[string]bool{}, []string(nil)
	for len(now) > 0 {
		at := now
		e, now = nextIndexEntry(now, x.format.idSize())
		if n := len(at) - len(now); len(left) >= n && bytes.Equal(at[statSize:n], left[statSize:n]) && bytes.Equal(at[modeOffset:modeOffset+4], left[modeOffset:modeOffset+4]) {
			left = left[n:]
			continue
		}
		for len(left) > 0 && entryBefore(was, e) {
			was, left = nextIndexEntry(left, size)
		}
		if !e.needsBlob() || was.needsBlob() && bytes.Equal(was.oid, e.oid) || wanted[string(e.oid)] {
			continue
		}
		wanted[string(e.oid)] = true
		order = append(order, string(e.oid))
	}
	if len(order) == 0 {
		return nil
	}
	var first [256]bool // first bytes of the ids, which save most of the map lookups
	for _, oid := range order {
		first[oid[0]] = true
	}
	for e := range before.allEntries() {
		if first[e.oid[0]] && e.needsBlob() { // the commit of a submodule need not be in this repository
			delete(wanted, string(e.oid))
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
func entryBefore(a, b indexEntry) bool {
	c := bytes.Compare(a.name, b.name)
	return c < 0 || c == 0 && a.stage < b.stage
}

// ObjectFormat is the hash by which a repository names its objects.
type ObjectFormat string

// The object formats of git.
const (
	SHA1   ObjectFormat = "sha1"
	SHA256 ObjectFormat = "sha256"
)

// FormatOf returns the object format of an id in hex, by its length. It is SHA1 for any other string.
func FormatOf(oid string) ObjectFormat {
	if len(oid) == 2*sha256.Size {
		return SHA256
	}
	return SHA1
}

// idSize returns the bytes of an object id.
func (f ObjectFormat) idSize() int {
	if f == SHA256 {
		return sha256.Size
	}
	return sha1.Size
}

func (f ObjectFormat) newHash() hash.Hash {
	if f == SHA256 {
		return sha256.New()
	}
	return sha1.New()
}

// hashSum returns the hash of data.
func (f ObjectFormat) hashSum(data []byte) []byte {
	if f == SHA256 {
		sum := sha256.Sum256(data)
		return sum[:]
	}
	sum := sha1.Sum(data)
	return sum[:]
}

// isZero reports whether all bytes are 0.
func isZero(data []byte) bool {
	for _, b := range data {
		if b != 0 {
			return false
		}
	}
	return true
}

// commonPrefixLen returns the length of the longest common prefix, which it finds eight bytes at a time.
func commonPrefixLen(a, b []byte) int {
	n, most := 0, min(len(a), len(b))
	for ; n+8 <= most; n += 8 {
		if d := binary.LittleEndian.Uint64(a[n:]) ^ binary.LittleEndian.Uint64(b[n:]); d != 0 {
			return n + bits.TrailingZeros64(d)/8
		}
	}
	for n < most && a[n] == b[n] {
		n++
	}
	return n
}
