package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// View is the repository as seen by somebody who only compares: a git directory of our own, somewhere else, that has
// nothing but its objects. Neither the settings of the repository nor its attributes, replacements and refs are there,
// all of which somebody in a sandbox without walls could have written; those of the user are. What is written goes into
// the directory and away with it.
type View struct {
	repo *Repo
	dir  string
}

// View opens one. like is the id of any object, which says how ids are made.
func (r *Repo) View(like string) (_ *View, err error) {
	temp, err := filepath.Abs(os.TempDir()) // git runs elsewhere
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(temp, "git-agency-")
	if err != nil {
		return nil, err
	}
	v := &View{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, v.Close())
		}
	}()
	config := "[core]\n\tbare = true\n\trepositoryformatversion = 1\n"
	if len(like) == sha256Length {
		config += "[extensions]\n\tobjectFormat = sha256\n"
	}
	for _, name := range []string{"objects", "refs"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			return nil, err
		}
	}
	for name, content := range map[string]string{"HEAD": "ref: refs/heads/none\n", "config": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	v.repo = r.rehearsedIn(dir)
	return v, nil
}

const sha256Length = 64

// rehearsedIn is the repository for somebody who may write nothing to it: everything goes into a directory.
func (r *Repo) rehearsedIn(dir string) *Repo {
	rehearsed := *r
	rehearsed.rehearsal = dir
	rehearsed.env = append(slices.Clone(r.env),
		"GIT_OBJECT_DIRECTORY="+filepath.Join(dir, "objects"),
		"GIT_ALTERNATE_OBJECT_DIRECTORIES="+inList(filepath.Join(r.CommonDir, "objects")))
	return &rehearsed
}

// Close takes away all that was written.
func (v *View) Close() error { return durable.RemoveTree(v.dir) }

// WorkTree is what is on disk in a worktree as a tree object, which nobody but the view sees, and the commit that HEAD
// is at. It is what Freeze would hold.
func (v *View) WorkTree(ctx context.Context, s Subject) (tree, head string, err error) {
	s.asIs = true
	if head, _, err = v.repo.tips(ctx, s); err != nil {
		return "", "", err
	}
	_, tree, err = v.repo.writeTrees(ctx, s, head)
	return tree, head, err
}

// Head is the commit that HEAD of a worktree is at.
func (r *Repo) Head(ctx context.Context, s Subject) (string, error) {
	head, _, err := r.tips(ctx, s)
	return head, err
}

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
func (v *View) Compare(ctx context.Context, c Comparison) (string, error) {
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
	p := v.place()
	p.config = []string{"--literal-pathspecs", "-c", "core.quotePath=true", "-c", "diff.suppressBlankEmpty=false"}
	p.stdout = &out
	_, err := v.repo.read(ctx, p, append(args, c.Paths...)...)
	if out.over {
		return "", ErrTooLong
	}
	return out.text.String(), err
}

// renameLimit is how many files are held against as many others to find out which were renamed.
const renameLimit = "-l1000"

func (v *View) place() place { return place{gitDir: v.dir} }

// Sizes says how many bytes blobs have.
func (v *View) Sizes(ctx context.Context, oids ...string) (map[string]int64, error) {
	sizes := map[string]int64{}
	if len(oids) == 0 {
		return sizes, nil
	}
	p := v.place()
	p.stdin = strings.Join(oids, "\n") + "\n"
	out, err := v.repo.read(ctx, p, "cat-file", "--batch-check=%(objectname) %(objectsize)")
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
