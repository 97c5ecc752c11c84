package gitagency

import (
	"bytes"
	"cmp"
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

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/proc"
)

// handoff moves git state between a sandbox with walls and the real git directory. It is the only way in either
// direction.
//
// Behind the walls git writes to the upper directory of an overlay over the git directory. Git on the host must never
// use anything of that directory: not its configuration, hooks, refs or objects. The import transfers only the commit
// at HEAD with the objects that it needs, and the index. A git process behind the same walls reports the commit and
// packs the objects; git on the host checks every object and moves the branch of the sandbox; the index is parsed as
// data and written anew. From then on all readers use the commits, the branch and the index of the sandbox in the
// real git directory, and the files of its tree.
type door struct {
	s     *Sandbox
	walls walls
	upper string // upper directory of the overlay over the git directory
	state doorState

	repo     *git.Repo     // repository with its lock held by the caller; nil: taken when needed
	patience time.Duration // limit for each git run in the sandbox, where anything may be configured
}

// agreedState is the state on both sides after the last import or export.
type doorState struct {
	Head  string `json:"head"`  // commit at HEAD in the sandbox
	Tip   string `json:"tip"`   // commit of the sandbox's branch in the real git directory
	On    string `json:"on"`    // HEAD of the real worktree: a full ref, or a commit
	Index string `json:"index"` // fingerprint of the index; empty when unknown
	Layer string `json:"layer"` // fingerprint of the upper directory
	Real  string `json:"real"`  // fingerprint of the sandbox's files in the real git directory
}

// openHandoff loads the handoff of a sandbox; there may be no state of it yet.
func (s *Sandbox) door(w walls) (*door, error) {
	d := &door{s: s, walls: w, patience: patienceInside, upper: s.layer()}
	return d, d.load()
}

// upperDir returns the path of the overlay upper directory of the git directory; it may not exist.
func (s *Sandbox) layer() string {
	return filepath.Join(s.repo.store.WallsDir(s.repo.ID, s.ID), "git", "upper")
}

func (d *door) statePath() string {
	return filepath.Join(d.s.repo.store.WallsDir(d.s.repo.ID, d.s.ID), "door.json")
}

func (d *door) load() error {
	d.state = doorState{}
	data, err := durable.ReadFile(d.statePath(), 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, &d.state)
	}
	return err
}

func (d *door) save(state doorState) error {
	data, err := json.Marshal(state)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(d.statePath(), append(data, '\n'), 0o600); err != nil {
		return err
	}
	d.state = state
	return nil
}

// hasPendingImport reports whether the upper directory has changed since the last import.
func (d *door) pending() (bool, error) {
	now, err := d.layer()
	return now != d.state.Layer, err
}

// fingerprintUpper returns the fingerprint of the upper directory; empty when there is nothing in it.
func (d *door) layer() (string, error) {
	entries, err := os.ReadDir(d.upper)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return git.LayerFingerprint(d.upper, d.s.ID)
}

// fingerprintReal returns a fingerprint of the files that change when the user works with git in the tree of the
// sandbox on the host.
func (d *door) real() string {
	admin := d.s.repo.git.AdminDir(d.s.ID)
	var all strings.Builder
	for _, path := range []string{
		filepath.Join(admin, "HEAD"), filepath.Join(admin, "index"),
		filepath.Join(d.s.repo.CommonDir, sandboxRef(d.s.ID)), filepath.Join(d.s.repo.CommonDir, "packed-refs"),
	} {
		fi, err := os.Lstat(path)
		if err != nil {
			continue
		}
		if filepath.Base(path) == "packed-refs" && !strings.HasSuffix(all.String(), "index\n") {
			continue // the loose ref is authoritative
		}
		fmt.Fprintf(&all, "%s %s\n", durable.Stamp(fi), filepath.Base(path))
	}
	return all.String()
}

