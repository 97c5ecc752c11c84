package treediff

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Style is how a difference looks. The zero value is plain text, byte for byte: what git apply reads.
type Style struct {
	Colors Colors

	// Visible shows what would steer a terminal instead of sending it there: ESC as ^[, and what is no text by its
	// number.
	Visible bool

	// Width is how many columns there are for a table; 0 means 80.
	Width int
}

// Colors are the sequences that begin what they are named after. All that are not empty are ended by Reset.
type Colors struct {
	Meta     string // headers of files
	Hunk     string // the numbers of a hunk
	Section  string // what follows them
	Same     string
	Removed  string
	Added    string
	Emphasis string // what changed inside of a line, on top of the colour of the line
	Calm     string // ends an emphasis
	Reset    string
}

// paint writes text in a colour; not across the end of a line, from which pagers begin anew.
func (c Colors) paint(color, text string) string {
	if color == "" || text == "" {
		return text
	}
	return color + text + c.Reset
}

// Patch writes a unified diff as git does.
func (d Diff) Patch(out io.Writer, style Style) error {
	r := renderer{Writer: bufio.NewWriterSize(out, 64<<10), Style: style}
	for _, f := range d.Files() {
		r.file(f)
	}
	return r.Flush() // which also has what went wrong before
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

// section writes the patch of a file that stays what it was, comes or goes.
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

// sizes is how the size of a binary file changed.
func sizes(f File) string { return fmt.Sprintf("%d -> %d bytes", f.OldSize, f.NewSize) }

// endOfName marks where a name ends that has blanks in it, as git does for other programs.
func endOfName(name string) string {
	if strings.Contains(name, " ") && name[0] != '"' {
		return "\t"
	}
	return ""
}

// id is an object for people; one of a binary file in full, as only then git apply can look for it. other says how
// long it is when it is not there.
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

// interval leaves out a length of 1, as git does.
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
	if l.Op == Same { // a newline in two parts is harmless where nothing changed
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

// meta writes a line of a header.
func (r *renderer) meta(line string) {
	r.put(r.Colors.paint(r.Colors.Meta, line) + "\n")
}

// put leaves errors to Flush.
func (r *renderer) put(text string) { _, _ = r.WriteString(text) }

func (r *renderer) shown(text string) string {
	if !r.Visible {
		return text
	}
	return visible(text)
}
