package treediff

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sergi/go-diff/diffmatchpatch"
)

// Limits on the cost of finding changed words, so that no input can make it run for ever. Steps are counted instead
// of timed, so that the same text has the same spans on every machine.
const (
	maxSteps     = 64 << 20  // per file
	maxLinePairs = 144       // line pairs compared to find counterparts
	maxTokens    = 2000      // per line, without the common prefix and suffix
	maxLineBytes = 256 << 10 // bytes per line
)

// MarkWords sets the Spans of every changed line that has a counterpart on the other side.
func (f *File) MarkWords() {
	w := wordDiffer{budget: maxSteps}
	for _, h := range f.Hunks { // the two sides of a type change have no counterparts
		for at := 0; at < len(h.Lines); {
			if h.Lines[at].Op == Same {
				at++
				continue
			}
			from := at
			for at < len(h.Lines) && h.Lines[at].Op == Removed {
				at++
			}
			middle := at
			for at < len(h.Lines) && h.Lines[at].Op == Added {
				at++
			}
			w.diffRun(h.Lines[from:middle], h.Lines[middle:at])
		}
	}
}

// wordDiffer finds changed words until its budget is used up.
type wordDiffer struct {
	budget               int
	oldTokens, newTokens []string // tokens of the last pair, to reuse their memory
}

// diffRun compares a run of removed lines with the added lines that replace it. If they are equally many, lines at
// the same position are counterparts; otherwise the most similar lines are, in order.
func (w *wordDiffer) diffRun(old, new []Line) {
	switch {
	case len(old) == 0 || len(new) == 0:
	case len(old) == len(new):
		for i := range old {
			w.diffPair(&old[i], &new[i])
		}
	case len(old)*len(new) <= maxLinePairs:
		for _, p := range w.pairLines(old, new) {
			w.diffPair(&old[p[0]], &new[p[1]])
		}
	}
}

// pairLines chooses the ordered pairs of lines with the highest total similarity.
func (w *wordDiffer) pairLines(old, new []Line) (pairs [][2]int) {
	bags := func(lines []Line) []map[string]int {
		all := make([]map[string]int, len(lines))
		for i, l := range lines {
			all[i] = map[string]int{}
			if len(l.Text) > maxLineBytes/16 {
				continue
			}
			for _, t := range appendTokens(nil, l.Text) {
				if strings.TrimSpace(t) != "" {
					all[i][t] += len(t)
				}
			}
			w.budget -= len(l.Text)
		}
		return all
	}
	a, b := bags(old), bags(new)
	best := make([][]float64, len(a)+1) // best total of the remaining lines
	for i := range best {
		best[i] = make([]float64, len(b)+1)
	}
	like := func(i, j int) float64 {
		common, all := 0, 0
		for t, n := range a[i] {
			common, all = common+min(n, b[j][t]), all+n
		}
		for _, n := range b[j] {
			all += n
		}
		w.budget -= len(a[i]) + len(b[j])
		if 3*2*common < all || common == 0 {
			return 0
		}
		return float64(2*common) / float64(all)
	}
	likeness := make([][]float64, len(a))
	for i := len(a) - 1; i >= 0; i-- {
		likeness[i] = make([]float64, len(b))
		for j := len(b) - 1; j >= 0; j-- {
			if w.budget > 0 {
				likeness[i][j] = like(i, j)
			}
			best[i][j] = max(best[i+1][j], best[i][j+1], best[i+1][j+1]+likeness[i][j])
		}
	}
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case likeness[i][j] > 0 && best[i][j] == best[i+1][j+1]+likeness[i][j]:
			pairs = append(pairs, [2]int{i, j})
			i, j = i+1, j+1
		case best[i][j] == best[i+1][j]:
			i++
		default:
			j++
		}
	}
	return pairs
}

// diffPair finds the differences of two lines, if they have at least a third in common.
func (w *wordDiffer) diffPair(old, new *Line) {
	if len(old.Text) > maxLineBytes || len(new.Text) > maxLineBytes || old.Text == new.Text || w.budget <= 0 {
		return
	}
	w.oldTokens, w.newTokens = appendTokens(w.oldTokens[:0], old.Text), appendTokens(w.newTokens[:0], new.Text)
	a, b := w.oldTokens, w.newTokens
	w.budget -= len(old.Text) + len(new.Text)
	head := 0
	for head < min(len(a), len(b)) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < min(len(a), len(b))-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	edits := []edit{{a[:head], b[:head], true}}
	edits = append(edits, w.diffMiddle(a[head:len(a)-tail], b[head:len(b)-tail])...)
	edits = append(edits, edit{a[len(a)-tail:], b[len(b)-tail:], true})

	common, all := 0, 0
	for _, e := range edits {
		n := nonBlankBytes(e.old) + nonBlankBytes(e.new)
		if all += n; e.equal {
			common += n
		}
	}
	if common == 0 || 3*common < all {
		return
	}
	edits = mergeBlanks(edits)
	old.Spans = buildSpans(old.Text, edits, func(e edit) []string { return e.old })
	new.Spans = buildSpans(new.Text, edits, func(e edit) []string { return e.new })
}

