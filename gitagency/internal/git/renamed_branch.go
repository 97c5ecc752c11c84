package git

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// RenamedBranch returns the full ref that "git branch -m" has renamed a missing branch to since a time; empty if the reflogs
// name none, or more than one. Git moves the reflog with the branch and appends an entry to it, so that the log that has
// the entry is that of the present name, even after further renames.
func (r *Repo) RenamedBranch(ctx context.Context, branch string, since time.Time) (string, error) {
	root, found := filepath.Join(r.CommonDir, "logs"), []string{}
	var unread error // of other logs; one of them could name the branch too
	err := filepath.WalkDir(filepath.Join(root, "refs", "heads"), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !d.Type().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}
		log, err := durable.ReadFile(path, 1<<22)
		if err != nil {
			unread = errors.Join(unread, err)
			return nil
		}
		ref, err := filepath.Rel(root, path)
		if err == nil && loggedRename(string(log), branch, since) {
			found = append(found, filepath.ToSlash(ref))
		}
		return err
	})
	if err != nil || len(found) != 1 || unread != nil { // "git branch -c" copies the log
		return "", errors.Join(err, unread)
	}
	if tip, err := r.Tip(ctx, found[0]); err != nil || tip == "" {
		return "", err
	}
	return found[0], nil
}

// loggedRename reports whether a reflog says that a branch was renamed, not before since.
func loggedRename(log, branch string, since time.Time) bool {
	for line := range strings.Lines(log) {
		entry, message, _ := strings.Cut(line, "\t") // "<old> <new> <who> <seconds> <zone>"
		if !strings.HasPrefix(message, "Branch: renamed "+branch+" to ") {
			continue
		}
		words := strings.Fields(entry)
		if len(words) < 4 {
			continue
		}
		if seconds, err := strconv.ParseInt(words[len(words)-2], 10, 64); err == nil && seconds >= since.Unix() {
			return true
		}
	}
	return false
}