// exportToSandbox transfers what the user has changed on the host since the last exchange, HEAD, branch and index, to
// the git directory behind the walls. It runs before a command does.
func (d *door) in(ctx context.Context, ns *proc.Room, dir *os.File) error {
	if d.state == (doorState{}) || d.real() == d.state.Real {
		return nil // nothing was ever written: the overlay shows the real files
	}
	release, err := d.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := d.load(); err != nil { // may have changed while waiting for the lock
		return err
	}
	real, on := d.real(), d.checkedOut()
	if real == d.state.Real {
		return nil
	}
	found, err := d.s.repo.git.Lookup(ctx, sandboxRef(d.s.ID), cmp.Or(on, "HEAD")+"^{commit}")
	if err != nil {
		return err
	}
	tip, head := found[0].OID, found[1].OID
	if head == "" {
		return errors.New("HEAD outside leads to no commit")
	}
	move, onto, stage := "", "", ""
	if head != d.state.Head {
		move = "yes"
	}
	if on != d.state.On {
		move, onto = "yes", on
	}
	staged := ""
	index, err := os.ReadFile(filepath.Join(d.s.repo.git.AdminDir(d.s.ID), "index"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		x, err := git.ReadIndex(index, git.FormatOf(head))
		if is[*git.NotPlainError](err) { // split or sparse index, of which the sandbox has only a part
			if index, err = d.s.repo.git.PlainIndex(ctx, d.s.ID); err != nil {
				return err
			}
			x, err = git.ReadIndex(index, git.FormatOf(head))
		}
		if err == nil {
			staged, real = d.shut(x, head, real)
			index = d.opened(x, index, head)
		}
		// If nothing moved and the fingerprint is unchanged, git on the host has only refreshed stat data. The index
		// of the sandbox then stays as it is, with its submodules visible.
		if move != "" || staged == "" || staged != d.state.Index {
			stage = "yes"
		}
	}
	if move != "" || stage != "" {
		if err := d.run(ctx, ns, dir, scriptIn, bytes.NewReader(index), io.Discard, move, head, d.state.Head, onto, sandboxRef(d.s.ID), stage); err != nil {
			return err
		}
	}
	layer, err := d.layer()
	if err != nil {
		return err
	}
	return d.save(doorState{Head: head, Tip: tip, On: on, Index: staged, Layer: layer, Real: real})
}

// importFromSandbox transfers HEAD, its objects and the index from behind the walls to the real git directory.
// Anything that cannot be imported stays in the upper directory and is tried again after the next command.
func (d *door) out(ctx context.Context, ns *proc.Room, dir *os.File) (err error) {
	release, err := d.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := d.load(); err != nil { // may have changed while waiting for the lock
		return err
	}
	layer, err := d.layer()
	if err != nil || layer == d.state.Layer {
		return err
	}
	if err := d.readable(); err != nil {
		return err
	}
	repo := d.s.repo.git
	// The sandbox's git packs while we read its index; our index is drafted while git on the host receives the pack.
	reading := proc.Meanwhile(func() (staging, error) { return d.staged(), nil })
	defer func() { _, _ = reading() }() // wait for it on every return: it may print a warning
	tip, err := repo.Tip(ctx, sandboxRef(d.s.ID))
	if err != nil {
		return err
	}
	if tip == "" {
		return &insideError{fmt.Errorf("there is no branch %s", short(sandboxRef(d.s.ID)))} // the user deleted it; importRemaining needs no branch
	}
	indexBefore, userChanged := d.indexStamp(), d.real() != d.state.Real // by the user; later differences are our own writes
	state := doorState{On: d.checkedOut(), Index: d.state.Index, Layer: layer}
	committed, err := d.pack(ctx, ns, dir, tip, nil)
	staged, _ := reading()
	if err != nil {
		return err
	}
	defer committed.Close()
	if staged.odd {
		staged = d.stagedInside(ctx, ns, dir, staged)
	}
	drafted := proc.Meanwhile(func() (*git.IndexDraft, error) { return d.draft(&staged, state.On) })
	var complete bool
	state.Head, state.Tip, complete, err = d.takeIn(ctx, ns, dir, tip, committed, staged.also)
	draft, draftErr := drafted()
	defer func() { err = errors.Join(err, draft.Drop()) }()
	if err = errors.Join(err, draftErr); err != nil {
		return err
	}
	// If the user has committed on the host and the sandbox has not, the index on the host belongs to that commit.
	overtaken := tip != d.state.Tip && d.state.Tip != "" && state.Head == d.state.Head
	wrote := draft != nil && !overtaken && complete
	if wrote {
		if err := draft.Lock(); err != nil {
			return err
		}
		wrote = d.checkedOut() == state.On // nor is it of use if the user has switched branches meanwhile
	}
	if wrote {
		state.Index = staged.print
		if userChanged || d.indexStamp() != indexBefore { // the user may have staged something meanwhile
			if err := d.setAside(ctx, state, tip); err != nil {
				return err
			}
		}
		if err := draft.Publish(); err != nil {
			return err
		}
	}
	state.Real = d.real()
	now, err := repo.Tip(ctx, sandboxRef(d.s.ID))
	if err != nil {
		return err
	}
	// Keep the old fingerprint if the user changed something, so that it is exported before the next command.
	if userChanged && !wrote || now != state.Tip || d.checkedOut() != state.On {
		state.Real = d.state.Real
	}
	if err := d.save(state); err != nil || state.Tip == tip || ns.Alone() {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(d.s.repo.CommonDir, sandboxRef(d.s.ID)), &st); err != nil {
		return err
	}
	return d.run(ctx, ns, dir, scriptUnlock, nil, io.Discard, sandboxRef(d.s.ID), strconv.FormatUint(st.Ino, 10))
}

// checkReadable refuses an upper directory in which a file that git always reads would block git for ever, as a pipe
// does, or is not a regular file of reasonable size.
func (d *door) readable() error {
	const maxSize = 64 << 20 // the largest is packed-refs
	entry := filepath.Join("worktrees", d.s.ID)
	for _, name := range []string{
		"config", "HEAD", "packed-refs", "shallow", "objects/info/alternates", "info/attributes", "info/grafts", sandboxRef(d.s.ID),
		entry + "/HEAD", entry + "/commondir", entry + "/gitdir", entry + "/config.worktree",
	} {
		if _, err := git.LayerFile(d.upper, name, maxSize); err != nil {
			return &insideError{fmt.Errorf("git inside cannot be asked: %w", err)}
		}
	}
	return nil
}

// lockOverlay serializes imports and exports of one sandbox.
func (d *door) lock(ctx context.Context) (release func(), err error) {
	timeout, err := d.s.repo.lockTimeout()
	if err != nil {
		return nil, err
	}
	held, err := lock.Clear(ctx, filepath.Dir(d.upper), timeout)
	if err != nil {
		return nil, err
	}
	return func() { _ = held.Close() }, nil
}

// lockRepository takes the repository lock, unless the caller holds it.
func (d *door) lockRepository(ctx context.Context) (*git.Repo, func(), error) {
	if d.repo != nil {
		return d.repo, func() {}, nil
	}
	return d.s.repo.lock(ctx)
}

// realHead returns what HEAD of the real worktree names: a full ref or a commit. If it is not the branch of the
// sandbox, the user has an index that belongs to something else.
func (d *door) checkedOut() string {
	head, err := durable.ReadFile(filepath.Join(d.s.repo.git.AdminDir(d.s.ID), "HEAD"), 1<<16)
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(strings.TrimSpace(string(head)), "ref: ")
}
