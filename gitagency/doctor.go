package gitagency

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/store"
)

// Finding is one thing that is wrong.
type Finding struct {
	Code    string `json:"code"` // stays the same; FindingCodes lists them
	ID      string `json:"id"`   // what Fix takes: an invocation, a worktree, or a path in the git directory
	Path    string `json:"path"`
	What    string `json:"what"`         // a sentence part for people
	AtRisk  bool   `json:"work_at_risk"` // there is work that nothing else holds, and that a wrong step could lose
	Mend    string `json:"mend"`         // the command that mends it
	Outcome string `json:"outcome"`      // what Fix makes of it; empty where only a person can mend it

	mend  func(ctx context.Context) error // nil where only a person can know
	along bool                            // in the way of everybody, so that mending anything mends it too
}

// same reports whether two findings are of the same thing.
func (f Finding) same(other Finding) bool {
	return f.Code == other.Code && f.ID == other.ID && f.Path == other.Path
}

// Diagnosis is what was found.
type Diagnosis struct {
	Findings []Finding `json:"findings"`
	Busy     string    `json:"busy"` // who was changing the repository meanwhile; what that is about is not judged

	Machine []Capability `json:"machine"`
}

// Diagnose looks at everything that can be wrong with a repository, its records and its trees, and
// changes nothing. With an error comes what was found all the same.
func (r *Repository) Diagnose(ctx context.Context) (Diagnosis, error) {
	d := Diagnosis{}
	var lookErr, err error
	d.Findings, d.Busy, lookErr = r.examine(ctx)
	d.Machine, err = r.Machine(ctx)
	return d, errors.Join(lookErr, err)
}

// examine looks for what is wrong, holding the lock where it can: what is under way is not wrong.
func (r *Repository) examine(ctx context.Context) ([]Finding, string, error) {
	x := &examination{Repository: r, repo: r.git, findings: []Finding{}}
	if _, used := store.Taken(r.lockDir()); used {
		// Waiting for it would be right for a moment and wrong for a lock that hangs.
		held, err := lock.Acquire(ctx, lock.Request{Dir: r.lockDir(), Command: r.opts.Command})
		var timeout *LockTimeoutError
		switch {
		case errors.As(err, &timeout):
			x.busy, x.unsettled = timeout.Holder.String(), true
		case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS): // who may not change anything may still look
			x.unsettled = r.busy()
		case err != nil:
			return x.findings, "", err
		default:
			defer func() {
				if err := held.Release(); err != nil {
					r.warn("release the repository lock: %v", err)
				}
			}()
		}
	}
	err := x.look(ctx)
	if x.unsettled && len(x.findings) > 0 {
		// A record may have been read before a change and its tree after it. Who changes something writes down
		// what becomes of it first, so that a second look sees through the first.
		again := &examination{Repository: r, repo: r.git, unsettled: true}
		err = again.look(ctx)
		x.findings = slices.DeleteFunc(x.findings, func(f Finding) bool { return !slices.ContainsFunc(again.findings, f.same) })
	}
	return x.findings, x.busy, err
}

// Fix mends everything that was found under one id and returns what that was. It finishes or undoes
// what was interrupted and never loses work: what it takes away, a ref keeps.
func (r *Repository) Fix(ctx context.Context, id string) ([]Finding, error) {
	mended := []Finding{}
	repo, unlock, err := r.lockOnly(ctx)
	if err != nil {
		return mended, err
	}
	defer unlock()
	id = r.spelledOut(id)
	// One at a time, and then look again: mending one thing often mends the next, or uncovers it.
	for {
		x := &examination{Repository: r, repo: repo}
		lookErr := x.look(ctx)
		next, ok := x.next(id, mended)
		switch {
		case !ok && lookErr != nil && len(mended) == 0:
			return mended, lookErr
		case ok && next.mend == nil:
			return mended, &FindingError{next}
		case ok:
			if err := next.mend(ctx); err != nil {
				return mended, fmt.Errorf("mend %s of %s: %w", next.Code, next.ID, err)
			}
			mended = append(mended, next)
			continue
		case len(mended) == 0:
			return mended, r.nothingWrong(id)
		case lookErr != nil:
			r.warn("not everything could be looked at: %v", lookErr)
		}
		return mended, nil
	}
}

