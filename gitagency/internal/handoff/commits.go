package handoff

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/transport"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// expectedHead returns the commit at HEAD in the sandbox if it has not moved since the last exchange.
func (e *Exchange) expectedHead(tip string) string { return cmp.Or(e.Agreed.SandboxHead, tip) }

// packCommits has the sandbox's git pack the commits at HEAD that the host does not have, and the blobs in also. The
// user may have moved the branch on the host to tip meanwhile: then HEAD must be a descendant of tip.
func (e *Exchange) packCommits(ctx context.Context, in Inside, dir *os.File, tip string, also []string) (*packStream, error) {
	not := []string{tip}
	if e.Agreed.SandboxHead != "" && e.Agreed.SandboxHead != tip {
		not = append(not, e.Agreed.SandboxHead)
	}
	some, after := "", ""
	if e.Agreed.BranchTip != "" && e.Agreed.BranchTip != tip || e.Agreed.SandboxHead != "" && e.Agreed.SandboxHead != tip {
		after = tip
	}
	if len(also) > 0 {
		some = "yes"
	}
	where, there, command := "outside the walls", "inside", "git agency exec "+e.id+" -- git"
	if e.isOutside() {
		where, there = "in the repository", PlaceOutside
		if durable.IsDir(e.repo.InnerCloneDir(e.id)) { // commands of the sandbox use that one
			command = "git -C " + quote.Shell(e.repo.Store.SandboxTreePath(e.repo.ID, e.id))
		}
	}
	return e.runPackScript(ctx, in, dir, scriptPack, also, not, e.expectedHead(tip), some, after, where, there, command)
}

// importCommits moves the branch of the sandbox on the host to the commit at HEAD in the sandbox, if that has moved.
// It returns both commits afterwards, and whether the blobs of the index were imported too.
func (e *Exchange) importCommits(ctx context.Context, in Inside, dir *os.File, tip string, committed *packStream, staged sandboxIndex) (head, now string, complete bool, err error) {
	also := staged.newBlobs
	heads := func(p *packStream) (head, now string) {
		if p.commit == e.expectedHead(tip) {
			return p.commit, tip
		}
		return p.commit, p.commit
	}
	receive := func(p *packStream, now string) error {
		return e.receive(ctx, p, transport.ReceiveRequest{New: now, Old: tip, Blobs: also, Reason: "agency: exec", Stored: func(repo *git.Repo, checked transport.Checked) error {
			return e.keepStaged(ctx, repo, staged, tip, now, checked)
		}})
	}
	if head, now = heads(committed); now == tip && len(also) == 0 {
		return head, now, true, nil
	}
	if now != tip {
		// Try the first pack: most staged blobs have been committed too and are in it.
		err := receive(committed, now)
		var lacks *object.IncompleteError
		if !errors.As(err, &lacks) || !slices.Contains(also, lacks.OID) {
			return head, now, true, err
		}
	}
	complete = true
	all, err := e.packCommits(ctx, in, dir, tip, also)
	if fault.Is[*GitError](err) && now != tip { // missing staged blobs must not hold up commits
		e.warnIndexNotImported(err)
		complete, also = false, nil
		all, err = e.packCommits(ctx, in, dir, tip, nil)
	}
	if err != nil {
		return "", "", false, err
	}
	defer all.Close()
	head, now = heads(all)
	return head, now, complete, receive(all, now)
}

// ImportRemaining imports all other commits that git has in the sandbox and that no ref on the host reaches: other
// branches, tags, stashes, amended and reset commits. They become ancestors of one commit that the reflog of HEAD
// names. It is for a sandbox that is about to be discarded.
func (e *Exchange) ImportRemaining(ctx context.Context, in Inside, dir *os.File) error {
	if err := e.checkReadable(); err != nil {
		return err
	}
	repo := e.repo.Git
	found, err := repo.Lookup(ctx, core.SandboxRef(e.id), e.repo.Store.Invocation(e.repo.ID, e.id, nil).Record.BaseCommit+"^{commit}")
	if err != nil {
		return err
	}
	tip := cmp.Or(found[0].OID, found[1].OID) // the user may have renamed the branch
	if tip == "" {
		return fmt.Errorf("neither branch %s nor its base commit exists", core.ShortBranch(core.SandboxRef(e.id)))
	}
	refs, err := repo.Refs(ctx)
	if err != nil {
		return err
	}
	for _, pin := range []string{changeset.BaseRef(e.id), changeset.StagedRef(e.id)} {
		delete(refs, pin) // deleted with the sandbox
	}
	// Leave out what the refs keep, and what other reflogs name: it is reachable from there.
	not := slices.AppendSeq(repo.ReflogCommitsElsewhere(e.id, core.SandboxRef(e.id)), maps.Values(refs))
	slices.Sort(not)
	all, err := e.runPackScript(ctx, in, dir, scriptPackRemaining, nil, append(slices.Compact(not), tip), tip)
	if err != nil {
		return err
	}
	defer all.Close()
	if all.commit == tip {
		return nil
	}
	if err := e.importLFS(ctx); err != nil {
		return err
	}
	return e.receive(ctx, all, transport.ReceiveRequest{New: all.commit, Old: tip, LeaveRef: true, Reason: "agency: other commits of the sandbox"})
}
