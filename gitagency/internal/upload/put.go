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
	"github.com/git-agency/git-agency/gitagency/internal/undo"
)

// A put prepares all files in a stage, a directory in the tree that git ignores:
//
//	.agency/put-<key>/new/…        the new files, in their final layout; new directories are moved as a whole
//	.agency/put-<key>/old/…        replaced files, at their original paths
//	.agency/put-<key>/plan.json    the paths that the put creates; once it exists there may be something to undo
//	.agency/gone-<key>-<random>    a stage whose put is complete or undone
//
// A gone stage holds nothing of value and can be deleted in any order.
//
// Locks tell a running put from a killed one, and keep two puts from moving files at the same time; see Target.
const (
	stagePrefix = "put-"
	gonePrefix  = "gone-"
	newDirName  = "new"
	oldDirName  = "old"
	planName    = "plan.json"
)

// Put puts files into the tree, all of them, or none when anything fails or ctx ends: then the tree is as it was,
// with the same inodes. An existing file is replaced and never written to, so that a symlink to a path outside, or a
// hard link, does no harm. Put rolls back the steps of tx itself, while it still holds the lock against other puts.
// progress, if not nil, is called as files are staged.
func Put(ctx context.Context, to Target, tx *undo.Tx, files []File, progress func(Progress)) (err error) {
	p := newPutOp(to)
	p.progress, p.touched = progress, map[string]identity{}
	defer func() {
		if err != nil {
			tx.Rollback(context.WithoutCancel(ctx)) // tx logs rollback errors
		}
		err = errors.Join(err, p.close())
	}()
	// 1. Check the names, and the files that exist. Nothing is written if this fails.
	if err := tx.Step(ctx, "check", func() error { return p.checkFiles(files) }); err != nil {
		return err
	}
	// 2. Open the stage, after undoing killed puts.
	if err := tx.Step(ctx, "open", func() error { return p.openStage(ctx, tx) }); err != nil {
		return err
	}
	// 3. Write all files to the stage.
	if err := tx.Step(ctx, "stage", func() error { return p.stageAll(ctx) }); err != nil {
		return err
	}
	// 4. Lock out other puts. Files may have changed since step 1, so check again and write the plan.
	if err := tx.Step(ctx, "plan", func() error { return p.writePlan(ctx) }); err != nil {
		return err
	}
	// 5. Move the files into place.
	tx.Undo("place", p.undoPlaced)
	if err := p.moveIntoPlace(ctx, tx); err != nil {
		return err
	}
	// 6. Commit.
	if err := tx.Step(ctx, "done", func() error { return p.commitPut(tx) }); err != nil {
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
type putOp struct {
	tree        *guard.Tree
	lockDir     string
	lockTimeout time.Duration
	progress    func(Progress)

	batch     *batch
	top       *guard.DirHandle // top directory of the tree
	agencyDir *guard.DirHandle // .agency
	moveLock  *os.File         // lock of moves

	key       string           // random, in the names of the stage and its lock
	stageName string           // name of the stage
	stage     *guard.DirHandle // nil when there is none
	stageLock *os.File         // lock of the stage
	newDir    *guard.DirHandle // stage/new
	oldDir    *guard.DirHandle // stage/old

	created        []*node                     // nodes that the put creates
	touched        map[string]identity         // directories that files were moved to, by path
	openTargets    map[string]*guard.DirHandle // handles of these, by path: for undo, since the path may lead elsewhere by then
	lastTarget     *guard.DirHandle            // result of the last openTargetCached
	lastTargetPath string
	keepStage      bool // the stage holds files that could not be restored
}

func newPutOp(to Target) *putOp {
	return &putOp{tree: to.Tree, lockDir: to.LockDir, lockTimeout: to.LockTimeout}
}

func (p *putOp) close() error {
	var errs []error
	for _, f := range slices.AppendSeq([]*guard.DirHandle{p.newDir, p.oldDir, p.stage, p.agencyDir, p.top, p.lastTarget}, maps.Values(p.openTargets)) {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(append(errs, p.unlockAll())...)
}

func (p *putOp) checkFiles(files []File) (err error) {
	if p.batch, err = newBatch(p.tree, files); err != nil {
		return err
	}
	if err := p.openAgencyDir(); err != nil {
		return err
	}
	_, err = p.batch.checkAgainstTree(p.top)
	return err
}

func (p *putOp) openAgencyDir() (err error) {
	if p.top, err = p.tree.OpenTop(); err != nil {
		return err
	}
	p.agencyDir, err = p.top.OpenDirForce(guard.AgencyDir)
	return err
}

// recoverOthers is recoverStages for a new put. It ignores errors: a stage that cannot be undone does not block the
// put, and Recover reports it.
func (p *putOp) recoverOthers(ctx context.Context) { _ = p.recoverStages(ctx) }

func (p *putOp) openStage(ctx context.Context, tx *undo.Tx) error {
	if err := p.lockMoves(ctx, p.lockTimeout); err != nil {
		return err
	}
	p.recoverOthers(ctx)
	p.key = randomName()
	p.stageName = stagePrefix + p.key
	if err := p.lockStage(ctx, p.key); err != nil {
		return err
	}
	tx.Undo("stage", func(context.Context) error { return p.removeStage() })
	var err error
	if p.stage, err = p.agencyDir.Mkdir(p.stageName); err != nil {
		return err
	}
	for _, sub := range []struct {
		name string
		to   **guard.DirHandle
	}{{newDirName, &p.newDir}, {oldDirName, &p.oldDir}} {
		if *sub.to, err = p.stage.Mkdir(sub.name); err != nil {
			return err
		}
	}
	return p.unlockMoves()
}

func randomName() string { return strings.ToLower(rand.Text()[:16]) }

// removeStage removes the stage, unless it holds files that could not be restored.
func (p *putOp) removeStage() error {
	if p.keepStage {
		return nil
	}
	return p.retireStage(p.stageName)
}

// retireStage removes a stage that is not needed any more. It renames it to gone-… first, so that nothing is restored
// from a half-removed stage.
func (p *putOp) retireStage(name string) error {
	if !strings.HasPrefix(name, gonePrefix) {
		gone := goneName(name)
		if p.agencyDir.MoveAs(name, p.agencyDir, gone) == nil {
			name = gone
		}
	}
	return p.agencyDir.RemoveAll(name)
}

// goneName returns a new name for a stage that is not needed any more. It keeps the key.
func goneName(stage string) string {
	if match := stageNamePattern().FindStringSubmatch(stage); match != nil {
		return gonePrefix + match[1] + "-" + randomName()
	}
	return gonePrefix + randomName()
}

// writePlan checks the tree again and writes plan.json.
func (p *putOp) writePlan(ctx context.Context) error {
	if err := p.lockMoves(ctx, p.lockTimeout); err != nil {
		return err
	}
	p.recoverOthers(ctx)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	var err error
	if p.created, err = p.batch.checkAgainstTree(p.top); err != nil {
		return err
	}
	data, err := json.Marshal(planFile{p.planEntries()})
	if err != nil {
		return err
	}
	if len(data) > maxPlanBytes {
		return fmt.Errorf("too many files for one put: %d files and directories", len(p.created))
	}
	temporary := planName + "." + randomName() // a name that cannot have been created before
	f, err := p.stage.CreateFile(temporary, 0o600)
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
func (p *putOp) commitPut(tx *undo.Tx) error {
	if err := p.checkTargetsUnmoved(); err != nil {
		return err
	}
	name, gone := p.stageName, goneName(p.stageName)
	if err := p.agencyDir.MoveAs(name, p.agencyDir, gone); err != nil {
		return err
	}
	p.stageName = gone
	tx.Undo("done", func(context.Context) error {
		p.stageName = name
		return p.agencyDir.MoveAs(gone, p.agencyDir, name)
	})
	return nil
}
