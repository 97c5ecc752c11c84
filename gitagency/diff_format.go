package gitagency

import (
	"io"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/treediff"
)

// DiffForm is a way to show a difference.
type DiffForm int

const (
	DiffPatch      DiffForm = iota // unified, as git diff prints it and git apply reads it
	DiffStat                       // a table of files with the number of lines
	DiffNameStatus                 // a line for each file
)

// DiffFormat says how to show a difference. The zero value is what git apply reads.
type DiffFormat struct {
	Form    DiffForm
	Summary bool       // begin a patch with how much differs; git apply skips that
	Colors  DiffColors // none by default
	Visible bool       // show what would steer a terminal instead of sending it there
	Width   int        // of the terminal; 0 means 80
}

// DiffColors are the sequences that a terminal takes for colours.
type DiffColors = treediff.Colors

// FormatDiff shows a difference. With nothing to show it is empty.
func FormatDiff(d Diff, format DiffFormat) string {
	var b strings.Builder
	_ = WriteDiff(&b, d, format) // a builder takes everything
	return b.String()
}

// WriteDiff is FormatDiff for one that is long.
func WriteDiff(w io.Writer, difference Diff, format DiffFormat) error {
	d := difference.tree()
	if d.Empty() {
		return nil
	}
	style := treediff.Style{Colors: format.Colors, Visible: format.Visible, Width: format.Width}
	switch format.Form {
	case DiffStat:
		return d.Stat(w, style)
	case DiffNameStatus:
		return d.NameStatus(w)
	}
	if format.Summary {
		if _, err := io.WriteString(w, d.Summary()+"\n"); err != nil {
			return err
		}
	}
	return d.Patch(w, style)
}

// QuotedPath is a path as git writes it where each has a line: in quotes when something in it could be taken for
// something else, or would steer a terminal.
func QuotedPath(path string) string { return treediff.Quote(path) }
