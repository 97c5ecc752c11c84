package treediff

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/git-agency/git-agency/gitagency/quote"
)

// Style controls how a diff is written. The zero value is plain text, byte for byte, which git apply can read.
type Style struct {
	Colors Colors

	// EscapeControls writes control characters visibly instead of sending them to the terminal: ESC as ^[, and
	// invalid bytes by their number.
	EscapeControls bool

	// Width is the number of columns of a table; 0 means 80.
	Width int
}

// Colors are terminal sequences that start a colour. Every one that is not empty is ended by Reset.
type Colors struct {
	Meta        string // file headers
	Hunk        string // line numbers of a hunk header
	Section     string // section heading of a hunk header
	Same        string
	Removed     string
	Added       string
	Emphasis    string // changed words of a line, added to the colour of the line
	EmphasisEnd string // ends Emphasis
	Reset       string
}

// paint wraps text in a colour. The text must not contain a newline, because pagers reset colours at line ends.
func (c Colors) paint(color, text string) string {
	if color == "" || text == "" {
		return text
	}
	return color + text + c.Reset
}

// WritePatch writes a unified diff in git's format.
func (d Diff) WritePatch(out io.Writer, style Style) error {
	r := renderer{Writer: bufio.NewWriterSize(out, 64<<10), Style: style}
	for _, f := range d.Files() {
		r.writeFile(f)
	}
	return r.Flush() // also returns earlier write errors
}

type renderer struct {
	*bufio.Writer
	Style
}

func (r *renderer) writeFile(f File) {
	if f.RemovedBody == nil {
		r.writeFilePatch(f, f.Body)
		return
	}
	gone := f
	gone.NewID, gone.NewMode, gone.NewSize = "", "", 0
	r.writeFilePatch(gone, *f.RemovedBody)
	f.OldID, f.OldMode, f.OldSize = "", "", 0
	r.writeFilePatch(f, f.Body)
}

// writeFilePatch writes the patch of a file that is modified, added or deleted. A type change is two of these.
func (r *renderer) writeFilePatch(f File, b Body) {
	oldPath := f.Path
	if f.OldPath != "" {
		oldPath = f.OldPath
	}
	old, new := quote.Path("a/"+oldPath), quote.Path("b/"+f.Path)
	r.writeHeader("diff --git " + old + " " + new)
	switch {
	case f.OldMode == "":
		r.writeHeader("new file mode " + f.NewMode)
	case f.NewMode == "":
		r.writeHeader("deleted file mode " + f.OldMode)
	case f.OldMode != f.NewMode:
		r.writeHeader("old mode " + f.OldMode)
		r.writeHeader("new mode " + f.NewMode)
	}
	if f.OldPath != "" {
		r.writeHeader(fmt.Sprintf("similarity index %d%%", f.Similarity))
		r.writeHeader("rename from " + quote.Path(f.OldPath))
		r.writeHeader("rename to " + quote.Path(f.Path))
	}
	if f.OldID != f.NewID {
		mode := ""
		if f.OldMode == f.NewMode {
			mode = " " + f.OldMode
		}
		r.writeHeader("index " + indexID(f.OldID, f.NewID, b.Binary) + ".." + indexID(f.NewID, f.OldID, b.Binary) + mode)
	}
	if f.OldMode == "" {
		old = "/dev/null"
	}
	if f.NewMode == "" {
		new = "/dev/null"
	}
	switch {
	case b.Patch != "":
		r.emit(b.Patch)
	case b.Binary:
		r.emit("Binary files " + old + " and " + new + " differ\n" + formatSizes(f) + "\n")
	case len(b.Hunks) > 0:
		r.writeHeader("--- " + old + nameTerminator(old))
		r.writeHeader("+++ " + new + nameTerminator(new))
	}
	for _, h := range b.Hunks {
		r.writeHunk(h)
	}
}

// formatSizes describes how the size of a binary file changed.
func formatSizes(f File) string { return fmt.Sprintf("%d -> %d bytes", f.OldSize, f.NewSize) }

// nameTerminator returns the tab with which git ends a name that contains blanks.
func nameTerminator(name string) string {
	if strings.Contains(name, " ") && name[0] != '"' {
		return "\t"
	}
	return ""
}

// indexID formats an object id for the index line. It is abbreviated except for binary files, for which git apply
// needs it in full. other supplies the length when oid is empty.
func indexID(oid, other string, full bool) string {
	const short = 10
	if oid == "" {
		oid = strings.Repeat("0", len(other))
	}
	if full {
		return oid
	}
	return oid[:min(len(oid), short)]
}

func (r *renderer) writeHunk(h Hunk) {
	numbers := fmt.Sprintf("@@ -%s +%s @@", formatRange(h.OldStart, h.OldLines), formatRange(h.NewStart, h.NewLines))
	r.emit(r.Colors.paint(r.Colors.Hunk, numbers))
	if h.Section != "" {
		r.emit(" " + r.Colors.paint(r.Colors.Section, r.sanitize(h.Section)))
	}
	r.emit("\n")
	for _, l := range h.Lines {
		r.writeLine(l)
		if l.NoNewline {
			r.emit(r.Colors.paint(r.Colors.Same, `\ No newline at end of file`) + "\n")
		}
	}
}

// formatRange leaves out a line count of 1, as git does.
func formatRange(start, lines int) string {
	if lines == 1 {
		return fmt.Sprint(start)
	}
	return fmt.Sprintf("%d,%d", start, lines)
}

func (r *renderer) writeLine(l Line) {
	color := r.Colors.Same
	switch l.Op {
	case Removed:
		color = r.Colors.Removed
	case Added:
		color = r.Colors.Added
	}
	text, crlf := l.Text, false
	if l.Op == Same { // CRLF: do not escape the \r, which is harmless in an unchanged line
		text, crlf = strings.CutSuffix(text, "\r")
	}
	r.emit(color)
	r.emit(string(rune(l.Op)))
	if l.Spans == nil || r.Colors.Emphasis == "" {
		r.emit(r.sanitize(text))
	} else {
		r.writeSpans(l.Spans)
	}
	if color != "" {
		r.emit(r.Colors.Reset)
	}
	if crlf {
		r.emit("\r")
	}
	r.emit("\n")
}

func (r *renderer) writeSpans(spans []Span) {
	for _, s := range spans {
		if s.Changed {
			r.emit(r.Colors.Emphasis)
		}
		r.emit(r.sanitize(s.Text))
		if s.Changed {
			r.emit(r.Colors.EmphasisEnd)
		}
	}
}

// writeHeader writes one header line.
func (r *renderer) writeHeader(line string) {
	r.emit(r.Colors.paint(r.Colors.Meta, line) + "\n")
}

// emit writes text; Flush returns the error.
func (r *renderer) emit(text string) { _, _ = r.WriteString(text) }

func (r *renderer) sanitize(text string) string {
	if !r.EscapeControls {
		return text
	}
	return escapeControls(text)
}
