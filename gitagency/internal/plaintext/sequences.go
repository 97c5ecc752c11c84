package plaintext

import (
	"slices"
	"strconv"
	"strings"
)

// escapeSequence executes a sequence of ESC and one character, as far as it moves the cursor or begins a longer one.
func (t *Writer) escapeSequence(c rune) {
	switch c {
	case '[':
		t.state, t.params = inControlSequence, t.params[:0]
	case ']', 'P', '_', '^', 'X':
		t.state = inControlString
	case 'D':
		t.moveTo(t.row + 1)
	case 'E':
		t.moveTo(t.row + 1)
		t.col = 0
	case 'M':
		t.moveTo(t.row - 1)
	case '7':
		t.saved = [2]int{t.row, t.col}
	case '8':
		t.moveVertically(t.saved[0])
		t.col = t.saved[1]
	case 'c':
		t.clearScreen()
	}
}

// controlSequence executes a control sequence, as far as it moves the cursor or erases text.
func (t *Writer) controlSequence(final rune) {
	private, isPrivate := strings.CutPrefix(string(t.params), "?")
	if isPrivate {
		if slices.Contains([]string{"47", "1047", "1049"}, private) { // the alternate screen
			t.clearScreen()
		}
		return
	}
	n := t.param(0, 1)
	switch final {
	case 'A':
		t.moveVertically(t.row - n)
	case 'B', 'e':
		t.moveVertically(t.row + n)
	case 'C', 'a':
		t.col = min(t.col+n, max(t.col, maxColumns))
	case 'D':
		t.col = max(t.col-n, 0)
	case 'E', 'F':
		if final == 'F' {
			n = -n
		}
		t.moveVertically(t.row + n)
		t.col = 0
	case 'G', '`':
		t.col = n - 1
	case 'd':
		t.moveVertically(t.top + n - 1)
	case 'H', 'f':
		if !t.cleared { // the first row of its screen is not known
			t.clearScreen()
		}
		t.moveVertically(t.top + n - 1)
		t.col = t.param(1, 1) - 1
	case 's':
		t.saved = [2]int{t.row, t.col}
	case 'u':
		t.moveVertically(t.saved[0])
		t.col = t.saved[1]
	case 'J':
		t.eraseScreen(t.param(0, 0))
	case 'K':
		t.eraseLine(t.param(0, 0))
	case 'L', 'M', 'P', '@', 'X':
		t.edit(final, n)
	}
}

// param returns a parameter of the control sequence, bounded; missing if it is not there.
func (t *Writer) param(index, missing int) int {
	params := strings.Split(string(t.params), ";")
	if index >= len(params) {
		return missing
	}
	n, err := strconv.Atoi(params[index])
	if err != nil {
		return missing
	}
	return min(max(n, missing), maxColumns)
}

// moveVertically moves the cursor to a row of the screen. A screen has at most maxScreen rows, or those that were written.
func (t *Writer) moveVertically(row int) {
	t.moveTo(min(row, max(len(t.rows)-1, t.top+maxScreen-1)))
}

// eraseScreen erases what is below the cursor (0), above it (1), or all.
func (t *Writer) eraseScreen(which int) {
	r := t.current()
	switch which {
	case 0:
		r.cells = r.cells[:min(t.col, len(r.cells))]
		for i := len(t.rows) - 1; i > t.row; i-- {
			if t.rows[i].isKnown {
				t.rows[i].cells = nil
			} else if i == len(t.rows)-1 {
				t.rows = t.rows[:i]
			}
		}
	case 1:
		for i := t.top; i < t.row; i++ {
			t.rows[i].cells = nil
		}
		t.eraseLine(1)
	default:
		t.clearScreen()
	}
}

// eraseLine erases what is in the line of the cursor right of it (0), left of it (1), or all.
func (t *Writer) eraseLine(which int) {
	r := t.current()
	switch which {
	case 0:
		r.cells = r.cells[:min(t.col, len(r.cells))]
	case 1:
		r.blank(0, t.col+1)
	default:
		r.cells = nil
	}
}

// blank replaces a number of cells by spaces.
func (r *textRow) blank(from, number int) {
	for i := from; i < min(from+number, len(r.cells)); i++ {
		r.cells[i] = ' '
	}
}

// edit inserts and deletes rows and cells at the cursor.
func (t *Writer) edit(final rune, n int) {
	r := t.current()
	at := min(t.col, len(r.cells))
	switch final {
	case 'L': // rows at the end leave the screen
		n = min(n, len(t.rows)-t.row)
		t.rows = slices.Insert(t.rows, t.row, make([]textRow, n)...)
		t.rows = t.rows[:len(t.rows)-n]
		t.open = 0
	case 'M':
		t.rows = slices.Delete(t.rows, t.row, min(t.row+n, len(t.rows)))
		t.open = 0
		t.moveTo(t.row)
	case 'P':
		r.cells = slices.Delete(r.cells, at, min(at+n, len(r.cells)))
	case '@':
		if len(r.cells) < maxCells {
			r.cells = slices.Insert(r.cells, at, []rune(strings.Repeat(" ", n))...)
		}
	case 'X':
		r.blank(at, n)
	}
}