// spelledOut is the id that a prefix or a name stands for, where it stands for one; a broken one has no
// other name than its id.
func (r *Repository) spelledOut(id string) string {
	if i, err := r.Invocation(id); err == nil {
		return i.ID
	}
	if w, err := r.Worktree(id); err == nil && id != "" {
		return w.ID
	}
	return id
}

// next is the finding to mend next. What was mended and is found again was not mended.
func (x *examination) next(id string, mended []Finding) (Finding, bool) {
	of := func(f Finding) bool { return f.ID == id }
	if !slices.ContainsFunc(x.findings, of) && len(mended) == 0 {
		return Finding{}, false // nothing of that id; then what is in the way of others stays too
	}
	for _, wanted := range []func(Finding) bool{
		func(f Finding) bool { return f.along && f.mend != nil },
		func(f Finding) bool { return of(f) && f.mend != nil },
		of,
	} {
		for _, f := range x.findings {
			if !wanted(f) {
				continue
			}
			if slices.ContainsFunc(mended, f.same) {
				f.mend = func(context.Context) error { return errStillThere }
			}
			return f, true
		}
	}
	return Finding{}, false
}

// errStillThere is a finding that was mended and is found again.
var errStillThere = errors.New("it was mended, and is there again")

// nothingWrong is the answer to an id under which nothing was found: no error, if there is such an id.
func (r *Repository) nothingWrong(id string) error {
	if _, there := store.Taken(r.store.InvocationDir(r.ID, id), r.store.WorktreeDir(r.ID, id)); there && ids.Valid(id) {
		return nil
	}
	return &NotFoundError{Kind: "finding", Query: id}
}

// checks are what a repository is examined for, in the order in which findings are shown.
func checks() []check {
	return []check{
		{[]string{"moved-repository", "damaged-repo"}, (*examination).movedRepository},
		{[]string{"data-dir-missing", "data-dir-open"}, (*examination).dataDir},
		{[]string{"refused-setting"}, (*examination).sandboxSettings},
		{[]string{"stale-lock"}, (*examination).locks},
		{[]string{"interrupted-land", "stray-landing"}, (*examination).landings},
		{[]string{"interrupted-creation", "empty-record", "missing-meta", "corrupt-meta", "id-mismatch", "missing-tree", "moved-tree", "moved-data", "interrupted-archive", "half-archived", "missing-marker", "foreign-tree", "unlinked-tree", "missing-branch", "foreign-record", "leftovers"}, (*examination).integrationWorktrees},
		{[]string{"interrupted-discard", "half-discarded", "wrong-marker", "interrupted-put", "interrupted-rollback", "interrupted-verify"}, (*examination).sandboxes},
		{[]string{"unclaimed-marker"}, (*examination).unclaimedMarkers},
		{[]string{"orphan-branch", "other-data-dir", "copied-entry"}, (*examination).strays},
		{[]string{"damaged-entry", "initializing-entry"}, (*examination).gitEntries},
		{[]string{"orphan-log"}, (*examination).orphanLogs},
		{[]string{"leftover-scratch"}, (*examination).scratch},
		{[]string{"visible-markers"}, (*examination).exclude},
	}
}

type check struct {
	codes []string
	look  func(*examination, context.Context) error
}

// FindingCodes lists every code that a finding can have.
func FindingCodes() []string {
	var codes []string
	for _, c := range checks() {
		codes = append(codes, c.codes...)
	}
	return codes
}

