package repair

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
)

// OrphanReflogs lists the refs that have a reflog and do not exist.
func OrphanReflogs(ctx context.Context, r *git.Repo) ([]string, error) {
	var refs []string
	err := walkFiles(r, "logs/refs", func(rel string) {
		ref := filepath.ToSlash(strings.TrimPrefix(rel, "logs/"))
		if !strings.HasSuffix(ref, ".lock") && !strings.ContainsAny(ref, "\n\x00") {
			refs = append(refs, ref)
		}
	})
	if err != nil || len(refs) == 0 {
		return nil, err
	}
	found, err := r.Lookup(ctx, refs...)
	if err != nil {
		return nil, err
	}
	var orphans []string
	for i, ref := range refs {
		if _, err := os.Lstat(r.RefPath(ref)); err != nil && found[i].Missing() {
			orphans = append(orphans, ref)
		}
	}
	return orphans, nil
}

// OnlyInReflog lists the commits that are reachable from the reflog of a ref and from no ref.
func OnlyInReflog(ctx context.Context, r *git.Repo, ref string) ([]string, error) {
	data, err := durable.ReadFile(r.ReflogPath(ref), 1<<22)
	if err != nil {
		return nil, err
	}
	var input strings.Builder
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line) // "<old> <new> <who> …"
		for _, word := range words[:min(2, len(words))] {
			if object.IsOID(word) && strings.Trim(word, "0") != "" {
				input.WriteString(word + "\n")
			}
		}
	}
	if input.Len() == 0 {
		return nil, nil
	}
	out, err := r.RunRead(ctx, git.RunOptions{Stdin: input.String()}, "rev-list", "--ignore-missing", "--stdin", "--not", "--glob=refs/*")
	return strings.Fields(string(out)), err
}

// RemoveReflog removes the reflog of a ref that does not exist.
func RemoveReflog(r *git.Repo, ref string) error { return durable.Remove(r.ReflogPath(ref)) }

// RefMovedAt returns the time of the last reflog entry of a ref; ok is false where there is none.
func RefMovedAt(r *git.Repo, ref string) (at time.Time, ok bool) {
	data, err := durable.ReadFile(r.ReflogPath(ref), 1<<22)
	if err != nil {
		return time.Time{}, false // a missing reflog is no error
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	entry, _, _ := strings.Cut(lines[len(lines)-1], "\t") // "<old> <new> <who> <seconds> <zone>"
	words := strings.Fields(entry)
	if len(words) < 4 {
		return time.Time{}, false
	}
	seconds, err := strconv.ParseInt(words[len(words)-2], 10, 64)
	return time.Unix(seconds, 0), err == nil
}
