package handoff

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/git/submodule"
	"github.com/git-agency/git-agency/gitagency/internal/git/transport"
)

// ImportSubmodule imports the commits that the repository of a submodule behind the walls has and the user's repository of
// that submodule does not: HEAD, branches, tags, stashes and reflogs. They become ancestors of the commit at
// core.SubmoduleRef. The caller holds the repository lock.
func (e *Exchange) ImportSubmodule(ctx context.Context, in Inside, dir *os.File, c submodule.Checkout) error {
	if c.Source == nil {
		return nil
	}
	refs, err := c.Source.Refs(ctx)
	if err != nil {
		return err
	}
	found, err := c.Source.Lookup(ctx, core.SubmoduleRef(e.id), "HEAD^{commit}")
	if err != nil {
		return err
	}
	old := found[0].OID
	tip := cmp.Or(old, found[1].OID)
	if tip == "" {
		return fmt.Errorf("submodule %s: HEAD of %s does not point to a commit", c.Path, c.Source.CommonDir)
	}
	not := slices.Sorted(maps.Values(refs))
	all, err := e.runPackScript(ctx, in, dir, scriptPackSubmodule, nil, append(slices.Compact(not), tip), tip, c.PrivateDir())
	if err != nil {
		return err
	}
	defer all.Close()
	if all.commit == tip {
		return nil
	}
	err = transport.Receive(ctx, c.Source, transport.ReceiveRequest{
		Pack: all, Ref: core.SubmoduleRef(e.id), New: all.commit, Old: old, Reason: "agency: commits of sandbox " + e.id,
	})
	_ = os.Remove(c.Source.AgencyDir()) // fails unless it is empty
	if err != nil {
		return &GitError{fmt.Errorf("submodule %s: %w", c.Path, err)}
	}
	return nil
}

// scriptPackSubmodule is scriptPackRemaining for another repository.
const scriptPackSubmodule = `GIT_DIR=$2 GIT_WORK_TREE=$PWD && export GIT_DIR GIT_WORK_TREE || exit 1
` + scriptPackRemaining
