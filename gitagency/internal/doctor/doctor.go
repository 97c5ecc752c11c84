// Package doctor finds and repairs the leftovers of killed commands and damaged records, and prunes what has ended. It
// removes nothing that is not provably kept elsewhere or ended.
package doctor

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

	"github.com/git-agency/git-agency/gitagency/internal/changeset"
	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/discard"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/repair"
	"github.com/git-agency/git-agency/gitagency/internal/git/worktree"
	"github.com/git-agency/git-agency/gitagency/internal/ids"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/store"
	"github.com/git-agency/git-agency/gitagency/quote"
)

// Finding is one problem that Diagnose found.
type Finding struct {
	Code       string `json:"code"` // stable identifier; FindingCodes lists all
	ID         string `json:"id"`   // argument for Fix: an invocation id, a worktree id, or a path in the git directory
	Path       string `json:"path"`
	Problem    string `json:"what"`         // description for people, part of a sentence
	AtRisk     bool   `json:"work_at_risk"` // a wrong step could lose work that is stored nowhere else
	FixCommand string `json:"mend"`         // command that fixes it
	Outcome    string `json:"outcome"`      // state after Fix; empty if only a person can fix it

	fix      func(ctx context.Context) error // nil if only a person can fix it
	fixFirst bool                            // blocks other commands, so Fix fixes it first, whatever id it is given
}

// sameAs reports whether two findings describe the same problem.
func (f Finding) sameAs(other Finding) bool {
	return f.Code == other.Code && f.ID == other.ID && f.Path == other.Path
}

// FindingError reports a problem that only a person can repair.
type FindingError struct{ Finding Finding }

func (e *FindingError) Error() string {
	return fmt.Sprintf("%s: %s (%s)", e.Finding.ID, e.Finding.Problem, e.Finding.Code)
}

// Diagnosis is the result of Diagnose.
type Diagnosis struct {
	Findings      []Finding `json:"findings"`
	ActiveProcess string    `json:"busy"` // process that was changing the repository meanwhile, whose traces are not reported; else empty

	Capabilities []Capability `json:"machine"`
	Refusals     []Refusal    `json:"refusals"`
}

// Diagnose checks a repository, its records and its trees for every known problem, and changes nothing. A result returned
// with an error holds the findings so far.
func Diagnose(ctx context.Context, r *core.Repository) (Diagnosis, error) {
	d, lookErr := collectFindings(ctx, r)
	var err error
	d.Capabilities, err = Capabilities(ctx, r)
	return d, errors.Join(lookErr, err)
}

// collectFindings runs all checks, under the repository lock if possible: operations in progress are no findings.
func collectFindings(ctx context.Context, r *core.Repository) (d Diagnosis, err error) {
	x := &checkRun{Repository: r, repo: r.Git, findings: []Finding{}}
	d.Refusals = []Refusal{}
	defer func() { d.Findings, d.ActiveProcess = x.findings, x.activeProcess }()
	if _, used := store.FirstExisting(r.LockDir()); used {
		// Do not wait: the lock may be held by a process that hangs.
		held, err := lock.Acquire(ctx, lock.Request{Dir: r.LockDir(), Command: r.Opts.Command})
		var timeout *fault.LockTimeoutError
		switch {
		case errors.As(err, &timeout):
			x.activeProcess, x.changing = timeout.Holder.String(), true
		case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS): // without write access the checks still work
			x.changing = r.IsLocked()
		case err != nil:
			return d, err
		default:
			defer func() {
				if err := held.Release(); err != nil {
					r.Warn("release the repository lock: %v", err)
				}
			}()
		}
	}
	release, running, err := discard.BlockCleanup(ctx, r, 0)
	if err != nil {
		return d, err
	}
	defer release()
	if x.cleanupRunning = running; running && x.activeProcess == "" {
		x.activeProcess = cleanupProcess
	}
	err = x.runAll(ctx)
	d.Refusals = x.refused()
	if x.changing && len(x.findings) > 0 {
		// A record may have been read before a change and its tree after it. Every command writes the record first, so a second
		// run of the checks does not repeat such a false finding.
		again := &checkRun{Repository: r, repo: r.Git, changing: true, cleanupRunning: running}
		err = again.runAll(ctx)
		x.findings = slices.DeleteFunc(x.findings, func(f Finding) bool { return !slices.ContainsFunc(again.findings, f.sameAs) })
	}
	return d, err
}

// cleanupProcess describes the process that removes sandboxes after their landing or discard.
const cleanupProcess = "the removal of ended sandboxes"

