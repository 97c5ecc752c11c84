package core

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Invocation finds an invocation by its id; by a unique prefix of the id, or of its part after the dash; or by "@", the
// newest that has not ended, "@-1", the one before it, and so on. It never finds one by its name. A broken one is found by
// its full id only. Where the records are still those of another path, the error is a *fault.MovedRepositoryError.
func (r *Repository) Invocation(query string) (Invocation, error) {
	i, err := r.findInvocation(query)
	if err == nil && r.RefreshJobs(i) {
		i, err = r.findInvocation(i.ID)
	}
	if err = r.explainMissing(err); !fault.Is[*fault.MovedRepositoryError](err) {
		r.warnRecordsElsewhere()
	}
	return i, err
}

func (r *Repository) findInvocation(query string) (Invocation, error) {
	if age, relative := parseAge(query); relative {
		return r.liveInvocation(query, age)
	}
	entries, err := r.Store.InvocationsMatching(r.ID, query, r.IsLocked)
	if err != nil {
		return Invocation{}, err
	}
	e, err := store.Resolve("invocation", entries, query, ids.Matches, nil)
	if fault.Is[*fault.NotFoundError](err) && ids.Valid(query) {
		// While the lock is held, listings omit empty directories, as a creation may be about to fill them. A query
		// for the full id of such a directory still finds it, unless its creation is in progress.
		if _, there := store.FirstExisting(r.Store.InvocationDir(r.ID, query)); there {
			if e = r.Store.Invocation(r.ID, query, nil); !e.BeingCreated {
				err = nil
			}
		}
	}
	if fault.Is[*fault.NotFoundError](err) && query != "" {
		named, listErr := r.invocationsNamed(query)
		return Invocation{}, cmp.Or(listErr, error(&fault.NotFoundError{Kind: "invocation", Query: query, Named: named}))
	}
	if err != nil {
		return Invocation{}, err
	}
	return r.invocationFromEntry(e), nil
}

// Abbreviation returns a function that abbreviates the id of an invocation to its part after the dash, if Invocation finds
// no other one by that. It reads no record, so that a broken invocation counts, and the caller must not abbreviate one.
func (r *Repository) Abbreviation() (func(id string) string, error) {
	all, err := r.Store.InvocationIDs(r.ID)
	if err != nil {
		return nil, err
	}
	ending, beginning, known := map[string]int{}, map[string]bool{}, map[string]bool{}
	for _, id := range all {
		suffix := ids.Suffix(id)
		ending[suffix]++
		beginning[id[:len(suffix)]] = true
		known[id] = true
	}
	return func(id string) string {
		if !known[id] || ending[ids.Suffix(id)] > 1 || beginning[ids.Suffix(id)] {
			return id
		}
		return ids.Suffix(id)
	}, nil
}

// CurrentInvocation returns the invocation whose sandbox contains the caller's directory; else the error is a
// *fault.NotInSandboxError.
func (r *Repository) CurrentInvocation() (Invocation, error) {
	here, err := guard.Locate(r.CallerDir)
	if err != nil {
		return Invocation{}, err
	}
	sandboxes := guard.ResolveOrEmpty(r.Store.SandboxDir(r.ID, ""))
	rel, err := filepath.Rel(sandboxes, here.Path)
	id, _, _ := strings.Cut(rel, string(filepath.Separator))
	if sandboxes == "" || err != nil || !ids.Valid(id) {
		return Invocation{}, &fault.NotInSandboxError{Path: here.Path}
	}
	return r.Invocation(id)
}

// parseAge parses "@" as 0, "@-1" as 1 and so on.
func parseAge(query string) (age int, relative bool) {
	rest, relative := strings.CutPrefix(query, "@")
	if !relative || rest == "" {
		return 0, relative
	}
	digits, negative := strings.CutPrefix(rest, "-")
	age, err := strconv.Atoi(digits)
	return age, negative && err == nil && age > 0 && strconv.Itoa(age) == digits
}

// IsIDForm reports whether a text has the form of an id, of the part of one after the dash, or of an age such as @-1: a name
// of that form could be taken for the id of another invocation. Prefixes of ids do not count: "2026" and "fix" are names.
func IsIDForm(text string) bool {
	_, relative := parseAge(text)
	return relative || ids.Valid(text) || ids.ValidSuffix(text)
}

// liveInvocation finds the invocation that is as many before the newest as age says, of those that have neither ended
// nor are broken. It reads no more records than it needs.
func (r *Repository) liveInvocation(query string, age int) (Invocation, error) {
	all, err := r.Store.InvocationIDs(r.ID)
	if err != nil {
		return Invocation{}, err
	}
	var live []store.Entry[store.InvocationMeta]
	for _, id := range all {
		if len(live) > age && startedBefore(id, live[age].ID) {
			break
		}
		e := r.Store.Invocation(r.ID, id, r.IsLocked)
		if e.Defect == store.NoDefect && !e.BeingCreated && !e.Record.HasEnded() && e.Record.VerifiesInvocation == "" {
			live = append(live, e)
		}
	}
	if len(live) <= age {
		return Invocation{}, &fault.NotFoundError{Kind: "invocation", Query: query}
	}
	slices.SortStableFunc(live, func(a, b store.Entry[store.InvocationMeta]) int { return store.CompareStart(&b, &a) })
	return r.invocationFromEntry(live[age]), nil
}

// startedBefore reports whether an id names an earlier second than another.
func startedBefore(id, other string) bool {
	at, _ := ids.Time(id)
	otherAt, _ := ids.Time(other)
	return at.Before(otherAt)
}

// invocationsNamed returns the ids of the invocations with a name, newest first. Those that have ended count only if there
// are no others.
func (r *Repository) invocationsNamed(name string) ([]string, error) {
	entries, err := r.Store.Invocations(r.ID, r.IsLocked)
	if err != nil {
		return nil, err
	}
	var live, ended []string
	for _, e := range slices.Backward(entries) {
		switch {
		case e.Defect != store.NoDefect || e.Record.InvocationName != name:
		case e.Record.HasEnded():
			ended = append(ended, e.ID)
		default:
			live = append(live, e.ID)
		}
	}
	if len(live) == 0 {
		return ended, nil
	}
	return live, nil
}

// invocationFromEntry converts the stored entry of an invocation, with the record of its worktree.
func (r *Repository) invocationFromEntry(e store.Entry[store.InvocationMeta]) Invocation {
	worktrees := map[string]store.WorktreeMeta{}
	if id := e.Record.IntegrationWorktreeID; ids.Valid(id) { // the id comes from a file and becomes part of a path
		worktrees[id] = r.Store.Worktree(r.ID, id, nil).Record
	}
	return InvocationFromEntry(e, worktrees)
}
