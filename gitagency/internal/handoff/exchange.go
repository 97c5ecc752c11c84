// Package handoff moves git state between the real git directory and the one that git in a sandbox writes to: behind walls, or in a
// clone. Nothing that was written there reaches git on the host but checked objects, one branch, and an index that was parsed
// and written anew.
package handoff

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/git/index"
	"github.com/git-agency/git-agency/gitagency/internal/git/object"
	"github.com/git-agency/git-agency/gitagency/internal/git/overlay"
	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
	"golang.org/x/sys/unix"
)

// Exchange moves git state between a sandbox and the real git directory. It is the only way in either direction.
//
// Behind walls git writes to the upper directory of an overlay over the git directory, and in a clone to a git directory of its
// own. Comments call both the upper directory. Git on the host must never use anything of that directory: not its
// configuration, hooks, refs or objects. The import transfers only the commit at HEAD with the objects that it needs, and the
// index. A git process in the sandbox (see Inside) reports the commit and packs the objects; git on the host checks every
// object and moves the branch of the sandbox; the index is parsed as data and written anew. From then on all readers use the
// commits, the branch and the index of the sandbox in the real git directory, and the files of its tree.
type Exchange struct {
	repo        *core.Repository
	id          string          // of the invocation
	environment func() []string // environment of our scripts in the sandbox; nil where none is to run
	upper       string          // upper directory of the overlay over the git directory, or git directory of a clone
	entry       string          // path in upper of the entry of the worktree, which has HEAD and the index
	dir         string          // directory for the state of the exchange
	Agreed      AgreedState
	layer       string   // fingerprint of the upper directory that is being imported
	importTip   string   // commit of the sandbox's branch in the real git directory when the import began
	refused     *refusal // saved refusal of a pack that still holds; nil when there is none

	refusalSaved bool // a refusal is saved, whether or not it still holds

	LockedRepo    *git.Repo     // repository with its lock held by the caller; nil: taken when needed
	ScriptTimeout time.Duration // limit for each git run in the sandbox, where anything may be configured
}

// AgreedState is the state on both sides after the last import or export.
type AgreedState struct {
	SandboxHead      string `json:"head"`  // commit at HEAD in the sandbox
	BranchTip        string `json:"tip"`   // commit of the sandbox's branch in the real git directory
	RealHead         string `json:"on"`    // HEAD of the real worktree: a full ref, or a commit
	IndexFingerprint string `json:"index"` // fingerprint of the index; empty when unknown
	UpperFingerprint string `json:"layer"` // fingerprint of the upper directory
	RealFingerprint  string `json:"real"`  // fingerprint of the sandbox's files in the real git directory
}

// Open returns the exchange of a sandbox with its saved state, if there is any. environment is called for each script
// that runs in the sandbox.
func Open(r *core.Repository, id string, environment func() []string) (*Exchange, error) {
	e := New(r, id)
	e.environment = environment
	return e, e.loadState()
}

// New returns an exchange that has not loaded its state.
func New(r *core.Repository, id string) *Exchange {
	return NewOf(r, id, UpperDir(r, id))
}

// NewOf is New for one of the git directories of a sandbox that is a clone.
func NewOf(r *core.Repository, id, upper string) *Exchange {
	e := &Exchange{repo: r, id: id, ScriptTimeout: sandboxGitTimeout, upper: upper, entry: overlay.EntryIn(upper, id), dir: r.Store.WallsDir(r.ID, id)}
	if e.isOutside() {
		e.dir = r.Store.CloneDir(r.ID, id)
	}
	return e
}

// UpperDir returns the path of the directory to which git in a sandbox writes; it may not exist. See core.Repository.UpperDir.
func UpperDir(r *core.Repository, id string) string {
	return r.UpperDir(id)
}

func (e *Exchange) statePath() string {
	return filepath.Join(e.dir, "door.json")
}

func (e *Exchange) loadState() error {
	e.Agreed = AgreedState{}
	data, err := durable.ReadFile(e.statePath(), 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, &e.Agreed)
	}
	return err
}

func (e *Exchange) saveState(state AgreedState) error {
	data, err := json.Marshal(state)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(e.statePath(), append(data, '\n'), 0o600); err != nil {
		return err
	}
	e.Agreed = state
	return nil
}

// HasPendingImport reports whether the upper directory has changed since the last import.
func (e *Exchange) HasPendingImport() (bool, error) {
	now, err := e.FingerprintUpper()
	return now != e.Agreed.UpperFingerprint, err
}

// FingerprintUpper returns the fingerprint of the upper directory; empty when there is nothing in it.
func (e *Exchange) FingerprintUpper() (string, error) {
	_ = guard.RestoreOwnAccess(e.upper) // a command may have removed it; a failure shows below
	entries, err := os.ReadDir(e.upper)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return overlay.Fingerprint(e.upper, e.id)
}

