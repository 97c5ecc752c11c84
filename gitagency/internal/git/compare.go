package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Comparison says what to compare, and how much to find out.
type Comparison struct {
	From, To string   // required: full ids of commits or trees
	Paths    []string // only these and what is below them, to the letter; none means all
	Detail   Detail
	Binary   bool // patches of binary files, from which their content can be made
	Limit    int  // bytes of the answer; 0 means as many as there are
}

// Detail is how much to find out.
type Detail int

const (
	Patches Detail = iota // for treediff.ParsePatch
	Counts                // for treediff.ParseCounts
	Names                 // for treediff.ParseCounts
)

// ErrTooLong is an answer longer than its limit.
var ErrTooLong = errors.New("the answer is too long")

// Compare compares two trees and returns git's own words. Nothing that is set anywhere makes them other words, and
// nothing but git itself runs: no program that makes text of files, or compares them in its own way. Attributes of the
// user count where they say which files are text; those in the trees do not, by which an agent could hide what it did.
func (m *Mirror) Compare(ctx context.Context, c Comparison) (string, error) {
	var out bounded
	out.most = c.Limit
	args := []string{
		"diff-tree", "-r", "--raw", "--full-index", "--no-abbrev", "--find-renames", renameLimit,
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
	p := m.place()
	p.config = []string{"--literal-pathspecs", "-c", "core.quotePath=true", "-c", "diff.suppressBlankEmpty=false"}
	p.stdout = &out
	_, err := m.repo.read(ctx, p, append(args, c.Paths...)...)
	if out.over {
		return "", ErrTooLong
	}
	return out.text.String(), err
}

// renameLimit is how many files are held against as many others to find out which were renamed.
const renameLimit = "-l1000"

func (m *Mirror) place() place { return place{gitDir: m.dir} }

// Sizes says how many bytes blobs have.
func (m *Mirror) Sizes(ctx context.Context, oids ...string) (map[string]int64, error) {
	sizes := map[string]int64{}
	if len(oids) == 0 {
		return sizes, nil
	}
	p := m.place()
	p.stdin = strings.Join(oids, "\n") + "\n"
	out, err := m.repo.read(ctx, p, "cat-file", "--batch-check=%(objectname) %(objectsize)")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(out)) {
		oid, size, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if size == "missing" {
			continue // a submodule's
		}
		if sizes[oid], err = strconv.ParseInt(size, 10, 64); err != nil {
			return nil, fmt.Errorf("git cat-file answered %q", line)
		}
	}
	return sizes, nil
}

// bounded keeps what is written to it, up to a limit.
type bounded struct {
	text strings.Builder
	most int
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.most > 0 && b.text.Len()+len(p) > b.most {
		b.over = true
		return 0, ErrTooLong
	}
	return b.text.Write(p)
}