// examination is one look at everything.
type examination struct {
	*Repository
	repo      *git.Repo
	unsettled bool   // somebody is changing something now
	busy      string // who
	findings  []Finding

	worktrees   []store.Entry[store.WorktreeMeta]
	invocations []store.Entry[store.InvocationMeta]
	entries     map[string]git.Entry // git's own, by name
	refs        map[string]string    // where the refs are that belong to ids; empty when they are not
	elsewhere   map[string]bool      // ids whose records are on their way from where the repository was
	unmounted   bool                 // a data directory is not there, so nothing can be said of what has no record
}

// look runs every check. One that fails does not hide what the others find.
func (x *examination) look(ctx context.Context) error {
	if err := x.gather(ctx); err != nil {
		return err
	}
	var errs []error
	for _, c := range checks() {
		errs = append(errs, c.look(x, ctx))
	}
	return errors.Join(errs...)
}

// gather reads what the checks share.
func (x *examination) gather(ctx context.Context) (err error) {
	x.elsewhere = map[string]bool{}
	if path, err := x.repo.Blocker(); err != nil {
		return err
	} else if path != "" {
		return &UnsafePathError{Path: path, Why: "is not a file, and git would wait for it for ever; remove it first"}
	}
	busy := func() bool { return x.unsettled }
	if x.worktrees, err = x.store.Worktrees(x.ID, busy); err != nil {
		return err
	}
	if x.invocations, err = x.store.Invocations(x.ID, busy); err != nil {
		return err
	}
	entries, err := x.repo.Entries()
	if err != nil {
		return err
	}
	x.entries = map[string]git.Entry{}
	for _, e := range entries {
		x.entries[e.Name] = e
	}
	return x.resolve(ctx)
}

// resolve looks up, in one process, every ref that belongs to an id.
func (x *examination) resolve(ctx context.Context) error {
	var names []string
	for _, e := range x.invocations {
		names = append(names, sandboxRef(e.ID), trashRef(e.ID))
	}
	for _, e := range x.worktrees {
		names = append(names, trashRef(e.ID))
		if e.Record.Branch != "" && !strings.ContainsAny(e.Record.Branch, "\n\x00") {
			names = append(names, heads+e.Record.Branch)
		}
	}
	for name := range x.entries {
		if ids.Valid(name) {
			names = append(names, sandboxRef(name))
		}
	}
	x.refs = map[string]string{}
	if len(names) == 0 {
		return nil
	}
	found, err := x.repo.Lookup(ctx, names...)
	if err != nil {
		return err
	}
	for i, name := range names {
		if x.refs[name] = found[i].OID; !found[i].Missing() {
			continue
		}
		if _, err := os.Lstat(x.repo.RefPath(name)); errors.Is(err, fs.ErrPermission) {
			return err // to git, what it may not read is not there
		}
	}
	return nil
}

// found adds a finding. With a mend, that is what --fix does; without one, f.Mend is what to type.
func (x *examination) found(f Finding, mend func(context.Context) error) {
	f.mend = mend
	if f.Mend == "" {
		f.Mend = "git agency doctor --fix " + ShellWord(f.ID)
	}
	if f.Outcome == "" && mend != nil {
		f.Outcome = outcomes[f.Code]
	}
	x.findings = append(x.findings, f)
}

// known reports whether there is anything of an id on record.
func (x *examination) known(id string) bool {
	_, there := store.Taken(x.store.InvocationDir(x.ID, id), x.store.SandboxDir(x.ID, id), x.store.WorktreeDir(x.ID, id))
	return there || x.elsewhere[id]
}

// owner is the id that a file in the git directory belongs to, by its name; else the name itself.
func (x *examination) owner(rel string) string {
	for part := rel; part != "." && part != "/"; part = filepath.Dir(part) {
		base := filepath.Base(part)
		for len(base) >= idLength {
			if ids.Valid(base[:idLength]) && x.known(base[:idLength]) {
				return base[:idLength]
			}
			base = base[1:]
		}
	}
	return rel
}

const idLength = len("20060102150405-0000")
