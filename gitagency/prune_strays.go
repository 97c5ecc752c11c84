package gitagency

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// trash looks at the refs that keep the work of what there is no record of any more.
func (p *prunePlan) trash(ctx context.Context) error {
	var forgotten []Pruned
	var commits []string
	for _, ref := range slices.Sorted(maps.Keys(p.refs)) {
		id, is := strings.CutPrefix(ref, trashRef(""))
		if !is || p.spokenOf(id) {
			continue
		}
		t := Pruned{Kind: "trash", ID: id, Action: PruneKeep, TrashRef: ref, kept: p.refs[ref]}
		if t.Reason = p.claim(id); t.Reason == "" {
			commits = append(commits, t.kept)
		}
		forgotten = append(forgotten, t)
	}
	times, err := p.repo.CommittedAt(ctx, commits...)
	if err != nil {
		return err
	}
	for _, t := range forgotten {
		at, known := times[t.kept]
		age := "its commit is of "
		// Where nothing had to be added to it, what was kept only just now is as old as its last commit.
		if moved, ok := p.repo.MovedAt(t.TrashRef); ok && moved.After(at) {
			at, age = moved, "it has been there since "
		}
		switch {
		case t.Reason != "":
		case !known:
			t.Reason = "it does not lead to a commit"
		case p.passed(&at):
			t.Action, t.Reason, t.TrashCommit = PruneRemove, "there is no record of it, and "+age+moment(at), t.kept
		case p.before.IsZero():
			t.Reason = "nothing expires"
		default:
			t.Reason = age + moment(at) + ", which is not long enough ago"
		}
		p.things = append(p.things, t)
	}
	return nil
}

// spokenOf reports whether an id has anything but its ref.
func (p *prunePlan) spokenOf(id string) bool {
	if !ids.Valid(id) {
		return false
	}
	s := p.r.store
	_, there := store.Taken(s.InvocationDir(p.r.ID, id), s.SandboxDir(p.r.ID, id), s.WorktreeDir(p.r.ID, id))
	return there
}

// claim says why a ref may be somebody's although there is no record that says so.
func (p *prunePlan) claim(id string) string {
	switch {
	case !ids.Valid(id):
		return "it is not named after an id"
	case !p.known:
		return "there are no records of this repository in " + p.r.DataDir
	}
	if _, there := p.registered[id]; there {
		return "git has a worktree of that id"
	}
	for _, name := range slices.Sorted(maps.Keys(p.registered)) {
		if place, ours := dataDirOf(name, p.registered[name]); ours && place != p.r.DataDir {
			return "its record may be in " + place
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(p.refs)) {
		// Branches of worktrees end in the last digits of their id only. Records can be elsewhere.
		if strings.HasPrefix(ref, heads) && strings.HasSuffix(ref, "-"+ids.Suffix(id)) {
			return "branch " + short(ref) + " may belong to it"
		}
	}
	return ""
}

// leftovers looks at what killed processes left: nobody who is alive holds it, as we hold the lock.
func (p *prunePlan) leftovers() error {
	temps, err := p.r.store.Temps(p.r.ID)
	if err != nil {
		return err
	}
	scraps, err := p.repo.Scraps()
	if err != nil {
		return err
	}
	for _, path := range append(temps, scraps...) {
		t := Pruned{Kind: "leftover", ID: idIn(path), Action: PruneRemove, Reason: "a process that was killed left it", Path: path}
		if points := guard.MountedBelow(path); len(points) > 0 {
			t.Action, t.Reason = PruneKeep, "something is mounted at "+points[0]
		} else if err := checkReal(path); err != nil {
			p.refuse(&t, err)
			t.Action = PruneKeep
		}
		p.things = append(p.things, t)
	}
	refs, err := p.repo.RefScraps(trashRef(""), p.refs)
	if err != nil {
		return err
	}
	for _, ref := range slices.Sorted(maps.Keys(refs)) {
		if id := strings.TrimPrefix(ref, trashRef("")); ids.Valid(id) && !p.spokenOf(id) {
			p.things = append(p.things, Pruned{Kind: "leftover", ID: id, Action: PruneRemove, Reason: "a git that was killed left it", Path: refs[ref], scrap: ref})
		}
	}
	return nil
}

// idIn is the id that a name ends with, if it does.
func idIn(path string) string {
	if _, id, ok := strings.Cut(filepath.Base(path), "-"); ok && ids.Valid(id) {
		return id
	}
	return ""
}
