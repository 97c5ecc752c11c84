package treediff

import "strings"

// contextLines is the number of unchanged lines around a change.
const contextLines = 3

// buildHunks builds hunks from the pairs of unchanged lines. In each run of changes the removed lines come first.
func buildHunks(a, b []string, stayed []pair) []Hunk {
	var all []Hunk
	var h *hunkBuilder
	i, j := 0, 0
	for _, p := range append(stayed, pair{len(a), len(b)}) {
		if i < p.a || j < p.b {
			if h != nil && i-h.aEnd > 2*contextLines {
				all = append(all, h.finish(a))
				h = nil
			}
			if h == nil {
				h = newHunkBuilder(i, j)
			}
			h.addContext(a, i)
			for ; i < p.a; i++ {
				h.addLine(Removed, a[i])
			}
			for ; j < p.b; j++ {
				h.addLine(Added, b[j])
			}
			h.aEnd = i
		}
		i, j = p.a+1, p.b+1
	}
	if h != nil {
		all = append(all, h.finish(a))
	}
	return all
}

// hunkBuilder is a hunk under construction.
type hunkBuilder struct {
	Hunk
	aStart, bStart int
	aEnd           int // end of the old lines written so far (exclusive)
}

func newHunkBuilder(a, b int) *hunkBuilder {
	lead := min(contextLines, a, b)
	return &hunkBuilder{aStart: a - lead, bStart: b - lead, aEnd: a - lead}
}

// addContext adds unchanged lines up to end.
func (h *hunkBuilder) addContext(a []string, end int) {
	for ; h.aEnd < end; h.aEnd++ {
		h.addLine(Same, a[h.aEnd])
	}
}

func (h *hunkBuilder) addLine(op Op, text string) {
	whole, ended := strings.CutSuffix(text, "\n")
	h.Lines = append(h.Lines, Line{Op: op, Text: whole, NoNewline: !ended})
	if op != Added {
		h.OldLines++
	}
	if op != Removed {
		h.NewLines++
	}
}

func (h *hunkBuilder) finish(a []string) Hunk {
	h.addContext(a, min(h.aEnd+contextLines, len(a)))
	h.OldStart, h.NewStart = h.aStart, h.bStart
	if h.OldLines > 0 {
		h.OldStart++
	}
	if h.NewLines > 0 {
		h.NewStart++
	}
	return h.Hunk
}
