// Package treediff knows what a difference between two trees is: files, hunks, lines, and the words that changed inside
// of lines. It reads one from what git prints, makes the parts that git does not make, and writes it as text.
//
// Everything here is a pure function of its arguments: no git, no files, no clock. Text is bytes and stays what it was,
// whether it is UTF-8 or not. The cost of everything is bounded by the size of what is compared, however it was made:
// it may have been made by somebody who would like us to take for ever. It is the only importer of go-diff.
package treediff

import (
	"cmp"
	"slices"
)

// Diff is how two trees differ.
type Diff struct {
	Added   []File
	Removed []File
	Changed []File // also those that were renamed
}

// File is how one file differs.
type File struct {
	Path    string // where it is, or was; bytes
	OldPath string // where it was, if that is elsewhere

	Before  string // the full id of what it was; empty when it was not there
	After   string
	OldMode string // six octal digits, as git has them; empty when it was not there
	NewMode string

	Similarity int // per cent, of what was renamed

	Body
	Replaced *Body // what was removed, where a file became something else, as a link; the Body is then what was added

	Insertions int
	Deletions  int

	OldSize int64 // in bytes; known of binary files only
	NewSize int64
}

// Body is how content differs.
type Body struct {
	Binary bool
	Patch  string // of binary content, as git encodes it, when that was asked for
	Hunks  []Hunk
}

// Hunk is a run of lines, some of which differ.
type Hunk struct {
	OldStart int
	OldLines int
	NewStart int
	NewLines int
	Section  string // the line above that git takes for a heading
	Lines    []Line
}

// Line is one line of a hunk.
type Line struct {
	Op        Op
	NoNewline bool   // it is the last of its file, and is not ended
	Text      string // without the newline; bytes
	Spans     []Span // what changed in it, where the line has a counterpart; together they are Text
}

// Op says which side a line is on.
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

// Files are all files, in the order in which git has them.
func (d Diff) Files() []File {
	all := slices.Concat(d.Added, d.Removed, d.Changed)
	slices.SortStableFunc(all, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return all
}

// Empty reports whether there is no difference.
func (d Diff) Empty() bool { return len(d.Added)+len(d.Removed)+len(d.Changed) == 0 }

// add puts a file where it belongs.
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

// Each lets something be changed about every file.
func (d *Diff) Each(change func(*File)) {
	for _, files := range [][]File{d.Added, d.Removed, d.Changed} {
		for i := range files {
			change(&files[i])
		}
	}
}

// IsBinary reports whether there is content that has no lines, on either side.
func (f File) IsBinary() bool { return f.Binary || f.Replaced != nil && f.Replaced.Binary }

// AllHunks are those of what was removed, where that is something else, and then those of what is there.
func (f File) AllHunks() []Hunk {
	if f.Replaced == nil {
		return f.Hunks
	}
	return slices.Concat(f.Replaced.Hunks, f.Hunks)
}

// count counts the lines that were added and removed.
func (f *File) count() {
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

// binaryWithin is how far git looks for a NUL.
const binaryWithin = 8000

// IsBinary is git's own rule for content.
func IsBinary(content []byte) bool {
	return slices.Contains(content[:min(len(content), binaryWithin)], 0)
}
