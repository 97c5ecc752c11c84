package upload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
)

// Recover undoes puts that were killed halfway. Without any it costs one directory listing. Programs that work in the
// tree may have forged everything that it reads, so it does nothing that they could not do themselves: it moves and
// removes files inside of the tree, by allowed names. Anything that does not look like a stage was forged, and is
// removed or ignored; no forgery can make Recover fail. It waits up to timeout for a put in progress (0: not at all,
// negative: for ever); then the error is a *lock.TimeoutError. If files cannot be restored, the error is an
// *IncompleteUndoError.
func Recover(ctx context.Context, tree *guard.Tree, timeout time.Duration) error {
	p := &putting{tree: tree}
	if err := p.openAgency(); err != nil {
		return errors.Join(unlessGone(err), p.close()) // without .agency there was no put
	}
	stages, err := p.stages()
	if len(stages) > 0 && err == nil {
		if err = p.lock(ctx, timeout); err == nil {
			err = p.recover(ctx)
		}
	}
	return errors.Join(err, p.close())
}

// Quiesce is Recover that keeps puts from moving files until release is called; release is never nil. Until then the
// tree contains each put completely or not at all, also with an *IncompleteUndoError, except for the files that it
// reports.
func Quiesce(ctx context.Context, tree *guard.Tree, timeout time.Duration) (release func() error, err error) {
	p := &putting{tree: tree}
	if err := p.openAgency(); err != nil {
		return p.close, unlessGone(err) // without .agency there can be no put
	}
	if err := p.lock(ctx, timeout); err != nil {
		return p.close, err
	}
	return p.close, p.recover(ctx)
}

// IncompleteUndoError reports a killed put that could not be undone completely.
type LeftError struct {
	Stage string // path of its stage
	Files int    // number of replaced files that are still in the stage
	Err   error  // cause
}

func (e *LeftError) Error() string {
	return fmt.Sprintf("a put that was interrupted cannot be undone, and what it replaced is still in %s (files: %d): %v", e.Stage, e.Files, e.Err)
}

func (e *LeftError) Unwrap() error { return e.Err }

// InterruptedPut is a killed put that was not undone yet.
type Interrupted struct {
	Stage    string // path of its stage
	Replaced bool   // the stage holds replaced files
}

// FindInterrupted lists the puts that Recover would undo. It changes nothing and does not wait: while a put is moving
// files, it returns an empty list.
func Find(ctx context.Context, tree *guard.Tree) (found []Interrupted, err error) {
	p := &putting{tree: tree}
	defer func() { err = errors.Join(err, p.close()) }()
	if p.top, err = tree.Top(); err != nil {
		return nil, err
	}
	if p.agency, err = p.top.Enter(guard.Dir); err != nil {
		return nil, unlessGone(err)
	}
	stages, err := p.stages()
	if len(stages) == 0 || err != nil {
		return nil, err
	}
	var alive *lock.TimeoutError
	if err := p.lock(ctx, 0); errors.As(err, &alive) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range stages {
		there := Interrupted{Stage: path.Join(tree.Path, guard.Dir, name)}
		stage, err := p.agency.Enter(name)
		if errors.Is(err, fs.ErrPermission) { // entering it would need a chmod
			there.Replaced = !strings.HasPrefix(name, gonePrefix)
			found = append(found, there)
			continue
		}
		if err != nil {
			errs = append(errs, unlessGone(err))
			continue
		}
		dead, err := isDead(ctx, stage)
		if err == nil && dead {
			there.Replaced = !strings.HasPrefix(name, gonePrefix) && replaced(ctx, stage) > 0
			found = append(found, there)
		}
		errs = append(errs, err, stage.Close())
	}
	return found, errors.Join(errs...)
}

// ownerIsDead reports whether the process that owned a stage has ended.
func isDead(ctx context.Context, stage *guard.Folder) (bool, error) {
	handle, err := stage.Handle()
	if err != nil {
		return false, err
	}
	var alive *lock.TimeoutError
	if err := lock.ClearOpen(ctx, handle, 0); errors.As(err, &alive) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	return true, handle.Close()
}

// RescueReplaced moves the files that killed puts had replaced, and that Recover could not restore, to the top of the
// tree, into one directory per put. It returns the number of files and the directories. It is for a tree that is
// about to be removed, of which everything but .agency is saved.
func Rescue(ctx context.Context, tree *guard.Tree) (files int, dirs []string, err error) {
	p := &putting{tree: tree}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.openAgency(); err != nil {
		return 0, nil, unlessGone(err)
	}
	stages, err := p.stages()
	errs := []error{err}
	for _, name := range stages {
		if strings.HasPrefix(name, gonePrefix) {
			continue
		}
		errs = append(errs, p.inDeadStage(ctx, name, func(stage *guard.Folder) error {
			n := replaced(ctx, stage)
			if n == 0 {
				return nil
			}
			dir := "replaced-by-" + name
			if err := p.top.Writable(func() error { return stage.MoveAs(asideName, p.top, dir) }); err != nil {
				return err
			}
			files, dirs = files+n, append(dirs, dir)
			return nil
		}))
	}
	return files, dirs, errors.Join(errs...)
}