// edit is a part of two lines: equal in both, or replaced.
type edit struct {
	old, new []string
	equal    bool
}

// diffMiddle compares tokens without a common prefix or suffix. If that would cost too much, all of them count as
// changed.
func (w *wordDiffer) diffMiddle(a, b []string) []edit {
	if len(a) == 0 || len(b) == 0 || len(a) > maxTokens || len(b) > maxTokens || w.budget < len(a)*len(b) {
		return []edit{{a, b, false}}
	}
	w.budget -= len(a) * len(b)
	known := map[string]rune{}
	x, y := toRunes(a, known), toRunes(b, known)
	var edits []edit
	for _, d := range diffRunes(x, y) {
		n := utf8.RuneCountInString(d.Text)
		switch d.Type {
		case diffmatchpatch.DiffEqual:
			edits = append(edits, edit{a[:n], b[:n], true})
			a, b = a[n:], b[n:]
		case diffmatchpatch.DiffDelete:
			edits = append(edits, edit{a[:n], nil, false})
			a = a[n:]
		case diffmatchpatch.DiffInsert:
			edits = append(edits, edit{nil, b[:n], false})
			b = b[n:]
		}
	}
	return edits
}

// diffRunes runs go-diff on items encoded as one rune each. It has no time limit, so that the result does not depend
// on the machine; callers must limit the size of the input.
func diffRunes(a, b []rune) []diffmatchpatch.Diff {
	d := diffmatchpatch.New()
	d.DiffTimeout = 0
	return d.DiffMainRunes(a, b, false)
}

// toRunes encodes each distinct item as a rune. go-diff could not tell surrogates apart, but they start far beyond
// the number of items that there can be.
func toRunes[T comparable](things []T, known map[T]rune) []rune {
	runes := make([]rune, len(things))
	for i, t := range things {
		r, is := known[t]
		if !is {
			r = rune(len(known) + 1)
			known[t] = r
		}
		runes[i] = r
	}
	return runes
}

// mergeBlanks marks blanks between two changed words as changed, because readers do not see them as unchanged text.
func mergeBlanks(edits []edit) []edit {
	for i := 1; i+1 < len(edits); i++ {
		if e := edits[i]; e.equal && !edits[i-1].equal && !edits[i+1].equal && nonBlankBytes(e.old) == 0 {
			edits[i].equal = false
		}
	}
	return edits
}

// buildSpans cuts one side of a comparison out of its line; it returns nil if nothing on that side changed.
func buildSpans(line string, edits []edit, side func(edit) []string) []Span {
	var all []Span
	begin, end, changed := 0, 0, false
	cut := func(next bool) {
		if end > begin && changed != next {
			all = append(all, Span{line[begin:end], changed})
			begin = end
		}
		changed = next
	}
	differs := false
	for _, e := range edits {
		length := 0
		for _, t := range side(e) {
			length += len(t)
		}
		if length == 0 {
			continue
		}
		cut(!e.equal)
		end += length
		differs = differs || !e.equal
	}
	cut(!changed)
	if !differs {
		return nil
	}
	return all
}

// nonBlankBytes counts the bytes of tokens that are not blank.
func nonBlankBytes(tokens []string) int {
	n := 0
	for _, t := range tokens {
		if strings.TrimSpace(t) != "" {
			n += len(t)
		}
	}
	return n
}

// appendTokens splits a line into words, blanks, and single other characters, and appends them to all. An invalid byte
// is a token as well; concatenated the tokens are the line.
func appendTokens(all []string, line string) []string {
	for len(line) > 0 {
		kind, size := classifyToken(line)
		end := size
		for kind != otherToken && end < len(line) {
			next, size := classifyToken(line[end:])
			if next != kind {
				break
			}
			end += size
		}
		all = append(all, line[:end])
		line = line[end:]
	}
	return all
}

type tokenClass int

const (
	otherToken tokenClass = iota
	wordToken
	blankToken
)

func classifyToken(text string) (tokenClass, int) {
	c, size := utf8.DecodeRuneInString(text)
	switch {
	case c == utf8.RuneError && size == 1:
		return otherToken, 1
	case c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c) || unicode.IsMark(c):
		return wordToken, size
	case unicode.IsSpace(c):
		return blankToken, size
	}
	return otherToken, size
}
