package handoff

import (
	"bytes"
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
)

// HasUnimported reports whether the upper directory has commits, on branches and tags or in reflogs, that no ref or reflog on the host
// reaches, or state that is not imported. It is for a sandbox in which no git can run any more, so refs are read as data. A ref that cannot
// be read counts as not imported.
func (e *Exchange) HasUnimported(ctx context.Context) (bool, error) {
	if pending, err := e.HasPendingImport(); err != nil || pending {
		return pending, err
	}
	oids, err := e.namedObjects()
	if err != nil {
		return true, nil
	}
	commits := slices.Sorted(maps.Keys(oids))
	if len(commits) == 0 {
		return false, nil
	}
	repo := e.repo.Git
	found, err := repo.Lookup(ctx, commits...)
	if err != nil {
		return true, err
	}
	for _, o := range found {
		if o.Type != "commit" && o.Type != "tag" {
			return true, nil // missing, or an object that a ref alone keeps
		}
	}
	out, err := repo.RunRead(ctx, git.RunOptions{Stdin: strings.Join(commits, "\n") + "\n"}, "rev-list", "--max-count=1", "--stdin", "--not", "--all", "--reflog")
	return len(bytes.TrimSpace(out)) > 0, err
}

// namedObjects returns the ids in the refs and reflogs of the upper directory, and in HEAD.
func (e *Exchange) namedObjects() (map[string]bool, error) {
	const maxFiles, maxSize = 100_000, 64 << 20
	files := []string{"packed-refs", filepath.Join(e.entry, "HEAD")}
	for _, dir := range []string{"refs", "logs", filepath.Join(e.entry, "refs"), filepath.Join(e.entry, "logs")} {
		some, err := overlay.ListUpperFiles(e.upper, dir, maxFiles)
		if err != nil {
			return nil, err
		}
		files = append(files, some...)
	}
	oids := map[string]bool{}
	for _, path := range files {
		file, err := overlay.ReadUpperFile(e.upper, path, maxSize)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(file.Data) {
			// "<id>" in a ref, "<id> <ref>" and "^<id>" in packed-refs, "<id> <id> <name> …" in a reflog
			for i, word := range strings.Fields(string(line)) {
				if word = strings.TrimPrefix(word, "^"); i < 2 && object.IsOID(word) && !git.IsZeroOID(word) {
					oids[word] = true
				}
			}
		}
	}
	return oids, nil
}