// undoPlaced undoes the moves made so far.
func (p *putting) takeBack(ctx context.Context) error {
	err := errors.Join(p.unmake(ctx, p.entries()), p.restore(ctx, p.aside))
	p.kept = err != nil
	return err
}

// planEntries returns the entries of plan.json.
func (p *putting) entries() []madeEntry {
	made := make([]madeEntry, 0, len(p.made))
	for _, n := range p.made {
		made = append(made, madeEntry{Path: n.path, Dir: n.dir, Narrow: n.narrow(), identity: n.identity})
	}
	return made
}

// maxPlanBytes is more than a few hundred thousand files need. Programs in the tree can write plans as well, and must
// not be able to keep their readers busy.
const largestPlan = 32 << 20

// planFile is plan.json.
type planFile struct {
	Made []madeEntry `json:"made"`
}

// createdEntry is a file or directory created by a put, at an unused path or in place of a replaced file.
type madeEntry struct {
	Path   string `json:"path"`
	Dir    bool   `json:"dir,omitempty"`
	Narrow bool   `json:"narrow,omitempty"` // final mode of the directory denies its owner write access
	identity
}

// identity tells whether a file is still the one that was put. A file that was modified or replaced since then is not
// removed by undo.
type identity struct {
	Device   uint64 `json:"dev"`
	Inode    uint64 `json:"ino"`
	Modified int64  `json:"mtime,omitempty"` // in nanoseconds; not set for directories, where it means little
}

func identify(fi guard.Info) identity {
	id := identity{Device: fi.Device, Inode: fi.Inode}
	if !fi.Mode.IsDir() {
		id.Modified = fi.Modified.UnixNano()
	}
	return id
}

// removeCreated removes created files and directories, in reverse order, if they are unchanged. Directories that hold
// other files stay.
func (p *putting) unmake(ctx context.Context, made []madeEntry) error {
	for _, e := range made {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if e.Narrow {
			// A failure shows up when the directory is emptied.
			_ = p.ifThere(e, func(in *guard.Folder, name string) error { return in.Widen(name) })
		}
	}
	var errs []error
	for _, e := range slices.Backward(made) {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		errs = append(errs, p.ifThere(e, func(in *guard.Folder, name string) error {
			err := in.Writable(func() error { return in.Remove(name) })
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !(e.Dir && notEmpty(err)) {
				return about("remove", e.Path, err)
			}
			return nil
		}))
	}
	return errors.Join(errs...)
}

// withCreated calls do for a created file or directory, if it is still there and unchanged.
func (p *putting) ifThere(e madeEntry, do func(in *guard.Folder, name string) error) error {
	dir, name := path.Split(e.Path)
	in, err := p.at(path.Clean(dir))
	if err != nil {
		return unlessGone(err) // never created, or removed by another program
	}
	if fi, err := in.Lstat(name); err == nil && identify(fi) == e.identity {
		return do(in, name)
	}
	return nil
}

// openTargetCached is openTarget that keeps its last result open, because consecutive entries share a directory.
func (p *putting) at(dir string) (*guard.Folder, error) {
	if p.last != nil && p.lastDir == dir {
		return p.last, nil
	}
	next, err := p.find(dir)
	if err != nil {
		return nil, err
	}
	if p.last != nil {
		err = p.last.Close()
	}
	p.last, p.lastDir = next, dir
	return next, err
}

func notEmpty(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)
}

// restoreReplaced moves replaced files back to their paths, unless these are in use again. A file whose directory is
// gone is not restored: without the put it would be gone as well.
func (p *putting) restore(ctx context.Context, aside *guard.Folder) error {
	return eachAside(ctx, aside, (*guard.Folder).FindForce, func(in *guard.Folder, dir, name string) error {
		at, err := p.at(dir)
		if err != nil {
			return unlessGone(err)
		}
		if _, err = at.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			err = at.Writable(func() error { return in.Writable(func() error { return in.Move(name, at) }) })
		}
		return unlessGone(err)
	})
}

// walkReplaced visits all replaced files in stage/old. It skips entries that no put can have created, by their name
// or depth. It keeps one directory open at a time, at any depth.
func eachAside(ctx context.Context, aside *guard.Folder, find func(*guard.Folder, string) (*guard.Folder, error), visit func(in *guard.Folder, dir, name string) error) error {
	var errs []error
	c := cursor{top: aside, find: find}
	stack := []string{"."}
	for len(stack) > 0 {
		dir := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		in, err := c.to(dir)
		if err != nil {
			errs = append(errs, unlessGone(err))
			continue
		}
		names, err := in.Names()
		errs = append(errs, err)
		for _, name := range names {
			if err := context.Cause(ctx); err != nil {
				return errors.Join(err, c.close())
			}
			fi, err := in.Lstat(name)
			switch there := path.Join(dir, name); {
			case err != nil:
				errs = append(errs, unlessGone(err))
			case refusal(name) != "" || refusal(there) != "":
			case fi.Mode.IsDir():
				stack = append(stack, there)
			default:
				errs = append(errs, visit(in, dir, name))
			}
		}
	}
	return errors.Join(append(errs, c.close())...)
}

