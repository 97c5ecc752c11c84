package merge

import (
	"context"
	"errors"
	"os"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// CompareRequest is a request to compare two trees.
type CompareRequest struct {
	From, To string   // required: full ids of commits or trees
	Paths    []string // literal paths of files and directories to compare; none means all
	Detail   Detail
	Binary   bool // patches of binary files are complete (--binary)
	Limit    int  // maximal bytes of the output; 0 means no limit
}

// Detail is the output format of a comparison.
type Detail int

const (
	Patches Detail = iota // for treediff.ParsePatch
	Counts                // for treediff.ParseCounts
	Names                 // for treediff.ParseCounts
)

// ErrTooLong is the output of a comparison that exceeds its limit.
var ErrTooLong = errors.New("the output of git diff-tree is too long")

// Compare compares two trees and returns the output of git diff-tree. No setting changes its format, and no other program
// runs: neither a textconv filter nor an external diff. The user's attributes decide which files are text; attributes in
// the trees are ignored, because an agent could hide its changes with them.
func Compare(ctx context.Context, m *git.Mirror, c CompareRequest) (string, error) {
	out := proc.LimitedBuffer{Limit: c.Limit}
	args := []string{
		"diff-tree", "-r", "--raw", "--full-index", "--no-abbrev", "--find-renames", renameLimitOption,
		"--no-ext-diff", "--no-textconv", "--no-color", "--no-color-moved", "--ws-error-highlight=none",
		"--src-prefix=a/", "--dst-prefix=b/", "--no-relative", "-O" + os.DevNull,
		"--diff-algorithm=default", "--indent-heuristic",
		"--submodule=short", "--ignore-submodules=none",
	}
	switch c.Detail {
	case Patches:
		args = append(args, "--unified=3", "--inter-hunk-context=0") // and so patches
	case Counts:
		args = append(args, "-z", "--numstat")
	case Names:
		args = append(args, "-z")
	}
	if c.Binary && c.Detail == Patches {
		args = append(args, "--binary")
	}
	args = append(args, c.From, c.To, "--")
	p := m.GitOptions()
	p.Config = []string{"--literal-pathspecs", "-c", "core.quotePath=true", "-c", "diff.suppressBlankEmpty=false"}
	p.Stdout, p.Reading = &out, m.Repo.ReadingOf("the difference")
	_, err := m.Repo.RunRead(ctx, p, append(args, c.Paths...)...)
	if out.Exceeded {
		return "", ErrTooLong
	}
	return out.String(), err
}

// renameLimitOption limits rename detection to so many deleted and so many added files.
const renameLimitOption = "-l1000"

// Sizes returns the sizes of blobs in bytes. Missing ones, such as the commits of submodules, are left out.
func Sizes(ctx context.Context, m *git.Mirror, oids ...string) (map[string]int64, error) {
	sizes := map[string]int64{}
	if len(oids) == 0 {
		return sizes, nil
	}
	t, err := m.Repo.OpenCatFileAt(ctx, m.GitOptions())
	if err != nil {
		return nil, err
	}
	defer t.Close()
	objects, found, err := t.LookupSizes(oids...)
	if err != nil {
		return nil, err
	}
	for i, o := range objects {
		if !o.Missing() {
			sizes[o.OID] = found[i]
		}
	}
	return sizes, nil
}
