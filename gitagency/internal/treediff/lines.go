package treediff

import (
	"bytes"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/sergi/go-diff/diffmatchpatch"
)

const (
	mostLines = 2000 // that go-diff is given, of both sides together: what it takes grows with the square
	mostDepth = 64   // of comparing what lies between lines that are the same
)

// Text is how a file with one content differs from one with another, with the words that changed. It has neither path
// nor modes nor ids: there are no objects.
func Text(before, after []byte) File {
	f := File{}
	if bytes.Equal(before, after) {
		return f
	}
	if IsBinary(before) || IsBinary(after) {
		f.Binary, f.OldSize, f.NewSize = true, int64(len(before)), int64(len(after))
		return f
	}
	f.Hunks = Lines(before, after)
	f.count()
	f.FindWords()
	return f
}

// Lines compares text line by line, where git has no objects to compare. Lines that both sides have just once hold the
// comparison together, as far as they come in the same order; between two of them go-diff compares what is left, if
// that is not much. So a long text costs little more than a short one, and two texts that have a line in common are
// never told to have none.
func Lines(before, after []byte) []Hunk {
	a, b := slices.Collect(strings.Lines(string(before))), slices.Collect(strings.Lines(string(after)))
	known := map[string]int{}
	m := matcher{a: numbered(a, known), b: numbered(b, known)}
	m.seen = make([]sighting, len(known))
	m.match(0, len(a), 0, len(b), 0)
	return hunks(a, b, m.pairs)
}

// numbered gives every different line a number.
func numbered(lines []string, known map[string]int) []int {
	numbers := make([]int, len(lines))
	for i, l := range lines {
		n, is := known[l]
		if !is {
			n = len(known)
			known[l] = n
		}
		numbers[i] = n
	}
	return numbers
}

// matcher finds which lines stayed.
type matcher struct {
	a, b  []int
	pairs []pair // in order on both sides
	seen  []sighting
}

// pair is a line of one side that is one of the other.
type pair struct{ a, b int }

// sighting is how often a line was seen, and where last.
type sighting struct{ inA, inB, lastA int }

// match compares a part of each side.
func (m *matcher) match(a, aEnd, b, bEnd, depth int) {
	for a < aEnd && b < bEnd && m.a[a] == m.b[b] {
		m.pairs = append(m.pairs, pair{a, b})
		a, b = a+1, b+1
	}
	tail := 0
	for a < aEnd && b < bEnd && m.a[aEnd-1] == m.b[bEnd-1] {
		aEnd, bEnd, tail = aEnd-1, bEnd-1, tail+1
	}
	if a < aEnd && b < bEnd {
		m.between(a, aEnd, b, bEnd, depth)
	}
	for i := range tail {
		m.pairs = append(m.pairs, pair{aEnd + i, bEnd + i})
	}
}

// between is match of what has nothing in common at its ends.
func (m *matcher) between(a, aEnd, b, bEnd, depth int) {
	var anchors []pair
	if depth < mostDepth {
		anchors = m.unique(a, aEnd, b, bEnd)
	}
	if len(anchors) == 0 && aEnd-a+bEnd-b <= mostLines {
		m.compare(a, aEnd, b, bEnd)
		return
	}
	if len(anchors) == 0 && depth < mostDepth {
		anchors = m.uniqueRuns(a, aEnd, b, bEnd)
	}
	if len(anchors) == 0 {
		m.pieces(a, aEnd, b, bEnd)
		return
	}
	for _, p := range anchors {
		m.match(a, p.a, b, p.b, depth+1)
		m.pairs = append(m.pairs, p)
		a, b = p.a+1, p.b+1
	}
	m.match(a, aEnd, b, bEnd, depth+1)
}