// fingerprintReal returns a fingerprint of the files that change when the user works with git in the tree of the
// sandbox on the host.
func (e *Exchange) fingerprintReal() string {
	admin := e.repo.Git.AdminDir(e.id)
	var all strings.Builder
	for _, path := range []string{
		filepath.Join(admin, "HEAD"), filepath.Join(admin, "index"),
		filepath.Join(e.repo.CommonDir, core.SandboxRef(e.id)), filepath.Join(e.repo.CommonDir, "packed-refs"),
	} {
		fi, err := os.Lstat(path)
		if err != nil {
			continue
		}
		if filepath.Base(path) == "packed-refs" && !strings.HasSuffix(all.String(), "index\n") {
			continue // the loose ref is authoritative
		}
		fmt.Fprintf(&all, "%s %s\n", durable.StatFingerprint(fi), filepath.Base(path))
	}
	return all.String()
}

// Export transfers what the user has changed on the host since the last exchange, HEAD, branch and index, to
// the upper directory. It runs before a command does.
func (e *Exchange) Export(ctx context.Context, in Inside, dir *os.File) error {
	if e.Agreed == (AgreedState{}) || e.fingerprintReal() == e.Agreed.RealFingerprint {
		return nil // nothing was ever written: the overlay shows the real files
	}
	release, err := e.lockOverlay(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := e.loadState(); err != nil { // may have changed while waiting for the lock
		return err
	}
	real, on := e.fingerprintReal(), e.realHead()
	if real == e.Agreed.RealFingerprint {
		return nil
	}
	if on == "" { // "HEAD" would be that of the integration worktree
		return fmt.Errorf("%s has no HEAD", e.repo.Git.AdminDir(e.id))
	}
	found, err := e.repo.Git.Lookup(ctx, core.SandboxRef(e.id), on+"^{commit}")
	if err != nil {
		return err
	}
	tip, head := found[0].OID, found[1].OID
	if head == "" {
		return errors.New("HEAD outside the walls does not point to a commit")
	}
	move, onto, stage := "", "", ""
	if head != e.Agreed.SandboxHead {
		move = "yes"
	}
	if on != e.Agreed.RealHead {
		move, onto = "yes", on
	}
	staged := ""
	idx, err := os.ReadFile(filepath.Join(e.repo.Git.AdminDir(e.id), "index"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		x, err := index.Read(idx, object.FormatOf(head))
		if fault.Is[*index.NotPlainError](err) { // split or sparse index, of which the sandbox has only a part
			if idx, err = e.repo.Git.ExpandIndex(ctx, e.id); err != nil {
				return err
			}
			x, err = index.Read(idx, object.FormatOf(head))
		}
		if err == nil {
			staged, real = e.skipNestedRepositories(ctx, x, head, real)
			idx = e.keepNestedVisible(x, idx, head)
		}
		// If nothing moved and the fingerprint is unchanged, git on the host has only refreshed stat data. The index
		// of the sandbox then stays as it is, with its submodules visible.
		if move != "" || staged == "" || staged != e.Agreed.IndexFingerprint {
			stage = "yes"
		}
	}
	if move != "" || stage != "" {
		if err := e.runScript(ctx, in, dir, scriptExport, bytes.NewReader(idx), io.Discard, move, head, e.Agreed.SandboxHead, onto, core.SandboxRef(e.id), stage); err != nil {
			return err
		}
	}
	layer, err := e.FingerprintUpper()
	if err != nil {
		return err
	}
	return e.saveState(AgreedState{SandboxHead: head, BranchTip: tip, RealHead: on, IndexFingerprint: staged, UpperFingerprint: layer, RealFingerprint: real})
}

// Import transfers HEAD, its objects and the index from the upper directory to the real git directory.
// Anything that cannot be imported stays in the upper directory and is tried again after the next command.
func (e *Exchange) Import(ctx context.Context, in Inside, dir *os.File) error {
	release, err := e.lockOverlay(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := e.loadState(); err != nil { // may have changed while waiting for the lock
		return err
	}
	layer, err := e.FingerprintUpper()
	if err != nil || layer == e.Agreed.UpperFingerprint {
		return err
	}
	err = e.loadRefusal(layer)
	if err == nil {
		err = e.importState(ctx, in, dir)
	}
	if err == nil || context.Cause(ctx) != nil {
		return err
	}
	if unsaved := e.saveFailure(err); unsaved != nil {
		return errors.Join(err, unsaved)
	}
	return err
}

// importState imports the state of the upper directory. The caller has locked the overlay.
func (e *Exchange) importState(ctx context.Context, in Inside, dir *os.File) (err error) {
	if err := e.checkReadable(); err != nil {
		return err
	}
	repo := e.repo.Git
	// The sandbox's git packs while we read its index; our index is drafted while git on the host receives the pack.
	reading := proc.Async(func() (sandboxIndex, error) { return e.readSandboxIndex(), nil })
	defer func() { _, _ = reading() }() // wait for it on every return: it may print a warning
	tip, err := repo.Tip(ctx, core.SandboxRef(e.id))
	if err != nil {
		return err
	}
	if tip == "" {
		return &GitError{fmt.Errorf("branch %s does not exist", core.ShortBranch(core.SandboxRef(e.id)))} // the user deleted it; ImportRemaining needs no branch
	}
	e.importTip = tip
	indexBefore, userChanged := e.realIndexFingerprint(), e.fingerprintReal() != e.Agreed.RealFingerprint // by the user; later differences are our own writes
	state := AgreedState{RealHead: e.realHead(), IndexFingerprint: e.Agreed.IndexFingerprint, UpperFingerprint: e.layer}
	committed, err := e.packCommits(ctx, in, dir, tip, nil)
	staged, _ := reading()
	if err != nil {
		return err
	}
	defer committed.Close()
	if staged.notPlain {
		staged = e.readPlainIndex(ctx, in, dir, staged)
	}
	if err := e.importLFS(ctx); err != nil { // before a ref leads to commits that need them
		return err
	}
	drafted := proc.Async(func() (*git.IndexDraft, error) { return e.draftIndex(&staged, state.RealHead) })
	var complete bool
	state.SandboxHead, state.BranchTip, complete, err = e.importCommits(ctx, in, dir, tip, committed, staged)
	draft, draftErr := drafted()
	defer func() { err = errors.Join(err, draft.Drop()) }()
	if err = errors.Join(err, draftErr); err != nil {
		return err
	}
	// If the user has committed on the host and the sandbox has not, the index on the host belongs to that commit.
	overtaken := tip != e.Agreed.BranchTip && e.Agreed.BranchTip != "" && state.SandboxHead == e.Agreed.SandboxHead
	wrote := false
	if draft != nil && !overtaken && complete {
		keep := func() error {
			if !userChanged && e.realIndexFingerprint() == indexBefore {
				return nil
			}
			return e.keepRealIndex(ctx, state, tip) // the user may have staged something meanwhile
		}
		if wrote, err = e.publishIndex(draft, &state, staged.fingerprint, keep); err != nil {
			return err
		}
	}
	state.RealFingerprint = e.fingerprintReal()
	now, err := repo.Tip(ctx, core.SandboxRef(e.id))
	if err != nil {
		return err
	}
	// Keep the old fingerprint if the user changed something, so that it is exported before the next command. HEAD inside
	// is not on a branch that the user switched to: the export must still attach it.
	if userChanged && !wrote || now != state.BranchTip || e.realHead() != state.RealHead {
		state.RealFingerprint = e.Agreed.RealFingerprint
	}
	if userChanged && e.Agreed.RealHead != "" {
		state.RealHead = e.Agreed.RealHead
	}
	if err := errors.Join(e.saveState(state), e.dropRefusal()); err != nil || state.BranchTip == tip || in.IsSoleUser() {
		return err
	}
	return e.removeRefLock(ctx, in, dir)
}

// publishIndex replaces the index on the host by the draft, unless the user has switched branches meanwhile. keep saves
// the index that is replaced.
func (e *Exchange) publishIndex(draft *git.IndexDraft, state *AgreedState, fingerprint string, keep func() error) (wrote bool, err error) {
	if err := draft.Lock(); err != nil {
		return false, err
	}
	if e.realHead() != state.RealHead {
		return false, nil
	}
	state.IndexFingerprint = fingerprint
	if err := keep(); err != nil {
		return false, err
	}
	return true, draft.Publish()
}

// removeRefLock removes the lock file of the branch that git on the host has removed, and that is still visible behind
// the walls.
func (e *Exchange) removeRefLock(ctx context.Context, in Inside, dir *os.File) error {
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(e.repo.CommonDir, core.SandboxRef(e.id)), &st); err != nil {
		return err
	}
	return e.runScript(ctx, in, dir, scriptRemoveRefLock, nil, io.Discard, core.SandboxRef(e.id), strconv.FormatUint(st.Ino, 10))
}

// checkReadable refuses an upper directory in which a file that git always reads would block git for ever, as a pipe
// does, or is not a regular file of reasonable size.
func (e *Exchange) checkReadable() error {
	const maxSize = 64 << 20 // the largest is packed-refs
	entry := e.entry
	for _, name := range []string{
		"config", "HEAD", "packed-refs", "shallow", "objects/info/alternates", "info/attributes", "info/grafts", core.SandboxRef(e.id),
		filepath.Join(entry, "HEAD"), filepath.Join(entry, "commondir"), filepath.Join(entry, "gitdir"), filepath.Join(entry, "config.worktree"),
	} {
		if _, err := overlay.ReadUpperFile(e.upper, name, maxSize); err != nil {
			return &GitError{fmt.Errorf("git cannot be run %s: %w", e.Place(), err)}
		}
	}
	return nil
}

// realHead returns what HEAD of the real worktree names: a full ref or a commit. If it is not the branch of the
// sandbox, the user has an index that belongs to something else.
func (e *Exchange) realHead() string {
	head, err := durable.ReadFile(filepath.Join(e.repo.Git.AdminDir(e.id), "HEAD"), 1<<16)
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(strings.TrimSpace(string(head)), "ref: ")
}
