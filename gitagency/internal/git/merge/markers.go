package merge

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// MarkerLines returns the lines of a file that look like conflict markers of git of some kinds, each of which is the
// character that the marker repeats: "<" begins a conflict, "|" its base, "=" its second side, and ">" ends it.
func MarkerLines(file io.Reader, kinds string) (lines []string, err error) {
	const size = 7 // of a marker; an attribute can make it longer
	r := bufio.NewReader(file)
	for begins := true; ; {
		line, part, err := r.ReadLine() // part of a line longer than the buffer
		if err == io.EOF {
			return lines, nil
		}
		if err != nil {
			return nil, err
		}
		if begins && len(line) >= size && strings.IndexByte(kinds, line[0]) >= 0 {
			rest := strings.TrimLeft(string(line), string(line[0]))
			if length := len(line) - len(rest); length >= size && (rest == "" || rest[0] == ' ') {
				lines = append(lines, string(line))
			}
		}
		begins = !part
	}
}

// Bounds of the files in which FilesWithNewMarkers looks for markers.
const (
	maxMarkedFiles = 1000
	maxMarkedSize  = 1 << 20
)

// FilesWithNewMarkers lists files that have more conflict markers in a commit than in another one, of each of the three
// kinds that every conflict has. It reads at most the first 1,000 files that differ, and of these those of at most 1 MiB.
func (m *Merger) FilesWithNewMarkers(ctx context.Context, from, to string) (marked []string, err error) {
	changes, _, err := m.DiffTrees(ctx, from, to) // those of trees in another form are left out
	if err != nil {
		return nil, err
	}
	changes = slices.DeleteFunc(changes, func(c git.TreeChange) bool { return !isFile(c.NewMode) })
	changes = changes[:min(len(changes), maxMarkedFiles)]
	for _, c := range changes {
		now, err := m.countMarkers(ctx, c.NewOID)
		if err != nil {
			return nil, err
		}
		var before markerCounts
		if isFile(c.OldMode) && now.complete(before) {
			if before, err = m.countMarkers(ctx, c.OldOID); err != nil {
				return nil, err
			}
		}
		if now.complete(before) {
			marked = append(marked, c.Path)
		}
	}
	return marked, nil
}

// isFile reports whether a mode is that of a regular file.
func isFile(mode string) bool { return strings.HasPrefix(mode, "100") }

// conflictKinds are the markers that every conflict has.
const conflictKinds = "<=>"

// markerCounts has the number of markers of each of conflictKinds.
type markerCounts [len(conflictKinds)]int

// complete reports whether there is more of each kind than before.
func (c markerCounts) complete(before markerCounts) bool {
	for i := range c {
		if c[i] <= before[i] {
			return false
		}
	}
	return true
}

// countMarkers counts the markers of a file. A file of more than maxMarkedSize is not read.
func (m *Merger) countMarkers(ctx context.Context, oid string) (counts markerCounts, err error) {
	var size int64 // zero for an object that is only in memory
	if err := m.WithCatFile(ctx, func(t *git.CatFile) error {
		_, sizes, err := t.LookupSizes(oid)
		if err == nil {
			size = sizes[0]
		}
		return err
	}); err != nil || size > maxMarkedSize {
		return counts, err
	}
	content, err := m.ReadContents(ctx, oid, "blob")
	if err != nil {
		return counts, err
	}
	lines, err := MarkerLines(bytes.NewReader(content), conflictKinds)
	for _, line := range lines {
		counts[strings.IndexByte(conflictKinds, line[0])]++
	}
	return counts, err
}