// ignoreMissing returns nil for an error that means that the directory does not exist, and otherwise the error.
func unlessGone(err error) error {
	var confined *guard.ConfinementError // another file type is in its place
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.As(err, &confined) {
		return nil
	}
	return err
}

// listStages lists the names of all stages, including those of running puts and those that are gone.
func (p *putting) stages() ([]string, error) {
	names, err := p.agency.Names()
	var found []string
	for _, name := range names {
		if !strings.HasPrefix(name, stagePrefix) && !strings.HasPrefix(name, gonePrefix) {
			continue
		}
		if fi, err := p.agency.Lstat(name); err == nil && fi.Mode.IsDir() {
			found = append(found, name)
		}
	}
	return found, err
}

// recoverStages undoes killed puts and removes the stages of completed ones. The caller holds the lock. A stage that
// fails does not stop it from handling the others.
func (p *putting) recover(ctx context.Context) error {
	stages, err := p.stages()
	errs := []error{err}
	for _, name := range stages {
		if name == p.name {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		errs = append(errs, p.inDeadStage(ctx, name, func(stage *guard.Folder) error { return p.recoverStage(ctx, stage, name) }))
	}
	return errors.Join(errs...)
}

// withDeadStage calls do with a stage, unless the process that owns it lives.
func (p *putting) inDeadStage(ctx context.Context, name string, do func(stage *guard.Folder) error) (err error) {
	stage, err := p.agency.Force(name)
	if err != nil {
		return unlessGone(err) // just removed by its owner
	}
	defer func() { err = errors.Join(err, stage.Close()) }()
	handle, err := stage.Handle()
	if err != nil {
		return err
	}
	var alive *lock.TimeoutError
	if err := lock.ClearOpen(ctx, handle, 0); errors.As(err, &alive) {
		return nil
	} else if err != nil {
		return err
	}
	defer handle.Close()
	return do(stage)
}

func (p *putting) recoverStage(ctx context.Context, stage *guard.Folder, name string) error {
	if !strings.HasPrefix(name, gonePrefix) {
		err := p.undoStage(ctx, stage)
		if cause := context.Cause(ctx); cause != nil {
			return cause // the next call continues
		}
		if err != nil {
			return &LeftError{Stage: path.Join(p.tree.Path, stage.Path), Files: replaced(ctx, stage), Err: err}
		}
	}
	return p.remove(name)
}

// undoStage removes what the plan says was created and restores the replaced files.
func (p *putting) undoStage(ctx context.Context, stage *guard.Folder) error {
	made, err := readPlan(ctx, stage)
	if err != nil {
		return err
	}
	err = p.unmake(ctx, made)
	aside, enterErr := stage.Force(asideName)
	if enterErr != nil { // killed before this was created
		return errors.Join(err, unlessGone(enterErr))
	}
	return errors.Join(err, p.restore(ctx, aside), aside.Close())
}

// countReplaced counts the replaced files that a stage holds.
func replaced(ctx context.Context, stage *guard.Folder) (n int) {
	aside, err := stage.Enter(asideName)
	if err != nil {
		return 0
	}
	defer aside.Close()
	_ = eachAside(ctx, aside, (*guard.Folder).Find, func(*guard.Folder, string, string) error { n++; return nil }) // counts what is readable
	return n
}

// readPlan reads the plan of a killed put; it returns nothing if the put was killed before writing one. It ignores a
// file that is not a valid plan, that names paths no put can create, or that may not be read: a put did not write it.
func readPlan(ctx context.Context, stage *guard.Folder) ([]madeEntry, error) {
	f, err := stage.Read(planName)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) { // ENXIO: a socket
			err = nil
		}
		return nil, unlessGone(err)
	}
	defer f.Close()
	made, err := decodePlan(ctx, io.LimitReader(f, largestPlan))
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	var failed *fs.PathError
	if errors.As(err, &failed) { // a read error
		return nil, err
	}
	if err != nil {
		return nil, nil
	}
	return made, nil
}

// decodePlan decodes a plan entry by entry and stops at the first invalid one, to bound the cost of a forged file.
func decodePlan(ctx context.Context, from io.Reader) (made []madeEntry, err error) {
	forged := errors.New("no plan")
	decoder := json.NewDecoder(from)
	decoder.DisallowUnknownFields()
	for _, want := range []json.Token{json.Delim('{'), "made", json.Delim('[')} {
		if token, err := decoder.Token(); err != nil {
			return nil, err
		} else if token != want {
			return nil, forged
		}
	}
	for decoder.More() {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		var e madeEntry
		if err := decoder.Decode(&e); err != nil {
			return nil, err
		}
		if clean, err := guard.CleanPath(e.Path); err != nil || clean != e.Path || clean == "." {
			return nil, forged
		}
		made = append(made, e)
	}
	for _, want := range []json.Token{json.Delim(']'), json.Delim('}')} { // missing when it was longer than the limit
		if token, err := decoder.Token(); err != nil {
			return nil, err
		} else if token != want {
			return nil, forged
		}
	}
	return made, nil
}
