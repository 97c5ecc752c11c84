package treediff

import "strings"

// contextLines is the number of unchanged lines around a change.
const context = 3

// buildHunks builds hunks from the pairs of unchanged lines. In each run of changes the removed lines come first.
func hunks(a, b []string, stayed []pair) []Hunk {
	var all []Hunk
	var h *hunkWriter
	i, j := 0, 0
	for _, p := range append(stayed, pair{len(a), len(b)}) {
		if i < p.a || j < p.b {
			if h != nil && i-h.aEnd > 2*context {
				all = append(all, h.end(a))
				h = nil
			}
			if h == nil {
				h = beginHunk(i, j)
			}
			h.keep(a, i)
			for ; i < p.a; i++ {
				h.write(Removed, a[i])
			}
			for ; j < p.b; j++ {
				h.write(Added, b[j])
			}
			h.aEnd = i
		}
		i, j = p.a+1, p.b+1
	}
	if h != nil {
		all = append(all, h.end(a))
	}
	return all
}

// hunkBuilder is a hunk under construction.
type hunkWriter struct {
	Hunk
	aStart, bStart int
	aEnd           int // end of the old lines written so far (exclusive)
}

func beginHunk(a, b int) *hunkWriter {
	lead := min(context, a, b)
	return &hunkWriter{aStart: a - lead, bStart: b - lead, aEnd: a - lead}
}

// addContext adds unchanged lines up to end.
func (h *hunkWriter) keep(a []string, end int) {
	for ; h.aEnd < end; h.aEnd++ {
		h.write(Same, a[h.aEnd])
	}
}

func (h *hunkWriter) write(op Op, text string) {
	whole, ended := strings.CutSuffix(text, "\n")
	h.Lines = append(h.Lines, Line{Op: op, Text: whole, NoNewline: !ended})
	if op != Added {
		h.OldLines++
	}
	if op != Removed {
		h.NewLines++
	}
}

func (h *hunkWriter) end(a []string) Hunk {
	h.keep(a, min(h.aEnd+context, len(a)))
	h.OldStart, h.NewStart = h.aStart, h.bStart
	if h.OldLines > 0 {
		h.OldStart++
	}
	if h.NewLines > 0 {
		h.NewStart++
	}
	return h.Hunk
}