// Fix fixes everything that was found under one id, and returns those findings. It finishes or undoes interrupted
// operations and never loses work: a ref keeps everything that it removes.
func Fix(ctx context.Context, r *core.Repository, id string) ([]Finding, error) {
	fixed := []Finding{}
	if _, err := r.Settings.TrashLimit(); err != nil { // a fix may write an archive
		return fixed, err
	}
	repo, unlock, err := r.LockWithoutRecovery(ctx)
	if err != nil {
		return fixed, err
	}
	defer unlock()
	release, running, err := discard.BlockCleanup(ctx, r, 0)
	if err != nil {
		return fixed, err
	}
	defer release()
	id = resolveFindingID(r, id)
	// Fix one finding at a time and run the checks again: a fix often removes the next finding, or reveals it.
	for {
		x := &checkRun{Repository: r, repo: repo, cleanupRunning: running}
		lookErr := x.runAll(ctx)
		next, ok := x.nextFinding(id, fixed)
		switch {
		case !ok && lookErr != nil && len(fixed) == 0:
			return fixed, lookErr
		case ok && next.fix == nil:
			return fixed, &FindingError{next}
		case ok:
			if err := next.fix(ctx); err != nil {
				return fixed, fmt.Errorf("fix %s of %s: %w", next.Code, next.ID, err)
			}
			fixed = append(fixed, next)
			continue
		case len(fixed) == 0:
			return fixed, checkFindingID(r, id)
		case lookErr != nil:
			r.Warn("not everything could be checked: %v", lookErr)
		}
		return fixed, nil
	}
}

// resolveFindingID expands an id prefix or a worktree name to the full id, and returns anything else unchanged. A broken
// record has no other name than its full id.
func resolveFindingID(r *core.Repository, id string) string {
	if i, err := r.Invocation(id); err == nil {
		return i.ID
	}
	if w, err := r.Worktree(id); err == nil && id != "" {
		return w.ID
	}
	return id
}

// nextFinding returns the next finding to fix. A finding that is still there after its fix gets errNotFixed as its fix.
func (x *checkRun) nextFinding(id string, fixed []Finding) (Finding, bool) {
	hasID := func(f Finding) bool { return f.ID == id }
	if !slices.ContainsFunc(x.findings, hasID) && len(fixed) == 0 {
		return Finding{}, false // nothing under that id; then fixFirst findings stay too
	}
	for _, wanted := range []func(Finding) bool{
		func(f Finding) bool { return f.fixFirst && f.fix != nil },
		func(f Finding) bool { return hasID(f) && f.fix != nil },
		hasID,
	} {
		for _, f := range x.findings {
			if !wanted(f) {
				continue
			}
			if slices.ContainsFunc(fixed, f.sameAs) {
				f.fix = func(context.Context) error { return errNotFixed }
			}
			return f, true
		}
	}
	return Finding{}, false
}

// errNotFixed reports a finding that is still there after its fix.
var errNotFixed = errors.New("the problem is still there after the fix")

// checkFindingID returns an error if an id without findings does not exist at all.
func checkFindingID(r *core.Repository, id string) error {
	if _, there := store.FirstExisting(r.Store.InvocationDir(r.ID, id), r.Store.WorktreeDir(r.ID, id)); there && ids.Valid(id) {
		return nil
	}
	return &fault.NotFoundError{Kind: "finding", Query: id}
}

// checks lists all checks in the order in which findings are shown.
func checks() []checkSpec {
	return []checkSpec{
		{[]string{"moved-repository", "damaged-repo"}, (*checkRun).checkMovedRepository},
		{[]string{"data-dir-missing", "data-dir-open"}, (*checkRun).checkDataDir},
		{[]string{"refused-setting"}, (*checkRun).checkSettings},
		{[]string{"stale-lock"}, (*checkRun).checkGitLocks},
		{[]string{"interrupted-land", "stray-landing"}, (*checkRun).checkLandings},
		{[]string{"interrupted-creation", "empty-record", "missing-meta", "corrupt-meta", "id-mismatch", "missing-tree", "moved-tree", "moved-data", "interrupted-archive", "half-archived", "missing-marker", "unreadable-tree", "foreign-tree", "unlinked-tree", "missing-branch", "foreign-record", "leftovers"}, (*checkRun).checkIntegrationWorktrees},
		{[]string{"interrupted-discard", "half-discarded", "wrong-marker", "interrupted-put", "interrupted-rollback", "interrupted-verify", "missing-target", "missing-layer", "missing-clone"}, (*checkRun).checkSandboxes},
		{[]string{"interrupted-probe"}, (*checkRun).checkProbes},
		{[]string{"unclaimed-marker"}, (*checkRun).checkUnrecordedMarkers},
		{[]string{"orphan-branch", "other-data-dir", "copied-entry"}, (*checkRun).checkUnrecorded},
		{[]string{"orphan-ref"}, (*checkRun).checkUnrecordedPins},
		{[]string{"damaged-entry", "initializing-entry"}, (*checkRun).checkWorktreeEntries},
		{[]string{"orphan-log"}, (*checkRun).checkOrphanReflogs},
		{[]string{"orphan-archive"}, (*checkRun).checkArchives},
		{[]string{"leftover-scratch"}, (*checkRun).checkScratch},
		{[]string{"visible-markers"}, (*checkRun).checkExclude},
	}
}

type checkSpec struct {
	codes []string
	run   func(*checkRun, context.Context) error
}

