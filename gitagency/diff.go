package gitagency

import (
	"context"
	"io"

	"github.com/git-agency/git-agency/gitagency/internal/sandbox"
	"github.com/git-agency/git-agency/gitagency/internal/settings"
)

// DiffFile is the difference of one file.
type DiffFile = sandbox.DiffFile

// DiffHunk is a run of lines, some of which differ.
type DiffHunk = sandbox.DiffHunk

// DiffLine is one line of a hunk.
type DiffLine = sandbox.DiffLine

// DiffSpan is a part of a line.
type DiffSpan = sandbox.DiffSpan

// Diff is the difference between two states. In JSON it consists of the three lists of files.
type Diff = sandbox.Diff

// DiffDetail is the level of detail of a diff.
type DiffDetail = sandbox.DiffDetail

const (
	DiffHunks  = sandbox.DiffHunks  // files, line counts and hunks
	DiffCounts = sandbox.DiffCounts // files and line counts
	DiffNames  = sandbox.DiffNames  // files
)

// States that can be compared, besides snapshots.
const (
	DiffBase        = sandbox.DiffBase        // commit that the sandbox started from
	DiffHead        = sandbox.DiffHead        // commit that HEAD of the sandbox is at
	DiffWork        = sandbox.DiffWork        // current content of the sandbox, as a snapshot would hold it
	DiffIntegration = sandbox.DiffIntegration // current tip of the integration branch
)

// DiffStates lists the named states.
var DiffStates = sandbox.DiffStates

// DiffLimit bounds the size of a diff in bytes, because the whole text is held in memory, several times.
const DiffLimit = sandbox.DiffLimit

// DiffRequest selects what to compare.
type DiffRequest = sandbox.DiffRequest

// DiffSnapshots compares two states of a sandbox: its base commit, its HEAD, its current content including uncommitted
// changes, any snapshot, or the tip of the integration branch. It changes nothing, and commands may run in the
// sandbox meanwhile. For an invocation that has ended, DiffHead and DiffWork cannot be compared.
//
// The diff is computed by git. Attributes in the trees and the configuration of the repository are ignored, because
// an agent could use them to hide changes, and no program that they name is run.
func (r *Repository) DiffSnapshots(ctx context.Context, req DiffRequest) (_ Diff, err error) {
	return sandbox.DiffSnapshots(ctx, r.core, req)
}

// DiffText compares two texts that are in no repository. The result has neither path nor object ids.
func DiffText(before, after []byte) DiffFile {
	return sandbox.DiffText(before, after)
}

// DiffForm is an output format of a diff.
type DiffForm = sandbox.DiffForm

const (
	DiffPatch      = sandbox.DiffPatch      // unified diff, as git diff prints it and git apply reads it
	DiffStat       = sandbox.DiffStat       // table of files with their line counts
	DiffNameStatus = sandbox.DiffNameStatus // one line for each file
)

// DiffFormat selects how a diff is printed. The zero value is a patch that git apply reads.
type DiffFormat = sandbox.DiffFormat

// DiffColors holds terminal escape sequences for the parts of a diff.
type DiffColors = settings.DiffColors

// FormatDiff returns a diff as text; it is empty when nothing differs.
func FormatDiff(d Diff, format DiffFormat) string {
	return sandbox.FormatDiff(d, format)
}

// WriteDiff writes a diff to w, as FormatDiff formats it.
func WriteDiff(w io.Writer, difference Diff, format DiffFormat) error {
	return sandbox.WriteDiff(w, difference, format)
}
