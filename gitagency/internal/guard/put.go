package guard

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// A put prepares everything in a stage, a directory of its own in the tree, where git does not see it:
//
//	.agency/put-<random>/new/…       what is put, as the tree it will be; whole directories move at once
//	.agency/put-<random>/old/…       what it takes the place of, at the paths it had
//	.agency/put-<random>/plan.json   what moving makes; from then on there is something to take back
//	.agency/put-<random>/done.json   the same, when all of it is in its place
//
// Whoever puts holds a lock on its stage, by which a living one is told from one that was killed; and one
// on .agency for as long as things move, so that two never do at once.
const (
	stagePrefix = "put-"
	freshName   = "new"
	asideName   = "old"
	planName    = "plan.json"
	doneName    = "done.json"
)

// Put puts files into the tree, all of them or, when anything fails or ctx ends, none: then the tree is as it
// was, down to the inodes. What is in the way of a file is replaced and never written to, so that a
// link that leads out, or a second name elsewhere, does no harm. The steps of tx are its own, and rolled back
// here, while nobody else moves anything. progress, if not nil, hears how many files are prepared.
func (t *Tree) Put(ctx context.Context, tx *undo.Tx, files []File, progress func(done, total int)) (err error) {
	p := &putting{tree: t, progress: progress}
	defer func() {
		if err != nil {
			tx.Rollback(context.WithoutCancel(ctx)) // what fails there was logged
		}
		err = errors.Join(err, p.close())
	}()
	// 1. Names, and what is there. Nothing is written if this fails.
	if err := tx.Step(ctx, "check", func() error { return p.check(files) }); err != nil {
		return err
	}
	// 2. The stage, as soon as nothing is left of those that were killed.
	if err := tx.Step(ctx, "open", func() error { return p.open(ctx, tx) }); err != nil {
		return err
	}
	// 3. Everything is written, where nobody looks.
	if err := tx.Step(ctx, "stage", func() error { return p.stageAll(ctx) }); err != nil {
		return err
	}
	// 4. From here on nobody else moves anything. Time has passed: what is there is looked at again.
	if err := tx.Step(ctx, "plan", func() error { return p.plan(ctx) }); err != nil {
		return err
	}
	// 5. It moves into place.
	tx.Undo("place", func(context.Context) error { return p.takeBack() })
	if err := p.place(ctx, tx); err != nil {
		return err
	}
	// 6. The commit point.
	if err := tx.Step(ctx, "done", p.done); err != nil {
		return err
	}
	tx.Commit()
	_ = p.removeStage() // it is known to be done with; whoever comes next tries again
	return nil
}

// putting is a put under way.
type putting struct {
	tree     *Tree
	progress func(done, total int)

	batch  *batch
	top    *folder  // the tree
	agency *folder  // its .agency
	locked *os.File // holds the lock on that

	name  string   // of the stage
	stage *folder  // nil when there is none
	alive *os.File // holds the lock on the stage
	fresh *folder  // stage/new
	aside *folder  // stage/old

	made []*node            // what moving makes
	held map[string]*folder // where something was moved to, by path: the path may lead elsewhere when it is to be taken back
	kept bool               // the stage holds something that could not be put back
}

func (p *putting) close() error {
	var errs []error
	for _, f := range slices.AppendSeq([]*folder{p.fresh, p.aside, p.stage, p.agency, p.top}, maps.Values(p.held)) {
		if f != nil {
			errs = append(errs, f.close())
		}
	}
	for _, f := range []*os.File{p.alive, p.locked} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

func (p *putting) check(files []File) (err error) {
	if p.batch, err = p.tree.newBatch(files); err != nil {
		return err
	}
	if err := p.openAgency(); err != nil {
		return err
	}
	_, err = p.batch.check(p.batch.top, p.top, nil)
	return err
}

func (p *putting) openAgency() (err error) {
	if p.top, err = p.tree.top(); err != nil {
		return err
	}
	p.agency, err = p.top.enter(Dir)
	return err
}

// lock waits until nobody else moves anything in the tree.
func (p *putting) lock(ctx context.Context, timeout time.Duration) error {
	dir, err := p.agency.root.Open(".")
	if err != nil {
		return err
	}
	if err := lock.ClearOpen(ctx, dir, timeout); err != nil {
		return fmt.Errorf("wait for another put: %w", err)
	}
	p.locked = dir
	return nil
}

func (p *putting) unlock() error {
	err := p.locked.Close()
	p.locked = nil
	return err
}

func (p *putting) open(ctx context.Context, tx *undo.Tx) error {
	if err := p.lock(ctx, -1); err != nil {
		return err
	}
	if err := p.recover(ctx); err != nil {
		return err
	}
	name := stagePrefix + strings.ToLower(rand.Text()[:16])
	if err := p.agency.root.Mkdir(name, 0o700); err != nil {
		return plainly("make", path.Join(Dir, name), err)
	}
	p.name = name
	tx.Undo("stage", func(context.Context) error { return p.removeStage() })
	var err error
	if p.stage, err = p.agency.enter(name); err != nil {
		return err
	}
	if p.alive, err = p.stage.root.Open("."); err != nil {
		return err
	}
	if err := lock.ClearOpen(ctx, p.alive, 0); err != nil {
		p.alive = nil // was closed
		return err
	}
	for _, sub := range []struct {
		name string
		to   **folder
	}{{freshName, &p.fresh}, {asideName, &p.aside}} {
		if *sub.to, err = p.stage.make(sub.name); err != nil {
			return err
		}
	}
	return p.unlock()
}

// make makes a directory and opens it.
func (f *folder) make(name string) (*folder, error) {
	if err := f.root.Mkdir(name, 0o700); err != nil {
		return nil, plainly("make", path.Join(f.path, name), err)
	}
	return f.enter(name)
}

// removeStage removes the stage, unless it holds what should be elsewhere.
func (p *putting) removeStage() error {
	if p.kept {
		return nil
	}
	return removeAll(p.agency, p.name)
}

// removeAll removes a directory of a folder, also where somebody took his own permissions away.
func removeAll(f *folder, name string) error {
	err := f.root.RemoveAll(name)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if err := widen(f, name); err != nil {
		return err
	}
	return f.root.RemoveAll(name)
}

// widen lets the owner into a directory and all below it.
func widen(f *folder, name string) error {
	if err := f.root.Chmod(name, 0o700); err != nil {
		return err
	}
	sub, err := f.enter(name)
	if err != nil {
		return err
	}
	entries, err := sub.dir.ReadDir(-1)
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, widen(sub, e.Name()))
		}
	}
	return errors.Join(err, sub.close())
}

// plan writes down what will be made.
func (p *putting) plan(ctx context.Context) error {
	if err := p.lock(ctx, -1); err != nil {
		return err
	}
	if err := p.recover(ctx); err != nil {
		return err
	}
	var err error
	if p.made, err = p.batch.check(p.batch.top, p.top, nil); err != nil {
		return err
	}
	data, err := json.Marshal(planFile{p.entries()})
	if err != nil {
		return err
	}
	const temporary = planName + ".tmp"
	if err := p.stage.root.WriteFile(temporary, data, 0o600); err != nil {
		return plainly("write", path.Join(p.stage.path, planName), err)
	}
	return p.stage.root.Rename(temporary, planName)
}

// done is the point from which on the put has happened.
func (p *putting) done() error { return p.stage.root.Rename(planName, doneName) }
