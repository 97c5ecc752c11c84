package sandbox

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/treediff"
)

// Diff is the difference between two states. In JSON it consists of the three lists of files; paths and
// lines that are not valid UTF-8 have an additional base64 form.
type Diff struct {
	Added   []treediff.File
	Removed []treediff.File
	Changed []treediff.File // includes renamed files

	LeftOut []LeftOut // paths in the sandbox that were not compared
}

// Empty reports whether there is no difference.
func (d Diff) Empty() bool { return d.toTreeDiff().IsEmpty() }

// MarshalJSON encodes all three lists, including empty ones.
func (d Diff) MarshalJSON() ([]byte, error) { return d.toTreeDiff().MarshalJSON() }

func (d Diff) toTreeDiff() treediff.Diff {
	return treediff.Diff{Added: d.Added, Removed: d.Removed, Changed: d.Changed}
}

// States that can be compared, besides snapshots.
const (
	DiffBase        = "base"        // commit that the sandbox started from
	DiffHead        = "head"        // commit that HEAD of the sandbox is at
	DiffWork        = "work"        // current content of the sandbox, as a snapshot would hold it
	DiffIntegration = "integration" // current tip of the integration branch
)

// DiffStates lists the named states.
var DiffStates = []string{DiffBase, DiffHead, DiffWork, DiffIntegration}

// DiffLimit bounds the size of a diff in bytes, because the whole text is held in memory, several times.
const DiffLimit = 256 << 20

// DiffRequest selects what to compare.
type DiffRequest struct {
	Invocation string   // required: id or unique id prefix
	From       string   // one of DiffStates, or a snapshot of any invocation; default: DiffBase
	To         string   // same as From; default: DiffWork
	Paths      []string // files and directories to compare, relative to the top of the sandbox; default: all

	Form   DiffForm // form in which the diff will be printed; a diff for DiffStat has no hunks, one for DiffNameStatus no line counts either
	Words  bool     // mark the changed words inside lines
	Binary bool     // include patches of binary files

	IncludeSecrets bool // let DiffWork include untracked files that look like credentials
}

// DiffSnapshots compares two states of a sandbox: its base commit, its HEAD, its current content including uncommitted
// changes, any snapshot, or the tip of the integration branch. It changes nothing, and commands may run in the
// sandbox meanwhile. For an invocation that has ended, DiffHead and DiffWork cannot be compared.
//
// The diff is computed by git. Attributes in the trees and the configuration of the repository are ignored, because
// an agent could use them to hide changes, and no program that they name is run.
func DiffSnapshots(ctx context.Context, r *core.Repository, req DiffRequest) (_ Diff, err error) {
	if err := req.Check(DiffStates); err != nil {
		return Diff{}, err
	}
	inv, err := r.Invocation(req.Invocation)
	if err != nil {
		return Diff{}, err
	}
	c := newComparison(r, inv)
	defer func() { err = errors.Join(err, c.Close()) }()
	if slices.ContainsFunc([]string{req.From, req.To}, needsSandbox) {
		if c.handle, err = ImportAndOpen(ctx, r, inv); err != nil {
			return Diff{}, err
		}
	} else if inv.BaseCommit == "" {
		return Diff{}, inv.Err()
	}
	d, err := c.Diff(ctx, req)
	if err != nil {
		return d, &fault.InvocationError{ID: inv.ID, Err: err}
	}
	return d, nil
}

// Check validates the request and fills in defaults. words lists the named states that are allowed besides snapshots.
func (req *DiffRequest) Check(words []string) error {
	if req.From == "" {
		req.From = DiffBase
	}
	if req.To == "" {
		req.To = DiffWork
	}
	for _, state := range []string{req.From, req.To} {
		if !slices.Contains(words, state) && !looksLikeSnapshot(state) {
			return &fault.InvalidError{What: "state", Value: state, Want: strings.Join(words, ", ") + ", or a snapshot: its commit or <id>/<n>"}
		}
	}
	paths := slices.Clone(req.Paths)
	for i, p := range paths {
		clean := path.Clean(p)
		switch {
		case p == "" || path.IsAbs(p) || clean == ".." || strings.HasPrefix(clean, "../") || strings.Contains(p, "\x00"):
			return &fault.InvalidError{What: "path", Value: p, Want: "a path relative to the top of the sandbox, such as src/main.go"}
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

// looksLikeSnapshot reports whether name has the form of a snapshot name: <id>/<n>, or at least four hex digits.
func looksLikeSnapshot(name string) bool {
	_, _, numbered := strings.Cut(name, "/")
	return numbered || len(name) >= 4 && strings.Trim(strings.ToLower(name), "0123456789abcdef") == ""
}
