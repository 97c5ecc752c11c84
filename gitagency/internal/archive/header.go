package archive

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

const (
	blockSize = 512
	trailer   = 2 * blockSize // zero blocks at the end of an archive

	socketRecord = "GITAGENCY.socket" // pax record of a socket
	sparseMap    = "GNU.sparse.map"   // pax record with offsets and lengths of the data of a sparse file
)

// padding returns the number of bytes that fill the last block.
func padding(size int64) int64 { return -size & (blockSize - 1) }

// header returns the header blocks of an entry: one, with a pax header before it where the fields of the block are too
// small or do not exist. archive/tar would write them too, but no sparse files.
func header(name string, f File, linkTo string) []byte {
	var pax paxRecords
	size := f.storedBytes()
	kind, target := typeOf(f.Info.Mode), f.Target
	if linkTo != "" {
		kind, target, size = '1', linkTo, 0
	}
	if f.Info.Mode.IsDir() {
		name += "/"
	}
	short := name
	switch {
	case f.data != nil && linkTo == "":
		pax.add("GNU.sparse.size", strconv.FormatInt(f.Info.Size, 10))
		pax.add("GNU.sparse.numblocks", strconv.Itoa(len(f.data)))
		pax.add(sparseMap, formatSegments(f.data))
		pax.add("GNU.sparse.name", name)
		short = "GNUSparseFile.0"
	case !fitsField(name):
		pax.add("path", name)
		short = "pax"
	}
	shortTarget := target
	if target != "" && !fitsField(target) {
		pax.add("linkpath", target)
		shortTarget = "pax"
	}
	if size >= 1<<33 {
		pax.add("size", strconv.FormatInt(size, 10))
		size = 0
	}
	if f.Info.Mode&fs.ModeSocket != 0 {
		pax.add(socketRecord, "1")
	}
	modified := f.Info.Modified.Unix()
	if modified < 0 || modified >= 1<<33 {
		modified = 0
	}
	var blocks []byte
	if len(pax) > 0 {
		blocks = headerBlock("pax", 'x', 0o600, int64(len(pax)), modified, "")
		blocks = append(append(blocks, pax...), make([]byte, padding(int64(len(pax))))...)
	}
	return append(blocks, headerBlock(short, kind, f.Info.Mode.Perm(), size, modified, shortTarget)...)
}

// fitsField reports whether a name is written into the header block: short, and in portable characters.
func fitsField(name string) bool {
	return len(name) <= 100 && strings.IndexFunc(name, func(c rune) bool { return c <= ' ' || c >= 0x7f }) < 0
}

// typeOf returns tar's type of an entry.
func typeOf(mode fs.FileMode) byte {
	switch {
	case mode.IsDir():
		return '5'
	case mode&fs.ModeSymlink != 0:
		return '2'
	case mode&(fs.ModeNamedPipe|fs.ModeSocket) != 0:
		return '6'
	case mode&fs.ModeCharDevice != 0:
		return '3'
	case mode&fs.ModeDevice != 0:
		return '4'
	}
	return '0'
}

// headerBlock returns one ustar header.
func headerBlock(name string, kind byte, perm fs.FileMode, size, modified int64, target string) []byte {
	b := make([]byte, blockSize)
	copy(b[0:100], name)
	copy(b[100:], fmt.Sprintf("%07o\x00%07o\x00%07o\x00%011o\x00%011o\x00        ", perm.Perm(), 0, 0, size, modified))
	b[156] = kind
	copy(b[157:257], target)
	copy(b[257:], "ustar\x0000")
	copy(b[329:], "0000000\x000000000\x00") // device numbers
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

// paxRecords are the records of a pax header. Names that are not UTF-8 are in it as they are, without a record that says
// so: GNU tar knows none.
type paxRecords []byte

// add adds a record. It begins with its own length in decimal digits, these included.
func (p *paxRecords) add(key, value string) {
	size := len(key) + len(value) + 3 // blank, equals sign and newline
	size += len(strconv.Itoa(size + len(strconv.Itoa(size))))
	*p = fmt.Appendf(*p, "%d %s=%s\n", size, key, value)
}

// formatSegments formats the map of a sparse file.
func formatSegments(data []segment) string {
	var b strings.Builder
	for i, s := range data {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%d,%d", s.offset, s.length)
	}
	return b.String()
}

// parseSegments parses the map of a sparse file of a given size.
func parseSegments(text string, size int64) ([]segment, error) {
	var data []segment
	numbers := strings.Split(text, ",")
	if len(numbers)%2 != 0 {
		return nil, fmt.Errorf("sparse map %s", guard.QuotePath(text))
	}
	end := int64(0)
	for i := 0; i < len(numbers); i += 2 {
		offset, err := strconv.ParseInt(numbers[i], 10, 64)
		length, err2 := strconv.ParseInt(numbers[i+1], 10, 64)
		if err != nil || err2 != nil || offset < end || length < 0 || offset > size || length > size-offset {
			return nil, fmt.Errorf("sparse map %s", guard.QuotePath(text))
		}
		end = offset + length
		data = append(data, segment{offset, length})
	}
	return data, nil
}
