package pathland

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/beneath"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git/merge"
	"github.com/git-agency/git-agency/gitagency/internal/pathset"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// plan is a landing that was merged.
type plan struct {
	moves     []moveOp
	files     []string         // names of the files that change, for people
	conflicts []fault.Conflict // paths that cannot be merged; then there are no moves
}

// makePlan merges the work with the directories as they are now. Only the paths that the work changes are read: all others stay as they
// are, also if the user has changed them.
func makePlan(ctx context.Context, m *merge.Merger, targets []*target, fields store.PathsFields, work pathset.Work) (p plan, err error) {
	changed := work.Changed()
	if len(changed) == 0 {
		return p, nil
	}
	dirs := make([]*beneath.Dir, len(targets))
	for i, t := range targets {
		dirs[i] = t.read
	}
	now, unreadable, err := pathset.ScanOriginals(ctx, m.Repo, dirs, changed)
	if err != nil {
		return p, err
	}
	for _, l := range unreadable {
		p.conflicts = append(p.conflicts, fault.Conflict{Path: pathset.Name(fields.Paths, l.Path), Kinds: []string{l.Reason}, Stages: []fault.ConflictStage{}})
	}
	if len(p.conflicts) > 0 {
		return p, nil
	}
	ours := currentState(work.Base, now, changed)
	oursID, err := ours.Write(ctx, m.Repo, work.Base)
	if err != nil {
		return p, fmt.Errorf("write the state of the directories: %w", err)
	}
	merged, err := m.Merge(ctx, merge.Request{Base: fields.PathsBase, Ours: oursID, Theirs: work.TreeID, OursName: "directories", TheirsName: "sandbox"})
	if err != nil {
		return p, err
	}
	for _, c := range fault.ConvertConflicts(merged.Conflicts) {
		c.Path = pathset.Name(fields.Paths, c.Path)
		p.conflicts = append(p.conflicts, c)
	}
	if len(p.conflicts) > 0 {
		return p, nil
	}
	if err := m.Flush(ctx); err != nil {
		return p, err
	}
	result, err := pathset.ReadTree(ctx, m.Repo, merged.Tree)
	if err != nil {
		return p, err
	}
	b := moveBuilder{targets: targets, paths: fields.Paths, ours: ours, result: result}
	if err := b.build(); err != nil {
		return p, err
	}
	p.moves, p.files, p.conflicts = b.moves, b.files, b.conflicts
	return p, nil
}

// currentState returns the state of the directories, with the paths of the work as they are now, and all others as they were at the start.
func currentState(base, now pathset.Tree, changed []string) pathset.Tree {
	ours := maps.Clone(base)
	for _, p := range changed {
		delete(ours, p)
	}
	maps.Copy(ours, now)
	for p := range base { // a directory of the base is a file now
		for at := path.Dir(p); at != "."; at = path.Dir(at) {
			if _, isFile := now[at]; isFile {
				delete(ours, p)
			}
		}
	}
	return ours
}

// moveBuilder makes the moves that turn one state into another.
type moveBuilder struct {
	targets      []*target
	paths        []store.PathMeta
	ours, result pathset.Tree

	moves     []moveOp
	files     []string
	conflicts []fault.Conflict
	slots     int
}

func (b *moveBuilder) build() error {
	var removed, added, replaced []string
	for p := range b.ours {
		if _, stays := b.result[p]; !stays {
			removed = append(removed, p)
		}
	}
	for p, leaf := range b.result {
		was, there := b.ours[p]
		switch {
		case !there:
			added = append(added, p)
		case was != leaf:
			replaced = append(replaced, p)
		}
	}
	for _, list := range [][]string{removed, added, replaced} {
		sort.Strings(list)
		for _, p := range list {
			b.files = append(b.files, pathset.Name(b.paths, p))
		}
	}
	sort.Strings(b.files)
	for _, p := range removed {
		if err := b.add(take, p, false); err != nil {
			return err
		}
	}
	emptied, err := b.emptiedDirs(removed, added)
	if err != nil {
		return err
	}
	for _, p := range emptied {
		if err := b.add(take, p, true); err != nil {
			return err
		}
	}
	if err := b.addNew(added, emptied); err != nil {
		return err
	}
	for _, p := range replaced {
		if err := b.add(swap, p, false); err != nil {
			return err
		}
	}
	return nil
}

