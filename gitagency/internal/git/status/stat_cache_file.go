package status

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// The file format of a stat cache: magic with version; digest; length and id of the tree; number of groups; for each
// group the number of its paths, and the directory from which they are looked up; then the stat data of all paths,
// the end offsets of their names, and the names relative to that directory, NUL-terminated for the kernel. A CRC-32C
// of everything is last. It is read far more often than written, so the parser copies no path and no stat data.
const (
	statCacheMagic = "agency likeness 1\n"
	statRecordSize = 4 + 4*8
	nameEndSize    = 4
)

// statCache is a parsed stat cache.
type statCache struct {
	tree                   string
	groups                 []statGroup
	stats, nameEnds, names []byte
}

// statGroup is a run of paths that are looked up from one open directory: resolving every path from the top takes
// longer than the stat itself.
type statGroup struct {
	dir   string
	count int
}

func (l *statCache) nameEnd(i int) int {
	return int(binary.LittleEndian.Uint32(l.nameEnds[i*nameEndSize:]))
}

// entry returns a path, with its terminating NUL, and its stat data.
func (l *statCache) entry(i int) (name []byte, s git.FileStat) {
	begin := 0
	if i > 0 {
		begin = l.nameEnd(i - 1)
	}
	b := l.stats[i*statRecordSize:]
	word := func(n int) uint64 { return binary.LittleEndian.Uint64(b[4+n*8:]) }
	s = git.FileStat{Mode: binary.LittleEndian.Uint32(b), Size: int64(word(0)), Mtime: int64(word(1)), Ctime: int64(word(2)), Ino: word(3)}
	return l.names[begin:l.nameEnd(i)], s
}

func encodeStatCache(digest worktreeDigest, tree []byte, seen []pathStat) []byte {
	slices.SortFunc(seen, func(a, b pathStat) int { return strings.Compare(a.name, b.name) })
	groups, names := groupByDir(seen)
	out := append([]byte(statCacheMagic), digest[:]...)
	out = append(append(out, byte(len(tree))), tree...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(groups)))
	for _, g := range groups {
		out = binary.LittleEndian.AppendUint32(out, uint32(g.count))
		out = binary.LittleEndian.AppendUint32(out, uint32(len(g.dir)))
		out = append(out, g.dir...)
	}
	for _, f := range seen {
		out = binary.LittleEndian.AppendUint32(out, f.stat.Mode)
		for _, word := range []uint64{uint64(f.stat.Size), uint64(f.stat.Mtime), uint64(f.stat.Ctime), f.stat.Ino} {
			out = binary.LittleEndian.AppendUint64(out, word)
		}
	}
	end := 0
	for _, name := range names {
		end += len(name) + 1
		out = binary.LittleEndian.AppendUint32(out, uint32(end))
	}
	for _, name := range names {
		out = append(append(out, name...), 0)
	}
	return binary.LittleEndian.AppendUint32(out, crc32.Checksum(out, crc32cTable()))
}

var crc32cTable = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// groupByDir groups sorted paths by the directory from which to look them up: the deepest one with at least 32 paths
// below, so that opening it pays off.
func groupByDir(seen []pathStat) (groups []statGroup, names []string) {
	const worth = 32
	below := map[string]int{}
	for _, f := range seen {
		for dir := path.Dir(f.name); dir != "."; dir = path.Dir(dir) {
			below[dir]++
		}
	}
	for _, f := range seen {
		dir := path.Dir(f.name)
		for dir != "." && below[dir] < worth {
			dir = path.Dir(dir)
		}
		name := f.name
		if dir != "." {
			name = name[len(dir)+1:]
		}
		names = append(names, name)
		if last := len(groups) - 1; last >= 0 && groups[last].dir == dir {
			groups[last].count++
		} else {
			groups = append(groups, statGroup{dir, 1})
		}
	}
	return groups, names
}

// parseStatCache parses a stat cache. It returns nil when data is not valid, or has another digest.
func parseStatCache(data []byte, digest worktreeDigest) *statCache {
	head := append([]byte(statCacheMagic), digest[:]...)
	data, same := bytes.CutPrefix(data, head)
	if !same || len(data) < 4 {
		return nil
	}
	sum := crc32.Update(crc32.Checksum(head, crc32cTable()), crc32cTable(), data[:len(data)-4])
	if binary.LittleEndian.Uint32(data[len(data)-4:]) != sum {
		return nil
	}
	rest, short := data[:len(data)-4], false
	take := func(n int) (taken []byte) {
		if n < 0 || n > len(rest) {
			short = true
			return make([]byte, nameEndSize) // decodes as the number 0
		}
		taken, rest = rest[:n], rest[n:]
		return taken
	}
	number := func() int { return int(binary.LittleEndian.Uint32(take(4))) }
	l, count := &statCache{}, 0
	l.tree = hex.EncodeToString(take(int(take(1)[0])))
	for range min(number(), len(rest)) {
		g := statGroup{count: number()}
		g.dir = string(take(number()))
		count += g.count
		l.groups = append(l.groups, g)
	}
	if short || count > len(rest)/(statRecordSize+nameEndSize) {
		return nil
	}
	l.stats, l.nameEnds = take(count*statRecordSize), take(count*nameEndSize)
	l.names = rest
	last := 0
	for i := range count {
		end := l.nameEnd(i)
		if end <= last || end > len(rest) || rest[end-1] != 0 {
			return nil
		}
		last = end
	}
	if last != len(rest) || !object.IsOID(l.tree) {
		return nil
	}
	return l
}
