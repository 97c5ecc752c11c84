package gitagency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// expectedHead returns the commit at HEAD in the sandbox if it has not moved since the last exchange.
func (d *door) unmoved(tip string) string { return cmp.Or(d.state.Head, tip) }

// packCommits has the sandbox's git pack the commits at HEAD that the host does not have, and the blobs in also. The
// user may have moved the branch on the host to tip meanwhile: then HEAD must be a descendant of tip.
func (d *door) pack(ctx context.Context, ns *proc.Room, dir *os.File, tip string, also []string) (*parcel, error) {
	not := []string{tip}
	if d.state.Head != "" && d.state.Head != tip {
		not = append(not, d.state.Head)
	}
	some, after := "", ""
	if d.state.Tip != "" && d.state.Tip != tip || d.state.Head != "" && d.state.Head != tip {
		after = tip
	}
	if len(also) > 0 {
		some = "yes"
	}
	return d.packed(ctx, ns, dir, scriptPack, also, not, d.unmoved(tip), some, after)
}

// importCommits moves the branch of the sandbox on the host to the commit at HEAD in the sandbox, if that has moved.
// It returns both commits afterwards, and whether the blobs of the index were imported too.
func (d *door) takeIn(ctx context.Context, ns *proc.Room, dir *os.File, tip string, committed *parcel, also []string) (head, now string, complete bool, err error) {
	heads := func(p *parcel) (head, now string) {
		if p.name == d.unmoved(tip) {
			return p.name, tip
		}
		return p.name, p.name
	}
	incoming := func(p *parcel, now string) git.Incoming {
		return git.Incoming{Pack: p, New: now, Old: tip, Also: also, Reason: "agency: exec"}
	}
	if head, now = heads(committed); now == tip && len(also) == 0 {
		return head, now, true, nil
	}
	if now != tip {
		// Try the first pack: most staged blobs have been committed too and are in it.
		err := d.take(ctx, incoming(committed, now))
		var lacks *git.IncompleteError
		if !errors.As(err, &lacks) || !slices.Contains(also, lacks.OID) {
			return head, now, true, err
		}
	}
	complete = true
	all, err := d.pack(ctx, ns, dir, tip, also)
	if is[*insideError](err) && now != tip { // missing staged blobs must not hold up commits
		d.staysInside(err)
		complete, also = false, nil
		all, err = d.pack(ctx, ns, dir, tip, nil)
	}
	if err != nil {
		return "", "", false, err
	}
	defer all.Close()
	head, now = heads(all)
	return head, now, complete, d.take(ctx, incoming(all, now))
}

// importRemaining imports all other commits that git has behind the walls and that no ref on the host reaches: other
// branches, tags, stashes, amended and reset commits. They become ancestors of one commit that the reflog of HEAD
// names. It is for a sandbox that is about to be discarded.
func (d *door) rest(ctx context.Context, ns *proc.Room, dir *os.File) error {
	if err := d.readable(); err != nil {
		return err
	}
	repo := d.s.repo.git
	found, err := repo.Lookup(ctx, sandboxRef(d.s.ID), d.s.repo.store.Invocation(d.s.repo.ID, d.s.ID, nil).Record.BaseCommit+"^{commit}")
	if err != nil {
		return err
	}
	tip := cmp.Or(found[0].OID, found[1].OID) // the user may have renamed the branch
	if tip == "" {
		return fmt.Errorf("there is neither branch %s nor the commit that it started from", short(sandboxRef(d.s.ID)))
	}
	refs, err := repo.Refs(ctx)
	if err != nil {
		return err
	}
	// Leave out what the refs keep, and what other reflogs name: it is reachable from there.
	not := slices.AppendSeq(repo.LoggedElsewhere(d.s.ID, sandboxRef(d.s.ID)), maps.Values(refs))
	slices.Sort(not)
	all, err := d.packed(ctx, ns, dir, scriptRest, nil, append(slices.Compact(not), tip), tip)
	if err != nil {
		return err
	}
	defer all.Close()
	if all.name == tip {
		return nil
	}
	return d.take(ctx, git.Incoming{Pack: all, New: all.name, Old: tip, Stay: true, Reason: "agency: what else was inside"})
}