// unique are the lines that each part has only once, as far as they are in the same order.
func (m *matcher) unique(a, aEnd, b, bEnd int) []pair {
	for i := a; i < aEnd; i++ {
		m.seen[m.a[i]] = sighting{}
	}
	for j := b; j < bEnd; j++ {
		m.seen[m.b[j]] = sighting{}
	}
	for i := a; i < aEnd; i++ {
		s := &m.seen[m.a[i]]
		s.inA, s.lastA = s.inA+1, i
	}
	for j := b; j < bEnd; j++ {
		m.seen[m.b[j]].inB++
	}
	var candidates []pair
	for j := b; j < bEnd; j++ {
		if s := m.seen[m.b[j]]; s.inA == 1 && s.inB == 1 {
			candidates = append(candidates, pair{s.lastA, j})
		}
	}
	return inOrder(candidates)
}

// uniqueRuns is unique for text in which no line is: the beginnings of runs of lines.
func (m *matcher) uniqueRuns(a, aEnd, b, bEnd int) []pair {
	const length = 12
	type run [length]int
	runs := map[run]sighting{}
	for i := a; i+length <= aEnd; i++ {
		key := run(m.a[i : i+length])
		s := runs[key]
		runs[key] = sighting{inA: s.inA + 1, lastA: i}
	}
	for j := b; j+length <= bEnd; j++ {
		key := run(m.b[j : j+length])
		if s := runs[key]; s.inA == 1 {
			s.inB++
			runs[key] = s
		}
	}
	var candidates []pair
	for j := b; j+length <= bEnd; j++ {
		if s := runs[run(m.b[j:j+length])]; s.inA == 1 && s.inB == 1 {
			candidates = append(candidates, pair{s.lastA, j})
		}
	}
	return inOrder(candidates)
}

// pieces compares text that nothing holds together piece by piece, each with the one in its place. If those have no
// line in common, whatever the two have is found: the first of one is the first of the other, and so on.
func (m *matcher) pieces(a, aEnd, b, bEnd int) {
	found, aStart, bStart := len(m.pairs), a, b
	for n := (aEnd-a+bEnd-b)/mostLines + 1; n > 0; n-- {
		i, j := a+(aEnd-a)/n, b+(bEnd-b)/n
		m.match(a, i, b, j, mostDepth)
		a, b = i, j
	}
	if len(m.pairs) == found {
		m.pairs = append(m.pairs, m.inTurn(aStart, aEnd, bStart, bEnd)...)
	}
}

// inTurn pairs the first of each line with the first, the second with the second, as far as that is in order.
func (m *matcher) inTurn(a, aEnd, b, bEnd int) []pair {
	where := map[int][]int{}
	for i := a; i < aEnd; i++ {
		where[m.a[i]] = append(where[m.a[i]], i)
	}
	var candidates []pair
	for j := b; j < bEnd; j++ {
		if left := where[m.b[j]]; len(left) > 0 {
			candidates = append(candidates, pair{left[0], j})
			where[m.b[j]] = left[1:]
		}
	}
	return inOrder(candidates)
}

// inOrder is the longest sequence of pairs, given by where they are in b, that is in order in a too.
func inOrder(pairs []pair) []pair {
	var ends []int // of the best sequence of each length, the pair it ends with
	before := make([]int, len(pairs))
	for i, p := range pairs {
		at := sort.Search(len(ends), func(k int) bool { return pairs[ends[k]].a >= p.a })
		before[i] = -1
		if at > 0 {
			before[i] = ends[at-1]
		}
		if at == len(ends) {
			ends = append(ends, i)
		} else {
			ends[at] = i
		}
	}
	sequence := make([]pair, len(ends))
	for k, i := len(ends)-1, 0; k >= 0; k-- {
		if k == len(ends)-1 {
			i = ends[k]
		}
		sequence[k] = pairs[i]
		i = before[i]
	}
	return sequence
}

// compare has go-diff find the least that must change.
func (m *matcher) compare(a, aEnd, b, bEnd int) {
	known := map[int]rune{}
	x, y := asRunes(m.a[a:aEnd], known), asRunes(m.b[b:bEnd], known)
	for _, d := range compare(x, y) {
		n := utf8.RuneCountInString(d.Text)
		switch d.Type {
		case diffmatchpatch.DiffEqual:
			for range n {
				m.pairs = append(m.pairs, pair{a, b})
				a, b = a+1, b+1
			}
		case diffmatchpatch.DiffDelete:
			a += n
		case diffmatchpatch.DiffInsert:
			b += n
		}
	}
}
