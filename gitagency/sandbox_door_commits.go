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

// unmoved is where HEAD inside is if nobody has moved it since something last went through.
func (d *door) unmoved(tip string) string { return cmp.Or(d.state.Head, tip) }

// pack has git inside pack what was committed there, and others. A person may have moved the branch to tip
// meanwhile: then only what comes after that may be put in its place.
func (d *door) pack(ctx context.Context, room *proc.Room, dir *os.File, tip string, also []string) (*parcel, error) {
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
	return d.packed(ctx, room, dir, scriptPack, also, not, d.unmoved(tip), some, after)
}

// takeIn moves the branch of the sandbox to where HEAD is behind the walls, if it was moved there, and says
// where both are then, and whether the objects of what is staged came along.
func (d *door) takeIn(ctx context.Context, room *proc.Room, dir *os.File, tip string, committed *parcel, also []string) (head, now string, whole bool, err error) {
	where := func(p *parcel) (head, now string) {
		if p.name == d.unmoved(tip) {
			return p.name, tip
		}
		return p.name, p.name
	}
	incoming := func(p *parcel, now string) git.Incoming {
		return git.Incoming{Pack: p, New: now, Old: tip, Also: also, Reason: "agency: exec"}
	}
	if head, now = where(committed); now == tip && len(also) == 0 {
		return head, now, true, nil
	}
	if now != tip {
		// Most of what is staged has been committed too, and is there.
		err := d.take(ctx, incoming(committed, now))
		var lacks *git.IncompleteError
		if !errors.As(err, &lacks) || !slices.Contains(also, lacks.OID) {
			return head, now, true, err
		}
	}
	whole = true
	all, err := d.pack(ctx, room, dir, tip, also)
	if is[*insideError](err) && now != tip { // what was committed does not wait for what is staged and not there
		d.staysInside(err)
		whole, also = false, nil
		all, err = d.pack(ctx, room, dir, tip, nil)
	}
	if err != nil {
		return "", "", false, err
	}
	defer all.Close()
	head, now = where(all)
	return head, now, whole, d.take(ctx, incoming(all, now))
}

// rest brings out what else git has behind the walls and no branch outside leads to: other branches, tags,
// what was stashed, amended or reset away. It hangs together under one commit, of which the log of HEAD
// knows. This is for a sandbox that is about to go.
func (d *door) rest(ctx context.Context, room *proc.Room, dir *os.File) error {
	if err := d.readable(); err != nil {
		return err
	}
	repo := d.s.repo.git
	found, err := repo.Lookup(ctx, sandboxRef(d.s.ID), d.s.repo.store.Invocation(d.s.repo.ID, d.s.ID, nil).Record.BaseCommit+"^{commit}")
	if err != nil {
		return err
	}
	tip := cmp.Or(found[0].OID, found[1].OID) // a person may have renamed the branch
	if tip == "" {
		return fmt.Errorf("there is neither branch %s nor the commit that it started from", short(sandboxRef(d.s.ID)))
	}
	refs, err := repo.Refs(ctx)
	if err != nil {
		return err
	}
	// What is kept already; and what others have left behind is theirs to find again.
	not := slices.AppendSeq(repo.LoggedElsewhere(d.s.ID, sandboxRef(d.s.ID)), maps.Values(refs))
	slices.Sort(not)
	all, err := d.packed(ctx, room, dir, scriptRest, nil, append(slices.Compact(not), tip), tip)
	if err != nil {
		return err
	}
	defer all.Close()
	if all.name == tip {
		return nil
	}
	return d.take(ctx, git.Incoming{Pack: all, New: all.name, Old: tip, Stay: true, Reason: "agency: what else was inside"})
}
