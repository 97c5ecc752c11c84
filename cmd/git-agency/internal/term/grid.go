package term

import (
	"io"
	"slices"
	"strings"

	"github.com/clipperhouse/displaywidth"
)

// Grid is text in columns, aligned by display width: some characters take two terminal cells, some none.
type Grid struct {
	Rows      [][]string
	EmptyCell string                                     // text shown for an empty cell
	MaxWidth  int                                        // width of a line, kept by cutting the last column, or see Optional; 0 for no limit
	Shortened []int                                      // columns to cut to shortestCell, before others are left out
	Optional  []int                                      // columns to leave out, in this order, until lines fit; then the last one is not cut
	Wrap      bool                                       // wrap the last column between words instead of cutting it
	Paint     func(row, column int, shown string) string // adds escape sequences, which have no width; may be nil
}

const (
	columnGap    = "  "
	shortestCell = 20 // width down to which Shortened columns are cut

	// narrowestWrap is the width below which a wrapped column goes to lines of its own, behind wrapIndent.
	narrowestWrap = 30
	wrapIndent    = "    "
)

// Write writes the rows, aligned.
func (g Grid) Write(w io.Writer) error {
	cells := make([][]string, len(g.Rows))
	count := 0
	for _, row := range g.Rows {
		count += len(row)
	}
	var widths []int
	all := make([]string, count)
	for r, row := range g.Rows {
		cells[r], all = all[:len(row):len(row)], all[len(row):]
		for c, text := range row {
			if text = OneLine(text); text == "" {
				text = g.EmptyCell
			}
			cells[r][c] = text
			if c == len(widths) {
				widths = append(widths, 0)
			}
			widths[c] = max(widths[c], displaywidth.String(text))
		}
	}
	omitted := g.fit(widths)
	last, room := len(widths)-1, 0
	if len(g.Optional) == 0 && !g.Wrap {
		room = g.lastColumnWidth(cells, widths)
	}
	wrapWidth, indent, ownLine := g.wrapWidth(widths)
	var b strings.Builder
	width := 1 // of a line, with its newline
	for _, w := range widths {
		width += w + len(columnGap)
	}
	b.Grow(len(cells) * width)
	for r, row := range cells {
		gap, spaces := "", 0 // before the next cell
		for c, text := range row {
			if slices.Contains(omitted, c) {
				continue
			}
			if slices.Contains(g.Shortened, c) {
				text = displaywidth.TruncateString(text, widths[c], "…")
			}
			if c == last && room > 0 {
				text = displaywidth.TruncateString(text, room, "…")
			}
			pad := widths[c] - displaywidth.String(text)
			if c == last && wrapWidth > 0 {
				lines := wrapWords(text, wrapWidth)
				for i := range lines {
					lines[i] = g.paint(r, c, lines[i])
				}
				text = strings.Join(lines, "\n"+indent)
				if ownLine {
					gap, spaces = "\n"+indent, 0
				}
			} else {
				text = g.paint(r, c, text)
			}
			for range spaces {
				b.WriteByte(' ')
			}
			b.WriteString(gap)
			b.WriteString(text)
			gap, spaces = columnGap, pad
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (g Grid) paint(row, column int, shown string) string {
	if g.Paint == nil {
		return shown
	}
	return g.Paint(row, column, shown)
}

// wrapWidth returns the width to wrap the last column to, or 0 to leave it on one line; the indent of its further lines; and
// whether its first line is below the other columns, too.
func (g Grid) wrapWidth(widths []int) (width int, indent string, ownLine bool) {
	if !g.Wrap || g.MaxWidth == 0 || len(widths) == 0 {
		return 0, "", false
	}
	before := 0
	for _, w := range widths[:len(widths)-1] {
		before += w + len(columnGap)
	}
	switch room := g.MaxWidth - before; {
	case widths[len(widths)-1] <= room:
		return 0, "", false
	case room >= narrowestWrap:
		return room, strings.Repeat(" ", before), false
	}
	return max(g.MaxWidth-len(wrapIndent), narrowestWrap), wrapIndent, true
}

// wrapWords breaks a text between words into lines of at most width columns. A longer word has a line of its own.
func wrapWords(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.SplitSeq(text, " ") {
		switch {
		case line == "":
			line = word
		case displaywidth.String(line)+1+displaywidth.String(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return append(lines, line)
}

// fit reduces the widths of the columns to shorten, and returns the optional columns to leave out, so that lines fit.
func (g Grid) fit(widths []int) []int {
	width := -len(columnGap)
	for _, w := range widths {
		width += w + len(columnGap)
	}
	for _, c := range g.Shortened {
		if excess := width - g.MaxWidth; g.MaxWidth > 0 && excess > 0 && c < len(widths) {
			cut := max(0, min(excess, widths[c]-shortestCell))
			widths[c], width = widths[c]-cut, width-cut
		}
	}
	omitted := 0
	for ; g.MaxWidth > 0 && width > g.MaxWidth && omitted < len(g.Optional); omitted++ {
		width -= widths[g.Optional[omitted]] + len(columnGap)
	}
	return g.Optional[:omitted]
}

// lastColumnWidth returns the width to cut the last column to, or 0 to leave it whole. If not even its header fits,
// lines wrap anyway and cutting would only hide text, so it is left whole.
func (g Grid) lastColumnWidth(cells [][]string, widths []int) int {
	if g.MaxWidth == 0 || len(widths) == 0 {
		return 0
	}
	last := len(widths) - 1
	room := g.MaxWidth
	for _, w := range widths[:last] {
		room -= w + len(columnGap)
	}
	if header := cells[0]; room >= widths[last] || len(header) <= last || room < displaywidth.String(header[last]) {
		return 0
	}
	return room
}
