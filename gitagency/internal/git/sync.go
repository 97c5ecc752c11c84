package git

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
)

// Join is a commit that comes into a worktree, as git merge would bring it in.
type Join struct {
	From     State  // required: what the worktree is in
	Commit   string // required: what comes in
	OursName string // what markers in files call both
	Name     string
	Message  string // of the merge

	// Sign says who the merge is by, where there is one.
	Sign func(ctx context.Context) (author, committer Signature, err error)
}

// Joined is what the worktree is in then.
type Joined struct {
	State     State      // without a commit of its own
	Conflicts []Conflict // none when it went well
	Forward   bool       // the worktree had nothing that the commit has not, and is where that is
}

// UncommittedError is work in a worktree that no commit holds.
type UncommittedError struct{ Paths []string }

func (e *UncommittedError) Error() string {
	return "not committed: " + strings.Join(e.Paths, ", ")
}

// UntrackedError is files that git does not know, where others would come.
type UntrackedError struct{ Paths []string }

func (e *UntrackedError) Error() string {
	return "not tracked, and in the way: " + strings.Join(e.Paths, ", ")
}

// Join says what state git would leave behind, and makes all that it consists of, for the merger alone. Where there are
// conflicts it is a merge that waits to be resolved, and the same as if the worktree had been frozen in the middle of
// one. Nothing is under way there; what is not committed is an *UncommittedError, but for files that git does not know:
// they stay, unless they are in the way.
func (m *Merger) Join(ctx context.Context, s Subject, j Join) (done Joined, err error) {
	strays, err := m.strays(ctx, j.From)
	if err != nil {
		return done, err
	}
	merged, err := m.bringIn(ctx, j, &done)
	if err == nil {
		err = m.flush(ctx)
	}
	if err != nil {
		return done, err
	}
	if strays, err = m.beside(ctx, j.From.Index, merged.Tree, strays); err != nil {
		return done, err
	}
	done.Conflicts = merged.Conflicts
	if done.State.Tree, err = m.withEntries(ctx, merged.Tree, nil, strays); err != nil {
		return done, err
	}
	if len(merged.Conflicts) > 0 {
		done.State.Held, err = m.unfinished(ctx, s, j, merged)
	}
	if !slices.ContainsFunc(merged.Conflicts, func(c Conflict) bool { return len(c.Stages) > 0 }) {
		done.State.Index = merged.Tree
	}
	return done, err
}

// strays lists what a worktree has that git does not know, and refuses what is not committed besides.
func (m *Merger) strays(ctx context.Context, from State) ([]treeChange, error) {
	staged, err := m.repo.treeChanges(ctx, m.place(), from.Head+"^{tree}", from.Index)
	if err != nil {
		return nil, err
	}
	changed, err := m.repo.treeChanges(ctx, m.place(), from.Index, from.Tree)
	if err != nil {
		return nil, err
	}
	var paths []string
	var strays []treeChange
	for _, c := range staged {
		paths = append(paths, c.path)
	}
	for _, c := range changed {
		if c.status == 'A' {
			strays = append(strays, c)
		} else {
			paths = append(paths, c.path)
		}
	}
	if len(paths) > 0 {
		slices.Sort(paths)
		return nil, &UncommittedError{Paths: slices.Compact(paths)}
	}
	return strays, nil
}

// bringIn merges, if that is needed, and says where HEAD is then.
func (m *Merger) bringIn(ctx context.Context, j Join, done *Joined) (Merged, error) {
	head, p := j.From.Head, m.place()
	done.State = State{Head: head, On: j.From.On, Tip: head}
	switch has, err := m.Has(ctx, j.Commit, head); {
	case err != nil:
		return Merged{}, err
	case has:
		out, err := m.repo.read(ctx, p, "rev-parse", "--verify", j.Commit+"^{tree}")
		done.Forward, done.State.Head, done.State.Tip = true, j.Commit, j.Commit
		return Merged{Tree: strings.TrimSpace(string(out))}, err
	}
	// How files are merged is for who they come from to say, as it is when the work lands.
	merged, err := m.Merge(ctx, Merging{Ours: head, Theirs: j.Commit, Attributes: j.Commit, OursName: j.OursName, TheirsName: j.Name})
	if err != nil || len(merged.Conflicts) > 0 {
		return merged, err
	}
	author, committer, err := j.Sign(ctx)
	if err != nil {
		return merged, err
	}
	done.State.Head, err = m.Commit(ctx, NewCommit{
		Tree: merged.Tree, Parents: []string{head, j.Commit}, Author: author, Committer: committer, Message: j.Message,
	})
	done.State.Tip = done.State.Head
	return merged, err
}

// Has reports whether a commit is another, or leads to it.
func (m *Merger) Has(ctx context.Context, commit, other string) (bool, error) {
	_, err := m.repo.read(ctx, m.place(), "merge-base", "--is-ancestor", other, commit)
	if exitedWith(err, 1) {
		return false, nil
	}
	return err == nil, err
}

