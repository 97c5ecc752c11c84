package gitagency

import (
	"context"
	"io"

	"github.com/git-agency/git-agency/gitagency/internal/diff"
	"github.com/git-agency/git-agency/gitagency/internal/pathset"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/treediff"
)

// Diff is the difference between two states. In JSON it consists of the three lists of files; paths and lines that are
// not valid UTF-8 have an additional base64 form.
type Diff struct {
	Added   []DiffFile
	Removed []DiffFile
	Changed []DiffFile // includes renamed files

	LeftOut []LeftOut // paths in the sandbox that were not compared
}

// DiffFile is the difference of one file.
type DiffFile struct {
	Path    string // current path, or the old one if deleted; bytes
	OldPath string // path before a rename, otherwise empty

	OldID   string // full object id before; empty if added
	NewID   string
	OldMode string // six octal digits, as in git; empty if added
	NewMode string

	Similarity int // per cent, of a rename

	DiffBody
	RemovedBody *DiffBody // removed content of a type change (file to symlink …), whose DiffBody is the added content

	Insertions int
	Deletions  int

	OldSize int64 // in bytes; only set for binary files
	NewSize int64
}

// DiffBody is the difference of content.
type DiffBody struct {
	Binary bool
	Patch  string // git's encoded binary patch, if requested
	Hunks  []DiffHunk
}

// DiffHunk is a run of lines, some of which differ.
type DiffHunk struct {
	OldStart int
	OldLines int
	NewStart int
	NewLines int
	Section  string // heading after the line numbers, chosen by git
	Lines    []DiffLine
}

// DiffLine is one line of a hunk.
type DiffLine struct {
	Op        byte       // '-' if removed, '+' if added, ' ' if on both sides
	NoNewline bool       // last line of a file without a newline at its end
	Text      string     // without the newline; bytes
	Spans     []DiffSpan // changed and unchanged parts, if the line has a counterpart; concatenated they are Text
}

// DiffSpan is a part of a line.
type DiffSpan struct {
	Text    string
	Changed bool
}

// Empty reports whether there is no difference.
func (d Diff) Empty() bool { return len(d.Added)+len(d.Removed)+len(d.Changed) == 0 }

// MarshalJSON encodes all three lists, including empty ones.
func (d Diff) MarshalJSON() ([]byte, error) { return d.internal().MarshalJSON() }

// MarshalJSON encodes a file in the same form as inside of a diff.
func (f DiffFile) MarshalJSON() ([]byte, error) { return f.internal().MarshalJSON() }

func newDiff(d diff.Diff) Diff {
	return Diff{
		Added: convertAll(d.Added, newDiffFile), Removed: convertAll(d.Removed, newDiffFile), Changed: convertAll(d.Changed, newDiffFile),
		LeftOut: convertAll(d.LeftOut, newLeftOut),
	}
}

func newDiffFile(f treediff.File) DiffFile {
	file := DiffFile{
		Path: f.Path, OldPath: f.OldPath, OldID: f.OldID, NewID: f.NewID, OldMode: f.OldMode, NewMode: f.NewMode,
		Similarity: f.Similarity, DiffBody: newDiffBody(f.Body), Insertions: f.Insertions, Deletions: f.Deletions,
		OldSize: f.OldSize, NewSize: f.NewSize,
	}
	if f.RemovedBody != nil {
		removed := newDiffBody(*f.RemovedBody)
		file.RemovedBody = &removed
	}
	return file
}

func newDiffBody(b treediff.Body) DiffBody {
	return DiffBody{Binary: b.Binary, Patch: b.Patch, Hunks: convertAll(b.Hunks, newDiffHunk)}
}

func newDiffHunk(h treediff.Hunk) DiffHunk {
	return DiffHunk{
		OldStart: h.OldStart, OldLines: h.OldLines, NewStart: h.NewStart, NewLines: h.NewLines, Section: h.Section,
		Lines: convertAll(h.Lines, newDiffLine),
	}
}

func newDiffLine(l treediff.Line) DiffLine {
	return DiffLine{Op: byte(l.Op), NoNewline: l.NoNewline, Text: l.Text, Spans: convertAll(l.Spans, newDiffSpan)}
}

func newDiffSpan(s treediff.Span) DiffSpan { return DiffSpan(s) }

func (d Diff) internal() diff.Diff {
	return diff.Diff{
		Added: convertAll(d.Added, DiffFile.internal), Removed: convertAll(d.Removed, DiffFile.internal), Changed: convertAll(d.Changed, DiffFile.internal),
		LeftOut: convertAll(d.LeftOut, LeftOut.internal),
	}
}

func (l LeftOut) internal() snapshots.LeftOut { return snapshots.LeftOut(l) }

func (f DiffFile) internal() treediff.File {
	file := treediff.File{
		Path: f.Path, OldPath: f.OldPath, OldID: f.OldID, NewID: f.NewID, OldMode: f.OldMode, NewMode: f.NewMode,
		Similarity: f.Similarity, Body: f.DiffBody.internal(), Insertions: f.Insertions, Deletions: f.Deletions,
		OldSize: f.OldSize, NewSize: f.NewSize,
	}
	if f.RemovedBody != nil {
		removed := f.RemovedBody.internal()
		file.RemovedBody = &removed
	}
	return file
}

