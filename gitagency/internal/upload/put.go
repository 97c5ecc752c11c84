// Package upload puts files into a tree that others write in as well, all of them or none, and takes back what
// puts that were killed left half done. What may be put where is the business of guard, through which alone it
// reaches the tree; it knows nothing of invocations or git.
package upload

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
	"github.com/git-agency/git-agency/gitagency/internal/lock"
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// A put prepares everything in a stage, a directory of its own in the tree, where git does not see it:
//
//	.agency/put-<random>/new/…       what is put, as the tree it will be; whole directories move at once
//	.agency/put-<random>/old/…       what it takes the place of, at the paths it had
//	.agency/put-<random>/plan.json   what moving makes; from then on there is something to take back
//	.agency/gone-<random>            the whole stage, when all of it is in its place or taken back
//
// What is gone holds nothing that anybody needs, in whichever order it is removed.
//
// Whoever puts holds a lock on its stage, by which a living one is told from one that was killed; and one
// on .agency for as long as things move, so that two never do at once.
const (
	stagePrefix = "put-"
	gonePrefix  = "gone-"
	freshName   = "new"
	asideName   = "old"
	planName    = "plan.json"
)

// Put puts files into the tree, all of them or, when anything fails or ctx ends, none: then the tree is as it
// was, down to the inodes. What is in the way of a file is replaced and never written to, so that a
// link that leads out, or a second name elsewhere, does no harm. The steps of tx are its own, and rolled back
// here, while nobody else moves anything. progress, if not nil, hears how much is prepared.
func Put(ctx context.Context, tree *guard.Tree, tx *undo.Tx, files []File, progress func(Progress)) (err error) {
	p := &putting{tree: tree, progress: progress, touched: map[string]identity{}}
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
	tx.Undo("place", p.takeBack)
	if err := p.place(ctx, tx); err != nil {
		return err
	}
	// 6. The commit point.
	if err := tx.Step(ctx, "done", func() error { return p.done(tx) }); err != nil {
		return err
	}
	tx.Commit()
	_ = p.removeStage() // it is known to be done with; whoever comes next tries again
	return nil
}

// Progress is how far a put is, as the library's UploadProgress says it.
type Progress struct {
	Files, Total int
	Bytes        int64
}

// putting is a put under way.
type putting struct {
	tree     *guard.Tree
	progress func(Progress)

	batch  *batch
	top    *guard.Folder // the tree
	agency *guard.Folder // its .agency
	locked *os.File      // holds the lock on that

	name  string        // of the stage
	stage *guard.Folder // nil when there is none
	alive *os.File      // holds the lock on the stage
	fresh *guard.Folder // stage/new
	aside *guard.Folder // stage/old

	made    []*node                  // what moving makes
	touched map[string]identity      // where something was moved to, by path
	held    map[string]*guard.Folder // where something was moved to, by path: the path may lead elsewhere when it is to be taken back
	last    *guard.Folder            // what at has opened last
	lastDir string
	kept    bool // the stage holds something that could not be put back
}

func (p *putting) close() error {
	var errs []error
	for _, f := range slices.AppendSeq([]*guard.Folder{p.fresh, p.aside, p.stage, p.agency, p.top, p.last}, maps.Values(p.held)) {
		if f != nil {
			errs = append(errs, f.Close())
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
	if p.batch, err = newBatch(p.tree, files); err != nil {
		return err
	}
	if err := p.openAgency(); err != nil {
		return err
	}
	_, err = p.batch.check(p.top)
	return err
}

func (p *putting) openAgency() (err error) {
	if p.top, err = p.tree.Top(); err != nil {
		return err
	}
	p.agency, err = p.top.Force(guard.Dir)
	return err
}

// lock waits until nobody else moves anything in the tree.
func (p *putting) lock(ctx context.Context, timeout time.Duration) error {
	dir, err := p.agency.Handle()
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

// recoverOthers is recover for one who has work of his own: what he cannot undo is in nobody's way, and whoever
// calls Recover hears of it.
func (p *putting) recoverOthers(ctx context.Context) { _ = p.recover(ctx) }

func (p *putting) open(ctx context.Context, tx *undo.Tx) error {
	if err := p.lock(ctx, -1); err != nil {
		return err
	}
	p.recoverOthers(ctx)
	name := stagePrefix + randomName()
	p.name = name
	tx.Undo("stage", func(context.Context) error { return p.removeStage() })
	var err error
	if p.stage, err = p.agency.Make(name); err != nil {
		return err
	}
	if p.alive, err = p.stage.Handle(); err != nil {
		return err
	}
	if err := lock.ClearOpen(ctx, p.alive, 0); err != nil {
		p.alive = nil // was closed
		return err
	}
	for _, sub := range []struct {
		name string
		to   **guard.Folder
	}{{freshName, &p.fresh}, {asideName, &p.aside}} {
		if *sub.to, err = p.stage.Make(sub.name); err != nil {
			return err
		}
	}
	return p.unlock()
}

func randomName() string { return strings.ToLower(rand.Text()[:16]) }

// removeStage removes the stage, unless it holds what should be elsewhere.
func (p *putting) removeStage() error {
	if p.kept {
		return nil
	}
	return p.remove(p.name)
}

// remove removes a stage that nobody needs any more, and says so first: whoever comes upon half of it restores
// nothing from there.
func (p *putting) remove(name string) error {
	if !strings.HasPrefix(name, gonePrefix) {
		gone := gonePrefix + randomName()
		if p.agency.MoveAs(name, p.agency, gone) == nil {
			name = gone
		}
	}
	return p.agency.RemoveAll(name)
}

// plan writes down what will be made.
func (p *putting) plan(ctx context.Context) error {
	if err := p.lock(ctx, -1); err != nil {
		return err
	}
	p.recoverOthers(ctx)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	var err error
	if p.made, err = p.batch.check(p.top); err != nil {
		return err
	}
	data, err := json.Marshal(planFile{p.entries()})
	if err != nil {
		return err
	}
	if len(data) > largestPlan {
		return fmt.Errorf("too many to put at once: %d files and directories", len(p.made))
	}
	temporary := planName + "." + randomName() // one that nobody has taken before us
	f, err := p.stage.Create(temporary, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return p.stage.MoveAs(temporary, p.stage, planName)
}

// done is the point from which on the put has happened.
func (p *putting) done(tx *undo.Tx) error {
	if err := p.settled(); err != nil {
		return err
	}
	name, gone := p.name, gonePrefix+randomName()
	if err := p.agency.MoveAs(name, p.agency, gone); err != nil {
		return err
	}
	p.name = gone
	tx.Undo("done", func(context.Context) error {
		p.name = name
		return p.agency.MoveAs(gone, p.agency, name)
	})
	return nil
}
