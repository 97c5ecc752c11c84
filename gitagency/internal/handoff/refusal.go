package handoff

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"time"

	"github.com/git-agency/git-agency/gitagency/internal/core"
	"github.com/git-agency/git-agency/gitagency/internal/durable"
	"github.com/git-agency/git-agency/gitagency/internal/fault"
	"github.com/git-agency/git-agency/gitagency/internal/git"
	"github.com/git-agency/git-agency/gitagency/internal/readlimit"
)

// refusal is the saved reason why git state of the sandbox was refused, for 'show' and 'doctor'. If Exceeded is set, or
// before Until, no command spends the same work on the same pack again: it holds for one state of the sandbox, or for the
// same pack in another state, and for the limits that were in force.
type refusal struct {
	UpperFingerprint string           `json:"layer"`
	Pack             string           `json:"pack"` // SHA-256 of the commit and the pack; empty when unknown
	Limits           readlimit.Limits `json:"limits"`

	Exceeded *readlimit.ExceededError `json:"exceeded,omitempty"`
	Reason   string                   `json:"reason,omitempty"` // of another refusal
	Until    time.Time                `json:"until,omitzero"`   // the pack is not checked again before

	Tip      string `json:"tip,omitempty"` // these are as in fault.ImportError
	Path     string `json:"path,omitempty"`
	Diverged bool   `json:"diverged,omitempty"`
}

func (e *Exchange) refusalPath() string {
	return filepath.Join(filepath.Dir(e.statePath()), "refused.json")
}

// SavedRefusal returns why the last import of git state from a sandbox was refused; nil if it was not, or if the sandbox
// or the limits that it exceeded have changed since.
func SavedRefusal(r *core.Repository, id string) (*fault.ImportError, error) {
	e := New(r, id)
	if refused, err := e.savedRefusal(); refused != nil || err != nil || e.isOutside() || !r.IsClone(id) {
		return refused, err
	}
	return NewOf(r, id, r.CloneGitDir(id)).savedRefusal()
}

// savedRefusal is SavedRefusal for one git directory of a sandbox.
func (e *Exchange) savedRefusal() (*fault.ImportError, error) {
	saved, err := e.readRefusal()
	if err != nil || saved == nil || saved.Exceeded != nil && saved.Limits != e.repo.Git.ReadLimits {
		return nil, err
	}
	layer, err := e.FingerprintUpper()
	if err != nil || layer != saved.UpperFingerprint {
		return nil, err
	}
	return &fault.ImportError{ID: e.id, OfSandbox: true, Tip: saved.Tip, Path: saved.Path, Diverged: saved.Diverged, InClone: e.isOutside(), Err: saved.err()}, nil
}

// NewImportError returns the error of an import with its cause.
func (e *Exchange) NewImportError(err error) *fault.ImportError {
	f := &fault.ImportError{ID: e.id, OfSandbox: e.IsSandboxFault(err), Diverged: fault.Is[*DivergedError](err), InClone: e.isOutside(), Err: err}
	var tree *fault.InvalidTreeError
	if errors.As(err, &tree) {
		f.Path = tree.Path
	}
	if tree != nil || fault.Is[*fault.InvalidCommitError](err) {
		f.Tip = e.importTip
	}
	return f
}

// readRefusal reads the saved refusal; nil when there is none.
func (e *Exchange) readRefusal() (*refusal, error) {
	data, err := durable.ReadFile(e.refusalPath(), 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var saved refusal
	if err != nil || json.Unmarshal(data, &saved) != nil {
		return nil, err // the next refusal replaces one that cannot be parsed
	}
	return &saved, nil
}

// loadRefusal loads the saved refusal, if there is one that still holds, and returns its error if it is about this state
// of the upper directory, which is about to be imported.
func (e *Exchange) loadRefusal(layer string) error {
	e.layer, e.refused = layer, nil
	saved, err := e.readRefusal()
	if e.refusalSaved = saved != nil; !e.refusalSaved {
		return err
	}
	if saved.Limits != e.repo.Git.ReadLimits || saved.Exceeded == nil && e.repo.Now().After(saved.Until) {
		return nil // the next refusal replaces it
	}
	if e.refused = saved; saved.UpperFingerprint == layer {
		return saved.err()
	}
	return nil
}

func (r *refusal) err() error {
	if r.Exceeded != nil {
		return r.Exceeded
	}
	return &GitError{errors.New(r.Reason)}
}

// checkNotRefused returns the error of the saved refusal, if it is about this pack.
func (e *Exchange) checkNotRefused(pack *packStream) error {
	if e.refused == nil {
		return nil
	}
	sum, err := pack.sum()
	if err != nil || sum != e.refused.Pack {
		return err
	}
	return e.refused.err()
}

// saveRefusal saves why a pack, which is nil if not all of it was read, was refused after some time, if the next try
// would end in the same way: it exceeds a limit. A failure of git may have another cause, such as a full disk, and is
// tried again; but not at once if it took long.
func (e *Exchange) saveRefusal(pack *packStream, reason error, took time.Duration) error {
	const long, wait = 5 * time.Second, 10 // a tenth of the time is spent on tries
	r := refusal{UpperFingerprint: e.layer, Limits: e.repo.Git.ReadLimits}
	var failed *git.Error
	switch {
	case errors.As(reason, &r.Exceeded):
	case errors.As(reason, &failed) && took > long:
		r.Reason, r.Until = reason.Error(), e.repo.Now().Add(wait*took)
	default:
		return nil
	}
	if pack != nil {
		sum, err := pack.sum()
		if err != nil {
			return err
		}
		r.Pack = sum
	}
	e.refused = &r
	return e.writeRefusal(&r)
}

// saveFailure saves why the import of this state of the upper directory failed, if the sandbox is the cause. Unlike a
// refusal of its pack, that does not keep the next command from trying again.
func (e *Exchange) saveFailure(err error) error {
	if r := e.refused; r != nil && (r.Exceeded != nil && exceedsLimit(err) || r.err().Error() == err.Error()) {
		if r.UpperFingerprint == e.layer {
			return nil
		}
		now := *r // the same pack in another state
		now.UpperFingerprint = e.layer
		return e.writeRefusal(&now)
	}
	f := e.NewImportError(err)
	if !f.OfSandbox {
		return nil
	}
	return e.writeRefusal(&refusal{
		UpperFingerprint: e.layer, Limits: e.repo.Git.ReadLimits, Reason: err.Error(), Tip: f.Tip, Path: f.Path, Diverged: f.Diverged,
	})
}

func (e *Exchange) writeRefusal(r *refusal) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	e.refusalSaved = true
	return durable.WriteFile(e.refusalPath(), append(data, '\n'), 0o600)
}

// dropRefusal removes the saved refusal, also one that did not hold any more, after a successful import.
func (e *Exchange) dropRefusal() error {
	if !e.refusalSaved {
		return nil
	}
	e.refused, e.refusalSaved = nil, false
	return durable.Remove(e.refusalPath())
}

// sum returns the SHA-256 of the commit and the pack.
func (p *packStream) sum() (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(p.spool, 0, math.MaxInt64)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// exceedsLimit reports whether an import failed because of agency.readLimits.
func exceedsLimit(err error) bool { return fault.Is[*readlimit.ExceededError](err) }
