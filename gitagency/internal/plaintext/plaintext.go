// Package plaintext turns what programs write to terminals into text that can be read anywhere. It only knows the sequences of
// terminals, and neither files nor runs.
package plaintext

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/git-agency/git-agency/gitagency/quote"
)

// Bounds of what Writer keeps, and of how far a program can move the cursor.
const (
	maxRows    = 200
	maxScreen  = 100
	maxCells   = 16 << 10
	maxColumns = 300
)

// Writer turns the output of a program into lines of text that cannot control a terminal, and writes them to To. It executes
// sequences that move the cursor and erase text, so that a line or screen that was drawn many times is written as it was at
// last, and leaves out all others. At least the last maxRows rows may still change; Flush writes them. Characters that are
// invisible, and bytes that are not UTF-8, are escaped. The width of the terminal is not known: rows are not wrapped.
type Writer struct {
	To       io.Writer // required
	IsScreen bool      // whether it was written to a terminal: a line feed keeps the column

	rows     []textRow // never empty once something was written
	row, col int       // position of the cursor
	top      int       // first row of the screen; rows above do not change any more
	cleared  bool      // the program has cleared its screen, so that top is the first row of it
	saved    [2]int    // row and column that the program has saved

	state   textState
	params  []byte // of the control sequence so far
	partial []byte // incomplete character at the end of the output so far

	out        []byte // text that is to be written next
	unfinished bool   // the newline of the last row in the text was not written yet
	open       int    // index of that row plus one; 0 if nothing can be appended to it
}

// textRow is a row of the output.
type textRow struct {
	cells   []rune
	written string // what was written of it
	isKnown bool   // it was written, though it may have been empty
}

type textState int

const (
	inText textState = iota
	afterEscape
	afterIntermediate // of an escape sequence such as ESC ( B
	inControlSequence
	inControlString // title, clipboard, graphics and the like
)

func (t *Writer) Write(output []byte) (int, error) {
	rest := output
	if len(t.partial) > 0 {
		rest = append(t.partial, output...)
	}
	for len(rest) > 0 && utf8.FullRune(rest) {
		if t.state == inText && rest[0] >= 0x20 && rest[0] < 0x7f { // most of the output
			t.put(rune(rest[0]))
			rest = rest[1:]
			continue
		}
		c, size := utf8.DecodeRune(rest)
		if c == utf8.RuneError && size == 1 {
			t.consumeInvalid(rest[0])
		} else {
			t.consume(c)
		}
		rest = rest[size:]
	}
	t.partial = slices.Clone(rest)
	return len(output), t.writeOut()
}

// End writes all that is left, also an incomplete character, and resets the writer for the output of another program.
func (t *Writer) End() error {
	t.consumePartial()
	err := t.Flush()
	*t = Writer{To: t.To, IsScreen: t.IsScreen}
	return err
}

// EndLine is End with a newline after an incomplete last line.
func (t *Writer) EndLine() error {
	t.consumePartial()
	if len(t.rows) > 0 && len(t.rows[len(t.rows)-1].cells) > 0 {
		t.moveTo(len(t.rows))
	}
	return t.End()
}

func (t *Writer) consumePartial() {
	for _, b := range t.partial {
		t.consumeInvalid(b)
	}
	t.partial = nil
}

// Flush writes all rows as they are now, unless they were written like that before. Text may be appended to the last one.
func (t *Writer) Flush() error {
	t.addRows()
	return t.writeOut()
}

func (t *Writer) writeOut() error {
	if len(t.out) == 0 {
		return nil
	}
	_, err := t.To.Write(t.out)
	t.out = t.out[:0]
	return err
}

func (t *Writer) addRows() {
	for i := range t.rows {
		t.addRow(i)
	}
}

// addRow adds a row to the text, unless it is there as it is now, or was erased.
func (t *Writer) addRow(i int) {
	r, isLast, text := &t.rows[i], i == len(t.rows)-1, string(t.rows[i].cells)
	isErased := r.isKnown && strings.TrimSpace(text) == "" && text != r.written
	switch {
	case t.open == i+1 && strings.HasPrefix(text, r.written):
		t.out = append(t.out, text[len(r.written):]...)
	case r.isKnown && text == r.written, isErased, isLast && text == "":
		return
	default:
		if t.unfinished {
			t.out = append(t.out, '\n')
		}
		t.out = append(t.out, text...)
	}
	r.written, r.isKnown, t.unfinished, t.open = text, true, isLast, 0
	if isLast {
		t.open = i + 1
	} else {
		t.out = append(t.out, '\n')
	}
}

