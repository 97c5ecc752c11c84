package object

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Modes of entries.
const (
	ModeFile       = 0o100644
	ModeExecutable = 0o100755
	ModeSymlink    = 0o120000
	ModeGitlink    = 0o160000
	ModeTree       = 0o040000 // only in a sparse index, or in a tree
)

// CommonPrefixLen returns the length of the longest common prefix, which it finds eight bytes at a time.
func CommonPrefixLen(a, b []byte) int {
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

// ErrTruncated is the error of data that ends too early.
var ErrTruncated = errors.New("truncated")

// SameObject reports whether two tree entries name the same object, whatever their executable bits.
func (it TreeEntry) SameObject(other TreeEntry) bool {
	return it.ObjectType() == other.ObjectType() && string(it.OID) == string(other.OID)
}

// ObjectType returns the type of the object that a tree entry names.
func (it TreeEntry) ObjectType() string {
	switch it.Mode {
	case ModeTree:
		return "tree"
	case ModeGitlink:
		return "commit"
	}
	return "blob"
}

// ModeGitlinkText is the mode of a submodule, as text.
const ModeGitlinkText = "160000"

// Modes of a symbolic link and of an executable file, as git prints them.
const (
	ModeSymlinkText    = "120000"
	ModeExecutableText = "100755"
)

// TreeEntry is one entry of a tree object.
type TreeEntry struct {
	Mode    uint32
	Name    []byte
	OID     []byte
	Subtree *BuiltTree // the subtree, where it was built in memory
}

const modeKind = 0o170000 // bits of a mode that tell files, symbolic links, submodules and trees apart

// IsTree reports whether the entry is a subtree, also where its mode has permission bits that git does not write.
func (it TreeEntry) IsTree() bool { return it.Mode&modeKind == ModeTree }

// IsGitlink reports whether the entry is the commit of a submodule.
func (it TreeEntry) IsGitlink() bool { return it.Mode&modeKind == ModeGitlink }

// NextTreeEntry decodes the first entry of a tree object, or of the rest of one: "<mode> SP <name> NUL <oid>", where oid has
// size bytes. Name and oid of the entry are parts of data. It is not ok where data is not an entry.
func NextTreeEntry(data []byte, size int) (it TreeEntry, rest []byte, ok bool) {
	space := bytes.IndexByte(data, ' ')
	if space < 1 {
		return TreeEntry{}, nil, false
	}
	var mode uint32
	for _, c := range data[:space] {
		if c < '0' || c > '7' || mode>>29 != 0 {
			return TreeEntry{}, nil, false
		}
		mode = mode<<3 | uint32(c-'0')
	}
	data = data[space+1:]
	end := bytes.IndexByte(data, 0)
	if end < 1 || len(data) < end+1+size {
		return TreeEntry{}, nil, false
	}
	return TreeEntry{Mode: mode, Name: data[:end:end], OID: data[end+1 : end+1+size : end+1+size]}, data[end+1+size:], true
}

// Tree is a parsed tree object.
type Tree struct {
	Entries   []TreeEntry // sorted by name, which is not git's order where there are subtrees
	Canonical bool        // the object is not empty, and byte for byte as git would write these entries
}

// ParseTree parses a tree object whose ids have size bytes. The entries are parts of data.
func ParseTree(data []byte, size int) (*Tree, error) {
	const usual = 20 // bytes of mode and name
	t := &Tree{Canonical: len(data) > 0, Entries: make([]TreeEntry, 0, len(data)/(size+usual))}
	for len(data) > 0 {
		it, rest, ok := NextTreeEntry(data, size)
		if !ok {
			return nil, fmt.Errorf("tree: %w", ErrTruncated)
		}
		switch it.Mode {
		case ModeFile, ModeExecutable, ModeSymlink, ModeGitlink, ModeTree:
			// A mode with leading zeros is longer than git writes it.
			t.Canonical = t.Canonical && len(data)-len(rest) == len(formatMode(it.Mode))+len(it.Name)+size+2
		default:
			t.Canonical = false
		}
		if n := len(t.Entries); n > 0 && CompareTreeOrder(t.Entries[n-1], it) >= 0 {
			t.Canonical = false
		}
		t.Entries = append(t.Entries, it)
		data = rest
	}
	if !slices.IsSortedFunc(t.Entries, func(a, b TreeEntry) int { return bytes.Compare(a.Name, b.Name) }) {
		sort.SliceStable(t.Entries, func(i, j int) bool { return bytes.Compare(t.Entries[i].Name, t.Entries[j].Name) < 0 })
	}
	for i := 1; i < len(t.Entries); i++ {
		t.Canonical = t.Canonical && !bytes.Equal(t.Entries[i-1].Name, t.Entries[i].Name)
	}
	return t, nil
}

// Find returns the entry of a name. Of a tree that is nil it finds none.
func (t *Tree) Find(name string) (TreeEntry, bool) {
	if t == nil {
		return TreeEntry{}, false
	}
	i := sort.Search(len(t.Entries), func(i int) bool { return string(t.Entries[i].Name) >= name })
	if i == len(t.Entries) || string(t.Entries[i].Name) != name {
		return TreeEntry{}, false
	}
	return t.Entries[i], true
}

// BuiltTree is a tree object built in memory. Once it is encoded it does not change.
type BuiltTree struct {
	Entries []TreeEntry // in git's order
	Content []byte
	OID     []byte
}

// LeafChange is a file, symbolic link or submodule to be put into a tree; without an oid, the path is removed.
type LeafChange struct {
	Mode uint32
	OID  []byte
	Path string
}

// Encode computes the content and the id of the tree object.
func (n *BuiltTree) Encode(format Format) {
	size := 0
	for _, it := range n.Entries {
		size += len(formatMode(it.Mode)) + 1 + len(it.Name) + 1 + len(it.OID)
	}
	const most = 32 // bytes of the object header
	all := append(strconv.AppendInt(append(make([]byte, 0, most+size), "tree "...), int64(size), 10), 0)
	head := len(all)
	for _, it := range n.Entries {
		all = append(append(all, formatMode(it.Mode)...), ' ')
		all = append(append(all, it.Name...), 0)
		all = append(all, it.OID...)
	}
	n.Content, n.OID = all[head:], format.HashSum(all)
}

// formatMode returns a mode as git writes it in a tree object.
func formatMode(mode uint32) string {
	switch mode {
	case ModeFile:
		return "100644"
	case ModeExecutable:
		return "100755"
	case ModeTree:
		return "40000"
	}
	return strconv.FormatUint(uint64(mode), 8)
}

// WithChanges returns the tree with some leaves added, replaced or removed. A file in the place of a needed directory is
// removed, and so is a directory in the place of a new leaf.
func (n *BuiltTree) WithChanges(format Format, changes []LeafChange) *BuiltTree {
	if len(changes) == 0 {
		return n
	}
	changes = slices.Clone(changes)
	sort.Slice(changes, func(i, j int) bool {
		a, b := &changes[i], &changes[j]
		// Of two changes of a path, the removal comes first.
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(len(a.OID), len(b.OID))) < 0
	})
	return n.withChangesBelow(format, 0, changes)
}

