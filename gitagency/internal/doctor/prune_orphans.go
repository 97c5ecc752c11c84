package doctor

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/git/repair"
	"github.com/git-agency/git-agency/gitagency/internal/git/update"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/landing"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// planOrphanRefs plans for trash and snapshot refs without a record.
func (p *prunePlan) planOrphanRefs(ctx context.Context) error {
	var forgotten []PruneResult
	var commits []string
	for _, id := range p.refOwners() {
		if p.hasRecord(id) {
			continue
		}
		t := PruneResult{Kind: "trash", ID: id, Action: PruneKeep}
		p.fillRefs(&t)
		if t.Reason = p.keepReason(id); t.Reason == "" {
			commits = slices.AppendSeq(commits, maps.Values(t.refs()))
		}
		forgotten = append(forgotten, t)
	}
	times, err := p.repo.CommitTimes(ctx, commits...)
	if err != nil {
		return err
	}
	for _, t := range forgotten {
		at, age, known := p.refTime(t, times)
		switch {
		case t.Reason != "":
		case !known:
			t.Reason = "it does not point to a commit"
		case p.isExpired(&at):
			t.Action, t.Reason, t.TrashCommit = PruneRemove, "it has no record, and "+age+formatTime(at), t.keptCommit
		case p.before.IsZero():
			t.Reason = "nothing expires"
		default:
			t.Reason = age + formatTime(at) + ", which is not long enough ago"
		}
		p.results = append(p.results, t)
	}
	return nil
}

// refOwners lists the ids that have trash or snapshot refs.
func (p *prunePlan) refOwners() []string {
	found := slices.Collect(maps.Keys(p.snapshots))
	for ref := range p.refs {
		if id, is := strings.CutPrefix(ref, core.TrashRef("")); is {
			found = append(found, id)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// refs returns the refs of an item and their commits.
func (t *PruneResult) refs() map[string]string {
	refs := map[string]string{}
	if t.keptCommit != "" {
		refs[t.TrashRef] = t.keptCommit
	}
	for _, s := range t.Snapshots {
		refs[s.Ref] = s.Commit
	}
	return refs
}

// refTime returns the time of the newest ref of an item, and the words that say how it is known. known is false if one of
// the refs does not lead to a commit.
func (p *prunePlan) refTime(t PruneResult, times map[string]time.Time) (since time.Time, age string, known bool) {
	for ref, commit := range t.refs() {
		at, committed := times[commit]
		if !committed {
			return since, age, false
		}
		how := "its commit dates from "
		// A capture that had to add nothing is the last commit itself, which may be much older than the ref.
		if moved, ok := repair.RefMovedAt(p.repo, ref); ok && moved.After(at) {
			at, how = moved, "it has been there since "
		}
		if at.After(since) || at.Equal(since) && how > age {
			since, age = at, how
		}
	}
	return since, age, true
}

// hasRecord reports whether an id has a record or a sandbox directory.
func (p *prunePlan) hasRecord(id string) bool {
	if !ids.Valid(id) {
		return false
	}
	s := p.r.Store
	_, there := store.FirstExisting(s.InvocationDir(p.r.ID, id), s.SandboxDir(p.r.ID, id), s.WorktreeDir(p.r.ID, id))
	return there
}

// keepReason returns why refs without a record may still belong to something; empty if they do not.
func (p *prunePlan) keepReason(id string) string {
	switch {
	case !ids.Valid(id):
		return "its name is not an id"
	case p.moved != nil:
		return p.moved.Error()
	case !p.hasRecords:
		return "there are no records of this repository in " + p.r.DataDir
	}
	if _, there := p.registered[id]; there {
		return "git has a worktree with this id"
	}
	for _, name := range slices.Sorted(maps.Keys(p.registered)) {
		if place, ours := core.DataDirOfEntry(name, p.registered[name]); ours && place != p.r.DataDir {
			return "its record may be in " + place
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(p.refs)) {
		// A worktree's branch ends in the last digits of its id. Its record may be in another data directory.
		if strings.HasPrefix(ref, core.HeadsPrefix) && strings.HasSuffix(ref, "-"+ids.Suffix(id)) {
			return "branch " + core.ShortBranch(ref) + " may belong to it"
		}
	}
	return ""
}

// planLeftovers plans for files of killed processes: we hold the lock, so no live process uses them.
func (p *prunePlan) planLeftovers() error {
	temps, err := p.r.Store.ListTemps(p.r.ID)
	if err != nil {
		return err
	}
	scraps, err := discard.LeftoverScratch(p.r, p.repo, p.cleanupRunning)
	if err != nil {
		return err
	}
	staged, err := p.leftoverStages()
	if err != nil {
		return err
	}
	for _, path := range slices.Concat(temps, scraps, staged) {
		t := PruneResult{Kind: "leftover", ID: ids.Trailing(path), Action: PruneRemove, Reason: "it was left by a process that was killed", Path: path}
		if points := guard.MountsBelow(path); len(points) > 0 {
			t.Action, t.Reason = PruneKeep, "something is mounted at "+points[0]
		} else if err := core.CheckParentResolved(path); err != nil {
			p.keepBecause(&t, err)
			t.Action = PruneKeep
		}
		p.results = append(p.results, t)
	}
	for _, root := range []string{core.AllSnapshotsPrefix, core.TrashRef("")} {
		refs, err := p.repo.RefLeftovers(root, p.refs)
		if err != nil {
			return err
		}
		for _, ref := range slices.Sorted(maps.Keys(refs)) {
			id := strings.TrimPrefix(ref, root)
			if root == core.AllSnapshotsPrefix {
				id, _, _ = strings.Cut(id, "/")
			}
			if ids.Valid(id) && !p.hasRecord(id) {
				p.results = append(p.results, PruneResult{Kind: "leftover", ID: id, Action: PruneRemove, Reason: "it was left by a git process that was killed", Path: refs[ref], leftoverRef: ref})
			}
		}
	}
	return nil
}

// leftoverStages lists staging directories of killed landings that no journal refers to, except those that may contain
// the user's files.
func (p *prunePlan) leftoverStages() ([]string, error) {
	if landing.HasInterruptedLanding(p.r) {
		return nil, nil
	}
	strays, err := update.LeftoverStagings(p.repo)
	var left []string
	for _, s := range strays {
		if !s.MayHoldFiles {
			left = append(left, s.Path)
		}
	}
	return left, err
}
