package treediff

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Style controls how a diff is written. The zero value is plain text, byte for byte, which git apply can read.
type Style struct {
	Colors Colors

	// EscapeControls writes control characters visibly instead of sending them to the terminal: ESC as ^[, and
	// invalid bytes by their number.
	Visible bool

	// Width is the number of columns of a table; 0 means 80.
	Width int
}

// Colors are terminal sequences that start a colour. Every one that is not empty is ended by Reset.
type Colors struct {
	Meta     string // file headers
	Hunk     string // line numbers of a hunk header
	Section  string // section heading of a hunk header
	Same     string
	Removed  string
	Added    string
	Emphasis string // changed words of a line, added to the colour of the line
	Calm     string // ends Emphasis
	Reset    string
}

// paint wraps text in a colour. The text must not contain a newline, because pagers reset colours at line ends.
func (c Colors) paint(color, text string) string {
	if color == "" || text == "" {
		return text
	}
	return color + text + c.Reset
}

// WritePatch writes a unified diff in git's format.
func (d Diff) Patch(out io.Writer, style Style) error {
	r := renderer{Writer: bufio.NewWriterSize(out, 64<<10), Style: style}
	for _, f := range d.Files() {
		r.file(f)
	}
	return r.Flush() // also returns earlier write errors
}

type renderer struct {
	*bufio.Writer
	Style
}

func (r *renderer) file(f File) {
	if f.Replaced == nil {
		r.section(f, f.Body)
		return
	}
	gone := f
	gone.After, gone.NewMode, gone.NewSize = "", "", 0
	r.section(gone, *f.Replaced)
	f.Before, f.OldMode, f.OldSize = "", "", 0
	r.section(f, f.Body)
}

// writeFilePatch writes the patch of a file that is modified, added or deleted. A type change is two of these.
func (r *renderer) section(f File, b Body) {
	oldPath := f.Path
	if f.OldPath != "" {
		oldPath = f.OldPath
	}
	old, new := Quote("a/"+oldPath), Quote("b/"+f.Path)
	r.meta("diff --git " + old + " " + new)
	switch {
	case f.OldMode == "":
		r.meta("new file mode " + f.NewMode)
	case f.NewMode == "":
		r.meta("deleted file mode " + f.OldMode)
	case f.OldMode != f.NewMode:
		r.meta("old mode " + f.OldMode)
		r.meta("new mode " + f.NewMode)
	}
	if f.OldPath != "" {
		r.meta(fmt.Sprintf("similarity index %d%%", f.Similarity))
		r.meta("rename from " + Quote(f.OldPath))
		r.meta("rename to " + Quote(f.Path))
	}
	if f.Before != f.After {
		mode := ""
		if f.OldMode == f.NewMode {
			mode = " " + f.OldMode
		}
		r.meta("index " + id(f.Before, f.After, b.Binary) + ".." + id(f.After, f.Before, b.Binary) + mode)
	}
	if f.OldMode == "" {
		old = "/dev/null"
	}
	if f.NewMode == "" {
		new = "/dev/null"
	}
	switch {
	case b.Patch != "":
		r.put(b.Patch)
	case b.Binary:
		r.put("Binary files " + old + " and " + new + " differ\n" + sizes(f) + "\n")
	case len(b.Hunks) > 0:
		r.meta("--- " + old + endOfName(old))
		r.meta("+++ " + new + endOfName(new))
	}
	for _, h := range b.Hunks {
		r.hunk(h)
	}
}

// formatSizes describes how the size of a binary file changed.
func sizes(f File) string { return fmt.Sprintf("%d -> %d bytes", f.OldSize, f.NewSize) }

// nameTerminator returns the tab with which git ends a name that contains blanks.
func endOfName(name string) string {
	if strings.Contains(name, " ") && name[0] != '"' {
		return "\t"
	}
	return ""
}

// indexID formats an object id for the index line. It is abbreviated except for binary files, for which git apply
// needs it in full. other supplies the length when oid is empty.
func id(oid, other string, full bool) string {
	const short = 10
	if oid == "" {
		oid = strings.Repeat("0", len(other))
	}
	if full {
		return oid
	}
	return oid[:min(len(oid), short)]
}

func (r *renderer) hunk(h Hunk) {
	numbers := fmt.Sprintf("@@ -%s +%s @@", interval(h.OldStart, h.OldLines), interval(h.NewStart, h.NewLines))
	r.put(r.Colors.paint(r.Colors.Hunk, numbers))
	if h.Section != "" {
		r.put(" " + r.Colors.paint(r.Colors.Section, r.shown(h.Section)))
	}
	r.put("\n")
	for _, l := range h.Lines {
		r.line(l)
		if l.NoNewline {
			r.put(r.Colors.paint(r.Colors.Same, `\ No newline at end of file`) + "\n")
		}
	}
}

// formatRange leaves out a line count of 1, as git does.
func interval(start, lines int) string {
	if lines == 1 {
		return fmt.Sprint(start)
	}
	return fmt.Sprintf("%d,%d", start, lines)
}

func (r *renderer) line(l Line) {
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
	r.put(color)
	r.put(string(rune(l.Op)))
	if l.Spans == nil || r.Colors.Emphasis == "" {
		r.put(r.shown(text))
	} else {
		r.spans(l.Spans)
	}
	if color != "" {
		r.put(r.Colors.Reset)
	}
	if crlf {
		r.put("\r")
	}
	r.put("\n")
}

func (r *renderer) spans(spans []Span) {
	for _, s := range spans {
		if s.Changed {
			r.put(r.Colors.Emphasis)
		}
		r.put(r.shown(s.Text))
		if s.Changed {
			r.put(r.Colors.Calm)
		}
	}
}

// writeHeader writes one header line.
func (r *renderer) meta(line string) {
	r.put(r.Colors.paint(r.Colors.Meta, line) + "\n")
}

// emit writes text; Flush returns the error.
func (r *renderer) put(text string) { _, _ = r.WriteString(text) }

func (r *renderer) shown(text string) string {
	if !r.Visible {
		return text
	}
	return visible(text)
}
