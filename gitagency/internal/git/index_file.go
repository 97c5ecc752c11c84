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
	h := format.hash()
	h.Write(content[:end])
	x.extended, x.body = p.extended, p.body
	if !p.rebuild {
		x.body = content[indexHeader:end:end]
		if version == x.version() {
			x.sum = h.Sum(nil) // of what Encode will write; the extensions come behind it
		}
	}
	h.Write(content[end:])
	if !zero(trailer) && !bytes.Equal(h.Sum(nil), trailer) { // git can be told to leave it out
		return Index{}, errors.New("index: the checksum is wrong")
	}
	return x, nil
}

// indexParser reads the content of an index file, which is all but its checksum.
type indexParser struct {
	content []byte
	at      int
	version uint32
	format  ObjectFormat
	size    int // of an object's name

	rebuild  bool // write the entries anew, into body
	body     []byte
	extended bool
	nameless bool // an entry has no name
	odd      bool // an entry has room for more flags, and none of them

	name  []byte   // of the entry before
	stage uint16   // of the entry before
	files []prefix // names that the next one may lie below
	spare []byte   // for names of version 4, which are parts of others
}

// prefix is the beginning of a name that is also the whole name of a file.
type prefix int

func (p *indexParser) entries(count int) error {
	for n := range count {
		if err := p.entry(); err != nil {
			return fmt.Errorf("index: entry %d: %w", n, err)
		}
	}
	return nil
}

var errCutOff = errors.New("cut off")

func (p *indexParser) entry() error {
	start := p.at
	if len(p.content)-start < indexStat+p.size+2 {
		return errCutOff
	}
	stat := p.content[start : start+indexStat]
	oid := p.content[start+indexStat : start+indexStat+p.size]
	flags := binary.BigEndian.Uint16(p.content[start+indexStat+p.size:])
	p.at = start + indexStat + p.size + 2
	var extra uint16
	if flags&flagExtend != 0 {
		if p.version == 2 || len(p.content)-p.at < 2 {
			return errors.New("flags that it cannot have")
		}
		extra = binary.BigEndian.Uint16(p.content[p.at:])
		p.at += 2
		if extra&^(extraSkip|extraIntend) != 0 {
			return errors.New("unknown flags")
		}
		p.extended = p.extended || extra != 0
		p.odd = p.odd || extra == 0
	}
	name, err := p.readName(start, int(flags&flagLength))
	if err != nil {
		return err
	}
	mode := binary.BigEndian.Uint32(stat[indexMode:])
	switch mode {
	case modeFile, modeProgram, modeLink, modeGitlink:
	case modeTree:
		return &NotPlainError{"sparse"}
	default:
		return fmt.Errorf("mode %o", mode)
	}
	if extra&extraIntend == 0 && zero(oid) {
		return errors.New("no object")
	}
	if err := p.follows(name, flags&flagStage, mode == modeLink); err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	if p.rebuild {
		if len(p.body)+len(name)+indexStat+p.size+12 > mostIndex {
			return errors.New("too much")
		}
		p.body = appendEntry(p.body, stat, oid, flags, extra, name)
	}
	return nil
}

// readName reads the name of the entry that began at start, and all that is left of the entry.
func (p *indexParser) readName(start, length int) ([]byte, error) {
	rest := p.content[p.at:]
	if p.version == 4 {
		drop, n := prefixDrop(rest)
		if n == 0 || drop > uint64(len(p.name)) {
			return nil, errors.New("a name that continues none")
		}
		rest = rest[n:]
		end := bytes.IndexByte(rest[:min(len(rest), longestPath+1)], 0)
		if end < 0 {
			return nil, errCutOff
		}
		keep := len(p.name) - int(drop)
		if keep+end > longestPath || min(keep+end, flagLength) != length {
			return nil, errors.New("a name of another length")
		}
		p.at += n + end + 1
		p.spare = append(append(p.spare[:0], p.name[:keep]...), rest[:end]...)
		return p.spare, nil
	}
	if length == flagLength {
		if length = bytes.IndexByte(rest[:min(len(rest), longestPath+1)], 0); length < flagLength {
			return nil, errors.New("a name of another length")
		}
	}
	next := start + padded(p.at-start+length)
	if next > len(p.content) {
		return nil, errCutOff
	}
	if !zero(p.content[p.at+length : next]) {
		return nil, errors.New("something behind the name")
	}
	p.at = next
	return rest[:length:length], nil
}

