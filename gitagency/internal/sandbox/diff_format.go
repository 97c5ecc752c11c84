package sandbox

import (
	"io"

	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/treediff"
)

// DiffForm is an output format of a diff.
type DiffForm int

const (
	DiffPatch      DiffForm = iota // unified diff, as git diff prints it and git apply reads it
	DiffStat                       // table of files with their line counts
	DiffNameStatus                 // one line for each file
)

// detail returns the parts of a diff that the form prints.
func (f DiffForm) detail() merge.Detail {
	switch f {
	case DiffStat:
		return merge.Counts
	case DiffNameStatus:
		return merge.Names
	}
	return merge.Patches
}

// DiffFormat selects how a diff is printed. The zero value is a patch that git apply reads.
type DiffFormat struct {
	Form           DiffForm
	Summary        bool            // start a patch with a summary of the totals; git apply skips it
	Colors         treediff.Colors // default: none
	EscapeControls bool            // print control characters in visible form instead of sending them to the terminal
	Width          int             // width of the terminal; 0 means 80
}

// WriteDiff writes a diff to w as text. It writes nothing when nothing differs.
func WriteDiff(w io.Writer, difference Diff, format DiffFormat) error {
	d := difference.toTreeDiff()
	if d.IsEmpty() {
		return nil
	}
	style := treediff.Style{Colors: format.Colors, EscapeControls: format.EscapeControls, Width: format.Width}
	switch format.Form {
	case DiffStat:
		return d.WriteStat(w, style)
	case DiffNameStatus:
		return d.WriteNameStatus(w)
	}
	if format.Summary {
		if _, err := io.WriteString(w, d.Summary()+"\n"); err != nil {
			return err
		}
	}
	return d.WritePatch(w, style)
}