// consumeInvalid puts a byte that is not part of a character, escaped.
func (t *Writer) consumeInvalid(b byte) {
	if t.state == inControlString {
		return
	}
	t.state = inText
	for _, c := range fmt.Sprintf(`\x%02x`, b) {
		t.put(c)
	}
}

// consume executes a character.
func (t *Writer) consume(c rune) {
	switch {
	case c == 0x1b: // begins a sequence, also inside of another
		t.state = afterEscape
	case c == 0x18 || c == 0x1a: // cancels a sequence
		t.state = inText
	case t.state == inControlString && c != '\n': // a string without an end must not hide more than the rest of its line
		if c == '\a' || c == 0x9c {
			t.state = inText
		}
	case t.state == inControlSequence && c >= 0x20 && c < 0x40:
		if len(t.params) < 64 {
			t.params = append(t.params, byte(c))
		}
	case t.state == inControlSequence && c >= 0x40 && c < 0x7f:
		t.state = inText
		t.controlSequence(c)
	case t.state == afterEscape && c >= 0x30 && c < 0x7f:
		t.state = inText
		t.escapeSequence(c)
	case (t.state == afterEscape || t.state == afterIntermediate) && c >= 0x20 && c < 0x30:
		t.state = afterIntermediate
	case t.state == afterIntermediate && c >= 0x30 && c < 0x7f:
		t.state = inText
	default: // also where it breaks off a sequence
		t.state = inText
		t.print(c)
	}
}

// print executes a character outside of sequences.
func (t *Writer) print(c rune) {
	switch {
	case c == '\n' || c == '\v' || c == '\f':
		t.lineFeed()
	case c == '\r':
		t.col = 0
	case c == '\b':
		t.col = max(t.col-1, 0)
	case c >= 0x80 && c < 0xa0: // ESC and a character of 7 bits
		t.escapeSequence(c - 0x40)
	case c == '\t' || quote.IsPrintable(c):
		t.put(c)
	case c >= 0x20 && c != 0x7f: // invisible; control characters are left out
		quoted := strconv.QuoteRuneToASCII(c)
		for _, c := range quoted[1 : len(quoted)-1] {
			t.put(c)
		}
	}
}

// put writes a character at the cursor.
func (t *Writer) put(c rune) {
	r := t.current()
	if len(r.cells) >= maxCells && t.col >= len(r.cells) { // write what there is, and go on behind it
		t.addRows()
		r.cells, r.written, t.col = nil, "", 0
	}
	if r.cells == nil {
		r.cells = make([]rune, 0, 100)
	}
	t.col = min(t.col, max(len(r.cells), maxColumns)) // a cursor behind a long row may have moved to a short one
	r.pad(t.col)
	if t.col < len(r.cells) {
		r.cells[t.col] = c
	} else {
		r.cells = append(r.cells, c)
	}
	t.col++
}

// pad makes a row at least as long as a number of columns.
func (r *textRow) pad(columns int) {
	for len(r.cells) < columns {
		r.cells = append(r.cells, ' ')
	}
}

// current returns the row of the cursor.
func (t *Writer) current() *textRow {
	if t.row >= len(t.rows) {
		t.moveTo(t.row)
	}
	return &t.rows[t.row]
}

func (t *Writer) lineFeed() {
	t.moveTo(t.row + 1)
	if !t.IsScreen {
		t.col = 0
	}
}

// moveTo moves the cursor to a row, and adds rows until there is one. The oldest rows are written when there are too many.
func (t *Writer) moveTo(row int) {
	t.row = max(row, t.top)
	for len(t.rows) <= t.row {
		t.rows = append(t.rows, textRow{})
	}
	if excess := len(t.rows) - maxRows; excess >= maxRows {
		for i := range excess {
			t.addRow(i)
		}
		t.rows = slices.Delete(t.rows, 0, excess)
		for _, index := range []*int{&t.row, &t.top, &t.open, &t.saved[0]} {
			*index = max(*index-excess, 0)
		}
	}
}

// clearScreen begins a new screen below the text so far.
func (t *Writer) clearScreen() {
	end := len(t.rows)
	for end > t.top && len(t.rows[end-1].cells) == 0 && !t.rows[end-1].isKnown {
		end--
	}
	t.moveTo(end)
	t.top, t.col, t.cleared = t.row, 0, true
}
