package index

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
)

// cacheTreeName is the signature of the TREE extension.
const cacheTreeName = "TREE"

// appendCacheTree encodes a TREE extension.
func appendCacheTree(file, trees []byte) []byte {
	file = binary.BigEndian.AppendUint32(append(file, cacheTreeName...), uint32(len(trees)))
	return append(file, trees...)
}

// CacheTree returns the TREE extension, which has the ids of trees that the entries make; nil where there is none.
func (x *Editable) CacheTree() []byte { return x.cacheTree }

// TreeID returns the id of the tree of all entries, as the TREE extension has it; nil where that is not known.
func (x *Editable) TreeID() []byte {
	numbers, valid := bytes.CutPrefix(x.cacheTree, []byte{0}) // the top directory has an empty name
	count, rest, found := bytes.Cut(numbers, []byte{' '})
	if n, err := strconv.Atoi(string(count)); !valid || !found || err != nil || n != x.Count {
		return nil // it is -1 after a change
	}
	_, id, _ := bytes.Cut(rest, []byte{'\n'})
	if size := x.Format.IDSize(); len(id) >= size {
		return id[:size]
	}
	return nil
}

// invalidateCacheTree returns the TREE extension with every tree invalidated that contains one of the names, which are
// sorted. It is nil, and so left out of the index, where the extension is malformed.
func invalidateCacheTree(trees []byte, size int, names []string) []byte {
	if trees == nil {
		return nil
	}
	out, rest, ok := invalidateCacheTreeDir(make([]byte, 0, len(trees)), trees, size, "", names)
	if !ok || len(rest) > 0 {
		return nil
	}
	return out
}

// invalidateCacheTreeDir copies one directory of a TREE extension to out: "<name> NUL <entries> SP <directories> LF
// [<oid>]", then its subdirectories. names are those of changed entries below its parent, sorted. A directory with any
// of them below it is written as invalid: -1 entries and no oid.
func invalidateCacheTreeDir(out, left []byte, size int, path string, names []string) (_, rest []byte, ok bool) {
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
		if out, left, ok = invalidateCacheTreeDir(out, left, size, path, names); !ok {
			return nil, nil, false
		}
	}
	return out, left, true
}
