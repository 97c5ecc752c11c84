package main

import (
	"io"
	"strings"

	"github.com/clipperhouse/displaywidth"
)

// printTable prints rows under a header, and nothing at all when there are no rows. On a terminal, the
// last column is cut where the line ends.
func (t *tool) printTable(header []string, rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	look, err := t.look()
	if err != nil {
		return err
	}
	all := append([][]string{header}, rows...)
	return grid{
		rows:  all,
		empty: "-",
		limit: look.width,
		paint: func(row, column int, shown string) string {
			if row == 0 {
				return look.paint(headerColumn, shown, shown)
			}
			return look.paint(header[column], all[row][column], shown)
		},
	}.write(t.stdout)
}

// printFields prints what is known of one thing, a line each. Nothing is cut there: it is where people
// look for the whole of it.
func (t *tool) printFields(fields []field) error {
	look, err := t.look()
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
			return look.paint(rows[row][0], rows[row][1], shown)
		},
	}.write(t.stdout)
}

// grid is text in columns, as wide as they are on a screen: some letters take two places there, some
// none.
type grid struct {
	rows  [][]string
	empty string                                     // stands for a cell with nothing in it
	limit int                                        // lines are no wider than that, if the last column can help it; 0 is no limit
	paint func(row, column int, shown string) string // adds what takes no place; nil adds nothing
}

const gap = "  "

func (g grid) write(w io.Writer) error {
	cells := make([][]string, len(g.rows))
	var widths []int
	for r, row := range g.rows {
		cells[r] = make([]string, len(row))
		for c, text := range row {
			if text = oneLine(text); text == "" {
				text = g.empty
			}
			cells[r][c] = text
			if c == len(widths) {
				widths = append(widths, 0)
			}
			widths[c] = max(widths[c], displaywidth.String(text))
		}
	}
	last := len(widths) - 1
	room := g.room(cells, widths)
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
				b.WriteString(strings.Repeat(" ", pad) + gap)
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// room is how wide the last column may be; 0 when it may be as wide as it is. Where not even its header
// fits, lines break in any case, and cutting would only hide things.
func (g grid) room(cells [][]string, widths []int) int {
	if g.limit == 0 || len(widths) == 0 {
		return 0
	}
	last := len(widths) - 1
	room := g.limit
	for _, w := range widths[:last] {
		room -= w + len(gap)
	}
	if header := cells[0]; room >= widths[last] || len(header) <= last || room < displaywidth.String(header[last]) {
		return 0
	}
	return room
}

// oneLine is printable text without the two controls that printable leaves alone.
func oneLine(s string) string {
	return lineBreaks.Replace(printable(s))
}

var lineBreaks = strings.NewReplacer("\n", `\n`, "\t", `\t`)