func (b DiffBody) internal() treediff.Body {
	return treediff.Body{Binary: b.Binary, Patch: b.Patch, Hunks: convertAll(b.Hunks, DiffHunk.internal)}
}

func (h DiffHunk) internal() treediff.Hunk {
	return treediff.Hunk{
		OldStart: h.OldStart, OldLines: h.OldLines, NewStart: h.NewStart, NewLines: h.NewLines, Section: h.Section,
		Lines: convertAll(h.Lines, DiffLine.internal),
	}
}

func (l DiffLine) internal() treediff.Line {
	return treediff.Line{Op: treediff.Op(l.Op), NoNewline: l.NoNewline, Text: l.Text, Spans: convertAll(l.Spans, DiffSpan.internal)}
}

func (s DiffSpan) internal() treediff.Span { return treediff.Span(s) }

// DiffRequest selects what to compare.
type DiffRequest struct {
	Invocation string   // required: id or unique id prefix
	From       string   // one of the states below, a snapshot of any invocation, or a state of another, such as "<id>/work"; default: DiffBase
	To         string   // same as From; default: DiffWork
	Paths      []string // files and directories to compare, relative to the top of the sandbox; default: all

	Form   DiffForm // form in which the diff will be printed; a diff for DiffStat has no hunks, one for DiffNameStatus no line counts either
	Words  bool     // mark the changed words inside lines
	Binary bool     // include patches of binary files

	IncludeSecrets bool // let DiffWork include untracked files that look like credentials
}

func (req DiffRequest) internal() diff.Request {
	return diff.Request{
		Invocation: req.Invocation, From: req.From, To: req.To, Paths: req.Paths,
		Form: diff.Form(req.Form), Words: req.Words, Binary: req.Binary, IncludeSecrets: req.IncludeSecrets,
	}
}

// States that can be compared, besides snapshots.
const (
	DiffBase        = "base"        // commit that the sandbox started from
	DiffHead        = "head"        // commit that HEAD of the sandbox is at
	DiffWork        = "work"        // current content of the sandbox, as a snapshot would hold it
	DiffIntegration = "integration" // current tip of the integration branch
)

// DiffSnapshots compares two states of a sandbox: its base commit, its HEAD, its current content including uncommitted
// changes, any snapshot, the tip of the integration branch, or a state of another sandbox. It changes nothing, and
// commands may run in the sandbox meanwhile. For an invocation that has ended, DiffHead and DiffWork cannot be compared. A diff of more than
// 256 MiB fails with reason.TooLarge, because the whole text is held in memory.
//
// The diff is computed by git. Attributes in the trees and the configuration of the repository are ignored, because
// an agent could use them to hide changes, and no program that they name is run.
func (r *Repository) DiffSnapshots(ctx context.Context, req DiffRequest) (Diff, error) {
	compare := diff.OfSandbox
	if r.IsPaths() {
		compare = pathset.Diff
	}
	d, err := compare(ctx, r.core, req.internal())
	return newDiff(d), publicError(err)
}

// DiffFormat selects how a diff is printed. The zero value is a patch that git apply reads.
type DiffFormat struct {
	Form           DiffForm
	Summary        bool       // start a patch with a summary of the totals; git apply skips it
	Colors         DiffColors // default: none
	EscapeControls bool       // print control characters in visible form instead of sending them to the terminal
	Width          int        // width of the terminal; 0 means 80
}

func (f DiffFormat) internal() diff.Format {
	return diff.Format{
		Form: diff.Form(f.Form), Summary: f.Summary, Colors: treediff.Colors(f.Colors),
		EscapeControls: f.EscapeControls, Width: f.Width,
	}
}

// DiffForm is an output format of a diff.
type DiffForm int

const (
	DiffPatch      DiffForm = iota // unified diff, as git diff prints it and git apply reads it
	DiffStat                       // table of files with their line counts
	DiffNameStatus                 // one line for each file
)

// DiffColors holds terminal escape sequences that start a colour. Every one that is not empty is ended by Reset.
type DiffColors struct {
	Meta        string // file headers
	Hunk        string // line numbers of a hunk header
	Section     string // section heading of a hunk header
	Same        string // lines on both sides
	Removed     string
	Added       string
	Emphasis    string // changed words of a line, added to the colour of the line
	EmphasisEnd string // ends Emphasis
	Reset       string
}

// DiffColors returns the colours of diffs that the user has configured for git.
func (r *Repository) DiffColors() (DiffColors, error) {
	colors, err := r.core.Settings.DiffColors()
	return DiffColors(colors), publicError(err)
}

// WriteDiff writes a diff to w as text. It writes nothing when nothing differs.
func WriteDiff(w io.Writer, d Diff, format DiffFormat) error {
	return publicError(diff.Write(w, d.internal(), format.internal()))
}
