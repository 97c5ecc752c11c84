package submodule

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// DeleteRef deletes a ref of ours in all of the user's repositories of submodules. It runs git only where the ref may exist.
func DeleteRef(ctx context.Context, r *git.Repo, ref string) error {
	repos, err := findRepos(Dir(r))
	if err != nil {
		return err
	}
	for _, dir := range repos {
		if there, err := mayHaveRef(dir, ref); err != nil || !there {
			if err != nil {
				return err
			}
			continue
		}
		name, err := filepath.Rel(Dir(r), dir)
		if err != nil {
			return err
		}
		m, err := openInitialised(ctx, r, name)
		if err != nil {
			return err
		}
		found, err := m.Lookup(ctx, ref)
		if err == nil && !found[0].Missing() {
			err = m.DeleteOwnedRef(ctx, ref, found[0].OID)
		}
		if err != nil {
			return fmt.Errorf("submodule %s: %w", name, err)
		}
	}
	return nil
}

// mayHaveRef reports whether the files of a repository name a ref.
func mayHaveRef(dir, ref string) (bool, error) {
	if _, err := os.Lstat(filepath.Join(dir, ref)); err == nil {
		return true, nil
	}
	packed, err := os.ReadFile(filepath.Join(dir, "packed-refs"))
	return bytes.Contains(packed, []byte(" "+ref+"\n")), ignoreNotExist(err)
}