// prefixDrop reads how much of the name before does not begin this one; n is the length of that number, and
// zero when there is none.
func prefixDrop(data []byte) (drop uint64, n int) {
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

// follows checks a name against the one before, and takes its place.
func (p *indexParser) follows(name []byte, stage uint16, link bool) error {
	same := commonPrefix(p.name, name)
	switch {
	case len(name) == 0:
		p.nameless = true // as some are where the names are in another file
		p.keep(name, stage)
		return nil
	case same == len(name) && same == len(p.name):
		if p.stage == 0 || stage <= p.stage {
			return errors.New("twice there")
		}
	case same == len(name) || same < len(p.name) && name[same] < p.name[same]:
		return errors.New("out of order")
	}
	if bytes.IndexByte(name[same:], 0) >= 0 {
		return errors.New("a NUL in the name")
	}
	// What is the same was looked at before, but for a component that is longer now.
	if why := refusedName(name, bytes.LastIndexByte(name[:same], '/')+1, link); why != "" {
		return errors.New(why)
	}
	// A file and something below it: git would write one through the other where that is a link. While
	// a conflict is not resolved, both can be staged. Names that begin alike are neighbours, so the files
	// that this one may lie below all begin it, and those that are shorter than what is the same were
	// asked about before.
	for len(p.files) > 0 && int(p.files[len(p.files)-1]) > same {
		p.files = p.files[:len(p.files)-1]
	}
	if stage == 0 {
		if top := len(p.files) - 1; top >= 0 && int(p.files[top]) == same && len(name) > same && name[same] == '/' {
			return errors.New("below a file")
		}
		p.files = append(p.files, prefix(len(name)))
	}
	p.keep(name, stage)
	return nil
}

// keep remembers the name of an entry for the next.
func (p *indexParser) keep(name []byte, stage uint16) {
	p.stage = stage
	if p.version == 4 {
		p.spare = p.name // each has memory of its own
	}
	p.name = name
}

func (p *indexParser) extensions() error {
	for p.at < len(p.content) {
		if len(p.content)-p.at < 8 {
			return errors.New("index: something behind the entries")
		}
		name, length := p.content[p.at:p.at+4], binary.BigEndian.Uint32(p.content[p.at+4:])
		if p.at += 8; uint64(length) > uint64(len(p.content)-p.at) {
			return fmt.Errorf("index: extension %q: %w", name, errCutOff)
		}
		p.at += int(length)
		switch {
		case string(name) == "link":
			return &NotPlainError{"split"}
		case string(name) == "sdir":
			return &NotPlainError{"sparse"}
		case name[0] < 'A' || name[0] > 'Z':
			return fmt.Errorf("index: extension %q is not known", name)
		}
	}
	if p.nameless {
		return errors.New("index: an entry without a name")
	}
	return nil
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

// stagedEntry is one entry; its parts belong to the index.
type stagedEntry struct {
	mode  uint32
	stage int
	oid   []byte
	name  []byte

	skipped bool // it is not looked at in the worktree
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
	skipped := false
	if flags&flagExtend != 0 {
		skipped = binary.BigEndian.Uint16(left[at:])&extraSkip != 0
		at += 2
	}
	if length == flagLength {
		length = bytes.IndexByte(left[at:], 0)
	}
	return stagedEntry{
		mode: binary.BigEndian.Uint32(left[indexMode:]), stage: int(flags&flagStage) >> 12,
		oid: left[indexStat : indexStat+size], name: left[at : at+length], skipped: skipped,
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
