package submodule

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/git"
)

// Presence says where the user has a commit of a submodule.
type Presence string

// The answers of FindCommit.
const (
	Referenced   Presence = "referenced"    // HEAD, a branch, a tag or a remote-tracking branch leads to it
	KeptOnly     Presence = "kept-only"     // only a ref of git-agency leads to it, or none does
	Missing      Presence = "missing"       // the repository of the submodule does not have it
	NoRepository Presence = "no-repository" // there is no repository of the submodule
)

// FindCommit says where the user has a commit of the submodule with the given name, which is, or would be, checked out in dir.
// Its repository is below modules in the common git directory or, if git did not put it there, in dir itself.
func FindCommit(ctx context.Context, r *git.Repo, name, dir, commit string) (Presence, error) {
	m, err := openInitialised(ctx, r, name)
	if errors.As(err, new(*NotInitialisedError)) {
		if is, isErr := git.IsGitDir(filepath.Join(dir, ".git")); dir == "" || isErr != nil || !is {
			return NoRepository, nil
		}
		m, err = git.Open(ctx, dir, r.Env)
	}
	if err != nil {
		return "", err
	}
	found, err := m.Lookup(ctx, commit+"^{commit}", "HEAD^{commit}")
	if err != nil {
		return "", err
	}
	if found[0].Missing() {
		return Missing, nil
	}
	if !found[1].Missing() {
		if has, err := m.IsAncestor(ctx, commit, found[1].OID); err != nil || has {
			return Referenced, err
		}
	}
	out, err := m.RunRead(ctx, git.RunOptions{}, "for-each-ref", "--contains="+commit, "--format=%(refname)")
	if err != nil {
		return "", err
	}
	for ref := range strings.Lines(string(out)) {
		if !strings.HasPrefix(ref, "refs/agency/") {
			return Referenced, nil
		}
	}
	return KeptOnly, nil
}
