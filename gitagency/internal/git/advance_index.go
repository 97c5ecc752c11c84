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

// heldIndex is the index of a person's worktree, which is believed to be what that git made of it: only what has to change
// is looked at.
type heldIndex struct {
	Index
	file  uint32 // the version of the file
	at    time.Time
	stamp string
	perm  fs.FileMode // 0 where there is no file
	begin []int       // where each entry begins in the body
	trees []byte
}

// readHeld reads the index of a worktree. One that does not hold every entry itself is written out in full by git, to
// somewhere else.
func (r *Repo) readHeld(ctx context.Context, gitDir string, format ObjectFormat) (*heldIndex, error) {
	path := filepath.Join(gitDir, "index")
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &heldIndex{Index: Index{format: format}, file: 2}, nil // nothing is staged
	}
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", path)
	}
	data, err := durable.ReadFile(path, mostIndex)
	if err != nil {
		return nil, err
	}
	x, err := parseHeld(data, format)
	if errors.As(err, new(*NotPlainError)) {
		if data, err = r.writtenOut(ctx, gitDir, data, fi.ModTime()); err == nil {
			x, err = parseHeld(data, format)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	// If it was replaced since we looked, its stamp tells whoever comes to change it.
	x.at, x.stamp, x.perm = fi.ModTime(), durable.Stamp(fi), fi.Mode().Perm()
	return x, nil
}

// parseHeld reads an index file.
func parseHeld(data []byte, format ObjectFormat) (*heldIndex, error) {
	size := format.size()
	if len(data) < indexHeader+size || string(data[:4]) != signature {
		return nil, errors.New("index: no signature")
	}
	x := &heldIndex{Index: Index{format: format, count: int(binary.BigEndian.Uint32(data[8:]))}, file: binary.BigEndian.Uint32(data[4:])}
	content, trailer := data[:len(data)-size], data[len(data)-size:]
	sum := proc.Meanwhile(func() ([]byte, error) { return format.sum(content), nil })
	defer func() { _, _ = sum() }()
	if x.file < 2 || x.file > 4 || x.count > len(content)/(indexStat+size+3) {
		return nil, fmt.Errorf("index: version %d with %d entries", x.file, x.count)
	}
	p := indexParser{content: content, at: indexHeader, version: x.file, format: format, size: size, rebuild: true, trusting: true}
	if x.file == 4 {
		if err := p.entries(x.count); err != nil {
			return nil, err
		}
		x.body, x.extended = p.body, p.extended
	} else {
		end, ok := entriesEnd(content, x.count, size)
		if !ok {
			return nil, fmt.Errorf("index: %w", errCutOff)
		}
		x.body, x.extended, p.at = content[indexHeader:end:end], x.file == 3, end
	}
	at := p.at
	if err := p.extensions(); err != nil {
		return nil, err
	}
	x.trees = extension(content[at:], "TREE")
	x.begin = make([]int, 0, x.count)
	for at := 0; at < len(x.body); {
		x.begin = append(x.begin, at)
		n, _ := entryLength(x.body[at:], size)
		at += n
	}
	if len(x.begin) != x.count {
		return nil, fmt.Errorf("index: %d entries of %d", len(x.begin), x.count)
	}
	if got, _ := sum(); !zero(trailer) && !bytes.Equal(got, trailer) {
		return nil, errors.New("index: the checksum is wrong")
	}
	return x, nil
}

// extension is what stands behind the entries by a name; what is there was checked before.
func extension(left []byte, name string) []byte {
	for len(left) >= 8 {
		length := int(binary.BigEndian.Uint32(left[4:]))
		if string(left[:4]) == name {
			return left[8 : 8+length]
		}
		left = left[8+length:]
	}
	return nil
}

// writtenOut is an index that holds every entry itself, of one that does not.
func (r *Repo) writtenOut(ctx context.Context, gitDir string, data []byte, at time.Time) (_ []byte, err error) {
	if err := os.MkdirAll(r.ownDir(), 0o777); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(r.ownDir(), capturePrefix+"index-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, durable.RemoveTree(dir)) }()
	plain := filepath.Join(dir, "index")
	if err := errors.Join(os.WriteFile(plain, data, 0o600), os.Chtimes(plain, at, at)); err != nil {
		return nil, err
	}
	p := place{
		gitDir: gitDir, env: []string{"GIT_INDEX_FILE=" + plain}, lightly: true,
		config: []string{"-c", "core.splitIndex=false", "-c", "index.sparse=false", "-c", "core.untrackedCache=false"},
	}
	if _, err := r.change(ctx, p, "update-index", "--no-split-index", "--force-write-index"); err != nil {
		return nil, err
	}
	return os.ReadFile(plain)
}

// entry is the entry at a position.
func (x *heldIndex) entry(i int) stagedEntry {
	e, _ := nextStaged(x.body[x.begin[i]:], x.format.size())
	return e
}

// find is the position of the first entry that does not come before a name, and whether it has that name.
func (x *heldIndex) find(name string) (int, bool) {
	size := x.format.size()
	i := sort.Search(len(x.begin), func(i int) bool {
		e, _ := nextStaged(x.body[x.begin[i]:], size)
		return string(e.name) >= name
	})
	return i, i < len(x.begin) && string(x.entry(i).name) == name
}

// replacement is what an entry becomes; it has no object where there is none any more.
type replacement struct {
	name    string
	mode    uint32
	oid     []byte
	stat    []byte
	skipped bool
}

// revision is an index with other entries, of which all the rest is byte by byte what it was, and where it was.
type revision struct {
	*heldIndex
	parts    [][]byte // of the entries
	count    int
	extended bool
	trees    []byte
}

// with is the same index with other entries, which are sorted by name.
func (x *heldIndex) with(changes []replacement) *revision {
	size := x.format.size()
	y := &revision{heldIndex: x, count: x.count, extended: x.extended, trees: x.trees}
	copied, names := 0, make([]string, len(changes))
	for n, c := range changes {
		names[n] = c.name
		i, there := x.find(c.name)
		start := len(x.body)
		if i < len(x.begin) {
			start = x.begin[i]
		}
		y.parts = append(y.parts, x.body[copied:start])
		copied = start
		flags, extra := uint16(min(len(c.name), flagLength)), uint16(0)
		if there {
			n, _ := entryLength(x.body[start:], size)
			copied += n
			y.count--
			flags |= binary.BigEndian.Uint16(x.body[start+indexStat+size:]) & flagAssume
		}
		if c.oid == nil {
			continue
		}
		if c.skipped {
			extra |= extraSkip
			y.extended = true
		}
		y.count++
		y.parts = append(y.parts, appendEntry(nil, c.stat, c.oid, flags, extra, []byte(c.name)))
	}
	y.parts = append(y.parts, x.body[copied:])
	if len(changes) > 0 {
		y.trees = invalidated(x.trees, size, names)
	}
	return y
}

// write writes it as a file of the version that it was.
func (y *revision) write(to io.Writer) error {
	version := uint32(2)
	switch {
	case y.file == 4:
		version = 4
	case y.extended:
		version = 3
	}
	const room = 64 << 10
	sum := y.format.hash()
	w := bufio.NewWriterSize(io.MultiWriter(sum, to), room) // which tells when something went wrong in the end
	head := append(make([]byte, 0, indexHeader), signature...)
	head = binary.BigEndian.AppendUint32(head, version)
	_, _ = w.Write(binary.BigEndian.AppendUint32(head, uint32(y.count)))
	if version == 4 {
		_, _ = w.Write(appendShortened(nil, bytes.Join(y.parts, nil), y.format.size()))
	} else {
		for _, part := range y.parts {
			_, _ = w.Write(part)
		}
	}
	if y.trees != nil {
		_, _ = w.WriteString("TREE")
		_, _ = w.Write(binary.BigEndian.AppendUint32(nil, uint32(len(y.trees))))
		_, _ = w.Write(y.trees)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := to.Write(sum.Sum(nil))
	return err
}

// appendShortened writes entries as version 4 does: of each name only what the one before does not begin with.
func appendShortened(file, body []byte, size int) []byte {
	var before []byte
	for len(body) > 0 {
		e, rest := nextStaged(body, size)
		head := indexStat + size + 2
		if binary.BigEndian.Uint16(body[head-2:])&flagExtend != 0 {
			head += 2
		}
		file = append(file, body[:head]...)
		same := commonPrefix(before, e.name)
		file = appendDrop(file, uint64(len(before)-same))
		file = append(append(file, e.name[same:]...), 0)
		before, body = e.name, rest
	}
	return file
}

// appendDrop writes a number as prefixDrop reads it.
func appendDrop(file []byte, n uint64) []byte {
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

// invalidated is what an index says of the trees that its entries make, without what is not so any more. It is left out
// where nobody can read it.
func invalidated(trees []byte, size int, names []string) []byte {
	if trees == nil {
		return nil
	}
	out, rest, ok := invalidate(make([]byte, 0, len(trees)), trees, size, "", names)
	if !ok || len(rest) > 0 {
		return nil
	}
	return out
}

// invalidate reads one directory: "<name> NUL <entries> SP <directories> LF [<oid>]", then those in it. Names are those
// below it that have changed, sorted.
func invalidate(out, left []byte, size int, path string, names []string) (_, rest []byte, ok bool) {
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
		if out, left, ok = invalidate(out, left, size, path, names); !ok {
			return nil, nil, false
		}
	}
	return out, left, true
}

// statOf is what an index keeps of a file.
func statOf(st *unix.Stat_t, mode uint32) []byte {
	stat := make([]byte, 0, indexStat)
	size := uint32(st.Size)
	if size == 0 && st.Size != 0 {
		size = 1 << 31 // as git does, lest it looks empty
	}
	for _, word := range []uint32{
		uint32(st.Ctim.Sec), uint32(st.Ctim.Nsec), uint32(st.Mtim.Sec), uint32(st.Mtim.Nsec),
		uint32(st.Dev), uint32(st.Ino), mode, st.Uid, st.Gid, size,
	} {
		stat = binary.BigEndian.AppendUint32(stat, word)
	}
	return stat
}

// inOrder sorts entries as an index has them.
func inOrder(a, b replacement) int { return cmp.Compare(a.name, b.name) }

func mustHex(oid string) []byte {
	raw, _ := hex.DecodeString(oid) // it was checked where it came from
	return raw
}