// beside is what of the files that git does not know is not in a tree as well. What the tree has otherwise, or has
// something on the way to or below, is in the way.
func (m *Merger) beside(ctx context.Context, before, after string, strays []treeChange) ([]treeChange, error) {
	if len(strays) == 0 {
		return nil, nil
	}
	changes, err := m.repo.treeChanges(ctx, m.place(), before, after)
	if err != nil {
		return nil, err
	}
	comes, dirs := map[string]treeChange{}, map[string]bool{}
	for _, c := range changes {
		if c.status == 'D' {
			continue
		}
		comes[c.path] = c
		for dir := path.Dir(c.path); dir != "." && !dirs[dir]; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	var stay []treeChange
	var inTheWay []string
	for _, c := range strays {
		same, there := comes[c.path]
		onTheWay := dirs[c.path]
		for dir := path.Dir(c.path); dir != "." && !onTheWay; dir = path.Dir(dir) {
			_, onTheWay = comes[dir]
		}
		switch {
		case onTheWay, there && (same.newOID != c.newOID || same.newMode != c.newMode):
			inTheWay = append(inTheWay, c.path)
		case !there:
			stay = append(stay, c)
		}
	}
	if len(inTheWay) > 0 {
		return nil, &UntrackedError{Paths: inTheWay}
	}
	return stay, nil
}

// withEntries is a tree without some paths, and with others.
func (m *Merger) withEntries(ctx context.Context, tree string, without []string, with []treeChange) (_ string, err error) {
	if len(without) == 0 && len(with) == 0 {
		return tree, nil
	}
	p := m.place()
	index := filepath.Join(m.dir, "with-entries")
	p.env = append(p.env, "GIT_INDEX_FILE="+index)
	defer func() {
		if removed := durable.Remove(index); err == nil {
			err = removed
		}
	}()
	if _, err := m.repo.change(ctx, p, "read-tree", tree); err != nil {
		return "", err
	}
	change := p
	var lines strings.Builder
	for _, name := range without {
		fmt.Fprintf(&lines, "0 %s\t%s\x00", strings.Repeat("0", len(tree)), name)
	}
	for _, c := range with {
		fmt.Fprintf(&lines, "%s %s\t%s\x00", c.newMode, c.newOID, c.path)
	}
	change.stdin = lines.String()
	if _, err := m.repo.change(ctx, change, "update-index", "-z", "--index-info"); err != nil {
		return "", err
	}
	return m.repo.writeTree(ctx, p)
}

// unfinished is what git has under way when a merge has stopped at conflicts: see Underway.
func (m *Merger) unfinished(ctx context.Context, s Subject, j Join, merged Merged) (string, error) {
	message := strings.TrimRight(j.Message, "\n") + "\n\n# Conflicts:\n"
	u := Underway{}
	var paths []string
	for _, c := range merged.Conflicts {
		if len(c.Stages) == 0 { // only a word about another
			continue
		}
		paths = append(paths, c.Path)
		message += "#\t" + c.Path + "\n"
		for _, stage := range c.Stages {
			u.Conflicts = append(u.Conflicts, Unmerged{Mode: stage.Mode, OID: stage.OID, Stage: strconv.Itoa(stage.Number), Path: c.Path})
		}
	}
	if len(paths) > 0 {
		var err error
		if u.Rest, err = m.withEntries(ctx, merged.Tree, paths, nil); err != nil {
			return "", err
		}
	}
	u.Files = map[string][]byte{
		"MERGE_HEAD": []byte(j.Commit + "\n"), "MERGE_MODE": {}, "MERGE_MSG": []byte(message), "AUTO_MERGE": []byte(merged.Tree + "\n"),
	}
	dir := filepath.Join(m.dir, "waiting")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	if err := makeBare(dir, FormatOf(merged.Tree)); err != nil {
		return "", err
	}
	p := place{gitDir: dir, tree: dir, config: []string{"-c", "core.bare=false"}}
	return m.repo.writeHeld(ctx, p, j.From.Head, s.Author, u)
}

// Merging is the commit that is being merged in a worktree; empty when none is, or several are.
func (r *Repo) Merging(s Subject) string {
	data, err := readSmall(r.entryOf(s), "MERGE_HEAD")
	if commit := strings.TrimSpace(string(data)); err == nil && isOID(commit) {
		return commit
	}
	return ""
}

// MergeBase is a commit that two have in common, such that no other is nearer; empty when there is none.
func (r *Repo) MergeBase(ctx context.Context, a, b string) (string, error) {
	out, err := r.read(ctx, place{env: []string{"GIT_NO_REPLACE_OBJECTS=1"}}, "merge-base", a, b)
	if exitedWith(err, 1, 128) { // they have none, or one of them is gone
		return "", nil
	}
	return strings.TrimSpace(string(out)), err
}

// WriteState writes a state that a worktree is to be in as Freeze would, behind one that it follows.
func (r *Repo) WriteState(ctx context.Context, s Subject, after string, state State) (string, error) {
	parents, err := r.independent(ctx, []string{after}, []string{state.Head, state.Tip, state.Held})
	if err != nil {
		return "", err
	}
	return r.commitTree(ctx, s, state.Tree, parents, s.Message+state.trailers())
}

// NotIgnored lists those of some paths that the rules of a tree do not ignore.
func (r *Repo) NotIgnored(ctx context.Context, s Subject, tree string, names []string) ([]string, error) {
	ignored, err := r.ignoredBy(ctx, s, tree, names)
	if err != nil {
		return nil, err
	}
	some := map[string]bool{}
	for _, name := range ignored {
		some[name] = true
	}
	return without(names, some), nil
}
