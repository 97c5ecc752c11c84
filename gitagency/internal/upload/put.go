// Package upload puts files into a tree that other programs write to at the same time, all or none, and undoes puts
// that were killed halfway. Package guard decides which paths are allowed and is the only way by which it reaches the
// tree. It must not know about invocations or git.
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

// A put prepares all files in a stage, a directory in the tree that git ignores:
//
//	.agency/put-<random>/new/…       the new files, in their final layout; new directories are moved as a whole
//	.agency/put-<random>/old/…       replaced files, at their original paths
//	.agency/put-<random>/plan.json   the paths that the put creates; once it exists there may be something to undo
//	.agency/gone-<random>            a stage whose put is complete or undone
//
// A gone stage holds nothing of value and can be deleted in any order.
//
// A put holds a lock on its stage, which tells a running put from a killed one. It also holds a lock on .agency while
// it moves files, so that no two puts do that at the same time.
const (
	stagePrefix = "put-"
	gonePrefix  = "gone-"
	freshName   = "new"
	asideName   = "old"
	planName    = "plan.json"
)

// Put puts files into the tree, all of them, or none when anything fails or ctx ends: then the tree is as it was,
// with the same inodes. An existing file is replaced and never written to, so that a symlink to a path outside, or a
// hard link, does no harm. Put rolls back the steps of tx itself, while it still holds the lock against other puts.
// progress, if not nil, is called as files are staged.
func Put(ctx context.Context, tree *guard.Tree, tx *undo.Tx, files []File, progress func(Progress)) (err error) {
	p := &putting{tree: tree, progress: progress, touched: map[string]identity{}}
	defer func() {
		if err != nil {
			tx.Rollback(context.WithoutCancel(ctx)) // tx logs rollback errors
		}
		err = errors.Join(err, p.close())
	}()
	// 1. Check the names, and the files that exist. Nothing is written if this fails.
	if err := tx.Step(ctx, "check", func() error { return p.check(files) }); err != nil {
		return err
	}
	// 2. Open the stage, after undoing killed puts.
	if err := tx.Step(ctx, "open", func() error { return p.open(ctx, tx) }); err != nil {
		return err
	}
	// 3. Write all files to the stage.
	if err := tx.Step(ctx, "stage", func() error { return p.stageAll(ctx) }); err != nil {
		return err
	}
	// 4. Lock out other puts. Files may have changed since step 1, so check again and write the plan.
	if err := tx.Step(ctx, "plan", func() error { return p.plan(ctx) }); err != nil {
		return err
	}
	// 5. Move the files into place.
	tx.Undo("place", p.takeBack)
	if err := p.place(ctx, tx); err != nil {
		return err
	}
	// 6. Commit.
	if err := tx.Step(ctx, "done", func() error { return p.done(tx) }); err != nil {
		return err
	}
	tx.Commit()
	_ = p.removeStage() // already marked as gone; the next put tries again
	return nil
}

// Progress is how many files and bytes of a put are staged; see the public UploadProgress of the library.
type Progress struct {
	Files, Total int
	Bytes        int64
}

// putOp is one put in progress.
type putting struct {
	tree     *guard.Tree
	progress func(Progress)

	batch  *batch
	top    *guard.Folder // top directory of the tree
	agency *guard.Folder // .agency
	locked *os.File      // holds the lock on .agency

	name  string        // name of the stage
	stage *guard.Folder // nil when there is none
	alive *os.File      // holds the lock on the stage
	fresh *guard.Folder // stage/new
	aside *guard.Folder // stage/old

	made    []*node                  // nodes that the put creates
	touched map[string]identity      // directories that files were moved to, by path
	held    map[string]*guard.Folder // handles of these, by path: for undo, since the path may lead elsewhere by then
	last    *guard.Folder            // result of the last openTargetCached
	lastDir string
	kept    bool // the stage holds files that could not be restored
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

// lockMoves waits until no other put moves files in the tree.
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

// recoverOthers is recoverStages for a new put. It ignores errors: a stage that cannot be undone does not block the
// put, and Recover reports it.
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
		p.alive = nil // closed by the failed call
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

// removeStage removes the stage, unless it holds files that could not be restored.
func (p *putting) removeStage() error {
	if p.kept {
		return nil
	}
	return p.remove(p.name)
}

// retireStage removes a stage that is not needed any more. It renames it to gone-… first, so that nothing is restored
// from a half-removed stage.
func (p *putting) remove(name string) error {
	if !strings.HasPrefix(name, gonePrefix) {
		gone := gonePrefix + randomName()
		if p.agency.MoveAs(name, p.agency, gone) == nil {
			name = gone
		}
	}
	return p.agency.RemoveAll(name)
}

// writePlan checks the tree again and writes plan.json.
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
	temporary := planName + "." + randomName() // a name that cannot have been created before
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

// commitPut renames the stage to gone-…, which is the commit point of the put.
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