// withChangesBelow applies sorted changes whose paths have their first depth bytes, the path of this tree, in common.
func (n *BuiltTree) withChangesBelow(format Format, depth int, changes []LeafChange) *BuiltTree {
	items := map[string]TreeEntry{}
	for _, it := range n.Entries {
		items[string(it.Name)] = it
	}
	for i := 0; i < len(changes); {
		rest := changes[i].Path[depth:]
		slash := strings.IndexByte(rest, '/')
		if slash < 0 {
			c := changes[i]
			i++
			if had := items[rest]; c.OID == nil {
				if had.Mode != ModeTree { // the leaves of a directory have changes of their own
					delete(items, rest)
				}
			} else {
				items[rest] = TreeEntry{Mode: c.Mode, Name: []byte(rest), OID: c.OID}
			}
			continue
		}
		end := i + 1
		for end < len(changes) && strings.HasPrefix(changes[end].Path, changes[i].Path[:depth+slash+1]) {
			end++
		}
		had, below := items[rest[:slash]], &BuiltTree{}
		if had.Mode == ModeTree {
			below = had.Subtree
		}
		sub := below.withChangesBelow(format, depth+slash+1, changes[i:end])
		switch {
		case len(sub.Entries) > 0:
			items[rest[:slash]] = TreeEntry{Mode: ModeTree, Name: []byte(rest[:slash]), OID: sub.OID, Subtree: sub}
		case had.Mode == ModeTree:
			delete(items, rest[:slash])
		}
		i = end
	}
	made := &BuiltTree{Entries: make([]TreeEntry, 0, len(items))}
	for _, it := range items {
		made.Entries = append(made.Entries, it)
	}
	slices.SortFunc(made.Entries, CompareTreeOrder)
	made.Encode(format)
	return made
}

// CompareTreeOrder compares entries in git's order, in which the name of a subtree ends in a slash.
func CompareTreeOrder(a, b TreeEntry) int {
	n := min(len(a.Name), len(b.Name))
	if c := bytes.Compare(a.Name[:n], b.Name[:n]); c != 0 {
		return c
	}
	return cmp.Compare(a.orderByte(n), b.orderByte(n))
}

// orderByte returns the byte at n of the name by which git sorts the entry; 0 behind its end.
func (it TreeEntry) orderByte(n int) int {
	switch {
	case n < len(it.Name):
		return int(it.Name[n])
	case it.IsTree():
		return '/'
	}
	return 0
}

// HexOID returns the id in hex.
func (n *BuiltTree) HexOID() string { return hex.EncodeToString(n.OID) }

func (it TreeEntry) Equal(other TreeEntry) bool {
	return it.Mode == other.Mode && bytes.Equal(it.OID, other.OID)
}
