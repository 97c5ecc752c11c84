package treediff

import (
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/sergi/go-diff/diffmatchpatch"
)

const (
	maxDiffLines = 2000 // lines, of both sides together, passed to go-diff, whose cost grows with the square
	maxDepth     = 64   // recursion depth between matching lines
)

// CompareLines compares two texts line by line without git. Lines that occur once on both sides, and in the same
// order, are anchors (as in patience diff); go-diff compares the lines between anchors if they are few. So the cost
// for long texts grows slowly, and two texts that share a line are never reported as entirely different.
func CompareLines(before, after []byte) []Hunk {
	a, b := slices.Collect(strings.Lines(string(before))), slices.Collect(strings.Lines(string(after)))
	known := map[string]int{}
	m := matcher{a: numberLines(a, known), b: numberLines(b, known)}
	m.occurrences = make([]occurrence, len(known))
	m.matchRange(0, len(a), 0, len(b), 0)
	return buildHunks(a, b, m.pairs)
}

// numberLines maps each distinct line to a number.
func numberLines(lines []string, known map[string]int) []int {
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

// matcher finds the unchanged lines.
type matcher struct {
	a, b        []int
	pairs       []pair // ascending on both sides
	occurrences []occurrence
}

// pair is an unchanged line: its index on each side.
type pair struct{ a, b int }

// occurrence counts how often a line occurs on each side, and where it was last on the old side.
type occurrence struct{ countA, countB, lastA int }

// matchRange compares a range of each side.
func (m *matcher) matchRange(a, aEnd, b, bEnd, depth int) {
	for a < aEnd && b < bEnd && m.a[a] == m.b[b] {
		m.pairs = append(m.pairs, pair{a, b})
		a, b = a+1, b+1
	}
	tail := 0
	for a < aEnd && b < bEnd && m.a[aEnd-1] == m.b[bEnd-1] {
		aEnd, bEnd, tail = aEnd-1, bEnd-1, tail+1
	}
	if a < aEnd && b < bEnd {
		m.matchMiddle(a, aEnd, b, bEnd, depth)
	}
	for i := range tail {
		m.pairs = append(m.pairs, pair{aEnd + i, bEnd + i})
	}
}

// matchMiddle is matchRange for ranges without a common prefix or suffix.
func (m *matcher) matchMiddle(a, aEnd, b, bEnd, depth int) {
	var anchors []pair
	if depth < maxDepth {
		anchors = m.uniqueLines(a, aEnd, b, bEnd)
	}
	if len(anchors) == 0 && aEnd-a+bEnd-b <= maxDiffLines {
		m.diffRange(a, aEnd, b, bEnd)
		return
	}
	if len(anchors) == 0 && depth < maxDepth {
		anchors = m.uniqueRuns(a, aEnd, b, bEnd)
	}
	if len(anchors) == 0 {
		m.matchChunks(a, aEnd, b, bEnd)
		return
	}
	for _, p := range anchors {
		m.matchRange(a, p.a, b, p.b, depth+1)
		m.pairs = append(m.pairs, p)
		a, b = p.a+1, p.b+1
	}
	m.matchRange(a, aEnd, b, bEnd, depth+1)
}

// uniqueLines returns the lines that occur once in each range, reduced to those in the same order.
func (m *matcher) uniqueLines(a, aEnd, b, bEnd int) []pair {
	for i := a; i < aEnd; i++ {
		m.occurrences[m.a[i]] = occurrence{}
	}
	for j := b; j < bEnd; j++ {
		m.occurrences[m.b[j]] = occurrence{}
	}
	for i := a; i < aEnd; i++ {
		s := &m.occurrences[m.a[i]]
		s.countA, s.lastA = s.countA+1, i
	}
	for j := b; j < bEnd; j++ {
		m.occurrences[m.b[j]].countB++
	}
	var candidates []pair
	for j := b; j < bEnd; j++ {
		if s := m.occurrences[m.b[j]]; s.countA == 1 && s.countB == 1 {
			candidates = append(candidates, pair{s.lastA, j})
		}
	}
	return longestIncreasing(candidates)
}

// uniqueRuns is uniqueLines for text without unique lines: it returns the starts of unique runs of lines.
func (m *matcher) uniqueRuns(a, aEnd, b, bEnd int) []pair {
	const length = 12
	type run [length]int
	runs := map[run]occurrence{}
	for i := a; i+length <= aEnd; i++ {
		key := run(m.a[i : i+length])
		s := runs[key]
		runs[key] = occurrence{countA: s.countA + 1, lastA: i}
	}
	for j := b; j+length <= bEnd; j++ {
		key := run(m.b[j : j+length])
		if s := runs[key]; s.countA == 1 {
			s.countB++
			runs[key] = s
		}
	}
	var candidates []pair
	for j := b; j+length <= bEnd; j++ {
		if s := runs[run(m.b[j:j+length])]; s.countA == 1 && s.countB == 1 {
			candidates = append(candidates, pair{s.lastA, j})
		}
	}
	return longestIncreasing(candidates)
}

// matchChunks compares text without anchors chunk by chunk, each with the chunk at the same position. If those share
// no line, it pairs equal lines by order of occurrence, so that a shared line is still found.
func (m *matcher) matchChunks(a, aEnd, b, bEnd int) {
	found, aStart, bStart := len(m.pairs), a, b
	for n := (aEnd-a+bEnd-b)/maxDiffLines + 1; n > 0; n-- {
		i, j := a+(aEnd-a)/n, b+(bEnd-b)/n
		m.matchRange(a, i, b, j, maxDepth)
		a, b = i, j
	}
	if len(m.pairs) == found {
		m.pairs = append(m.pairs, m.pairByOccurrence(aStart, aEnd, bStart, bEnd)...)
	}
}

// pairByOccurrence pairs the first occurrence of each line with the first on the other side, the second with the
// second, and so on, reduced to pairs in the same order.
func (m *matcher) pairByOccurrence(a, aEnd, b, bEnd int) []pair {
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
	return longestIncreasing(candidates)
}

// longestIncreasing returns the longest subsequence of pairs, sorted by b, that is ascending in a too.
func longestIncreasing(pairs []pair) []pair {
	var ends []int // for each length, the last pair of the best sequence
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

// diffRange adds the unchanged lines of a minimal diff by go-diff.
func (m *matcher) diffRange(a, aEnd, b, bEnd int) {
	known := map[int]rune{}
	x, y := toRunes(m.a[a:aEnd], known), toRunes(m.b[b:bEnd], known)
	for _, d := range diffRunes(x, y) {
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