// add adds a move of a path, or of a directory.
func (b *moveBuilder) add(k kind, at string, isDir bool) error {
	n, in, err := pathset.Split(b.paths, at)
	if err != nil {
		return err
	}
	m := moveOp{Kind: k, Dir: n, Path: quotedPath(in), Slot: strconv.Itoa(b.slots), IsDir: isDir}
	if !isDir {
		m.Old, m.New = b.ours[at], b.result[at]
	}
	b.slots++
	b.moves = append(b.moves, m)
	return nil
}

// emptiedDirs returns the directories that are empty once all files to remove are gone, as git removes them too; the deepest first.
func (b *moveBuilder) emptiedDirs(removed, added []string) ([]string, error) {
	gone := map[string]bool{}
	for _, p := range removed {
		gone[p] = true
	}
	needed := map[string]bool{} // directories with new files
	for _, p := range added {
		for at := path.Dir(p); at != "."; at = path.Dir(at) {
			needed[at] = true
		}
	}
	var candidates []string
	seen := map[string]bool{}
	for _, p := range removed {
		for at := path.Dir(p); strings.Contains(at, "/") && !seen[at]; at = path.Dir(at) {
			seen[at] = true
			candidates = append(candidates, at)
		}
	}
	sort.Slice(candidates, func(i, j int) bool {
		a, b := candidates[i], candidates[j]
		if x, y := strings.Count(a, "/"), strings.Count(b, "/"); x != y {
			return x > y
		}
		return a < b
	})
	var emptied []string
	for _, dir := range candidates {
		if needed[dir] {
			continue
		}
		n, in, err := pathset.Split(b.paths, dir)
		if err != nil {
			return nil, err
		}
		entries, _, err := b.targets[n].read.ReadDir(in)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(entries, func(e beneath.Entry) bool { return !gone[dir+"/"+e.Name] }) {
			gone[dir] = true
			emptied = append(emptied, dir)
		}
	}
	return emptied, nil
}

// addNew adds the moves of new files, and of the directories that they need. A directory that is in the way is a conflict.
func (b *moveBuilder) addNew(added, emptied []string) error {
	made := map[string]bool{}
	for _, p := range added {
		n, in, err := pathset.Split(b.paths, p)
		if err != nil {
			return err
		}
		kind, err := b.targets[n].read.Kind(in)
		if err == nil && kind.IsDir() && !slices.Contains(emptied, p) {
			b.conflicts = append(b.conflicts, fault.Conflict{Path: pathset.Name(b.paths, p), Kinds: []string{"file/directory"}, Stages: []fault.ConflictStage{}})
		} else if err != nil && !beneath.IsGone(err) {
			return err
		}
		if err := b.addParents(p, made); err != nil {
			return err
		}
	}
	for _, p := range added {
		if err := b.add(put, p, false); err != nil {
			return err
		}
	}
	return nil
}

// addParents adds the moves of directories above a new file that do not exist.
func (b *moveBuilder) addParents(p string, made map[string]bool) error {
	parts := strings.Split(p, "/")
	for i := 2; i < len(parts); i++ {
		dir := strings.Join(parts[:i], "/")
		if made[dir] {
			continue
		}
		n, in, err := pathset.Split(b.paths, dir)
		if err != nil {
			return err
		}
		kind, err := b.targets[n].read.Kind(in)
		if err != nil && !beneath.IsGone(err) {
			return err
		}
		if err == nil && kind.IsDir() {
			continue
		}
		made[dir] = true
		if err := b.add(put, dir, true); err != nil {
			return err
		}
	}
	return nil
}
