package git

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"math/bits"

	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// Index is what is staged in a worktree, read from git's index file as data: without git, and without
// believing anything that is more than an entry. Git believes its index. It takes what the extensions say
// for what it would find itself, and the names for such as it once let in.
type Index struct {
	format   ObjectFormat
	extended bool // some entry has flags that only version 3 can hold
	count    int
	body     []byte // the entries, laid out as in version 2 or 3
	sum      []byte // the checksum that belongs to them; nil when it is not known yet
}

// NotPlainError is an index that does not hold every entry itself. A git that can be trusted with it can
// write a plain one.
type NotPlainError struct {
	Kind string // "split" or "sparse"
}

func (e *NotPlainError) Error() string { return "the index is a " + e.Kind + " one" }

const (
	indexHeader = 12
	indexStat   = 40      // two times, device, inode, mode, owner and size, before the object
	indexMode   = 24      // where the mode stands among them
	longestPath = 4095    // no file system has longer ones, and with them a small index can say a lot
	mostIndex   = 1 << 30 // bytes, when written out; version 4 says much in little
	flagAssume  = 1 << 15 // assume unchanged
	flagExtend  = 1 << 14 // two more bytes of flags
	flagStage   = 3 << 12
	flagLength  = 1<<12 - 1 // of the name; all of it also when that is longer
	extraSkip   = 1 << 14   // skip the worktree
	extraIntend = 1 << 13   // intent to add
	signature   = "DIRC"
)

// What an entry can be.
const (
	modeFile    = 0o100644
	modeProgram = 0o100755
	modeLink    = 0o120000
	modeGitlink = 0o160000
	modeTree    = 0o040000 // only in a sparse index, or in a tree
)

// ReadIndex reads an index file of any version git writes. It refuses what git would not have written, and
// names that must not be checked out on any file system. The data must not change afterwards: the index
// may be a part of it. The error is a *NotPlainError where a plain index would do.
func ReadIndex(data []byte, format ObjectFormat) (Index, error) {
	size := format.size()
	if len(data) < indexHeader+size {
		return Index{}, errors.New("index: too short")
	}
	version, count := binary.BigEndian.Uint32(data[4:]), binary.BigEndian.Uint32(data[8:])
	content, trailer := data[:len(data)-size], data[len(data)-size:]
	switch {
	case string(data[:4]) != signature:
		return Index{}, errors.New("index: no signature")
	case version < 2 || version > 4:
		return Index{}, fmt.Errorf("index: version %d", version)
	case int64(count) > int64(len(content)-indexHeader)/int64(indexStat+size+3): // a flag word and one byte of name
		return Index{}, fmt.Errorf("index: %d entries cannot be in %d bytes", count, len(data))
	}
	sums := proc.Meanwhile(func() (indexSums, error) { return sumIndex(content, version, int(count), format), nil })
	p := indexParser{content: content, at: indexHeader, version: version, format: format, size: size, rebuild: version == 4}
	x := Index{format: format, count: int(count)}
	if err := p.entries(x.count); err != nil {
		return Index{}, err
	}
	end := p.at
	if err := p.extensions(); err != nil {
		return Index{}, err
	}
	if p.odd { // entries that are longer than they have to be
		p = indexParser{content: content, at: indexHeader, version: version, format: format, size: size, rebuild: true}
		if err := p.entries(x.count); err != nil {
			return Index{}, err
		}
	}
	x.extended, x.body = p.extended, p.body
	sum, _ := sums()
	if !p.rebuild {
		x.body = content[indexHeader:end:end]
		if version == x.version() && end == sum.end {
			x.sum = sum.entries
		}
	}
	if !zero(trailer) && !bytes.Equal(sum.all, trailer) { // git can be told to leave it out
		return Index{}, errors.New("index: the checksum is wrong")
	}
	return x, nil
}

func appendEntry(body, stat, oid []byte, flags, extra uint16, name []byte) []byte {
	start := len(body)
	body = append(append(body, stat...), oid...)
	if flags &^= flagExtend; extra != 0 {
		flags |= flagExtend
	}
	body = binary.BigEndian.AppendUint16(body, flags)
	if extra != 0 {
		body = binary.BigEndian.AppendUint16(body, extra)
	}
	body = append(body, name...)
	var nothing [8]byte
	return append(body, nothing[:padded(len(body)-start)-(len(body)-start)]...)
}

// padded is the length of an entry: at least one byte behind its name, and then to a multiple of eight.
func padded(length int) int { return (length + 8) &^ 7 }

func (x Index) version() uint32 {
	if x.extended {
		return 3
	}
	return 2
}

