package git

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// editableIndex is the index of the user's own worktree, read to replace some of its entries. It is trusted to be what the
// user's git wrote: names are not checked, and entries that do not change are not decoded.
type editableIndex struct {
	Index
	fileVersion uint32      // version of the file
	modTime     time.Time   // mtime of the file
	stamp       string      // durable.Stamp of the file, which tells whether it was replaced
	perm        fs.FileMode // permissions of the file; 0 where there is none
	starts      []int       // offset of each entry in the body
	treeCache   []byte      // TREE extension (cache tree); nil where there is none
}

// readEditableIndex reads the index of a worktree. Git expands a copy of one that is split or sparse.
func (r *Repo) readEditableIndex(ctx context.Context, gitDir string, format ObjectFormat) (*editableIndex, error) {
	path := filepath.Join(gitDir, "index")
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &editableIndex{Index: Index{format: format}, fileVersion: 2}, nil // an empty index
	}
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", path)
	}
	data, err := durable.ReadFile(path, maxIndexSize)
	if err != nil {
		return nil, err
	}
	x, err := parseEditableIndex(data, format)
	if errors.As(err, new(*NotPlainError)) {
		if data, err = r.expandIndexCopy(ctx, gitDir, data, fi.ModTime()); err == nil {
			x, err = parseEditableIndex(data, format)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	// If the file was replaced between Lstat and ReadFile, the stamp differs when it is to be written.
	x.modTime, x.stamp, x.perm = fi.ModTime(), durable.StatFingerprint(fi), fi.Mode().Perm()
	return x, nil
}

// parseEditableIndex parses an index file for editing.
func parseEditableIndex(data []byte, format ObjectFormat) (*editableIndex, error) {
	f, err := openIndexFile(data, format)
	if err != nil {
		return nil, err
	}
	sum := proc.Async(func() ([]byte, error) { return format.hashSum(f.content), nil })
	defer func() { _, _ = sum() }()
	x := &editableIndex{Index: Index{format: format, count: f.count, extended: f.version == 3}, fileVersion: f.version, starts: make([]int, f.count)}
	p := f.parser()
	p.trustNames, p.rebuild = true, true
	body := f.content[indexHeaderSize:]
	if f.version == 4 {
		if err := p.entries(); err != nil {
			return nil, err
		}
		body, x.extended = p.body, p.extended
	}
	end, ok := skimEntries(body, x.count, f.size, x.starts)
	if !ok {
		return nil, fmt.Errorf("index: %w", errTruncated)
	}
	if x.body = body[:end:end]; f.version < 4 {
		p.at = indexHeaderSize + end
	}
	at := p.at
	if err := p.extensions(); err != nil {
		return nil, err
	}
	x.treeCache = findExtension(f.content[at:], "TREE")
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

// expandIndexCopy lets git write a plain index file of the data of a split or sparse one, in a temporary directory. at is
// the mtime of that file, by which git tells which entries are racy.
func (r *Repo) expandIndexCopy(ctx context.Context, gitDir string, data []byte, at time.Time) (_ []byte, err error) {
	if err := os.MkdirAll(r.agencyDir(), 0o777); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(r.agencyDir(), capturePrefix+"index-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, durable.RemoveTree(dir)) }()
	plain := filepath.Join(dir, "index")
	if err := errors.Join(os.WriteFile(plain, data, 0o600), os.Chtimes(plain, at, at)); err != nil {
		return nil, err
	}
	p := runOptions{
		gitDir: gitDir, env: []string{"GIT_INDEX_FILE=" + plain}, noFsync: true,
		config: []string{"-c", "core.splitIndex=false", "-c", "index.sparse=false", "-c", "core.untrackedCache=false"},
	}
	if _, err := r.runWrite(ctx, p, "update-index", "--no-split-index", "--force-write-index"); err != nil {
		return nil, err
	}
	return os.ReadFile(plain)
}

// entryAt decodes the entry at a position.
func (x *editableIndex) entryAt(i int) indexEntry {
	e, _ := nextIndexEntry(x.body[x.starts[i]:], x.format.idSize())
	return e
}

// anyUnmerged reports whether an entry is in conflict: its stage is not 0.
func (x *editableIndex) anyUnmerged() bool {
	size := x.format.idSize()
	for _, start := range x.starts {
		if flags, _, _, _ := decodeEntryHead(x.body[start:], size); flags&flagStageMask != 0 {
			return true
		}
	}
	return false
}

// find returns the position of the first entry whose name is not before name, and whether it has that name.
func (x *editableIndex) find(name string) (int, bool) {
	size := x.format.idSize()
	i := sort.Search(len(x.starts), func(i int) bool {
		e, _ := nextIndexEntry(x.body[x.starts[i]:], size)
		return string(e.name) >= name
	})
	return i, i < len(x.starts) && string(x.entryAt(i).name) == name
}

// entryChange is the new entry of a name; without an oid, the entry is removed.
type entryChange struct {
	name         string
	mode         uint32
	oid          []byte
	stat         []byte
	skipWorktree bool
}

// editedIndex is an index with some entries replaced. Its other entries are slices of the original.
type editedIndex struct {
	*editableIndex
	parts     [][]byte // the entries, in order
	count     int
	extended  bool
	treeCache []byte
}

// withChanges returns the index with some entries replaced; changes are sorted by name.
func (x *editableIndex) withChanges(changes []entryChange) *editedIndex {
	size := x.format.idSize()
	y := &editedIndex{editableIndex: x, count: x.count, extended: x.extended, treeCache: x.treeCache}
	copied, names := 0, make([]string, len(changes))
	for n, c := range changes {
		names[n] = c.name
		i, there := x.find(c.name)
		start := len(x.body)
		if i < len(x.starts) {
			start = x.starts[i]
		}
		y.parts = append(y.parts, x.body[copied:start])
		copied = start
		flags, extra := uint16(min(len(c.name), flagNameLengthMask)), uint16(0)
		if there {
			n, _ := entryLength(x.body[start:], size)
			copied += n
			y.count--
			flags |= x.entryAt(i).flags & flagAssumeUnchanged
		}
		if c.oid == nil {
			continue
		}
		if c.skipWorktree {
			extra |= extendedSkipWorktree
			y.extended = true
		}
		y.count++
		y.parts = append(y.parts, appendEntry(nil, c.stat, c.oid, flags, extra, []byte(c.name)))
	}
	y.parts = append(y.parts, x.body[copied:])
	if len(changes) > 0 {
		y.treeCache = invalidateTreeCache(x.treeCache, size, names)
	}
	return y
}

// write writes an index file of version 4 if the original was one, or else of the oldest version that can hold the
// entries.
func (y *editedIndex) write(to io.Writer) error {
	version := uint32(2)
	switch {
	case y.fileVersion == 4:
		version = 4
	case y.extended:
		version = 3
	}
	const room = 64 << 10
	sum := y.format.newHash()
	w := bufio.NewWriterSize(io.MultiWriter(sum, to), room) // Flush returns the first error
	head := append(make([]byte, 0, indexHeaderSize), indexSignature...)
	head = binary.BigEndian.AppendUint32(head, version)
	_, _ = w.Write(binary.BigEndian.AppendUint32(head, uint32(y.count)))
	if version == 4 {
		_, _ = w.Write(appendVersion4(nil, bytes.Join(y.parts, nil), y.format.idSize()))
	} else {
		for _, part := range y.parts {
			_, _ = w.Write(part)
		}
	}
	if y.treeCache != nil {
		_, _ = w.WriteString("TREE")
		_, _ = w.Write(binary.BigEndian.AppendUint32(nil, uint32(len(y.treeCache))))
		_, _ = w.Write(y.treeCache)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := to.Write(sum.Sum(nil))
	return err
}

// appendVersion4 encodes entries as version 4 does, where each name leaves out the prefix that it shares with the previous
// one.
func appendVersion4(file, body []byte, size int) []byte {
	var before []byte
	for len(body) > 0 {
		e, rest := nextIndexEntry(body, size)
		head := statSize + size + 2
		if e.flags&flagExtended != 0 {
			head += 2
		}
		file = append(file, body[:head]...)
		same := commonPrefixLen(before, e.name)
		file = appendVarint(file, uint64(len(before)-same))
		file = append(append(file, e.name[same:]...), 0)
		before, body = e.name, rest
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

// invalidateTreeCache returns the TREE extension with every tree invalidated that contains one of the names, which are
// sorted. It is nil, and so left out of the index, where the extension is malformed.
func invalidateTreeCache(trees []byte, size int, names []string) []byte {
	if trees == nil {
		return nil
	}
	out, rest, ok := invalidateTreeCacheDir(make([]byte, 0, len(trees)), trees, size, "", names)
	if !ok || len(rest) > 0 {
		return nil
	}
	return out
}

// invalidateTreeCacheDir copies one directory of a TREE extension to out: "<name> NUL <entries> SP <directories> LF
// [<oid>]", then its subdirectories. Names are those of changed entries below it, sorted. A directory with any is written as invalid:
// -1 entries and no oid.
func invalidateTreeCacheDir(out, left []byte, size int, path string, names []string) (_, rest []byte, ok bool) {
	end := bytes.IndexByte(left, 0)
	if end < 0 {
		return nil, nil, false
	}
	name, left := left[:end], left[end+1:]
	if end = bytes.IndexByte(left, '\n'); end < 0 {
		return nil, nil, false
	}
	first, second, _ := bytes.Cut(left[:end], []byte{' '})
	entries, err := strconv.Atoi(string(first))
	dirs, alsoErr := strconv.Atoi(string(second))
	if err != nil || alsoErr != nil || dirs < 0 {
		return nil, nil, false
	}
	numbers, left := left[:end+1], left[end+1:]
	oid := []byte(nil)
	if entries >= 0 {
		if len(left) < size {
			return nil, nil, false
		}
		oid, left = left[:size], left[size:]
	}
	if path += string(name); len(name) > 0 {
		path += "/"
		first, _ := slices.BinarySearch(names, path)
		last := first
		for last < len(names) && len(names[last]) > len(path) && names[last][:len(path)] == path {
			last++
		}
		names = names[first:last]
	}
	out = append(append(out, name...), 0)
	if len(names) == 0 {
		out = append(append(out, numbers...), oid...)
	} else {
		out = fmt.Appendf(out, "-1 %d\n", dirs)
	}
	for range dirs {
		if out, left, ok = invalidateTreeCacheDir(out, left, size, path, names); !ok {
			return nil, nil, false
		}
	}
	return out, left, true
}

// encodeStat encodes the stat data of a file as an index entry has it.
func encodeStat(st *unix.Stat_t, mode uint32) []byte {
	stat := make([]byte, 0, statSize)
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

// compareChanges compares changes in the order of an index.
func compareChanges(a, b entryChange) int { return cmp.Compare(a.name, b.name) }

// mustHex decodes an id that was checked before.
func mustHex(oid string) []byte {
	raw, _ := hex.DecodeString(oid)
	return raw
}
