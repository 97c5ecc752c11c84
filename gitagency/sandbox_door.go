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
	"maps"
	"os"
	"path/filepath"
	"slices"
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

// maxIndex is how large an index may be that comes out.
const maxIndex = 1 << 29

// door opens the door of a sandbox; it need not have been used before.
func (s *Sandbox) door(w walls) (*door, error) {
	d := &door{s: s, walls: w, patience: patienceInside, upper: filepath.Join(s.repo.store.WallsDir(s.repo.ID, s.ID), "git", "upper")}
	return d, d.load()
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
		if x, err := git.ReadIndex(index, git.FormatOf(head)); err == nil {
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

// shut has no git outside look into a repository that is in the tree, as that of a submodule: whoever works
// behind the walls can have put anything there, or has it where only a git inside finds it. x is what is staged,
// and real belongs to it; what they are then is returned.
func (d *door) shut(x git.Index, commit, real string) (print, now string) {
	print = x.Closed().Fingerprint()
	if !x.AnyOpen() {
		return print, real
	}
	was, err := d.s.repo.git.CloseIndex(d.s.ID, git.FormatOf(commit))
	if err != nil {
		d.s.repo.warn("sandbox %s: git outside still looks into its submodules: %v", d.s.ID, err)
	}
	if err != nil || was.Fingerprint() != x.Fingerprint() { // somebody is at work there
		return print, real
	}
	return print, d.real()
}

// opened is an index that goes in: what can be looked into inside, and not outside, can be still.
func (d *door) opened(x git.Index, data []byte, commit string) []byte {
	if !x.AnyClosed() {
		return data
	}
	file, err := git.LayerFile(d.upper, filepath.Join("worktrees", d.s.ID, "index"), maxIndex)
	if err != nil || !file.Found {
		return data
	}
	inside, err := git.ReadIndex(file.Data, git.FormatOf(commit))
	if err != nil {
		return data
	}
	return x.OpenedLike(inside).Encode()
}

// out brings what was done behind the walls out. What cannot come out stays where it is, and is tried again
// after the next command.
func (d *door) out(ctx context.Context, room *proc.Room, dir *os.File) error {
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
	found, err := repo.Lookup(ctx, sandboxRef(d.s.ID))
	if err != nil {
		return err
	}
	tip := found[0].OID
	if tip == "" {
		return &insideError{fmt.Errorf("there is no branch %s", short(sandboxRef(d.s.ID)))} // a person took it away; rest does without
	}
	touched := d.real() != d.state.Real // by a person; what follows is ours
	staged, at, also := d.staged(ctx, room, dir, git.FormatOf(tip))
	state := doorState{On: d.checkedOut(), Index: d.state.Index, Layer: layer}
	if state.Head, state.Tip, err = d.takeIn(ctx, room, dir, tip, also); err != nil {
		return err
	}
	wrote := false
	if staged != nil && state.On == sandboxRef(d.s.ID) {
		print := staged.Fingerprint()
		// A person who has committed outside while nobody did inside has an index that goes with that commit.
		overtaken := tip != d.state.Tip && d.state.Tip != "" && state.Head == d.state.Head
		if wrote = !overtaken && (print != d.state.Index || d.state.Index == ""); wrote {
			state.Index = print
			if touched {
				if err := d.setAside(ctx, state, tip); err != nil {
					return err
				}
			}
			if err := repo.WriteIndex(d.s.ID, *staged, at); err != nil {
				return err
			}
		}
	}
	state.Real = d.real()
	if touched && !wrote { // what they did goes in before the next command
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
		"config", "HEAD", "packed-refs", "shallow", "objects/info/alternates", "info/grafts", sandboxRef(d.s.ID),
		own + "/HEAD", own + "/commondir", own + "/gitdir", own + "/config.worktree",
	} {
		if _, err := git.LayerFile(d.upper, name, most); err != nil {
			return &insideError{fmt.Errorf("git inside cannot be asked: %w", err)}
		}
	}
	return nil
}

// setAside keeps what a person has staged outside since something last went through, when other things are
// staged inside.
func (d *door) setAside(ctx context.Context, now doorState, tip string) error {
	if d.state.Index == "" {
		return nil // nothing was ever staged outside that we know of
	}
	data, err := os.ReadFile(filepath.Join(d.s.repo.git.AdminDir(d.s.ID), "index"))
	if err != nil {
		return err
	}
	theirs, err := git.ReadIndex(data, git.FormatOf(tip))
	if err != nil { // which also git outside cannot read, or a split one
		return fmt.Errorf("index outside: %w", err)
	}
	if is := theirs.Closed().Fingerprint(); is == d.state.Index || is == now.Index {
		return nil
	}
	if same, err := d.s.repo.git.StagedIs(ctx, d.s.ID, tip); err != nil || same { // they have committed it
		return err
	}
	commit, err := d.commitAside(ctx, tip, now.Tip)
	if err != nil {
		return err
	}
	if commit != "" {
		d.s.repo.warn("sandbox %s: other things were staged inside than outside; what was staged outside is kept: git show %s", d.s.ID, commit)
		return nil
	}
	aside := filepath.Join(filepath.Dir(d.statePath()), "index-outside")
	for n := 2; ; n++ { // one that was kept before stays
		if _, err := os.Lstat(aside); err != nil {
			break
		}
		aside = filepath.Join(filepath.Dir(d.statePath()), fmt.Sprintf("index-outside-%d", n))
	}
	if err := durable.WriteFile(aside, data, 0o600); err != nil {
		return err
	}
	d.s.repo.warn("sandbox %s: other things were staged inside than outside, where not all was merged; what was staged outside is kept until the sandbox is discarded: GIT_INDEX_FILE=%s git diff --cached", d.s.ID, ShellWord(aside))
	return nil
}

// commitAside makes a commit of what a person has staged outside, on top of tip. The log of HEAD, which is
// at head now, knows of it, and so does whoever discards the sandbox.
func (d *door) commitAside(ctx context.Context, tip, head string) (string, error) {
	repo, unlock, err := d.lockRepository(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	const why = "agency: what was staged outside"
	commit, err := repo.CommitStaged(ctx, d.s.ID, tip, toolIdentity, why)
	if err != nil || commit == "" {
		return "", err
	}
	if err := repo.LogHead(d.s.ID, head, commit, toolIdentity, d.s.repo.now(), why); err != nil {
		return "", err
	}
	return commit, repo.LogHead(d.s.ID, commit, head, toolIdentity, d.s.repo.now(), "agency: back to what was committed")
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

// staged is the index behind the walls, and the objects of it that are not staged outside. One that cannot be
// read, or is none, stays behind.
func (d *door) staged(ctx context.Context, room *proc.Room, dir *os.File, format git.ObjectFormat) (*git.Index, time.Time, []string) {
	file, err := git.LayerFile(d.upper, filepath.Join("worktrees", d.s.ID, "index"), maxIndex)
	if err != nil || !file.Found {
		if err != nil {
			d.s.repo.warn("sandbox %s: what is staged there stays there: %v", d.s.ID, err)
		}
		return nil, time.Time{}, nil
	}
	// At the same time: both may be large.
	outside := make(chan git.Index, 1)
	go func() {
		var before git.Index
		if data, err := os.ReadFile(filepath.Join(d.s.repo.git.AdminDir(d.s.ID), "index")); err == nil {
			before, _ = git.ReadIndex(data, format) // without it, more is asked for
		}
		outside <- before
	}()
	index, err := git.ReadIndex(file.Data, format)
	if is[*git.NotPlainError](err) { // git inside has all of it
		plain := bounded{left: maxIndex}
		if err = d.run(ctx, room, dir, scriptPlain, nil, &plain); err == nil {
			index, err = git.ReadIndex(plain.Bytes(), format)
		}
	}
	if err != nil {
		d.s.repo.warn("sandbox %s: what is staged there stays there: %v", d.s.ID, err)
		return nil, time.Time{}, nil
	}
	index = index.Closed() // a person who looks at the sandbox shall run nothing that is configured in it
	return &index, file.ModTime, index.Missing(<-outside)
}

// takeIn moves the branch of the sandbox to where HEAD is behind the walls, if it was moved there, and says
// where both are then.
func (d *door) takeIn(ctx context.Context, room *proc.Room, dir *os.File, tip string, also []string) (head, now string, err error) {
	not := []string{tip}
	if d.state.Head != "" && d.state.Head != tip {
		not = append(not, d.state.Head)
	}
	// A person may have moved the branch meanwhile: then only what comes after that may be put in its place.
	some, after := "", ""
	if d.state.Tip != "" && d.state.Tip != tip || d.state.Head != "" && d.state.Head != tip {
		after = tip
	}
	if len(also) > 0 {
		some = "yes"
	}
	unmoved := cmp.Or(d.state.Head, tip)
	head, pack, err := d.packed(ctx, room, dir, scriptPack, also, not, unmoved, some, after)
	if err != nil {
		return "", "", err
	}
	defer pack.Close()
	if now = head; head == unmoved {
		now = tip
	}
	if now == tip && len(also) == 0 {
		return head, now, nil
	}
	return head, now, d.take(ctx, git.Incoming{Pack: pack, New: now, Old: tip, Also: also, Reason: "agency: exec"})
}

// rest brings out what else git has behind the walls and no branch outside leads to: other branches, tags,
// what was stashed, amended or reset away. It hangs together under one commit, of which the log of HEAD
// knows. This is for a sandbox that is about to go.
func (d *door) rest(ctx context.Context, room *proc.Room, dir *os.File) error {
	if err := d.readable(); err != nil {
		return err
	}
	repo := d.s.repo.git
	found, err := repo.Lookup(ctx, sandboxRef(d.s.ID), d.s.repo.store.Invocation(d.s.repo.ID, d.s.ID, nil).Record.BaseCommit+"^{commit}")
	if err != nil {
		return err
	}
	tip := cmp.Or(found[0].OID, found[1].OID) // a person may have renamed the branch
	if tip == "" {
		return fmt.Errorf("there is neither branch %s nor the commit that it started from", short(sandboxRef(d.s.ID)))
	}
	refs, err := repo.Refs(ctx)
	if err != nil {
		return err
	}
	not := slices.Compact(slices.Sorted(maps.Values(refs))) // what is kept already
	all, pack, err := d.packed(ctx, room, dir, scriptRest, nil, append(not, tip), tip)
	if err != nil {
		return err
	}
	defer pack.Close()
	if all == tip {
		return nil
	}
	return d.take(ctx, git.Incoming{Pack: pack, New: all, Old: tip, Stay: true, Reason: "agency: what else was inside"})
}