// write writes the index as git would, in the oldest version that can hold it, and without extensions.
func (x Index) write(w io.Writer) error {
	head := make([]byte, 0, indexHeader)
	head = append(head, signature...)
	head = binary.BigEndian.AppendUint32(head, x.version())
	head = binary.BigEndian.AppendUint32(head, uint32(x.count))
	sum := x.sum
	if sum == nil {
		h := x.format.hash()
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

// Encode is the index as a file.
func (x Index) Encode() []byte {
	var b bytes.Buffer
	_ = x.write(&b) // which takes all of it
	return b.Bytes()
}

// stagedEntry is one entry; its parts belong to the index.
type stagedEntry struct {
	mode  uint32
	stage int
	oid   []byte
	name  []byte
	stat  []byte // what git saw of the file when it was staged

	skipped  bool // it is not looked at in the worktree
	intended bool // it is only meant to be added
}

// blob reports whether the entry needs an object of this repository. A submodule's are in its own.
func (e stagedEntry) blob() bool { return e.mode != modeGitlink && !zero(e.oid) }

func (x Index) all() iter.Seq[stagedEntry] {
	return func(yield func(stagedEntry) bool) {
		for left := x.body; len(left) > 0; {
			var e stagedEntry
			if e, left = nextStaged(left, x.format.size()); !yield(e) {
				return
			}
		}
	}
}

// nextStaged takes the first entry off a body, which was checked before.
func nextStaged(left []byte, size int) (stagedEntry, []byte) {
	flags := binary.BigEndian.Uint16(left[indexStat+size:])
	at, length := indexStat+size+2, int(flags&flagLength)
	extra := uint16(0)
	if flags&flagExtend != 0 {
		extra = binary.BigEndian.Uint16(left[at:])
		at += 2
	}
	if length == flagLength {
		length = bytes.IndexByte(left[at:], 0)
	}
	return stagedEntry{
		mode: binary.BigEndian.Uint32(left[indexMode:]), stage: int(flags&flagStage) >> 12,
		oid: left[indexStat : indexStat+size], name: left[at : at+length], stat: left[:indexStat],
		skipped: extra&extraSkip != 0, intended: extra&extraIntend != 0,
	}, left[padded(at+length):]
}

// Missing lists the blobs that this index needs and the other does not, each once.
func (x Index) Missing(before Index) []string {
	if bytes.Equal(x.body, before.body) {
		return nil
	}
	// Most entries are what they were, byte by byte but for their times; then nothing has to be made of them.
	now, left, size := x.body, before.body, before.format.size()
	var e, was stagedEntry
	wanted, order := map[string]bool{}, []string(nil)
	for len(now) > 0 {
		at := now
		e, now = nextStaged(now, x.format.size())
		if n := len(at) - len(now); len(left) >= n && bytes.Equal(at[indexStat:n], left[indexStat:n]) && bytes.Equal(at[indexMode:indexMode+4], left[indexMode:indexMode+4]) {
			left = left[n:]
			continue
		}
		for len(left) > 0 && older(was, e) {
			was, left = nextStaged(left, size)
		}
		if !e.blob() || was.blob() && bytes.Equal(was.oid, e.oid) || wanted[string(e.oid)] {
			continue
		}
		wanted[string(e.oid)] = true
		order = append(order, string(e.oid))
	}
	if len(order) == 0 {
		return nil
	}
	var first [256]bool // spares most of the looking up
	for _, oid := range order {
		first[oid[0]] = true
	}
	for e := range before.all() {
		if first[e.oid[0]] && e.blob() { // what names a commit of a submodule need not be here
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

func older(a, b stagedEntry) bool {
	c := bytes.Compare(a.name, b.name)
	return c < 0 || c == 0 && a.stage < b.stage
}

// ObjectFormat is how a repository names its objects.
type ObjectFormat string

// The formats there are.
const (
	SHA1   ObjectFormat = "sha1"
	SHA256 ObjectFormat = "sha256"
)

// FormatOf is the format of the repository that an object of this name is in.
func FormatOf(oid string) ObjectFormat {
	if len(oid) == 2*sha256.Size {
		return SHA256
	}
	return SHA1
}

func (f ObjectFormat) size() int {
	if f == SHA256 {
		return sha256.Size
	}
	return sha1.Size
}

func (f ObjectFormat) hash() hash.Hash {
	if f == SHA256 {
		return sha256.New()
	}
	return sha1.New()
}

// sum is the hash of something that is all there.
func (f ObjectFormat) sum(data []byte) []byte {
	if f == SHA256 {
		sum := sha256.Sum256(data)
		return sum[:]
	}
	sum := sha1.Sum(data)
	return sum[:]
}

func zero(data []byte) bool {
	for _, b := range data {
		if b != 0 {
			return false
		}
	}
	return true
}

// commonPrefix is how much two names have in common.
func commonPrefix(a, b []byte) int {
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