// FindingCodes lists every code that a finding can have.
func FindingCodes() []string {
	var codes []string
	for _, c := range checks() {
		codes = append(codes, c.codes...)
	}
	return codes
}

// checkRun is one run of all checks, with the data that they share.
type checkRun struct {
	*core.Repository
	repo           *git.Repo
	cleanupRunning bool   // another process is removing ended sandboxes now
	changing       bool   // another process may be changing the repository now
	activeProcess  string // description of that process
	findings       []Finding

	worktrees      []store.Entry[store.WorktreeMeta]
	invocations    []store.Entry[store.InvocationMeta]
	entries        map[string]worktree.Entry // git's worktree entries (.git/worktrees/<name>) by name
	refs           map[string]string         // commits of the refs that belong to ids; empty if a ref does not exist
	pins           map[string]string         // commits of the refs that keep objects for sandboxes, by ref: see core.PinnedRefs
	movedIDs       map[string]bool           // ids recorded under an earlier path of the repository
	formerIDs      []string                  // ids that the repository had at former paths
	hasMoved       bool                      // moved-repository is among the findings
	dataDirMissing bool                      // a data directory is missing, so a missing record proves nothing
}

// runAll runs every check. A check that fails does not hide the findings of the others.
func (x *checkRun) runAll(ctx context.Context) error {
	if err := x.loadInputs(ctx); err != nil {
		return err
	}
	var errs []error
	for _, c := range checks() {
		errs = append(errs, c.run(x, ctx))
	}
	return errors.Join(errs...)
}

// loadInputs reads the records, worktree entries and refs that the checks share.
func (x *checkRun) loadInputs(ctx context.Context) (err error) {
	x.movedIDs = map[string]bool{}
	if path, err := repair.BlockingRef(x.repo); err != nil {
		return err
	} else if path != "" {
		return &fault.UnsafePathError{Path: path, Why: "is not a regular file, and git would block on it; remove it first"}
	}
	busy := func() bool { return x.changing }
	if x.worktrees, err = x.Store.Worktrees(x.ID, busy); err != nil {
		return err
	}
	if x.invocations, err = x.Store.Invocations(x.ID, busy); err != nil {
		return err
	}
	entries, err := worktree.Entries(x.repo)
	if err != nil {
		return err
	}
	x.entries = map[string]worktree.Entry{}
	for _, e := range entries {
		x.entries[e.Name] = e
	}
	if x.pins, err = x.repo.Refs(ctx, changeset.BaseRef(""), changeset.StagedRef("")); err != nil {
		return err
	}
	return x.resolveRefs(ctx)
}

// resolveRefs looks up every ref that belongs to an id, with one git process.
func (x *checkRun) resolveRefs(ctx context.Context) error {
	var names []string
	for _, e := range x.invocations {
		names = append(names, core.SandboxRef(e.ID), core.TrashRef(e.ID))
		if to := e.Record.IntegrationBranch; to != "" && !strings.ContainsAny(to, "\n\x00") && !e.Record.HasEnded() {
			names = append(names, to)
		}
	}
	for _, e := range x.worktrees {
		names = append(names, core.TrashRef(e.ID))
		if e.Record.Branch != "" && !strings.ContainsAny(e.Record.Branch, "\n\x00") {
			names = append(names, core.HeadsPrefix+e.Record.Branch)
		}
	}
	for name := range x.entries {
		if ids.Valid(name) {
			names = append(names, core.SandboxRef(name))
		}
	}
	slices.Sort(names) // git tries six paths for a name, and sandboxes of a worktree have one integration branch
	names = slices.Compact(names)
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
			return err // git reports an unreadable ref as missing
		}
	}
	return nil
}

// addFinding adds a finding. Fix calls fix; if fix is nil, f.FixCommand is the command for a person to type.
func (x *checkRun) addFinding(f Finding, fix func(context.Context) error) {
	f.fix = fix
	if f.FixCommand == "" {
		f.FixCommand = "git agency doctor --fix " + quote.Shell(f.ID)
	}
	if f.Outcome == "" && fix != nil {
		f.Outcome = fixOutcomes[f.Code]
	}
	x.findings = append(x.findings, f)
}

// isRecorded reports whether there is a record or a sandbox directory of an id.
func (x *checkRun) isRecorded(id string) bool {
	_, there := store.FirstExisting(x.Store.InvocationDir(x.ID, id), x.Store.SandboxDir(x.ID, id), x.Store.WorktreeDir(x.ID, id))
	return there || x.movedIDs[id]
}

// ownerID returns the id in the path of a file in the git directory, if it is on record; otherwise the path itself.
func (x *checkRun) ownerID(rel string) string {
	for part := rel; part != "." && part != "/"; part = filepath.Dir(part) {
		base := filepath.Base(part)
		for len(base) >= ids.Length {
			if ids.Valid(base[:ids.Length]) && x.isRecorded(base[:ids.Length]) {
				return base[:ids.Length]
			}
			base = base[1:]
		}
	}
	return rel
}
