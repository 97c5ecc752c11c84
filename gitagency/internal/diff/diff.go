// Package diff compares two states of a sandbox or a directory: commits, snapshots, the current content. It changes
// nothing that git or a person sees.
package diff

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/snapshots"
	"github.com/git-agency/git-agency/gitagency/internal/treediff"
)

// Diff is the difference between two states. In JSON it consists of the three lists of files; paths and
// lines that are not valid UTF-8 have an additional base64 form.
type Diff struct {
	Added   []treediff.File
	Removed []treediff.File
	Changed []treediff.File // includes renamed files

	LeftOut []snapshots.LeftOut // paths in the sandbox that were not compared
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
	Base        = "base"        // commit that the sandbox started from
	Head        = "head"        // commit that HEAD of the sandbox is at
	Work        = "work"        // current content of the sandbox, as a snapshot would hold it
	Integration = "integration" // current tip of the integration branch
)

// States lists the named states.
var States = []string{Base, Head, Work, Integration}

// otherStates are the states that another invocation can be compared with: "<id>/work" and so on.
var otherStates = []string{Base, Head, Work}

// Limit bounds the size of a diff in bytes, because the whole text is held in memory, several times.
const Limit = 256 << 20

// Request selects what to compare.
type Request struct {
	Invocation string   // required: id or unique id prefix
	From       string   // one of States, a snapshot of any invocation, or "<id>/" and Base, Head or Work of another; default: Base
	To         string   // same as From; default: Work
	Paths      []string // files and directories to compare, relative to the top of the sandbox; default: all

	Form   Form // form in which the diff will be printed; a diff for Stat has no hunks, one for NameStatus no line counts either
	Words  bool // mark the changed words inside lines
	Binary bool // include patches of binary files

	IncludeSecrets bool // let Work include untracked files that look like credentials
}

// OfSandbox compares two states of a sandbox: its base commit, its HEAD, its current content including uncommitted
// changes, any snapshot, the tip of the integration branch, or a state of another sandbox. It changes nothing, and commands may run in the
// sandbox meanwhile. For an invocation that has ended, Head and Work cannot be compared.
//
// The diff is computed by git. Attributes in the trees and the configuration of the repository are ignored, because
// an agent could use them to hide changes, and no program that they name is run.
func OfSandbox(ctx context.Context, r *core.Repository, req Request) (_ Diff, err error) {
	if err := req.Check(States); err != nil {
		return Diff{}, err
	}
	inv, err := r.Invocation(req.Invocation)
	if err != nil {
		return Diff{}, err
	}
	c := newComparison(r, inv)
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.open(ctx, inv, req.From, req.To); err != nil {
		return Diff{}, err
	}
	for _, state := range []string{req.From, req.To} {
		if err := c.addOther(ctx, state); err != nil {
			return Diff{}, err
		}
	}
	d, err := c.Diff(ctx, req)
	if err != nil {
		return d, &fault.InvocationError{ID: inv.ID, Err: err}
	}
	return d, nil
}

// Check validates the request and fills in defaults. words lists the named states that are allowed besides snapshots.
func (req *Request) Check(words []string) error {
	if req.From == "" {
		req.From = Base
	}
	if req.To == "" {
		req.To = Work
	}
	for _, state := range []string{req.From, req.To} {
		if !slices.Contains(words, state) && !looksLikeSnapshot(state) {
			return &fault.InvalidError{What: "state", Value: state, Want: strings.Join(words, ", ") + ", a snapshot (its commit or <id>/<n>), or <id>/work, <id>/head or <id>/base of another invocation"}
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
