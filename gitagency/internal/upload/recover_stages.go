package upload

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"syscall"

	"github.com/git-agency/git-agency/gitagency/internal/guard"
)

// maxPlanBytes is more than a few hundred thousand files need. Programs in the tree can write plans as well, and must
// not be able to keep their readers busy.
const maxPlanBytes = 32 << 20

// planFile is plan.json.
type planFile struct {
	Created []createdEntry `json:"made"`
}

// createdEntry is a file or directory created by a put, at an unused path or in place of a replaced file.
type createdEntry struct {
	Path            string `json:"path"`
	Dir             bool   `json:"dir,omitempty"`
	OwnerRestricted bool   `json:"narrow,omitempty"` // final mode of the directory denies its owner write access
	identity
}

// listStages lists the names of all stages, including those of running puts and those that are gone.
func (p *putOp) listStages() ([]string, error) {
	names, err := p.agencyDir.Names()
	var found []string
	for _, name := range names {
		if !strings.HasPrefix(name, stagePrefix) && !strings.HasPrefix(name, gonePrefix) {
			continue
		}
		if fi, err := p.agencyDir.Lstat(name); err == nil && fi.Mode.IsDir() {
			found = append(found, name)
		}
	}
	return found, err
}

// recoverStages undoes killed puts and removes the stages of completed ones. The caller holds the lock. A stage that
// fails does not stop it from handling the others.
func (p *putOp) recoverStages(ctx context.Context) error {
	stages, err := p.listStages()
	errs := []error{err}
	for _, name := range stages {
		if name == p.stageName {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		errs = append(errs, p.withDeadStage(ctx, name, func(stage *guard.DirHandle) error { return p.recoverStage(ctx, stage, name) }))
	}
	return errors.Join(append(errs, p.removeStaleLocks(ctx))...)
}

// withDeadStage calls do with a stage, unless the process that owns it lives.
func (p *putOp) withDeadStage(ctx context.Context, name string, do func(stage *guard.DirHandle) error) (err error) {
	stage, err := p.agencyDir.OpenDirForce(name)
	if err != nil {
		return ignoreMissing(err) // just removed by its owner
	}
	defer func() { err = errors.Join(err, stage.Close()) }()
	held, alive, err := p.lockDeadStage(ctx, name)
	if alive || err != nil {
		return err
	}
	if held != nil {
		defer held.Close()
	}
	return do(stage)
}

func (p *putOp) recoverStage(ctx context.Context, stage *guard.DirHandle, name string) error {
	if !strings.HasPrefix(name, gonePrefix) {
		err := p.undoStage(ctx, stage)
		if cause := context.Cause(ctx); cause != nil {
			return cause // the next call continues
		}
		if err != nil {
			return &IncompleteUndoError{Stage: path.Join(p.tree.Path, stage.Path), Files: countReplaced(ctx, stage), Err: err}
		}
	}
	return p.retireStage(name)
}

// undoStage removes what the plan says was created and restores the replaced files.
func (p *putOp) undoStage(ctx context.Context, stage *guard.DirHandle) error {
	made, err := readPlan(ctx, stage)
	if err != nil {
		return err
	}
	err = p.removeCreated(ctx, made)
	aside, enterErr := stage.OpenDirForce(oldDirName)
	if enterErr != nil { // killed before this was created
		return errors.Join(err, ignoreMissing(enterErr))
	}
	return errors.Join(err, p.restoreReplaced(ctx, aside), aside.Close())
}

// countReplaced counts the replaced files that a stage holds.
func countReplaced(ctx context.Context, stage *guard.DirHandle) (n int) {
	aside, err := stage.OpenDir(oldDirName)
	if err != nil {
		return 0
	}
	defer aside.Close()
	_ = walkReplaced(ctx, aside, (*guard.DirHandle).OpenPath, func(*guard.DirHandle, string, string) error { n++; return nil }) // counts what is readable
	return n
}

// readPlan reads the plan of a killed put; it returns nothing if the put was killed before writing one. It ignores a
// file that is not a valid plan, that names paths no put can create, or that may not be read: a put did not write it.
func readPlan(ctx context.Context, stage *guard.DirHandle) ([]createdEntry, error) {
	f, err := stage.OpenFile(planName)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) { // ENXIO: a socket
			err = nil
		}
		return nil, ignoreMissing(err)
	}
	defer f.Close()
	made, err := decodePlan(ctx, io.LimitReader(f, maxPlanBytes))
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
func decodePlan(ctx context.Context, from io.Reader) (made []createdEntry, err error) {
	forged := errors.New("invalid plan")
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
		var e createdEntry
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
