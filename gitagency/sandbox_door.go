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

// door is the only way by which what was done behind walls comes out, and what a person did outside goes in.
//
// Behind walls git writes to a layer of the sandbox's own over the git directory. Nothing of that layer is
// ever given to a git outside: not its configuration, its hooks, its refs, nor its objects. What comes out
// is where HEAD is, with the objects that it needs, and what is staged. A git behind the same walls says it
// and packs it; a git outside checks every object of it and moves the branch of the sandbox there; the index
// is read as data and written anew. From then on the commits, the branch and the index of the sandbox in the
// real git directory, and the files of its tree, are what everybody reads who comes later.
type door struct {
	s     *Sandbox
	walls walls
	upper string // the layer
	state doorState

	repo     *git.Repo     // with the repository lock, when the caller has it; else it is taken
	patience time.Duration // with git inside, where anything may be configured
}

// doorState is what was the same on both sides when something last went through.
type doorState struct {
	Head  string `json:"head"`  // where HEAD was inside
	Tip   string `json:"tip"`   // where the branch of the sandbox was outside
	On    string `json:"on"`    // what was checked out outside: a ref, or a commit
	Index string `json:"index"` // fingerprint of what was staged; empty when that is not known
	Layer string `json:"layer"` // fingerprint of the layer
	Real  string `json:"real"`  // fingerprint of what there is of the sandbox in the real git directory
}

// door opens the door of a sandbox; it need not have been used before.
func (s *Sandbox) door(w walls) (*door, error) {
	d := &door{s: s, walls: w, patience: patienceInside, upper: s.layer()}
	return d, d.load()
}

// layer is where the layer over the git directory is kept; it need not be there.
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

// pending reports whether something was done behind the walls that has not come out.
func (d *door) pending() (bool, error) {
	now, err := d.layer()
	return now != d.state.Layer, err
}

// layer is the fingerprint of the layer; empty when there is nothing in it.
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

// real is a fingerprint of what a person changes by working with git in the tree of the sandbox.
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
			continue // the ref itself says where it is
		}
		fmt.Fprintf(&all, "%s %s\n", durable.Stamp(fi), filepath.Base(path))
	}
	return all.String()
}

// in brings what a person has changed outside behind the walls, before a command runs there.
func (d *door) in(ctx context.Context, room *proc.Room, dir *os.File) error {
	if d.state == (doorState{}) || d.real() == d.state.Real {
		return nil // before anything was written, the layer shows what is below it
	}
	release, err := d.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := d.load(); err != nil { // somebody else may have been here while we waited
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
		if is[*git.NotPlainError](err) { // git inside has only a part of it
			if index, err = d.s.repo.git.PlainIndex(ctx, d.s.ID); err != nil {
				return err
			}
			x, err = git.ReadIndex(index, git.FormatOf(head))
		}
		if err == nil {
			staged, real = d.shut(x, head, real)
			index = d.opened(x, index, head)
		}
		// Else a git outside has only looked at the files; what is closed there is open inside.
		if move != "" || staged == "" || staged != d.state.Index {
			stage = "yes"
		}
	}
	if move != "" || stage != "" {
		if err := d.run(ctx, room, dir, scriptIn, bytes.NewReader(index), io.Discard, move, head, d.state.Head, onto, sandboxRef(d.s.ID), stage); err != nil {
			return err
		}
	}
	layer, err := d.layer()
	if err != nil {
		return err
	}
	return d.save(doorState{Head: head, Tip: tip, On: on, Index: staged, Layer: layer, Real: real})
}

// out brings what was done behind the walls out. What cannot come out stays where it is, and is tried again
// after the next command.
func (d *door) out(ctx context.Context, room *proc.Room, dir *os.File) (err error) {
	release, err := d.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := d.load(); err != nil { // somebody else may have been here while we waited
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
	// Git inside packs while we read what is staged, and what is staged is written while git outside takes in.
	reading := proc.Meanwhile(func() (staging, error) { return d.staged(), nil })
	defer func() { _, _ = reading() }() // it may have something to say, and nobody else's turn has come yet
	tip, err := repo.Tip(ctx, sandboxRef(d.s.ID))
	if err != nil {
		return err
	}
	if tip == "" {
		return &insideError{fmt.Errorf("there is no branch %s", short(sandboxRef(d.s.ID)))} // a person took it away; rest does without
	}
	was, touched := d.indexStamp(), d.real() != d.state.Real // by a person; what follows is ours
	state := doorState{On: d.checkedOut(), Index: d.state.Index, Layer: layer}
	committed, err := d.pack(ctx, room, dir, tip, nil)
	staged, _ := reading()
	if err != nil {
		return err
	}
	defer committed.Close()
	if staged.odd {
		staged = d.stagedInside(ctx, room, dir, staged)
	}
	drafted := proc.Meanwhile(func() (*git.IndexDraft, error) { return d.draft(&staged, state.On) })
	var whole bool
	state.Head, state.Tip, whole, err = d.takeIn(ctx, room, dir, tip, committed, staged.also)
	draft, draftErr := drafted()
	defer func() { err = errors.Join(err, draft.Drop()) }()
	if err = errors.Join(err, draftErr); err != nil {
		return err
	}
	// A person who has committed outside while nobody did inside has an index that goes with that commit.
	overtaken := tip != d.state.Tip && d.state.Tip != "" && state.Head == d.state.Head
	wrote := draft != nil && !overtaken && whole
	if wrote {
		if err := draft.Lock(); err != nil {
			return err
		}
		wrote = d.checkedOut() == state.On // nor has one who has switched away meanwhile any use for it
	}
	if wrote {
		state.Index = staged.print
		if touched || d.indexStamp() != was { // a person may have staged something while we were at it
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
	if touched && !wrote || now != state.Tip || d.checkedOut() != state.On { // what they did goes in before the next command
		state.Real = d.state.Real
	}
	if err := d.save(state); err != nil || state.Tip == tip || room.Alone() {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(d.s.repo.CommonDir, sandboxRef(d.s.ID)), &st); err != nil {
		return err
	}
	return d.run(ctx, room, dir, scriptUnlock, nil, io.Discard, sandboxRef(d.s.ID), strconv.FormatUint(st.Ino, 10))
}

// readable refuses a layer in which git would wait for ever, or find nothing that it could make sense of, at
// the files that it reads whatever it is asked.
func (d *door) readable() error {
	const most = 64 << 20 // of a list of refs
	own := filepath.Join("worktrees", d.s.ID)
	for _, name := range []string{
		"config", "HEAD", "packed-refs", "shallow", "objects/info/alternates", "info/attributes", "info/grafts", sandboxRef(d.s.ID),
		own + "/HEAD", own + "/commondir", own + "/gitdir", own + "/config.worktree",
	} {
		if _, err := git.LayerFile(d.upper, name, most); err != nil {
			return &insideError{fmt.Errorf("git inside cannot be asked: %w", err)}
		}
	}
	return nil
}

// lock lets one at a time through the door.
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

// lockRepository takes the repository lock, unless the caller has it.
func (d *door) lockRepository(ctx context.Context) (*git.Repo, func(), error) {
	if d.repo != nil {
		return d.repo, func() {}, nil
	}
	return d.s.repo.lock(ctx)
}

// checkedOut is what a person has checked out in the tree: a ref, or a commit. Who has something else there
// than the branch of the sandbox has an index of their own.
func (d *door) checkedOut() string {
	head, err := durable.ReadFile(filepath.Join(d.s.repo.git.AdminDir(d.s.ID), "HEAD"), 1<<16)
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(strings.TrimSpace(string(head)), "ref: ")
}
