package merge

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// DiffStat is the size of the difference of two commits, as "git diff --shortstat" prints it.
type DiffStat struct {
	Files, Insertions, Deletions int
}

// DiffStats compares each key of against with its value, both commits. A pair with an invalid id is left out of the
// result. It takes one git, however many pairs there are, and runs no program that files or attributes name.
func DiffStats(ctx context.Context, r *git.Repo, against map[string]string) (_ map[string]DiffStat, err error) {
	var pairs strings.Builder
	counted, like := map[string]DiffStat{}, ""
	for commit, other := range against {
		if !object.IsOID(commit) || !object.IsOID(other) {
			continue
		}
		like, counted[commit] = commit, DiffStat{} // git prints nothing for equal commits
		pairs.WriteString(commit + " " + other + "\n")
	}
	if pairs.Len() == 0 {
		return counted, nil
	}
	// With attributes of the repository an agent could hide its changes, or make git block on a pipe.
	m, err := r.NewMirror(like)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	p := m.GitOptions()
	p.Stdin, p.Reading = pairs.String(), r.ReadingOf("counting the changed lines")
	out, err := m.Repo.RunRead(ctx, p, "diff-tree", "--stdin", "-r", "-z", "--numstat", "-M", "--no-ext-diff", "--no-textconv")
	if err != nil {
		return nil, err
	}
	return counted, parseNumstat(string(out), counted)
}

// parseNumstat adds up "<insertions> TAB <deletions> TAB <path> NUL" records that follow "<commit> NUL". A renamed
// file has an empty path, and the old and the new path follow; a binary file has dashes for numbers.
func parseNumstat(out string, counted map[string]DiffStat) error {
	commit := ""
	for out != "" {
		record, rest, ended := strings.Cut(out, "\x00")
		if out = rest; !ended {
			return fmt.Errorf("unexpected output of git diff-tree: %q", record)
		}
		if object.IsOID(record) {
			commit = record
			continue
		}
		parts := strings.SplitN(record, "\t", 3)
		changes, known := counted[commit]
		if len(parts) != 3 || !known {
			return fmt.Errorf("unexpected output of git diff-tree: %q", record)
		}
		if parts[2] == "" {
			for range 2 {
				if _, out, ended = strings.Cut(out, "\x00"); !ended {
					return fmt.Errorf("unexpected output of git diff-tree: %q", record)
				}
			}
		}
		changes.Files++
		for i, sum := range []*int{&changes.Insertions, &changes.Deletions} {
			if parts[i] == "-" {
				continue
			}
			n, err := strconv.Atoi(parts[i])
			if err != nil || n < 0 {
				return fmt.Errorf("unexpected output of git diff-tree: %q", record)
			}
			*sum += n
		}
		counted[commit] = changes
	}
	return nil
}
