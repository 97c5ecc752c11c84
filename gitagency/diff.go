package gitagency

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/treediff"
)

// The nouns of a difference. As JSON, paths and lines that are not UTF-8 stand there a second time, in base64.
type (
	// DiffFile is how one file differs.
	DiffFile = treediff.File
	// DiffHunk is a run of lines, some of which differ.
	DiffHunk = treediff.Hunk
	// DiffLine is one line of a hunk.
	DiffLine = treediff.Line
	// DiffSpan is a part of a line.
	DiffSpan = treediff.Span
)

// Diff is how two states differ. As JSON it is the three lists.
type Diff struct {
	Added   []DiffFile
	Removed []DiffFile
	Changed []DiffFile // also those that were renamed

	LeftOut []LeftOut // what is in the sandbox and was not compared
}

// Empty reports whether there is no difference.
func (d Diff) Empty() bool { return d.tree().Empty() }

// MarshalJSON has all three lists, also those with nothing in them.
func (d Diff) MarshalJSON() ([]byte, error) { return d.tree().MarshalJSON() }

func (d Diff) tree() treediff.Diff {
	return treediff.Diff{Added: d.Added, Removed: d.Removed, Changed: d.Changed}
}

// DiffDetail is how much there is to know about a difference.
type DiffDetail int

const (
	DiffHunks  DiffDetail = iota // everything
	DiffCounts                   // which files, and how many lines
	DiffNames                    // which files
)

// What can be compared, besides any snapshot.
const (
	DiffBase        = "base"        // the commit that the sandbox started from
	DiffHead        = "head"        // the commit that HEAD of the sandbox is at
	DiffWork        = "work"        // what is in the sandbox now, as a snapshot would hold it
	DiffIntegration = "integration" // the tip of the integration branch now
)

// DiffStates are the words for them.
var DiffStates = []string{DiffBase, DiffHead, DiffWork, DiffIntegration}

// DiffLimit is how much text a difference may be. All of it is held in memory, a few times.
const DiffLimit = 256 << 20

// DiffRequest says what to compare.
type DiffRequest struct {
	Invocation string   // required: its id, or a unique prefix
	From       string   // one of DiffStates or a snapshot, of any invocation; default: DiffBase
	To         string   // the same; default: DiffWork
	Paths      []string // only these and what is below them, from the top of the sandbox; default: all

	Detail DiffDetail
	Words  bool // also which words changed inside of lines
	Binary bool // also patches of binary files

	Secrets bool // what is in the sandbox now includes untracked files that look like credentials
}

// DiffSnapshots compares two states of a sandbox: what it started from, what it has committed, what is in it now
// including what is not committed, any snapshot, and what it would be landed on. Nothing changes anywhere, and commands
// may run in the sandbox meanwhile. Of an invocation that has ended its base and its snapshots are left.
//
// What differs is what git finds. Neither the attributes in the trees nor the settings of the repository have a say in
// it, with which an agent could hide what it did, and no program runs that they name.
func (r *Repository) DiffSnapshots(ctx context.Context, req DiffRequest) (_ Diff, err error) {
	if err := req.check(DiffStates); err != nil {
		return Diff{}, err
	}
	inv, err := r.Invocation(req.Invocation)
	if err != nil {
		return Diff{}, err
	}
	c := r.comparisonOf(inv)
	defer func() { err = errors.Join(err, c.close()) }()
	if slices.ContainsFunc([]string{req.From, req.To}, livesInSandbox) {
		if c.site, err = r.visit(ctx, inv); err != nil {
			return Diff{}, err
		}
	} else if inv.BaseCommit == "" {
		return Diff{}, inv.Err()
	}
	return c.difference(ctx, req)
}

// DiffText compares two texts that are in no repository. The file has neither path nor ids.
func DiffText(before, after []byte) DiffFile { return treediff.Text(before, after) }

// check fills what is not said. words are the states that there are besides snapshots.
func (req *DiffRequest) check(words []string) error {
	if req.From == "" {
		req.From = DiffBase
	}
	if req.To == "" {
		req.To = DiffWork
	}
	for _, state := range []string{req.From, req.To} {
		if !slices.Contains(words, state) && !looksLikeSnapshot(state) {
			return &InvalidError{What: "state", Value: state, Want: strings.Join(words, ", ") + ", or a snapshot: its commit or <id>/<n>"}
		}
	}
	paths := slices.Clone(req.Paths)
	for i, p := range paths {
		clean := path.Clean(p)
		switch {
		case p == "" || path.IsAbs(p) || clean == ".." || strings.HasPrefix(clean, "../") || strings.Contains(p, "\x00"):
			return &InvalidError{What: "path", Value: p, Want: "one from the top of the sandbox, such as src/main.go"}
		case clean == ".":
			paths = nil
		default:
			paths[i] = clean
		}
		if paths == nil {
			break
		}
	}
	req.Paths = paths
	return nil
}

// looksLikeSnapshot tells what may be the name of one from what is a mistake.
func looksLikeSnapshot(name string) bool {
	_, _, numbered := strings.Cut(name, "/")
	return numbered || len(name) >= 4 && strings.Trim(strings.ToLower(name), "0123456789abcdef") == ""
}
