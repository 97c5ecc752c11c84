// Package treediff represents the difference between two trees: files, hunks, lines, and changed words within lines.
// It parses git's output, computes what git does not provide, and writes diffs as text.
//
// All functions are pure: no git, no files, no clock. Text is bytes and is preserved, valid UTF-8 or not. The cost of
// every function is bounded by the size of its input, because the input may be crafted to exhaust us. It is the only
// package that imports go-diff.
package treediff

import (
	"slices"
	"sort"
)

// Diff is the difference between two trees.
type Diff struct {
	Added   []File
	Removed []File
	Changed []File // including renamed files
}

// File is the difference of one file.
type File struct {
	Path    string // current path, or the old one if deleted; bytes
	OldPath string // path before a rename, otherwise empty

	OldID   string // full object id before; empty if added
	NewID   string
	OldMode string // six octal digits, as in git; empty if added
	NewMode string

	Similarity int // per cent, of a rename

	Body
	RemovedBody *Body // removed content of a type change (file to symlink …), whose Body is the added content

	Insertions int
	Deletions  int

	OldSize int64 // in bytes; only set for binary files
	NewSize int64
}

// Body is the difference of content.
type Body struct {
	Binary bool
	Patch  string // git's encoded binary patch, if requested
	Hunks  []Hunk
}

// Hunk is a group of changed lines with the context around them.
type Hunk struct {
	OldStart int
	OldLines int
	NewStart int
	NewLines int
	Section  string // heading after the line numbers, chosen by git
	Lines    []Line
}

// Line is one line of a hunk.
type Line struct {
	Op        Op
	NoNewline bool   // last line of a file without a newline at its end
	Text      string // without the newline; bytes
	Spans     []Span // changed and unchanged parts, if the line has a counterpart; concatenated they are Text
}

// Op tells on which side a line is.
type Op byte

const (
	Same    Op = ' '
	Removed Op = '-'
	Added   Op = '+'
)

// Span is a part of a line.
type Span struct {
	Text    string
	Changed bool
}

// Files returns all files, sorted by path as git does.
func (d Diff) Files() []File {
	all := slices.Concat(d.Added, d.Removed, d.Changed)
	sort.SliceStable(all, func(i, j int) bool { return all[i].Path < all[j].Path })
	return all
}

// IsEmpty reports whether there is no difference.
func (d Diff) IsEmpty() bool { return len(d.Added)+len(d.Removed)+len(d.Changed) == 0 }

// add appends a file to the list that it belongs to.
func (d *Diff) add(f File) {
	switch {
	case f.OldMode == "":
		d.Added = append(d.Added, f)
	case f.NewMode == "":
		d.Removed = append(d.Removed, f)
	default:
		d.Changed = append(d.Changed, f)
	}
}

// UpdateFiles calls change for every file.
func (d *Diff) UpdateFiles(change func(*File)) {
	for _, files := range [][]File{d.Added, d.Removed, d.Changed} {
		for i := range files {
			change(&files[i])
		}
	}
}

// IsBinary reports whether the content of either side is binary.
func (f File) IsBinary() bool { return f.Binary || f.RemovedBody != nil && f.RemovedBody.Binary }

// AllHunks returns all hunks; of a type change, the removed ones first.
func (f File) AllHunks() []Hunk {
	if f.RemovedBody == nil {
		return f.Hunks
	}
	return slices.Concat(f.RemovedBody.Hunks, f.Hunks)
}

// countLines counts the added and removed lines.
func (f *File) countLines() {
	f.Insertions, f.Deletions = 0, 0
	for _, h := range f.AllHunks() {
		for _, l := range h.Lines {
			switch l.Op {
			case Added:
				f.Insertions++
			case Removed:
				f.Deletions++
			}
		}
	}
}

// binaryProbeBytes is how many bytes git searches for a NUL.
const binaryProbeBytes = 8000

// IsBinary applies git's rule for binary content.
func IsBinary(content []byte) bool {
	return slices.Contains(content[:min(len(content), binaryProbeBytes)], 0)
}
