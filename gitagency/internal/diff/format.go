package diff

import (
	"io"

	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/treediff"
)

// Form is an output format of a diff.
type Form int

const (
	Patch      Form = iota // unified diff, as git diff prints it and git apply reads it
	Stat                   // table of files with their line counts
	NameStatus             // one line for each file
)

// detail returns the parts of a diff that the form prints.
func (f Form) detail() merge.Detail {
	switch f {
	case Stat:
		return merge.Counts
	case NameStatus:
		return merge.Names
	}
	return merge.Patches
}

// Format selects how a diff is printed. The zero value is a patch that git apply reads.
type Format struct {
	Form           Form
	Summary        bool            // start a patch with a summary of the totals; git apply skips it
	Colors         treediff.Colors // default: none
	EscapeControls bool            // print control characters in visible form instead of sending them to the terminal
	Width          int             // width of the terminal; 0 means 80
}

// Write writes a diff to w as text. It writes nothing when nothing differs.
func Write(w io.Writer, difference Diff, format Format) error {
	d := difference.toTreeDiff()
	if d.IsEmpty() {
		return nil
	}
	style := treediff.Style{Colors: format.Colors, EscapeControls: format.EscapeControls, Width: format.Width}
	switch format.Form {
	case Stat:
		return d.WriteStat(w, style)
	case NameStatus:
		return d.WriteNameStatus(w)
	}
	if format.Summary {
		if _, err := io.WriteString(w, d.Summary()+"\n"); err != nil {
			return err
		}
	}
	return d.WritePatch(w, style)
}
