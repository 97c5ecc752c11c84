package main

import (
	"io"
	"strings"

	"github.com/clipperhouse/displaywidth"
)

// printTable prints rows under a header, and nothing if there are no rows. On a terminal, the last column is cut at
// the end of the line.
func (t *tool) printTable(header []string, rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	style, err := t.outputStyle()
	if err != nil {
		return err
	}
	all := append([][]string{header}, rows...)
	return grid{
		rows:      all,
		emptyCell: "-",
		maxWidth:  style.width,
		paint: func(row, column int, shown string) string {
			if row == 0 {
				return style.paint(headerColumn, shown, shown)
			}
			return style.paint(header[column], all[row][column], shown)
		},
	}.write(t.stdout)
}

// printFields prints the fields of one record, a line each. Nothing is cut, since this is the one place that shows all
// of it.
func (t *tool) printFields(fields []field) error {
	style, err := t.outputStyle()
	if err != nil {
		return err
	}
	rows := [][]string{}
	for _, f := range fields {
		if f.value != "" {
			rows = append(rows, []string{f.key, f.value})
		}
	}
	return grid{
		rows: rows,
		paint: func(row, column int, shown string) string {
			if column == 0 {
				return shown
			}
			return style.paint(rows[row][0], rows[row][1], shown)
		},
	}.write(t.stdout)
}

// grid is text in columns, aligned by display width: some characters take two terminal cells, some none.
type grid struct {
	rows      [][]string
	emptyCell string                                     // text shown for an empty cell
	maxWidth  int                                        // width of a line, kept by cutting the last column; 0 for no limit
	paint     func(row, column int, shown string) string // adds escape sequences, which have no width; may be nil
}

const columnGap = "  "

func (g grid) write(w io.Writer) error {
	cells := make([][]string, len(g.rows))
	var widths []int
	for r, row := range g.rows {
		cells[r] = make([]string, len(row))
		for c, text := range row {
			if text = oneLine(text); text == "" {
				text = g.emptyCell
			}
			cells[r][c] = text
			if c == len(widths) {
				widths = append(widths, 0)
			}
			widths[c] = max(widths[c], displaywidth.String(text))
		}
	}
	last := len(widths) - 1
	room := g.lastColumnWidth(cells, widths)
	var b strings.Builder
	for r, row := range cells {
		for c, text := range row {
			if c == last && room > 0 {
				text = displaywidth.TruncateString(text, room, "…")
			}
			pad := widths[c] - displaywidth.String(text)
			if g.paint != nil {
				text = g.paint(r, c, text)
			}
			b.WriteString(text)
			if c < len(row)-1 {
				b.WriteString(strings.Repeat(" ", pad) + columnGap)
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// lastColumnWidth returns the width to cut the last column to, or 0 to leave it whole. If not even its header fits,
// lines wrap anyway and cutting would only hide text, so it is left whole.
func (g grid) lastColumnWidth(cells [][]string, widths []int) int {
	if g.maxWidth == 0 || len(widths) == 0 {
		return 0
	}
	last := len(widths) - 1
	room := g.maxWidth
	for _, w := range widths[:last] {
		room -= w + len(columnGap)
	}
	if header := cells[0]; room >= widths[last] || len(header) <= last || room < displaywidth.String(header[last]) {
		return 0
	}
	return room
}

// oneLine is printable that escapes newline and tab too.
func oneLine(s string) string {
	return lineBreakEscaper.Replace(printable(s))
}

var lineBreakEscaper = strings.NewReplacer("\n", `\n`, "\t", `\t`)
